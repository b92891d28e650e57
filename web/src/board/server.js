// The board's server: what it is asked, and what it tells by itself.
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

// Lines of JSON as they come; `line` gets each. `stop`: an AbortSignal.
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

// `began`: the connection is there, for the first time or again, and something may have been missed; `news`: one thing
// that changed; `lost`: it broke off, and is tried again.
export function follow({ began, news, lost }) {
  const source = new EventSource(address('/events'));
  source.addEventListener('hello', began);
  source.addEventListener('news', ({ data }) => news(JSON.parse(data)));
  source.addEventListener('error', lost);
  return source;
}
