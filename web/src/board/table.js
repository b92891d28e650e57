// The runs as a table: results and the settings in which they differ, sortable by column, grouped by equal settings.
import { button, element } from '../dom.js';
import { duration, short } from '../numbers.js';
import { plain } from './filter.js';
import { csv } from './figure.js';
import { save } from './save.js';

const fixed = [
  ['state', (run) => run.state, String],
  ['step', (run) => run.step, short],
  ['validation loss', (run) => run.loss, short],
  ['bits per byte', (run) => run.bits_per_byte, short],
  ['training loss', (run) => run.train_loss, short],
  ['tokens/s', (run) => run.tokens_per_second, short],
  ['time', (run) => run.seconds, duration],
];

export const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
export function deviation(values) {
  if (values.length < 2) return undefined;
  const middle = mean(values);
  return Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1));
}

export class Table {
  constructor(board, place) {
    this.board = board;
    this.group = element('select', {
      'aria-label': 'group by',
      change: () => {
        board.place.set({ group: this.group.value });
        this.show();
      },
    });
    this.frame = element('div', {
      class: 'table runs-table',
      tabindex: 0,
      role: 'group',
      'aria-label': 'table of runs',
    });
    this.note = element('p', { class: 'under', role: 'status' });
    place.append(
      element(
        'div',
        { class: 'controls' },
        element('label', {}, 'group by ', this.group),
        button('CSV', () => save('runs.csv', new Blob([csv(this.rows())], { type: 'text/csv' }))),
      ),
      this.frame,
      this.note,
    );
  }

  // [name, value of a run, text of a value, key of a setting]
  columns() {
    const settings = this.board.settingNames().map((key) => [
      this.board.shortName(key),
      (run) => plain(this.board.settingsOf(run.id)?.[key]),
      (value) => (value === undefined ? '' : typeof value === 'number' ? String(value) : value),
      key,
    ]);
    const runs = this.board.chosen().map((id) => this.board.runs.get(id));
    const labels = [
      ['tags', (run) => run.tags?.join(', '), String],
      ['note', (run) => run.note?.split('\n')[0], (text) => (text.length > 60 ? `${text.slice(0, 60)}…` : text)],
    ].filter(([, value]) => runs.some((run) => value(run) !== undefined));
    return [['run', (run) => run.name, String], ...labels, ...fixed, ...settings];
  }

  runs() {
    const chosen = this.board.chosen().map((id) => this.board.runs.get(id));
    const [name, falling] = this.order();
    const column = this.columns().find(([one]) => one === name);
    if (!column) return chosen;
    const [, value] = column;
    const before = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      const numbers = typeof x === 'number' && typeof y === 'number';
      const order = numbers ? x - y : String(x).localeCompare(String(y), 'en', { numeric: true });
      return falling ? -order : order;
    };
    return [...chosen].sort(before);
  }

  order() {
    const words = this.board.place.get('sort');
    return words.startsWith('-') ? [words.slice(1), true] : [words, false];
  }

  rows() {
    const columns = this.columns();
    return [columns.map(([name]) => name), ...this.runs().map((run) => columns.map(([, value]) => value(run)))];
  }

  groups(runs) {
    const key = this.board.place.get('group');
    if (!key) return [[null, runs]];
    const value = (run) => (key === 'seeds' ? run.group : String(plain(this.board.settingsOf(run.id)?.[key]) ?? ''));
    const groups = new Map();
    for (const run of runs) groups.set(value(run), [...(groups.get(value(run)) ?? []), run]);
    const title = (text, of) => (key === 'seeds' ? of[0].name : `${this.board.shortName(key)} = ${text}`);
    return [...groups].map(([text, of]) => [title(text, of), of]);
  }

  show() {
    const { place } = this.board;
    const names = this.board.settingNames();
    this.group.replaceChildren(
      element('option', { value: '' }, 'none'),
      element('option', { value: 'seeds' }, 'equal settings (seeds)'),
      ...names.map((key) => element('option', { value: key }, this.board.shortName(key))),
    );
    this.group.value = place.get('group');
    this.draw();
  }

  head(columns) {
    const [sorted, falling] = this.order();
    return element(
      'tr',
      {},
      columns.map(([name]) => {
        const press = button(name, () => {
          this.board.place.set({ sort: sorted === name && !falling ? `-${name}` : name });
          this.draw();
          this.frame.querySelector('th[aria-sort] button')?.focus();
        });
        const mark = sorted === name ? (falling ? 'descending' : 'ascending') : undefined;
        return element('th', { scope: 'col', 'aria-sort': mark }, press);
      }),
    );
  }

  draw() {
    const columns = this.columns();
    const runs = this.runs();
    const losses = runs.map(({ loss }) => loss).filter((loss) => loss !== undefined);
    const best = Math.min(...losses);
    const body = this.groups(runs).flatMap(([title, of]) => {
      const lines = of.map((run) =>
        element(
          'tr',
          { class: run.loss === best && runs.length > 1 ? 'marked' : '' },
          columns.map(([name, value, text], i) => {
            const has = value(run);
            const words = has === undefined || has === null ? '' : text(has);
            return i === 0
              ? element('td', {}, this.board.swatch(run.id), words)
              : element('td', { class: typeof has === 'number' ? 'number' : '' }, words);
          }),
        ),
      );
      if (title === null) return lines;
      const all = of.map(({ loss }) => loss).filter((loss) => loss !== undefined);
      const spread = deviation(all);
      const words = all.length
        ? `, validation loss ${short(mean(all))}${spread === undefined ? '' : ` ± ${short(Number(spread.toPrecision(2)))}`}`
        : '';
      const text = `${title}: ${of.length} ${of.length === 1 ? 'run' : 'runs'}${words}`;
      const heading = element('th', { scope: 'colgroup', colspan: columns.length }, text);
      return [element('tr', { class: 'group' }, heading), ...lines];
    });
    this.frame.replaceChildren(
      element('table', { id: 'runs-table' }, element('thead', {}, this.head(columns)), element('tbody', {}, body)),
    );
    this.frame.hidden = !runs.length;
    this.note.textContent = runs.length
      ? 'The run with the lowest validation loss is marked. A click on a heading sorts.'
      : 'No run is selected.';
  }

  news() {
    if (this.waiting) return;
    this.waiting = setTimeout(() => {
      this.waiting = 0;
      if (this.board.current() === 'table') this.draw();
    }, 1000);
  }

  resize() {}
}
