// Experiments on trained models: the contribution of each expert (ablation), and whether two runs route alike; both
// compared with chance. The server runs them on request.
import { button, element } from '../dom.js';
import { short } from '../numbers.js';
import { Figure } from './figure.js';
import { askLines, mayChange } from './server.js';

const chanceLevel = 0.05;
const mostRows = 15;
const units = [
  ['expert', 'each expert'],
  ['layer', 'each feed-forward block'],
  ['movement', 'the movement of the keys'],
  ['rule', 'each key rule'],
  ['memory', 'memory slots by word class'],
];
// Four decimals, or two digits of a smaller number.
const decimals = (value) => (value !== 0 && value < 5e-4 ? Number(value.toPrecision(2)).toString() : value.toFixed(4));
const signed = (value) => `${value < 0 ? '−' : '+'}${decimals(Math.abs(value))}`;
const wordsOf = (one) => one.words.map((word) => JSON.stringify(word)).join(' ');
const share = (value) => `${(100 * value).toFixed(1)} %`;

// Numbers are right-aligned, including texts that are numbers.
const isNumber = (cell) => typeof cell === 'number' || /^[+−]?[\d.]+(e-\d+)?( %)?$/.test(cell);

const table = (label, head, rows) =>
  element(
    'div',
    { class: 'table runs-table', tabindex: 0, role: 'group', 'aria-label': label },
    element(
      'table',
      {},
      element('thead', {}, element('tr', {}, head.map((words, i) =>
            element('th', { scope: 'col', class: rows.some((cells) => isNumber(cells[i])) ? 'number' : '' }, words),
          ))),
      element(
        'tbody',
        {},
        rows.map((cells) =>
          element('tr', {}, cells.map((cell) => element('td', { class: isNumber(cell) ? 'number' : '' }, String(cell)))),
        ),
      ),
    ),
  );

// A selection of runs and documents, start and stop buttons, and progress.
class Job {
  constructor(causal, { path, names, documents, begin, show }) {
    Object.assign(this, { causal, path, show });
    this.selects = names.map((name) => element('select', { 'aria-label': name, change: () => causal.show() }));
    this.documents = element('input', { type: 'number', min: 1, max: 1000, value: documents, class: 'narrow' });
    this.go = button(begin, () => causal.board.guard(this.run()), { class: 'main' });
    this.stop = button('Stop', () => this.stopping?.abort(), { hidden: true });
    this.bar = element('progress', { hidden: true, 'aria-label': `progress: ${begin}` });
    this.told = element('p', { class: 'under', role: 'status' });
    this.result = element('div');
    this.controls = element(
      'div',
      { class: 'controls' },
      names.map((name, i) => element('label', {}, `${name} `, this.selects[i])),
      element('label', {}, 'validation documents ', this.documents),
      this.go,
      this.stop,
      this.bar,
    );
  }

  async run() {
    const stopping = new AbortController();
    this.stopping = stopping;
    this.go.disabled = true;
    this.stop.hidden = false;
    this.bar.hidden = false;
    this.bar.removeAttribute('value');
    this.told.textContent = '';
    try {
      await askLines(this.path, this.question(), (line) => this.line(line), stopping.signal);
    } catch (error) {
      this.told.textContent = error.name === 'AbortError' ? 'Stopped.' : error.message;
    } finally {
      this.go.disabled = false;
      this.stop.hidden = true;
      this.bar.hidden = true;
    }
  }

  line({ kind, done, total, error, report, step }) {
    if (kind === 'waiting') this.told.textContent = 'Waiting for another request.';
    if (kind === 'progress') {
      this.told.textContent = total ? `${done} of ${total}` : 'Opening the model.';
      if (total) Object.assign(this.bar, { max: total, value: done });
    }
    if (kind === 'error') this.told.textContent = error.message;
    if (kind === 'end') {
      this.told.textContent = '';
      this.show(report, step);
    }
  }
}

export class Causal {
  constructor(board, place) {
    this.board = board;
    this.ablate = new Job(this, {
      path: '/api/ablate',
      names: ['run'],
      documents: 20,
      begin: 'Measure',
      show: (report, step) => this.showAblation(report, step),
    });
    this.unit = element('select', { 'aria-label': 'leave out' });
    this.unit.append(...units.map(([value, words]) => element('option', { value }, words)));
    this.ablate.controls.prepend(element('label', {}, 'leave out ', this.unit));
    this.ablate.question = () => ({
      run: this.ablate.selects[0].value,
      unit: this.unit.value,
      documents: Number(this.ablate.documents.value),
    });
    this.routes = new Job(this, {
      path: '/api/routes',
      names: ['first run', 'second run'],
      documents: 50,
      begin: 'Compare routes',
      show: (report) => this.showRoutes(report),
    });
    this.routes.question = () => ({
      first: this.routes.selects[0].value,
      second: this.routes.selects[1].value,
      documents: Number(this.routes.documents.value),
    });
    this.change = new Figure('Change in loss without each expert', {
      note: 'One row per layer, one column per expert. A dot marks changes beyond chance.',
    });
    this.parts = new Figure('Change in loss by part', {
      note: 'Bars are standard errors over documents, or deviations of the random draws.',
    });
    this.classes = new Figure('Change in loss by word class', {
      note: 'The largest changes; the class is that of the predicted token.',
    });
    this.agreement = new Figure('Agreement of routes', {
      note: 'Fraction of the assignments of the first run whose matched expert is active in the second run at the same position. By chance: the same after shuffling positions.',
    });
    this.matched = new Figure('Matched experts');
    this.layer = element('select', { 'aria-label': 'layer', change: () => this.showPairs() });
    this.ablationTable = element('div');
    this.routesTable = element('div');
    this.ablate.result.append(this.change.node, this.parts.node, this.classes.node, this.ablationTable);
    this.routes.result.append(
      element('div', { class: 'side-by-side' }, this.agreement.node, this.matched.node),
      this.routesTable,
    );
    this.matched.node.append(element('div', { class: 'controls' }, element('label', {}, 'layer ', this.layer)));
    this.key = element(
      'p',
      { class: 'note' },
      'This page has read access only. To run experiments, open the full address that the program printed.',
    );
    this.key.hidden = mayChange();
    for (const job of [this.ablate, this.routes]) {
      job.result.hidden = true;
      job.go.disabled = !mayChange();
    }
    place.append(
      this.key,
      element('h2', {}, 'Knock-outs'),
      element(
        'p',
        {},
        'One part at a time is disabled. Without an expert, tokens take their next best one. Without the movement of the ',
        'keys, routing uses the initial keys; the control uses keys moved equally far in random directions. Without a key ',
        'rule, the initial keys learn again with the other rules. Memory slots of a word class are compared with the ',
        'same number of random slots.',
      ),
      this.ablate.controls,
      this.ablate.told,
      this.ablate.result,
      element('h2', {}, 'Routes of two runs'),
      element('p', {}, 'Experts of both runs are matched by the positions of a text that they process together.'),
      this.routes.controls,
      this.routes.told,
      this.routes.result,
    );
  }

  show() {
    const runs = [...this.board.runs.values()].filter(({ layers, step }) => layers && step > 0);
    const same = runs.map(({ id, name }) => `${id} ${name}`).join('\n');
    const chosen = this.board.chosen().filter((id) => runs.some((run) => run.id === id));
    for (const [i, select] of [...this.ablate.selects, ...this.routes.selects].entries()) {
      if (select.dataset.entries === same) continue;
      const before = select.value;
      select.replaceChildren(...runs.map(({ id, name }) => element('option', { value: id }, name)));
      select.dataset.entries = same;
      const first = this.board.usual((run) => runs.includes(run) && (!chosen.length || chosen.includes(run.id)));
      const second = chosen.find((id) => id !== first) ?? runs.find(({ id }) => id !== first)?.id;
      const wanted = i === 2 ? second : first;
      select.value = runs.some(({ id }) => id === before) ? before : (wanted ?? '');
    }
    const [first, second] = this.routes.selects;
    if (!this.stoppable()) {
      this.ablate.go.disabled = !mayChange() || !runs.length;
      this.routes.go.disabled = !mayChange() || first.value === second.value;
    }
  }

  stoppable() {
    return [this.ablate, this.routes].some(({ bar }) => !bar.hidden);
  }

  showAblation(report, step) {
    const all = report.knock_outs;
    const only = { rule: () => this.showRules(report, step), memory: () => this.showSlots(report, step) };
    if (only[report.unit]) {
      this.ablate.result.hidden = !all.length;
      this.change.node.hidden = true;
      this.classes.node.hidden = true;
      this.parts.node.hidden = false;
      only[report.unit]();
      return;
    }
    this.classes.node.hidden = false;
    const experts = all.every(({ expert }) => expert !== undefined);
    this.tellAblation(report, step, experts ? 'experts' : 'changes');
    this.ablate.result.hidden = !all.length;
    this.change.node.hidden = !experts;
    this.parts.node.hidden = experts;
    if (experts) this.showExperts(all);
    else this.showParts(all);
    const nameOf = ({ unit, layer, expert }) =>
      expert === undefined ? `${unit}, layer ${layer}` : `layer ${layer}, expert ${expert}`;
    const largest = [...all].sort((a, b) => Math.abs(b.change) - Math.abs(a.change)).slice(0, mostRows);
    const classes = Object.keys(report.class_shares).filter((name) => report.class_shares[name] > 0);
    const cells = largest.flatMap((one, y) => classes.map((name, x) => [x, y, one.by_class[name]]));
    this.classes.show({
      kind: 'heat',
      x: { name: '', categories: classes, turned: true },
      y: { name: 'left out', categories: largest.map(nameOf) },
      cells,
      scale: { kind: 'both', most: Math.max(...cells.map(([, , value]) => Math.abs(value)), 1e-9), unit: 'nats/token' },
    });
    const measured = (one) => [signed(one.change), one.error.toFixed(4), Number(one.p.toPrecision(2))];
    this.ablationTable.replaceChildren(
      experts
        ? table(
            'knock-outs',
            ['layer', 'expert', 'load', 'change', 'standard error', 'p', 'its tokens'],
            largest.map((one) => [one.layer, one.expert, Number(one.load.toFixed(2)), ...measured(one), wordsOf(one)]),
          )
        : table(
            'knock-outs',
            ['left out', 'change', 'standard error', 'p'],
            largest.map((one) => [nameOf(one), ...measured(one)]),
          ),
    );
  }

  // Keys that learned again without each rule.
  showRules(report, step) {
    const all = report.knock_outs;
    const nameOf = ({ without }) => (without === 'all' ? 'without any rule' : `without ${without}`);
    this.ablate.told.textContent = `Step ${short(step)}: keys of the start learned again from ${short(report.learn_documents)} training documents (${short(report.updates)} updates by ${report.rules}; mean movement ${short(report.moved)}): loss ${report.loss.toFixed(4)} over ${short(report.positions)} positions of ${report.documents} documents, ${report.loss_trained.toFixed(4)} with the keys of the run.${report.stopped ? ' Stopped early.' : ''}`;
    this.parts.show({
      kind: 'dots',
      x: { name: 'change in loss, nats/token' },
      categories: all.map(nameOf),
      legend: false,
      series: [{ name: 'change', points: all.map(({ change, error }, i) => [i, change, change - error, change + error]) }],
    });
    this.ablationTable.replaceChildren(
      table(
        'key rules',
        ['left out', 'change', 'standard error', 'p', 'movement of the keys'],
        all.map((one) => [
          nameOf(one),
          signed(one.change),
          one.error.toFixed(4),
          Number(one.p.toPrecision(2)),
          Number(one.moved.toPrecision(3)),
        ]),
      ),
    );
  }

  // Memory without the slots of each word class, and without the same number of random ones.
  showSlots(report, step) {
    const all = report.knock_outs;
    this.ablate.told.textContent = `Step ${short(step)}: loss ${report.loss.toFixed(4)} with a memory of ${short(report.slots)} slots that does not learn, ${report.loss_without_slots.toFixed(4)} without its slots, over ${report.documents} documents.${report.stopped ? ' Stopped early.' : ''}`;
    this.parts.show({
      kind: 'dots',
      x: { name: 'change in loss, nats/token' },
      categories: all.map(({ word_class: words }) => words),
      legend: true,
      series: [
        { name: 'without the slots of a class', points: all.map(({ change }, i) => [i, change]) },
        {
          name: 'without the same number of random slots',
          role: 'chance',
          points: all.map(({ control: middle, control_deviation: wide }, i) => [i, middle, middle - wide, middle + wide]),
        },
      ],
    });
    this.ablationTable.replaceChildren(
      table(
        'memory slots',
        ['word class', 'slots', 'change', 'random slots', 'deviation', 'p'],
        all.map((one) => [
          one.word_class,
          one.slots,
          signed(one.change),
          signed(one.control),
          decimals(one.control_deviation),
          Number(one.p.toPrecision(2)),
        ]),
      ),
    );
  }

  tellAblation(report, step, what) {
    const all = report.knock_outs;
    const beyond = all.filter(({ p }) => p <= chanceLevel).length;
    const sum = all.reduce((total, { change }) => total + change, 0);
    this.ablate.told.textContent = `Step ${short(step)}, ${short(report.positions)} positions of ${report.documents} documents: loss ${report.loss.toFixed(4)} of the whole model, ${signed(sum / all.length)} on average without one part. Beyond chance (p ≤ ${chanceLevel} for the largest of all, ${short(report.shuffles)} random signs): ${beyond} of ${all.length} ${what}.${report.stopped ? ' Stopped early.' : ''}`;
  }

  // Blocks, or movements of keys with their controls: one dot per layer.
  showParts(all) {
    const layers = [...new Set(all.map(({ layer }) => layer))];
    const kinds = [...new Set(all.map(({ unit }) => unit))];
    this.parts.show({
      kind: 'dots',
      x: { name: 'change in loss, nats/token' },
      categories: layers.map((layer) => `layer ${layer}`),
      legend: kinds.length > 1,
      series: kinds.map((kind) => ({
        name: kind,
        role: kind.startsWith('random') ? 'chance' : undefined,
        points: all
          .filter(({ unit }) => unit === kind)
          .map(({ layer, change, error }) => [layers.indexOf(layer), change, change - error, change + error]),
      })),
    });
  }

  // A heat map of layers by experts.
  showExperts(all) {
    const layers = [...new Set(all.map(({ layer }) => layer))];
    const experts = [...new Set(all.map(({ expert }) => expert))];
    this.change.show({
      kind: 'heat',
      x: { name: 'expert', categories: experts.map(String) },
      y: { name: 'layer', categories: layers.map((layer) => `layer ${layer}`) },
      cells: all.map(({ layer, expert, change }) => [experts.indexOf(expert), layers.indexOf(layer), change]),
      marked: all.map(({ p }) => p <= chanceLevel),
      tips: all.map(
        (one) =>
          `layer ${one.layer}, expert ${one.expert}\n${signed(one.change)} ± ${one.error.toFixed(4)} nats/token, p = ${short(one.p)}\nload ${short(one.load)} x uniform\n${wordsOf(one)}`,
      ),
      scale: { kind: 'both', most: Math.max(...all.map(({ change }) => Math.abs(change)), 1e-9), unit: 'nats/token' },
    });
  }

  showRoutes(report) {
    const { layers } = report;
    this.routes.result.hidden = !layers.length;
    const beyond = layers.filter(({ p }) => p <= chanceLevel).length;
    this.routes.told.textContent = `${short(report.positions)} positions of ${report.documents} documents, ${report.shuffles} shuffles. Agreement beyond chance (p ≤ ${chanceLevel}): ${beyond} of ${layers.length} layers.`;
    const names = layers.map(({ layer }) => `layer ${layer}`);
    this.agreement.show({
      kind: 'dots',
      x: { name: 'share of choices', begin: 0, end: 1 },
      categories: names,
      legend: true,
      series: [
        { name: 'agreement', points: layers.map(({ agreement }, i) => [i, agreement]) },
        {
          name: 'chance: mean and largest',
          role: 'chance',
          points: layers.map((one, i) => [i, one.chance_mean, one.chance_mean, one.chance_most]),
        },
      ],
    });
    this.pairs = layers;
    this.layer.replaceChildren(...layers.map(({ layer }, i) => element('option', { value: i }, String(layer))));
    this.showPairs();
    this.routesTable.replaceChildren(
      table(
        'agreement of routes',
        ['layer', 'agreement', 'chance', 'largest by chance', 'p', 'best matched experts'],
        layers.map((one) => [
          one.layer,
          share(one.agreement),
          share(one.chance_mean),
          share(one.chance_most),
          Number(one.p.toPrecision(2)),
          [...one.pairs]
            .sort((a, b) => b.shared - a.shared)
            .slice(0, 5)
            .map(({ first, second, shared }) => `${first} = ${second} (${Math.round(100 * shared)} %)`)
            .join(', '),
        ]),
      ),
    );
  }

  // The matched pairs of one layer, the most similar first.
  showPairs() {
    const one = this.pairs?.[Number(this.layer.value)];
    if (!one) return;
    const pairs = [...one.pairs].sort((a, b) => b.shared - a.shared).slice(0, 32);
    this.matched.show({
      kind: 'dots',
      x: { name: 'share of the positions of the first expert', begin: 0, end: 1 },
      categories: pairs.map(({ first, second }) => `${first} = ${second}`),
      series: [{ name: 'shared positions', points: pairs.map(({ shared }, i) => [i, shared]) }],
    });
  }

  news() {
    if (this.waiting) return;
    this.waiting = setTimeout(() => {
      this.waiting = 0;
      if (this.board.current() === 'causal') this.show();
    }, 1000);
  }

  figures() {
    return [this.change, this.parts, this.classes, this.agreement, this.matched];
  }

  draw() {
    for (const figure of this.figures()) figure.draw();
  }

  resize() {
    for (const figure of this.figures()) figure.resize();
  }
}
