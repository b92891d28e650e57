// Client of the board's server: requests, and events that the server pushes.
const token = new URLSearchParams(window.location.search).get('token');

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

// Reads JSON lines as they arrive and passes each to `line`. `stop`: an AbortSignal.
export async function askLines(path, body, line, stop) {
  const answer = await fetch(address(path), {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
    signal: stop,
  });
  if (!answer.ok) throw new Error(await problem(answer));
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
