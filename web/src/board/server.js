// Client of the board's server: requests, and events that the server pushes.
const token = new URLSearchParams(window.location.search).get('token');

// The key that permits changes. The program prints it in the board's address after the #, which neither servers nor
// other sites see. It is kept for other tabs and removed from the address, so that a copied link does not contain it.
const keyName = 'some-board-key';
let key = '';

export function takeKey() {
  const words = new URLSearchParams(window.location.hash.slice(1));
  key = words.get('key') ?? '';
  try {
    if (key) window.localStorage.setItem(keyName, key);
    else key = window.localStorage.getItem(keyName) ?? '';
  } catch {
    // The browser keeps nothing for this page.
  }
  if (!words.has('key')) return;
  words.delete('key');
  const rest = words.toString();
  const { pathname, search } = window.location;
  window.history.replaceState(null, '', pathname + search + (rest ? `#${rest}` : ''));
}

export const mayChange = () => key !== '';

export function address(path, question = {}) {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(question)) {
    if (value !== undefined && value !== null && value !== '' && value !== false) words.set(key, String(value));
  }
  if (token) words.set('token', token);
  const text = words.toString();
  return text ? `${path}?${text}` : path;
}

async function problem(answer) {
  try {
    return (await answer.json()).error?.message ?? `${answer.status}`;
  } catch {
    return `the server answered ${answer.status}`;
  }
}

export async function ask(path, question) {
  const answer = await fetch(address(path, question));
  if (!answer.ok) throw new Error(await problem(answer));
  return answer.json();
}

async function post(path, body, signal) {
  const answer = await fetch(address(path), {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Board-Key': key },
    body: JSON.stringify(body),
    signal,
  });
  if (!answer.ok) throw new Error(await problem(answer));
  return answer;
}

// Requests a change; returns the server's answer.
export const change = async (path, body) => (await post(path, body)).json();

// Reads JSON lines as they arrive and passes each to `line`. `stop`: an AbortSignal.
export async function askLines(path, body, line, stop) {
  const answer = await post(path, body, stop);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
      line(JSON.parse(rest.slice(0, end)));
      rest = rest.slice(end + 1);
    }
  }
}

// `began`: connected, for the first time or again, so changes may have been missed; `news`: one change; `lost`:
// disconnected, retrying.
export function follow({ began, news, lost }) {
  const source = new EventSource(address('/events'));
  source.addEventListener('hello', began);
  source.addEventListener('news', ({ data }) => news(JSON.parse(data)));
  source.addEventListener('error', lost);
  return source;
}
