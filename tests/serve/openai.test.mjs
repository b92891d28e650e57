// The official npm client with `some serve`: node openai.test.mjs ADDRESS KEY NODE_MODULES
// The server requires KEY and serves the model "tiny".
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';

const [address, apiKey, modules] = process.argv.slice(2);
const { default: OpenAI } = createRequire(join(resolve(modules), 'any.js'))('openai');
const client = new OpenAI({ baseURL: `${address}v1`, apiKey, maxRetries: 0 });
const model = 'tiny';

// models
const models = [];
for await (const one of client.models.list()) models.push(one.id);
assert.deepEqual(models, [model]);
assert.equal((await client.models.retrieve(model)).owned_by, 'some');

// completions: seeds, usage, logprobs, echo
const ask = { model, prompt: 'Once upon a time', max_tokens: 12, seed: 3, logprobs: 2 };
const first = await client.completions.create(ask);
assert.equal(first.choices[0].text, (await client.completions.create(ask)).choices[0].text);
assert.equal(first.usage.total_tokens, first.usage.prompt_tokens + first.usage.completion_tokens);
const { tokens, token_logprobs: logprobs, top_logprobs: top } = first.choices[0].logprobs;
assert.equal(tokens.length, logprobs.length);
assert.ok(top.every((one) => Object.keys(one).length >= 2));
const echo = await client.completions.create({
  model,
  prompt: ['The fox', 'A river'],
  max_tokens: 0,
  echo: true,
  logprobs: 1,
});
assert.deepEqual(
  echo.choices.map(({ text }) => text),
  ['The fox', 'A river'],
);
assert.equal(echo.choices[1].logprobs.token_logprobs[0], null);

// streams, of completions and of chats
let text = '';
let usage;
for await (const part of await client.completions.create({
  ...ask,
  stream: true,
  stream_options: { include_usage: true },
})) {
  text += part.choices[0]?.text ?? '';
  usage = part.usage ?? usage;
}
assert.equal(text, first.choices[0].text);
assert.deepEqual(usage, first.usage);
const messages = [
  { role: 'system', content: 'A story.' },
  { role: 'user', content: [{ type: 'text', text: 'The fox' }] },
];
const talk = { model, messages, max_completion_tokens: 10, temperature: 0, logprobs: true, top_logprobs: 3 };
const answer = await client.chat.completions.create(talk);
assert.equal(answer.choices[0].message.role, 'assistant');
assert.equal(answer.choices[0].logprobs.content[0].top_logprobs.length, 3);
const run = client.chat.completions.stream(talk);
let deltas = 0;
run.on('content', () => {
  deltas += 1;
});
assert.equal((await run.finalChatCompletion()).choices[0].message.content, answer.choices[0].message.content);
assert.ok(deltas > 0);
const many = await client.chat.completions.create({ ...talk, n: 3, temperature: 1, seed: 1 });
assert.deepEqual(
  many.choices.map(({ index }) => index),
  [0, 1, 2],
);

// extensions of OpenAI's interface
const own = await client.chat.completions.create({ model, messages, max_tokens: 4, some: { experts: true } });
assert.ok(own.choices[0].some.experts[0].layers.length > 0);

// embeddings; the client asks for base64 by itself
const vectors = await client.embeddings.create({ model, input: ['The fox', 'A river'] });
const plain = await client.embeddings.create({ model, input: 'The fox', encoding_format: 'float' });
assert.equal(vectors.data.length, 2);
vectors.data[0].embedding.forEach((value, i) => assert.ok(Math.abs(value - plain.data[0].embedding[i]) < 1e-6));

// errors become the client's error classes
const fails = async (work, kind, code) => {
  const error = await work().then(
    () => assert.fail('no error'),
    (one) => one,
  );
  assert.ok(error instanceof kind, `${error}`);
  assert.equal(error.code, code);
};
await fails(() => client.completions.create({ ...ask, model: 'gpt-4' }), OpenAI.NotFoundError, 'model_not_found');
await fails(
  () => client.completions.create({ ...ask, max_tokens: 1000000 }),
  OpenAI.BadRequestError,
  'request-invalid',
);
await fails(
  () => client.chat.completions.create({ ...talk, tools: [{ type: 'function', function: { name: 'f' } }] }),
  OpenAI.BadRequestError,
  'request-invalid',
);
const stranger = new OpenAI({ baseURL: `${address}v1`, apiKey: 'not-a-key-of-this-server', maxRetries: 0 });
await fails(() => stranger.models.retrieve(model), OpenAI.AuthenticationError, 'invalid_api_key');
await fails(() => stranger.chat.completions.create(talk), OpenAI.AuthenticationError, 'invalid_api_key');

// a cancelled request ends on the server too
const metric = async (name) => {
  const body = await (await fetch(`${address}metrics`, { headers: { Authorization: `Bearer ${apiKey}` } })).text();
  return Number(body.match(new RegExp(`^${name}\\{[^}]*\\} (.*)$`, 'm'))[1]);
};
const endless = { model, prompt: 'Once', max_tokens: 200000, logit_bias: { 2: -100 } };
const stream = await client.completions.create({ ...endless, stream: true });
for await (const part of stream) {
  assert.equal(part.choices[0].finish_reason, null);
  break; // aborts the request
}
const stop = new AbortController();
const unwanted = client.completions.create(endless, { signal: stop.signal });
setTimeout(() => stop.abort(), 100);
await assert.rejects(unwanted, OpenAI.APIUserAbortError);
for (let i = 0; (await metric('some_requests_accepted')) > 0; i += 1) {
  assert.ok(i < 300, 'the server goes on writing for nobody');
  await new Promise((done) => setTimeout(done, 20));
}
