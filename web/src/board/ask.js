// Queries a model: its text, token by token with each token's experts, followed by a trace; compared with another
// model, or the same model with changed routing.
import { colourOf, colours } from '../chart/style.js';
import { button, element } from '../dom.js';
import { percent, sources } from '../sources.js';
import { trace } from '../view/trace.js';
import { askLines } from './server.js';

const number = (label, attributes) => {
  const input = element('input', { type: 'number', ...attributes });
  return [input, element('label', {}, `${label} `, input)];
};

// One model with its changed settings, and its answer.
class Side {
  constructor(board, name) {
    this.board = board;
    this.name = name;
    this.run = element('select', { 'aria-label': `model ${name}`, change: () => this.fit() });
    const [k, kLabel] = number('top-k experts', { min: 1, max: 4096, class: 'narrow' });
    const [offLayer, layerLabel] = number('disable expert: layer', { min: 0, class: 'narrow' });
    const [offExpert, expertLabel] = number('expert', { min: 0, class: 'narrow' });
    this.memory = element('input', { type: 'checkbox' });
    this.memoryLabel = element('label', {}, this.memory, ' use memory');
    Object.assign(this, { k, offLayer, offExpert });
    this.text = element('div', { class: 'text', 'aria-label': `text of model ${name}`, role: 'group' });
    this.told = element('p', { class: 'under', role: 'status' });
    this.from = element('div', { class: 'token-sources', role: 'region', 'aria-label': `sources, model ${name}` });
    this.from.hidden = true;
    this.fold = element('div', { class: 'view' });
    this.node = element(
      'div',
      { class: 'answer' },
      element(
        'div',
        { class: 'controls' },
        element('label', {}, 'model ', this.run),
        kLabel,
        layerLabel,
        expertLabel,
        this.memoryLabel,
      ),
      this.text,
      this.told,
      this.from,
      this.fold,
    );
  }

  show(chosen) {
    const runs = [...this.board.runs.values()].filter(({ step }) => step > 0);
    const same = runs.map(({ id }) => id).join(' ');
    if (this.run.dataset.entries !== same) {
      const before = this.run.value || chosen || this.board.usual(({ step }) => step > 0);
      this.run.replaceChildren(...runs.map(({ id, place }) => element('option', { value: id }, place)));
      this.run.dataset.entries = same;
      if (runs.some(({ id }) => id === before)) this.run.value = before;
    }
    this.fit();
  }

  fit() {
    const run = this.board.runs.get(this.run.value);
    this.memoryLabel.hidden = !run?.memory;
    if (run) {
      this.offLayer.max = run.layers - 1;
      this.offExpert.max = run.experts - 1;
    }
  }

  question() {
    const whole = (input) => (input.value === '' ? undefined : Number(input.value));
    const off =
      whole(this.offExpert) === undefined
        ? undefined
        : { layer: whole(this.offLayer) ?? 0, expert: whole(this.offExpert) };
    const memory = this.memory.checked && !this.memoryLabel.hidden;
    return { run: this.run.value, experts_a_token: whole(this.k), off, memory };
  }

  clear() {
    this.text.replaceChildren();
    this.fold.replaceChildren();
    this.from.hidden = true;
    this.told.textContent = '';
    this.words = [];
    this.read = 0;
    this.trace = undefined;
  }

  // A token with sources in a memory is a button that shows them.
  word(text, written, from) {
    const shown = text === '' ? '∅' : text;
    const chip = from
      ? button(shown, () => this.showSources(chip, text, from), { class: 'written', 'aria-expanded': 'false' })
      : element('span', { class: written ? 'written' : '' }, shown);
    this.words.push({ text, chip });
    this.text.append(chip, this.blanks ? '' : ' ');
  }

  showSources(chip, text, { probability, sources: found }) {
    const again = chip.getAttribute('aria-expanded') === 'true';
    for (const { chip: other } of this.words) {
      if (other.hasAttribute('aria-expanded')) other.setAttribute('aria-expanded', 'false');
    }
    chip.setAttribute('aria-expanded', String(!again));
    this.from.hidden = again;
    if (again) return;
    this.from.replaceChildren(
      element('p', {}, element('strong', {}, `“${text}”`), ` with a probability of ${percent(probability)}`),
      sources(found),
    );
  }

  // While a token is read, the strongest expert of the middle layer determines its color.
  paint(tokens) {
    const c = colours();
    for (const layers of tokens) {
      const one = this.words[this.read];
      this.read += 1;
      if (!one) continue;
      const [[expert] = []] = layers[Math.floor(layers.length / 2)] ?? [];
      if (expert === undefined) continue;
      one.experts = layers;
      one.chip.style.borderBottomColor = colourOf(c, expert);
      one.chip.title = layers
        .map((chosen, layer) => `layer ${layer}: ${chosen.map(([number_, gate]) => `${number_} (${gate})`).join(', ')}`)
        .join('\n');
    }
  }

  line(line) {
    if (line.kind === 'waiting') this.told.textContent = 'waiting for another request';
    if (line.kind === 'begin') {
      this.blanks = line.tokens_hold_blanks;
      line.prompt.forEach((text) => this.word(text, false));
      this.told.textContent = `generating (checkpoint of step ${line.step})`;
    }
    if (line.kind === 'read') this.paint(line.tokens);
    if (line.kind === 'token') this.word(line.text, true, line.sources ? line : undefined);
    if (line.kind === 'error') this.told.textContent = line.error.message;
    if (line.kind !== 'end') return;
    const why = { eos: 'end of text', length: 'token limit reached', asked: 'stopped', context: 'context is full' };
    const sourced = this.words.some(({ chip }) => chip.hasAttribute('aria-expanded'));
    const more = sourced ? '; choose a token to see its sources' : '';
    this.told.textContent = `${this.words.length} tokens; ${why[line.stopped] ?? line.stopped}${more}`;
    this.done = true;
    if (!line.trace) return;
    const place = element('div');
    this.fold.replaceChildren(place);
    this.trace = trace(place, line.trace, `, model ${this.name}`);
  }

  // Marks tokens that differ from the other side.
  compare(other) {
    this.words.forEach((word, i) => {
      word.chip.classList.toggle('other', !!other && other.words[i]?.text !== word.text);
    });
  }
}

export class Ask {
  constructor(board, place) {
    this.board = board;
    this.prompt = element('textarea', { rows: 3, 'aria-label': 'prompt' });
    this.prompt.value = 'Once upon a time';
    const [temperature, temperatureLabel] = number('temperature', {
      min: 0,
      max: 10,
      step: 0.1,
      value: 0.8,
      class: 'narrow',
    });
    const [topK, topKLabel] = number('top-k tokens (0 = all)', { min: 0, value: 0, class: 'narrow' });
    const [seed, seedLabel] = number('seed', { min: 0, value: 0, class: 'narrow' });
    const [most, mostLabel] = number('max tokens', { min: 1, max: 400, value: 40, class: 'narrow' });
    this.fields = { temperature, topK, seed, most };
    this.two = element('input', { type: 'checkbox', change: () => this.show() });
    this.sides = [new Side(board, 'A'), new Side(board, 'B')];
    this.go = button('Ask', () => this.board.guard(this.ask()), { class: 'main' });
    this.stop = button('Stop', () => this.stopping?.abort());
    this.form = element(
      'form',
      {
        submit: (event) => {
          event.preventDefault();
          this.board.guard(this.ask());
        },
      },
      this.prompt,
      element(
        'div',
        { class: 'controls' },
        this.go,
        this.stop,
        temperatureLabel,
        topKLabel,
        seedLabel,
        mostLabel,
        element('label', {}, this.two, ' compare with a second model'),
      ),
    );
    this.prompt.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.board.guard(this.ask());
    });
    this.answers = element(
      'div',
      { class: 'answers' },
      this.sides.map(({ node }) => node),
    );
    place.append(
      this.form,
      this.answers,
      element(
        'p',
        { class: 'under' },
        'The line under a token has the color of its top expert in the middle layer. With the same seed, texts differ only ',
        'because of the changed settings; tokens that differ are marked.',
      ),
    );
    this.stop.disabled = true;
  }

  active() {
    return this.two.checked ? this.sides : [this.sides[0]];
  }

  show() {
    const { place } = this.board;
    this.sides[0].show(place.get('run'));
    this.sides[1].show(place.get('run'));
    this.sides[1].node.hidden = !this.two.checked;
    this.answers.classList.toggle('two', this.two.checked);
  }

  // One at a time, because the server runs one model at a time.
  async ask() {
    this.stopping?.abort();
    const stopping = new AbortController();
    this.stopping = stopping;
    this.go.disabled = true;
    this.stop.disabled = false;
    this.sides.forEach((side) => side.clear());
    const { temperature, topK, seed, most } = this.fields;
    const common = {
      prompt: this.prompt.value,
      temperature: Number(temperature.value),
      top_k: Number(topK.value),
      seed: Number(seed.value),
      max_tokens: Number(most.value),
    };
    try {
      for (const side of this.active()) {
        try {
          await askLines('/api/ask', { ...common, ...side.question() }, (line) => side.line(line), stopping.signal);
        } catch (error) {
          side.told.textContent = error.name === 'AbortError' ? 'stopped' : error.message;
          if (error.name === 'AbortError') break;
        }
      }
      const [a, b] = this.sides;
      a.compare(this.two.checked ? b : undefined);
      b.compare(this.two.checked ? a : undefined);
    } finally {
      if (this.stopping === stopping) {
        this.go.disabled = false;
        this.stop.disabled = true;
      }
    }
  }

  news() {
    this.show();
  }

  draw() {
    for (const side of this.sides) side.trace?.draw();
  }

  resize() {
    for (const side of this.sides) side.trace?.resize();
  }
}
