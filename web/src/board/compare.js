// Compares runs live: their curves in one chart per metric, and the settings in which they differ.
import { button, element } from '../dom.js';
import { Figure } from './figure.js';
import { axisEntries, axisOf, metrics, ofMachine } from './metrics.js';
import { ask } from './server.js';

// Points per curve decrease with the number of curves, so that their total fits the screen.
const bucketsOf = (runs) => Math.max(60, Math.min(300, Math.round(5000 / Math.max(1, runs))));

// One metric: its points for each displayed run, and its chart.
class Curve {
  constructor(board, [metric, title, unit]) {
    Object.assign(this, { board, metric, unit });
    [this.table] = metric.split('.');
    this.column = metric.slice(this.table.length + 1);
    this.figure = new Figure(title, { rows: () => this.all() });
    this.data = new Map(); // id: {rows, points, smooth, state}
    this.bands = [];
    this.asked = 0;
    this.near = false;
  }

  question(more = {}) {
    const { place } = this.board;
    return {
      metric: this.metric,
      runs: this.runs().join(','),
      x: place.get('x'),
      smooth: place.get('smooth') === '0' ? '' : place.get('smooth'),
      from: place.get('from'),
      to: place.get('to'),
      band: place.get('band'),
      buckets: bucketsOf(this.runs().length),
      ...more,
    };
  }

  runs() {
    return this.board.chosen().filter((id) => this.board.runs.get(id).metrics.includes(this.metric));
  }

  // Returns all points, for a file.
  async all() {
    const { runs } = await ask('/api/points', this.question({ buckets: 0, smooth: '', band: '' }));
    const name = (id) => this.board.runs.get(id)?.place ?? id;
    return [
      [axisOf(this.board.place.get('x')).name, 'run', this.unit],
      ...runs.flatMap(({ id, points }) => points.map(([x, y]) => [x, name(id), y])),
    ];
  }

  async fetch() {
    this.stale = false;
    this.asked += 1;
    const mine = this.asked;
    const question = this.question();
    const answer = await ask('/api/points', question);
    if (mine !== this.asked) return; // another request replaced this one
    this.x = question.x;
    this.data = new Map(answer.runs.map((one) => [one.id, one]));
    this.bands = answer.bands;
    const none = answer.runs.every(({ points }) => !points.length);
    this.figure.note.textContent = none ? 'The selected runs have no values for this x axis.' : '';
    this.draw();
  }

  // Adds new rows; returns false if they do not follow the existing ones.
  add(id, { first, rows }) {
    const has = this.data.get(id);
    const { place } = this.board;
    if (!has) return false;
    const { place: axis } = axisOf(this.x);
    if (axis === undefined || first > has.rows || place.get('band')) return false;
    const to = place.get('to') === '' ? Infinity : Number(place.get('to'));
    const keep = Number(place.get('smooth'));
    for (const row of rows.slice(has.rows - first)) {
      has.rows += 1;
      const [x, y] = [row[axis], row[3][this.column]];
      if (x === null || y === undefined || x > to) continue;
      has.points.push([x, y]);
      if (!has.smooth) continue;
      has.state = [keep * has.state[0] + (1 - keep) * y, keep * has.state[1] + (1 - keep)];
      has.smooth.push([x, has.state[0] / has.state[1]]);
    }
    return has.points.length <= 6 * bucketsOf(this.data.size);
  }

  spec() {
    const { place } = this.board;
    const { name, unit } = axisOf(this.x ?? place.get('x'));
    const number = (text) => (text === '' ? undefined : Number(text));
    const ids = this.runs().filter((id) => this.data.has(id));
    const banded = new Set(this.bands.map(({ group }) => group));
    const groupOf = (id) => groupIn(this.board, id);
    const inBand = (id) => banded.has(groupOf(id));
    return {
      kind: 'curves',
      x: { name, unit, log: unit !== 'clock' && place.get('logx') === '1', from: number(place.get('from')), to: number(place.get('to')) },
      y: { name: this.unit, log: place.get('logy') === '1', calm: place.get('calm') === '1' },
      series: ids
        .filter((id) => !inBand(id))
        .map((id) => ({ name: this.board.runs.get(id).name, colour: this.board.colour(id), ...this.data.get(id) })),
      bands: this.bands.map(({ group, points }) => {
        const of = ids.filter((id) => groupOf(id) === group);
        const { name: first } = this.board.runs.get(of[0]) ?? { name: group };
        const by = place.get('band');
        const name =
          by === '1'
            ? `${first} and ${of.length - 1} more seeds`
            : `${this.board.shortName(by)} = ${group} (${of.length} runs)`;
        return { name, colour: of.length ? this.board.colour(of[0]) : 0, points };
      }),
    };
  }

  draw() {
    if (!this.figure.node.hidden) this.figure.show(this.spec(), { zoom: this.zoom, hover: this.hover });
  }
}

// Returns the group of a run as the server forms groups: by all settings but the seed, or by one setting.
function groupIn(board, id) {
  const by = board.place.get('band');
  return by === '1' ? board.runs.get(id).group : (board.settingsOf(id)?.[by] ?? '');
}

// Several metrics in one chart: color identifies the run, dashes the metric.
class Mixed {
  constructor(board) {
    this.board = board;
    this.figure = new Figure('Several metrics');
    this.figure.node.hidden = true;
    this.stale = true;
  }

  metrics() {
    return metrics.filter(([metric]) => this.board.place.get('metrics').split(',').includes(metric));
  }

  async fetch() {
    const { place } = this.board;
    const wanted = this.metrics();
    this.figure.node.hidden = wanted.length === 0;
    this.asked = (this.asked ?? 0) + 1;
    const mine = this.asked;
    if (!wanted.length) return;
    const runs = this.board.chosen();
    const common = {
      runs: runs.join(','),
      x: place.get('x'),
      smooth: place.get('smooth') === '0' ? '' : place.get('smooth'),
      from: place.get('from'),
      to: place.get('to'),
      buckets: bucketsOf(runs.length * wanted.length),
    };
    const answers = await Promise.all(wanted.map(([metric]) => ask('/api/points', { ...common, metric })));
    if (mine !== this.asked) return;
    this.series = answers.flatMap((answer, i) =>
      answer.runs
        .filter(({ points }) => points.length)
        .map((one) => ({
          ...one,
          name: `${this.board.runs.get(one.id)?.name ?? one.id}, ${wanted[i][1].toLowerCase()}`,
          colour: this.board.colour(one.id),
          dash: i,
        })),
    );
    this.draw();
  }

  draw() {
    if (this.figure.node.hidden || !this.series) return;
    const { place } = this.board;
    const { name, unit } = axisOf(place.get('x'));
    this.figure.note.textContent = this.metrics()
      .map(([, title], i) => `${['solid', 'dashed', 'dotted', 'dash-dotted'][i % 4]}: ${title.toLowerCase()}`)
      .join('; ');
    const spec = {
      kind: 'curves',
      x: { name, unit, log: unit !== 'clock' && place.get('logx') === '1' },
      y: { name: '', log: place.get('logy') === '1' },
      series: this.series,
    };
    this.figure.show(spec, { zoom: this.zoom, hover: this.hover });
  }

  // Changes are requested at most once per second.
  news() {
    if (this.waiting || !this.metrics().length) return;
    this.waiting = setTimeout(() => {
      this.waiting = 0;
      this.board.guard(this.fetch());
    }, 1000);
  }
}

export class Compare {
  constructor(board, place) {
    this.board = board;
    this.curves = metrics.map((one) => new Curve(board, one));
    this.mixed = new Mixed(board);
    // One zoom range and one crosshair for all charts.
    for (const curve of [...this.curves, this.mixed]) {
      curve.zoom = (stretch) => this.change({ from: String(stretch?.[0] ?? ''), to: String(stretch?.[1] ?? '') });
      curve.hover = (x) => {
        for (const other of [...this.curves, this.mixed]) {
          if (other !== curve && !other.figure.node.hidden && (other.near ?? true)) other.figure.chart?.mark(x);
        }
      };
    }
    const grid = (curves) =>
      element(
        'div',
        { class: 'side-by-side' },
        curves.map(({ figure }) => figure.node),
      );
    this.machine = element('h2', {}, 'Speed and machine');
    this.legend = element('p', { class: 'legend' });
    this.settings = element('div');
    this.empty = element('p', { class: 'note', hidden: true });
    place.append(
      this.controls(),
      this.legend,
      this.empty,
      grid(this.curves.filter(({ metric }) => !ofMachine([metric]))),
      this.machine,
      grid(this.curves.filter(({ metric }) => ofMachine([metric]))),
      this.mixing(),
      this.mixed.figure.node,
      element('h2', { id: 'settings' }, 'Settings that differ'),
      this.settings,
    );
    const near = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          const curve = this.curves.find(({ figure }) => figure.node === target);
          curve.near = isIntersecting;
          if (isIntersecting && curve.stale) this.board.guard(curve.fetch());
          else if (isIntersecting) curve.draw();
        }
      },
      { rootMargin: '150px' },
    );
    for (const { figure } of this.curves) near.observe(figure.node);
  }

  change(changes) {
    this.board.place.set(changes);
    this.show();
  }

  controls() {
    const { place } = this.board;
    const change = (changes) => this.change(changes);
    this.axis = element('select', {
      'aria-label': 'x axis',
      change: () => change({ x: this.axis.value, from: '', to: '' }),
    });
    this.smooth = element('input', {
      type: 'range',
      min: 0,
      max: 0.99,
      step: 0.01,
      input: () => {
        clearTimeout(this.waiting);
        this.waiting = setTimeout(() => {
          this.waiting = 0;
          change({ smooth: this.smooth.value });
        }, 120);
      },
    });
    const box = (words, key) => {
      const input = element('input', { type: 'checkbox', change: () => change({ [key]: input.checked ? '1' : '' }) });
      return [input, element('label', {}, input, ` ${words}`)];
    };
    const end = (words, key) => {
      const input = element('input', {
        type: 'number',
        step: 'any',
        change: () => change({ [key]: input.value }),
      });
      return [input, element('label', {}, `${words} `, input)];
    };
    const parts = { logx: box('log x', 'logx'), logy: box('log y', 'logy'), calm: box('ignore outliers', 'calm') };
    this.band = element('select', { 'aria-label': 'group', change: () => change({ band: this.band.value }) });
    const ends = { from: end('from', 'from'), to: end('to', 'to') };
    this.reset = button('reset zoom', () => change({ from: '', to: '' }), {
      title: 'drag over a chart to zoom; a double click resets',
    });
    this.boxes = Object.fromEntries(Object.entries(parts).map(([key, [input]]) => [key, input]));
    this.ends = Object.fromEntries(Object.entries(ends).map(([key, [input]]) => [key, input]));
    return element(
      'div',
      { class: 'controls' },
      element('label', {}, 'x axis ', this.axis),
      element('label', { class: 'slide' }, 'smoothing ', this.smooth),
      Object.values(parts).map(([, label]) => label),
      element('label', {}, 'group ', this.band),
      Object.values(ends).map(([, label]) => label),
      this.reset,
    );
  }

  // Selects the metrics of the combined chart.
  mixing() {
    this.picks = metrics.map(([metric, title]) => {
      const box = element('input', {
        type: 'checkbox',
        change: () => {
          const now = new Set(this.board.place.get('metrics').split(',').filter(Boolean));
          if (box.checked) now.add(metric);
          else now.delete(metric);
          this.board.place.set({ metrics: [...now].join(',') });
          this.board.guard(this.mixed.fetch());
        },
      });
      return [metric, box, element('label', {}, box, ` ${title}`)];
    });
    return element(
      'details',
      { class: 'mixing' },
      element('summary', {}, 'Several metrics in one chart'),
      element(
        'div',
        { class: 'controls' },
        this.picks.map(([, , label]) => label),
      ),
    );
  }

  // Shows the names of the runs while the list of runs is folded.
  showLegend() {
    const ids = this.board.chosen();
    const most = 24;
    this.legend.replaceChildren(
      ...ids.slice(0, most).map((id) => element('span', {}, this.board.swatch(id), this.board.runs.get(id).name)),
      ...(ids.length > most ? [element('span', {}, `and ${ids.length - most} more`)] : []),
    );
  }

  showAxes() {
    const now = this.board.place.get('x');
    const runs = this.board.chosen().map((id) => this.board.runs.get(id));
    const entries = axisEntries(runs, now);
    const same = JSON.stringify(entries);
    const option = ([value, words]) => element('option', { value }, words);
    if (this.axis.dataset.entries !== same) {
      this.axis.replaceChildren(
        ...entries.fixed.map(option),
        element('optgroup', { label: 'metrics' }, entries.metrics.map(option)),
      );
      this.axis.dataset.entries = same;
    }
    this.axis.value = now;
  }

  showGroups() {
    const names = this.board.settingNames();
    const now = this.board.place.get('band');
    const entries = [
      ['', 'none'],
      ['1', 'seeds'],
      ...names.map((key) => [key, this.board.shortName(key)]),
      ...(now && now !== '1' && !names.includes(now) ? [[now, now]] : []),
    ];
    const same = entries.flat().join('\n');
    if (this.band.dataset.entries !== same) {
      this.band.replaceChildren(...entries.map(([value, words]) => element('option', { value }, words)));
      this.band.dataset.entries = same;
    }
    this.band.value = now;
  }

  show() {
    const { place } = this.board;
    this.showAxes();
    // New points redraw the page; the slider keeps a value that the reader is still choosing.
    if (!this.waiting) this.smooth.value = place.get('smooth');
    for (const [key, input] of Object.entries(this.boxes)) input.checked = place.get(key) === '1';
    for (const [key, input] of Object.entries(this.ends)) {
      input.value = place.get(key);
      input.parentNode.hidden = place.get('x') === 'clock';
    }
    this.reset.hidden = place.get('from') === '' && place.get('to') === '';
    this.showGroups();
    this.showLegend();
    const mixed = place.get('metrics').split(',');
    for (const [metric, input] of this.picks) input.checked = mixed.includes(metric);
    this.board.guard(this.mixed.fetch());
    for (const curve of this.curves) {
      curve.figure.node.hidden = curve.runs().length === 0;
      curve.stale = true;
      if (curve.near && !curve.figure.node.hidden) this.board.guard(curve.fetch());
    }
    this.machine.hidden = this.curves.every(({ metric, figure }) => !ofMachine([metric]) || figure.node.hidden);
    const none = this.curves.every(({ figure }) => figure.node.hidden);
    this.empty.hidden = !none;
    this.empty.textContent = this.board.chosen().length
      ? 'These runs have no measurements yet.'
      : 'No run is selected: tick one in the list.';
    this.board.guard(this.showSettings());
  }

  async showSettings() {
    const ids = this.board.chosen();
    const asked = ids.join(',');
    if (asked === this.settingsOf) return;
    this.settingsOf = asked;
    if (!ids.length) {
      this.settings.replaceChildren();
      return;
    }
    const { runs, rows } = await ask('/api/settings', { runs: asked });
    if (asked !== this.settingsOf) return;
    const head = element(
      'tr',
      {},
      element('th', { scope: 'col' }, 'setting'),
      runs.map((id) => element('th', { scope: 'col' }, this.board.swatch(id), this.board.runs.get(id)?.name ?? id)),
    );
    const lines = rows.map(({ key, values }) =>
      element(
        'tr',
        {},
        element('td', {}, element('code', {}, key)),
        values.map((value) => element('td', {}, value)),
      ),
    );
    this.settings.replaceChildren(
      lines.length
        ? element(
            'div',
            { class: 'table', tabindex: 0, role: 'group', 'aria-label': 'settings that differ' },
            element('table', { id: 'settings-table' }, element('thead', {}, head), element('tbody', {}, lines)),
          )
        : element('p', {}, runs.length > 1 ? 'All settings are equal.' : 'The settings cannot be read.'),
    );
  }

  // Called when one run has changed. Visible charts are redrawn at once, others when they scroll into view.
  news({ run, tables, reset }) {
    if (!this.board.chosen().includes(run.id)) return;
    this.mixed.news();
    let appeared = false;
    for (const curve of this.curves) {
      const has = run.metrics.includes(curve.metric);
      if (has && curve.figure.node.hidden) appeared = true;
      const more = tables?.[curve.table];
      if (!has || (!reset && !more)) continue;
      if (!reset && curve.add(run.id, more)) {
        if (curve.near) curve.draw();
        continue;
      }
      curve.stale = true;
      if (curve.near) this.later(curve);
    }
    if (appeared) this.show();
  }

  // Changes within a moment are requested together.
  later(curve) {
    if (curve.waiting) return;
    curve.waiting = setTimeout(() => {
      curve.waiting = 0;
      this.board.guard(curve.fetch());
    }, 200);
  }

  draw() {
    for (const curve of this.curves) curve.draw();
    this.mixed.draw();
  }

  resize() {
    for (const { figure } of this.curves) figure.resize();
    this.mixed.figure.resize();
  }
}
