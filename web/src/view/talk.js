// The page of `some serve`: a chat with one of its models. Data: {needs_key}. Everything else comes from the server
// (talk/api.js).
import { button, element } from '../dom.js';
import { Answer } from '../talk/answer.js';
import { chat, forget, key, models } from '../talk/api.js';

const number = (label, attributes) => {
  const input = element('input', { type: 'number', class: 'narrow', ...attributes });
  return [input, element('label', {}, `${label} `, input)];
};
const tick = (label, attributes = {}) => {
  const input = element('input', { type: 'checkbox', ...attributes });
  return [input, element('label', {}, input, ` ${label}`)];
};

class Talk {
  constructor(node, data) {
    node.classList.add('talk');
    this.messages = [];
    this.models = new Map();
    this.trouble = element('p', { class: 'note', role: 'alert', hidden: true });
    this.makeKey(data.needs_key);
    this.makeSettings();
    this.log = element('div', { class: 'log', role: 'log', 'aria-label': 'conversation' });
    this.prompt = element('textarea', { rows: 3, 'aria-label': 'your text', placeholder: 'Once upon a time' });
    this.send = button('Send', () => this.say());
    this.stop = button('Stop', () => this.stopping?.abort(), { disabled: true });
    this.clear = button('New', () => this.begin());
    const form = element(
      'form',
      {
        submit: (event) => {
          event.preventDefault();
          this.say();
        },
      },
      this.prompt,
      element(
        'div',
        { class: 'controls' },
        this.send,
        this.stop,
        this.clear,
        element('span', { class: 'under' }, 'Enter sends, Shift+Enter starts a new line'),
      ),
    );
    this.prompt.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.say();
    });
    node.replaceChildren(this.keyForm, this.settings, this.trouble, this.log, form);
    this.load();
  }

  makeKey(needed) {
    const input = element('input', { type: 'password', autocomplete: 'off', value: key.get() });
    this.keyForm = element(
      'form',
      {
        class: 'controls',
        hidden: !needed,
        submit: (event) => {
          event.preventDefault();
          key.set(input.value.trim());
          this.load();
        },
      },
      element('label', {}, 'API key ', input),
      element('button', { type: 'submit' }, 'Use'),
    );
  }

  makeSettings() {
    this.model = element('select', { 'aria-label': 'model', change: () => this.fit() });
    const [temperature, temperatureLabel] = number('temperature', { min: 0, max: 2, step: 0.1, value: 0.8 });
    const [topP, topPLabel] = number('top-p', { min: 0, max: 1, step: 0.05, value: 1 });
    const [seed, seedLabel] = number('seed', { placeholder: 'any' });
    const [most, mostLabel] = number('tokens', { min: 1, value: 120 });
    const [experts, expertsLabel] = tick('experts');
    const [sources, sourcesLabel] = tick('sources');
    const [learn, learnLabel] = tick('learn from my messages', { change: () => this.fit() });
    const [memory, memoryLabel] = tick("the run's memory", { change: () => this.fit() });
    this.session =
      sessionStorage.getItem('some-session') ?? `page-${crypto.getRandomValues(new Uint32Array(2)).join('-')}`;
    sessionStorage.setItem('some-session', this.session);
    this.forget = button('Forget', () => this.guard(this.forgetAll()));
    Object.assign(this, {
      temperature,
      topP,
      seed,
      most,
      experts,
      expertsLabel,
      sources,
      sourcesLabel,
      learn,
      memory,
      memoryLabel,
    });
    this.about = element('p', { class: 'under' });
    this.settings = element(
      'div',
      {},
      element(
        'div',
        { class: 'controls' },
        element('label', {}, 'model ', this.model),
        temperatureLabel,
        topPLabel,
        mostLabel,
        seedLabel,
      ),
      element(
        'div',
        { class: 'controls' },
        element('span', { class: 'label' }, 'show'),
        expertsLabel,
        sourcesLabel,
        element('span', { class: 'label' }, 'use'),
        memoryLabel,
        learnLabel,
        this.forget,
      ),
      this.about,
    );
  }

  async load() {
    try {
      const list = await models();
      this.models = new Map(list.map((one) => [one.id, one]));
      this.model.replaceChildren(...list.map(({ id }) => element('option', { value: id }, id)));
      this.tell('');
      this.fit();
    } catch (error) {
      if (error.status === 401) this.keyForm.hidden = false;
      this.tell(error.message);
    }
  }

  current() {
    return this.models.get(this.model.value);
  }

  // Offers only what the model supports.
  fit() {
    const { some } = this.current() ?? {};
    if (!some) return;
    this.expertsLabel.hidden = !some.experts;
    this.memoryLabel.hidden = !some.memory;
    this.most.max = some.max_tokens;
    this.memory.disabled = this.learn.checked;
    this.sources.disabled = !this.learn.checked && !(this.memory.checked && some.memory);
    this.forget.hidden = !this.learn.checked;
    const size = some.experts ? `${some.experts} experts per layer, ${some.top_k} for each token` : 'no experts';
    this.about.textContent = `Step ${some.step}, ${some.layers} layers, ${size}. The model continues the text of all messages.`;
  }

  tell(words) {
    this.trouble.textContent = words;
    this.trouble.hidden = !words;
  }

  guard(promise) {
    promise.catch((error) => this.tell(error.message));
  }

  begin() {
    this.stopping?.abort();
    this.messages = [];
    this.log.replaceChildren();
    this.tell('');
    this.prompt.focus();
  }

  async forgetAll() {
    await forget(this.session, this.model.value);
    this.tell('Your messages were removed from the memory.');
  }

  request() {
    const value = (input) => (input.value === '' ? undefined : Number(input.value));
    const { some } = this.current();
    const asked = {
      experts: this.experts.checked && some.experts > 0,
      sources: this.sources.checked && !this.sources.disabled,
    };
    if (this.learn.checked) Object.assign(asked, { session: this.session, learn: true });
    else if (this.memory.checked && some.memory) asked.memory = true;
    return {
      model: this.model.value,
      messages: this.messages,
      temperature: value(this.temperature),
      top_p: value(this.topP),
      seed: value(this.seed),
      max_tokens: value(this.most),
      logprobs: asked.experts || asked.sources,
      some: asked,
    };
  }

  async say() {
    const text = this.prompt.value;
    if (this.stopping || text.trim() === '' || !this.current()) return;
    this.tell('');
    this.prompt.value = '';
    this.messages.push({ role: 'user', content: text });
    this.log.append(
      element('div', { class: 'message' }, element('p', { class: 'who' }, 'you'), element('div', { class: 'text' }, text)),
    );
    const answer = new Answer(this.current());
    this.log.append(answer.node);
    this.stopping = new AbortController();
    this.send.disabled = true;
    this.stop.disabled = false;
    let words = '';
    try {
      await chat(this.request(), (chunk) => answer.chunk(chunk), this.stopping.signal);
    } catch (error) {
      words = error.name === 'AbortError' ? 'stopped' : '';
      if (!words) {
        this.tell(error.message);
        if (answer.content === '') this.prompt.value = text; // it can be sent again
      }
    }
    this.stopping = undefined;
    this.send.disabled = false;
    this.stop.disabled = true;
    if (answer.content === '' && !words && this.prompt.value === text) {
      this.messages.pop();
      answer.node.previousSibling?.remove();
      answer.node.remove();
      return;
    }
    this.messages.push({ role: 'assistant', content: answer.content });
    answer.finish(words);
    this.prompt.focus();
  }

  draw() {}

  resize() {}
}

export const talk = (place, data) => new Talk(place, data);
