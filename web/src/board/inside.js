// Internals of one model during training: the load of each expert, the keys and their movement, co-activated experts,
// insertions and evictions of memory slots.
import { button, element } from '../dom.js';
import { store } from '../view/store.js';
import { Figure } from './figure.js';
import { ask } from './server.js';

const measures = [
  ['train.gini', 'Gini of load', 'Gini', (value) => value, '0 = uniform load; near 1 = one expert has all of it'],
  ['train.effective_experts', 'Effective experts', 'experts', (value) => value, '2^entropy of the load'],
  [
    'eval.experts_used_this_epoch',
    'Unused experts',
    'experts',
    (value, experts) => experts - value,
    'Experts that no token has chosen since the beginning of the epoch',
  ],
  ['eval.gate_entropy', 'Gate entropy', 'nats', (value) => value, '0 = one expert per token has all of the weight'],
  ['eval.births', 'Births', 'replaced keys so far', (value) => value, ''],
  ['eval.deaths', 'Deaths', 'dead keys so far', (value) => value, ''],
  ['eval.key_moved.mean', 'Key movement', 'mean distance', (value) => value, 'Distance from the keys at the start of the run'],
];

export class Inside {
  constructor(board, place) {
    this.board = board;
    this.run = element('select', {
      'aria-label': 'run',
      change: () => {
        board.place.set({ run: this.run.value, layer: '0' });
        this.show();
      },
    });
    this.layer = element('select', {
      'aria-label': 'layer',
      change: () => {
        board.place.set({ layer: this.layer.value });
        this.show();
      },
    });
    this.load = new Figure('Expert load', {
      note: 'One column per measurement, one row per expert',
    });
    this.keys = new Figure('Key map');
    this.together = new Figure('Co-activated experts', {
      note: 'The most frequent sets of active experts in this layer, on the validation text',
    });
    this.tsne = button('compute t-SNE', () => this.board.guard(this.showKeys(true)));
    this.keysNote = element('div', { class: 'controls' }, this.tsne);
    this.keys.node.append(this.keysNote);
    this.curves = measures.map(([metric, title, unit, use, note]) => ({
      metric,
      unit,
      use,
      figure: new Figure(title, { note }),
    }));
    this.memorySummary = element('p', {});
    this.memoryStore = element('div');
    this.memory = element(
      'section',
      { 'aria-label': 'memory', hidden: true },
      element('h2', {}, 'Memory'),
      this.memorySummary,
      this.memoryStore,
    );
    this.empty = element('p', { class: 'note', hidden: true }, 'None of these runs has experts.');
    this.parts = element(
      'div',
      {},
      this.load.node,
      element('div', { class: 'side-by-side' }, this.keys.node, this.together.node),
      element(
        'div',
        { class: 'side-by-side' },
        this.curves.map(({ figure }) => figure.node),
      ),
      this.memory,
    );
    place.append(
      element(
        'div',
        { class: 'controls' },
        element('label', {}, 'run ', this.run),
        element('label', {}, 'layer ', this.layer),
      ),
      this.empty,
      this.parts,
    );
  }

  // Returns the displayed run: the one named in the address, or the usual one with experts.
  id() {
    const { runs, place } = this.board;
    if (runs.get(place.get('run'))?.layers) return place.get('run');
    return this.board.usual(({ layers }) => layers);
  }

  question(more = {}) {
    return { runs: this.id(), ...more };
  }

  layerNumber() {
    const { layers } = this.board.runs.get(this.id());
    return Math.min(layers - 1, Math.max(0, Number(this.board.place.get('layer')) || 0));
  }

  show() {
    const id = this.id();
    this.empty.hidden = id !== undefined;
    this.parts.hidden = id === undefined;
    if (id === undefined) return;
    const fill = (select, entries, chosen) => {
      const same = entries.map(([value, words]) => `${value} ${words}`).join('\n');
      if (select.dataset.entries !== same) {
        select.replaceChildren(...entries.map(([value, words]) => element('option', { value }, words)));
        select.dataset.entries = same;
      }
      select.value = chosen;
    };
    const run = this.board.runs.get(id);
    fill(
      this.run,
      [...this.board.runs.values()].filter(({ layers }) => layers).map((one) => [one.id, one.place]),
      id,
    );
    fill(
      this.layer,
      Array.from({ length: run.layers }, (_, i) => [
        String(i),
        i === Math.floor(run.layers / 2) ? `${i} (middle)` : `${i}`,
      ]),
      String(this.layerNumber()),
    );
    const now = `${id} ${this.layerNumber()}`;
    if (this.shown !== now) {
      this.shown = now;
      this.keySteps = -1;
      this.withTsne = false;
      this.memoryAt = -1;
    }
    this.refresh();
  }

  refresh() {
    this.board.guard(this.showLoad());
    this.board.guard(this.showTogether());
    const { key_steps: steps } = this.board.runs.get(this.id());
    if (steps !== this.keySteps) this.board.guard(this.showKeys(this.withTsne));
    this.keySteps = steps;
    for (const curve of this.curves) this.board.guard(this.showCurve(curve));
    const { memory } = this.board.runs.get(this.id());
    if (memory !== this.memoryAt) this.board.guard(this.showMemory());
    this.memoryAt = memory;
  }

  // Shows slots as they were inserted and as tokens were merged into them, from the file; reloaded when the file
  // changes.
  async showMemory() {
    const of = this.shown;
    const { texts, in_use: used, slots, store: data } = await ask('/api/memory', this.question());
    if (of !== this.shown) return;
    this.memory.hidden = !texts;
    this.drawnStore = undefined;
    if (!texts) return;
    const read = texts.map((one) => `${one.name} (${one.tokens} tokens, ${one.slots} slots)`).join(', ');
    this.memorySummary.textContent = `${used} of ${slots} slots in use. Read: ${read}. Drag the slider to any moment of the reading: slots by their keys, as they are inserted and as tokens merge into them (the last one of each slot is known).`;
    if (data) this.drawnStore = store(this.memoryStore, data);
    else this.memoryStore.replaceChildren();
  }

  async showLoad() {
    const of = this.shown;
    const { steps, experts, rows } = await ask('/api/load', this.question({ layer: this.layerNumber() }));
    if (of !== this.shown) return;
    this.load.node.hidden = !rows.length;
    if (!rows.length) return;
    this.load.show({
      kind: 'field',
      x: { name: 'step', values: steps },
      y: { name: 'expert', values: experts },
      rows: rows.map((row) => row.map((percent) => percent / 100)),
      unit: 'x uniform load',
      middle: 1,
    });
  }

  async showKeys(tsne) {
    const of = this.shown;
    this.tsne.disabled = tsne;
    const { tsne_can: can, ...spec } = await ask(
      '/api/keys',
      this.question({ layer: this.layerNumber(), tsne: tsne ? 1 : '' }),
    );
    if (of !== this.shown) return;
    this.withTsne = tsne;
    this.tsne.disabled = false;
    this.keysNote.hidden = !can || tsne;
    this.keys.node.hidden = !spec.kind;
    if (spec.kind) this.keys.show(spec);
  }

  async showTogether() {
    const of = this.shown;
    const { sets } = await ask('/api/together', this.question({ layer: this.layerNumber() }));
    if (of !== this.shown) return;
    this.together.node.hidden = !sets.some(({ experts }) => experts.length > 1);
    if (!this.together.node.hidden) this.together.show({ kind: 'together', sets });
  }

  async showCurve({ metric, unit, use, figure }) {
    const of = this.shown;
    const { layers } = await ask('/api/layers', this.question({ metric }));
    if (of !== this.shown) return;
    const { experts } = this.board.runs.get(this.id());
    // Hidden if there is nothing to show: a single point, or no births, deaths or unused experts.
    const counts = ['eval.births', 'eval.deaths', 'eval.experts_used_this_epoch'].includes(metric);
    const flat = (points) => points.length < 2 || (counts && points.every(([, y]) => use(y, experts) === 0));
    figure.node.hidden = layers.every(flat);
    if (figure.node.hidden) return;
    const middle = Math.floor(layers.length / 2);
    figure.show({
      kind: 'lines',
      x: { name: 'step' },
      y: { name: unit },
      series: layers.map((points, i) => ({
        name: i === middle ? `layer ${i} (middle)` : `layer ${i}`,
        role: i === middle ? 'middle' : 'layer',
        shade: layers.length > 1 ? i / (layers.length - 1) : 0,
        points: points.map(([x, y]) => [x, use(y, experts)]),
      })),
    });
  }

  // Changes are requested at most twice per second.
  news({ run }) {
    if (run.id !== this.id() || this.waiting) return;
    this.waiting = setTimeout(() => {
      this.waiting = 0;
      if (this.board.current() === 'inside') this.refresh();
    }, 500);
  }

  figures() {
    return [this.load, this.keys, this.together, ...this.curves.map(({ figure }) => figure)];
  }

  draw() {
    for (const figure of this.figures()) figure.draw();
    this.drawnStore?.draw();
  }

  resize() {
    for (const figure of this.figures()) figure.resize();
    this.drawnStore?.resize();
  }
}
