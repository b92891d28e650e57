// Texts that runs generated at their evaluations: of several runs next to each other at one step, or of one run over
// time.
import { element } from '../dom.js';
import { short } from '../numbers.js';
import { ask } from './server.js';

// The index of the last step up to `step`.
const lastUpTo = (steps, step) => Math.max(0, steps.filter((one) => one <= step).length - 1);

export class Samples {
  constructor(board, place) {
    this.board = board;
    this.over = element('select', {
      'aria-label': 'show',
      change: () => {
        board.place.set({ over: this.over.value });
        this.show();
      },
    });
    this.slider = element('input', {
      type: 'range',
      min: 0,
      step: 1,
      'aria-label': 'step',
      input: () => this.moveTo(Number(this.slider.value)),
    });
    this.at = element('span', { class: 'now' });
    this.slide = element('label', { class: 'slide long' }, 'step ', this.slider, this.at);
    this.empty = element('p', { class: 'note', hidden: true });
    this.texts = element('div', { class: 'samples' });
    place.append(
      element('div', { class: 'controls' }, element('label', {}, 'show ', this.over), this.slide),
      this.empty,
      this.texts,
    );
  }

  runs() {
    return this.board.chosen().filter((id) => this.board.runs.get(id).samples > 0);
  }

  show() {
    const ids = this.runs();
    const over = ids.includes(this.board.place.get('over')) ? this.board.place.get('over') : '';
    const entries = [['', 'selected runs at one step'], ...ids.map((id) => [id, `${this.board.runs.get(id).name} over time`])];
    this.over.replaceChildren(...entries.map(([value, words]) => element('option', { value }, words)));
    this.over.value = over;
    this.slide.hidden = over !== '' || !ids.length;
    this.empty.hidden = ids.length > 0;
    this.empty.textContent = this.board.chosen().length
      ? 'The selected runs have no texts. train.samples sets how many a run writes at each evaluation.'
      : 'No run is selected: tick one in the list.';
    this.texts.hidden = !ids.length;
    if (ids.length) this.board.guard(this.fetch(ids, over));
  }

  async fetch(ids, over) {
    this.asked = (this.asked ?? 0) + 1;
    const mine = this.asked;
    const question = over ? { runs: over, all: 1 } : { runs: ids.join(','), step: this.board.place.get('sample') };
    const { runs } = await ask('/api/samples', question);
    if (mine !== this.asked) return;
    this.steps = [...new Set(runs.flatMap(({ steps }) => steps))].sort((a, b) => a - b);
    const wanted = this.board.place.get('sample');
    const now = wanted === '' ? this.steps.length - 1 : lastUpTo(this.steps, Number(wanted));
    this.slider.max = this.steps.length - 1;
    this.slider.value = now;
    this.slider.disabled = this.steps.length < 2;
    this.at.textContent = short(this.steps[now]);
    this.drawTexts(runs, over !== '');
  }

  moveTo(index) {
    const last = index === this.steps.length - 1;
    this.at.textContent = short(this.steps[index]);
    this.board.place.set({ sample: last ? '' : String(this.steps[index]) });
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.show(), 60);
  }

  // One section per prompt, with one card per run or per step.
  drawTexts(answers, over) {
    const moments = answers.flatMap(({ id, moments: all }) => all.map((one) => ({ id, ...one })));
    if (over) moments.reverse();
    const prompts = new Map();
    for (const { id, step, epoch, samples } of moments) {
      const seen = new Map();
      for (const { prompt, text } of samples) {
        const again = seen.get(prompt) ?? 0;
        seen.set(prompt, again + 1);
        const key = again ? `${prompt} (${again + 1})` : prompt;
        if (!prompts.has(key)) prompts.set(key, { cards: [] });
        prompts.get(key).cards.push({ id, step, epoch, prompt, text });
      }
    }
    this.texts.replaceChildren(
      ...[...prompts].map(([title, { cards }]) =>
        element(
          'section',
          {},
          element('h2', {}, title || 'Without a prompt'),
          element('div', { class: 'cards' }, cards.map((card) => this.card(card, over))),
        ),
      ),
    );
  }

  card({ id, step, epoch, prompt, text }, over) {
    const run = this.board.runs.get(id);
    const when = `step ${short(step)}${epoch === undefined ? '' : `, epoch ${short(epoch)}`}`;
    return element(
      'article',
      { class: 'card' },
      element(
        'h3',
        {},
        over ? when : [this.board.swatch(id), run?.name ?? id, element('span', { class: 'state' }, ` ${when}`)],
      ),
      element('p', {}, element('span', { class: 'state' }, prompt), text),
    );
  }

  news({ run }) {
    if (!this.board.chosen().includes(run.id) || run.samples === this.told?.get(run.id)) return;
    this.told = new Map([...(this.told ?? []), [run.id, run.samples]]);
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      if (this.board.current() === 'samples') this.show();
    }, 300);
  }

  draw() {}

  resize() {}
}
