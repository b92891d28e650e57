// The experts chosen by each token of a text. Selecting a token, an expert or a set shows where else it fires. The data
// are the output of `some trace --json`.
import { Chart } from '../chart/chart.js';
import { button, choice, element } from '../dom.js';
import { sources } from '../sources.js';

const blank = (text) => (text === '' ? '∅' : text);
const visible = (text) => blank(text).replace(/ /g, '·').replace(/\n/g, '↵');
const code = (text) => element('code', {}, visible(text));

function row(...cells) {
  return element(
    'tr',
    {},
    cells.map((cell) => (cell instanceof Node && /^T[DH]$/.test(cell.nodeName) ? cell : element('td', {}, cell))),
  );
}
const number = (text) => element('td', { class: 'number' }, text);
const heads = (...names) =>
  element(
    'thead',
    {},
    element(
      'tr',
      {},
      names.map(([name, kind]) => (name ? element('th', { scope: 'col', class: kind }, name) : element('td'))),
    ),
  );
const table = (head, rows) =>
  element('div', { class: 'table' }, element('table', {}, head, element('tbody', {}, rows)));

class Trace {
  // `of`: distinguishes this trace from another one on the page.
  constructor(place, data, of = '') {
    this.data = data;
    this.of = of;
    this.layer = Math.max(0, data.layers.indexOf(data.middle_layer));
    this.shading = 'picked';
    this.listed = 'expert';
    this.pick = null;
    this.build(place);
    this.draw();
  }

  build(place) {
    this.place = place;
    const { data } = this;
    const layers = data.layers.map((number, index) => [
      index,
      `layer ${number}${number === data.middle_layer ? ' (middle)' : ''}`,
    ]);
    this.layers = choice('layer', layers, this.layer, (layer) => this.show(layer));
    const shadings = [
      ['picked', 'selection'],
      ['surprise', 'surprise'],
    ];
    if (data.tokens.some(({ memory }) => memory)) shadings.push(['memory', "the memory's share"]);
    this.shadings = choice('shading', shadings, this.shading, (shading) => {
      this.shading = shading;
      this.draw();
    });
    this.lists = choice(
      'list',
      [
        ['expert', 'experts'],
        ['set', 'sets'],
      ],
      this.listed,
      (listed) => {
        this.listed = listed;
        this.draw();
      },
    );
    this.chips = data.tokens.map((token, t) => {
      const chip = button(blank(token.text).replace(/\n/g, '↵\n'), () => this.choose('token', t));
      if (token.generated) chip.classList.add('written');
      return chip;
    });
    const text = element('div', { class: data.tokens_hold_blanks ? 'text' : 'text apart' }, this.chips);
    this.seen = element('section', { 'aria-live': 'polite', 'aria-label': `selection${this.of}` });
    this.list = element('div');
    const plot = element('div', { class: 'plot' });
    const title = 'The strongest expert of each token, layer by layer';
    place.replaceChildren(
      element(
        'div',
        { class: 'controls' },
        this.layers.row,
        element('span', { class: 'label' }, 'shaded by'),
        this.shadings.row,
      ),
      element(
        'div',
        { class: 'columns' },
        element('div', {}, text, this.seen),
        element('aside', { 'aria-label': `experts and sets of the layer${this.of}` }, this.lists.row, this.list),
      ),
      element(
        'figure',
        { class: 'chart', id: document.getElementById('trace-field') ? undefined : 'trace-field' },
        element('figcaption', {}, title),
        plot,
        element(
          'p',
          { class: 'under' },
          'One color per expert; the same color in another layer is another expert. Click a cell to select its token.',
        ),
      ),
    );
    this.chart = new Chart(plot, this.field(), title, { click: (cell) => this.clickCell(cell) });
    document.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape' || !this.pick) return;
      this.pick = null;
      this.draw();
    });
  }

  at(t, layer = this.layer) {
    return this.data.tokens[t].layers[layer];
  }

  set(t, layer = this.layer) {
    return [...this.at(t, layer).experts].sort((a, b) => a - b).join(' ');
  }

  gate(t, expert) {
    const i = this.at(t).experts.indexOf(expert);
    return i < 0 ? 0 : this.at(t).gates[i];
  }

  field() {
    const { tokens, layers } = this.data;
    const cells = [];
    const tips = [];
    layers.forEach((number, l) =>
      tokens.forEach((token, t) => {
        const { experts, gates } = this.at(t, l);
        cells.push([t, l, experts[0]]);
        tips.push(
          [
            `token ${t}: ${visible(token.text)}`,
            `layer ${number}`,
            ...experts.map((expert, i) => `expert ${expert}: gate ${gates[i].toFixed(3)}`),
          ].join('\n'),
        );
      }),
    );
    return {
      kind: 'heat',
      cells,
      tips,
      scale: { kind: 'number' },
      x: { name: 'token', categories: tokens.map(({ text }) => visible(text)), turned: true },
      y: { categories: layers.map((number) => `layer ${number}`) },
    };
  }

  clickCell(cell) {
    const { tokens } = this.data;
    this.layer = Math.floor(cell / tokens.length);
    this.pick = null;
    this.choose('token', cell % tokens.length);
  }

  // Switches the layer; a selected expert or set belongs to its layer, a token to all layers.
  show(layer) {
    this.layer = layer;
    if (this.pick && this.pick.kind !== 'token') this.pick = null;
    this.draw();
  }

  choose(kind, value) {
    const same = this.pick && this.pick.kind === kind && this.pick.value === value;
    this.pick = same ? null : { kind, value };
    if (this.pick && this.shading !== 'memory') this.shading = 'picked';
    this.draw();
  }

  picked(kind, value) {
    return !!this.pick && this.pick.kind === kind && this.pick.value === value;
  }

  // Returns the strength of a token's color: the gate of the selected expert, the whole set, or the gates shared with
  // the selected token; otherwise the token's surprise.
  strength(t) {
    if (this.shading === 'surprise') {
      const { loss: surprise } = this.data.tokens[t];
      return surprise === undefined ? 0 : 1 - Math.exp(-surprise / 3);
    }
    if (this.shading === 'memory') return this.data.tokens[t].memory?.share ?? 0;
    if (!this.pick) return 0;
    const { kind, value } = this.pick;
    if (kind === 'expert') return this.gate(t, value);
    if (kind === 'set') return this.set(t) === value ? 1 : 0;
    if (t === value) return 1;
    return this.at(value).experts.reduce(
      (sum, expert) => sum + Math.min(this.gate(t, expert), this.gate(value, expert)),
      0,
    );
  }

  // An expert of another layer is shown in its own layer.
  expertButton(expert, layer = this.layer) {
    return button(
      String(expert),
      () => {
        this.listed = 'expert';
        if (layer !== this.layer) this.show(layer);
        this.choose('expert', expert);
      },
      {
        'aria-pressed': String(layer === this.layer && this.picked('expert', expert)),
        'aria-label': `expert ${expert}`,
      },
    );
  }

  setButton(set) {
    return button(`{${set}}`, () => this.choose('set', set), {
      'aria-pressed': String(this.picked('set', set)),
      'data-key': `set ${set}`,
    });
  }

  drawList() {
    const { tokens, experts, layers } = this.data;
    const sets = this.listed === 'set';
    const counts = new Map();
    const mass = new Map();
    const add = (to, key, value) => to.set(key, (to.get(key) ?? 0) + value);
    tokens.forEach((_, t) => {
      if (sets) add(counts, this.set(t), 1);
      else {
        this.at(t).experts.forEach((expert, i) => {
          add(counts, expert, 1);
          add(mass, expert, this.at(t).gates[i]);
        });
      }
    });
    const sorted = [...counts].sort((a, b) => b[1] - a[1] || (a[0] > b[0] ? 1 : -1));
    const most = sorted[0]?.[1] ?? 1;
    const rows = sorted.map(([name, count]) => {
      const bar = element('span', { class: 'fill' });
      bar.style.width = `${Math.max(2, (60 * count) / most)}px`;
      return sets
        ? row(this.setButton(name), number(String(count)), bar)
        : row(this.expertButton(name), number(String(count)), number((mass.get(name) / count).toFixed(2)), bar);
    });
    const head = sets
      ? heads(['set'], ['tokens', 'number'], [''])
      : heads(['expert'], ['tokens', 'number'], ['mean gate', 'number'], ['']);
    const title = sets
      ? `${sorted.length} different sets in layer ${layers[this.layer]}`
      : `${sorted.length} of ${experts} experts fire in layer ${layers[this.layer]}`;
    this.list.replaceChildren(element('h2', {}, title), table(head, rows));
    this.lists.press(this.listed);
  }

  around(t) {
    const { tokens, tokens_hold_blanks: blanks } = this.data;
    const line = element('span');
    for (let i = Math.max(0, t - 4); i <= Math.min(tokens.length - 1, t + 3); i += 1) {
      line.append(i === t ? element('mark', {}, tokens[i].text) : tokens[i].text, blanks ? '' : ' ');
    }
    return line;
  }

  drawToken(t, shared) {
    const { tokens, layers } = this.data;
    const rows = layers.map((number, l) =>
      row(
        String(number),
        element(
          'td',
          {},
          this.at(t, l).experts.map((expert, i) =>
            element('span', { class: 'pair' }, this.expertButton(expert, l), ` ${this.at(t, l).gates[i].toFixed(3)}`),
          ),
        ),
      ),
    );
    const { loss: surprise } = tokens[t];
    const expected =
      surprise === undefined ? '' : ` The model expected it with probability ${Math.exp(-surprise).toPrecision(2)}.`;
    const same = tokens.filter((_, i) => this.set(i) === this.set(t)).length;
    this.seen.replaceChildren(
      element('h2', {}, `Token ${t}: `, code(tokens[t].text)),
      element(
        'p',
        {},
        `Id ${tokens[t].id}.${expected} ${shared} other tokens share an expert with it in layer ${layers[this.layer]};`,
        ' its exact set ',
        this.setButton(this.set(t)),
        ` is active for ${same} of ${tokens.length} tokens.`,
      ),
      ...this.passages(tokens[t]),
      table(heads(['layer'], ['experts with their gates; select one to see where else it is active']), rows),
    );
  }

  // Shows the memory's sources of a token: the words around it in the texts that were read.
  passages({ memory }) {
    if (!memory) return [];
    const told = `With the memory its probability is ${Math.exp(-memory.loss).toPrecision(2)}.`;
    return [element('p', {}, told), sources(memory)];
  }

  drawSeen() {
    const { tokens, layers } = this.data;
    if (!this.pick) {
      this.seen.replaceChildren();
      return;
    }
    const { kind, value } = this.pick;
    const hits = tokens.map((_, t) => [t, this.strength(t)]).filter(([, strength]) => strength > 0);
    if (kind === 'token') {
      this.drawToken(value, hits.length - 1);
      return;
    }
    const rows = hits.map(([t, strength]) =>
      row(
        button(code(tokens[t].text), () => this.choose('token', t)),
        number(
          kind === 'set'
            ? this.at(t)
                .gates.map((gate) => gate.toFixed(2))
                .join(' ')
            : strength.toFixed(3),
        ),
        this.around(t),
      ),
    );
    const name = kind === 'set' ? `Set {${value}}` : `Expert ${value}`;
    this.seen.replaceChildren(
      element('h2', {}, `${name} of layer ${layers[this.layer]} fires for ${hits.length} of ${tokens.length} tokens`),
      table(heads(['token'], ['gate', 'number'], ['where']), rows),
    );
  }

  draw() {
    const { key } = document.activeElement.dataset;
    this.layers.press(this.layer);
    this.shadings.press(this.shading);
    this.chips.forEach((chip, t) => {
      chip.style.setProperty('--strength', this.strength(t).toFixed(3));
      chip.setAttribute('aria-pressed', String(this.picked('token', t)));
      chip.title = this.at(t)
        .experts.map((expert, i) => `expert ${expert}: gate ${this.at(t).gates[i].toFixed(3)}`)
        .join('\n');
    });
    this.drawList();
    this.drawSeen();
    // The focused element may have been replaced: restores the keyboard focus.
    if (key) this.place.querySelector(`[data-key="${key}"]`)?.focus();
    this.chart.spec.picked = this.pick?.kind === 'token' ? [this.pick.value, this.layer] : undefined;
    this.chart.draw();
  }

  resize() {
    this.chart.resize();
  }
}

export const trace = (place, data, of) => new Trace(place, data, of);
