// Client of the server's interface, for its page. The key, if required, is kept for this tab only.
const place = 'some-api-key';

export const key = {
  get: () => sessionStorage.getItem(place) ?? '',
  set: (value) => (value ? sessionStorage.setItem(place, value) : sessionStorage.removeItem(place)),
};

const fields = () => (key.get() ? { Authorization: `Bearer ${key.get()}` } : {});

async function checked(answer) {
  if (answer.ok) return answer;
  let words = `the server answered ${answer.status}`;
  try {
    words = (await answer.json()).error?.message ?? words;
  } catch {
    // not JSON: report the status instead
  }
  throw Object.assign(new Error(words), { status: answer.status });
}

export async function models() {
  return (await (await checked(await fetch('v1/models', { headers: fields() }))).json()).data;
}

export async function forget(session, model) {
  const answer = await fetch(`v1/some/sessions/${encodeURIComponent(session)}?${new URLSearchParams({ model })}`, {
    method: 'DELETE',
    headers: fields(),
  });
  if (answer.status !== 404) await checked(answer); // 404: nothing was learned
}

// Streams an answer; `event` receives each chunk. `stop`: an AbortSignal.
export async function chat(body, event, stop) {
  const answer = await checked(
    await fetch('v1/chat/completions', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...fields() },
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
      signal: stop,
    }),
  );
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let whole = false;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    rest += value;
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
      const line = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (!line.startsWith('data: ')) continue;
      if (line === 'data: [DONE]') {
        whole = true;
        continue;
      }
      const chunk = JSON.parse(line.slice(6));
      if (chunk.error) throw new Error(chunk.error.message);
      event(chunk);
    }
  }
  if (!whole) throw new Error('the connection ended before the answer was complete');
}
