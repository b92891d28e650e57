// The board: runs during training, compared with each other and from inside. Data: {read_only, changes}. Everything
// else comes from the server (board/server.js); the state of the view is kept in the address (board/place.js).
import { Ask } from '../board/ask.js';
import { Causal } from '../board/causal.js';
import { Compare } from '../board/compare.js';
import { Inside } from '../board/inside.js';
import { Labels } from '../board/labels.js';
import { Place } from '../board/place.js';
import { RunList } from '../board/runs.js';
import { Samples } from '../board/samples.js';
import { Sweep } from '../board/sweep.js';
import { Table } from '../board/table.js';
import { ask, follow, mayChange, takeKey } from '../board/server.js';
import { runColour, runColours } from '../chart/curves.js';
import { choice, element } from '../dom.js';

const mostAtFirst = 50; // default number of displayed runs
const mostSettings = 500; // runs whose settings are being requested
const grey = 17; // index of the color that a run has only if the others are taken

// Returns a deterministic hash of a text (FNV-1a).
function hash(text) {
  let value = 0x811c9dc5;
  for (const one of text) value = Math.imul(value ^ one.codePointAt(0), 0x01000193) >>> 0;
  return value;
}

class Board {
  constructor(node, data) {
    this.data = data;
    takeKey();
    this.changes = data.changes && mayChange();
    this.runs = new Map(); // by id, sorted by place
    this.colours = new Map(); // by id: index of the run's color
    this.settings = new Map(); // by id: {setting: value} of the settings that differ
    this.names = [];
    this.place = new Place(() => this.show());
    this.trouble = element('p', { class: 'note', role: 'alert', hidden: true });
    const side = element('div', { class: 'side' });
    const body = element('div', { class: 'body' });
    node.classList.add('board');
    this.views = {};
    this.panels = {};
    const tabs = [
      ['compare', 'Compare', Compare],
      ['table', 'Table', Table],
      ['settings', 'Settings', Sweep],
      ['samples', 'Samples', Samples],
      ['inside', 'Inside', Inside],
      ...(data.changes ? [['causal', 'Causal', Causal]] : []),
      ...(data.read_only ? [] : [['ask', 'Ask', Ask]]),
    ];
    this.tabs = choice(
      'view',
      tabs.map(([name, words]) => [name, words]),
      this.place.get('view'),
      (view) => {
        this.place.set({ view });
        this.show();
      },
    );
    body.append(element('div', { class: 'controls tabs' }, this.tabs.row), this.trouble);
    this.labels = new Labels(this);
    node.replaceChildren(side, body, this.labels.told);
    this.list = new RunList(this, side);
    for (const [name, , View] of tabs) {
      this.panels[name] = element('section', { 'aria-label': name, hidden: true });
      body.append(this.panels[name]);
      this.views[name] = new View(this, this.panels[name]);
    }
    follow({
      began: () => this.guard(this.readAll()),
      news: (news) => this.news(news),
      lost: () => this.tell('No connection to the server; trying again.'),
    });
  }

  // Shows a failed request on the page.
  guard(promise) {
    promise.catch((error) => {
      if (error.name !== 'AbortError') this.tell(error.message);
    });
  }

  tell(words) {
    this.trouble.textContent = words;
    this.trouble.hidden = !words;
  }

  async readAll() {
    const { runs } = await ask('/api/runs');
    this.tell('');
    this.runs = new Map(runs.map((run) => [run.id, run]));
    for (const id of this.runs.keys()) this.colour(id);
    this.known = true;
    this.show();
    this.guard(this.readSettings());
  }

  // Returns the settings in which the runs differ, for the filter, the table and the charts of settings.
  async readSettings() {
    const ids = [...this.runs.keys()].slice(0, mostSettings);
    if (!ids.length) return;
    const { runs, rows } = await ask('/api/settings', { runs: ids.join(',') });
    const many = runs.length > 1;
    this.names = many ? rows.map(({ key }) => key) : [];
    this.settings = new Map(
      runs.map((id, i) => [id, Object.fromEntries((many ? rows : []).map(({ key, values }) => [key, values[i]]))]),
    );
    this.list.draw();
    this.views[this.current()].show();
  }

  settingsOf(id) {
    return this.settings.get(id);
  }

  // Names of settings in which the selected runs differ.
  settingNames() {
    const of = this.chosen().map((id) => this.settings.get(id));
    const names = this.names.filter((key) => new Set(of.map((one) => one?.[key])).size > 1);
    return [...names.filter((key) => key !== 'seed'), ...names.filter((key) => key === 'seed')];
  }

  // Returns the last part of a setting's name if it is unambiguous.
  shortName(key) {
    const last = key.split('.').at(-1);
    return this.names.filter((one) => one.split('.').at(-1) === last).length > 1 ? key : last;
  }

  // Returns the displayed runs: those named in the address, or the first ones.
  chosen() {
    const named = this.place.get('runs');
    if (named === 'none') return [];
    if (!named) return [...this.runs.keys()].slice(0, mostAtFirst);
    return named.split(',').filter((id) => this.runs.has(id));
  }

  // Returns the run that a view of one run shows first: one that trains, or the one that trained longest.
  usual(fits) {
    const runs = [...this.runs.values()].filter(fits);
    const rank = ({ state, seconds, step }) => [state === 'running' ? 1 : 0, seconds ?? 0, step];
    const before = (a, b) => {
      const [x, y] = [rank(a), rank(b)];
      const i = x.findIndex((value, j) => value !== y[j]);
      return i < 0 ? 0 : y[i] - x[i];
    };
    return runs.sort(before)[0]?.id;
  }

  choose(ids) {
    const order = [...this.runs.keys()].filter((id) => ids.includes(id));
    const all = order.length === Math.min(this.runs.size, mostAtFirst) && order.length === this.runs.size;
    this.place.set({ runs: all ? '' : order.join(',') || 'none' });
    this.show();
  }

  // Returns the index of a run's color. It is derived from the run's name, whichever runs are displayed; if another run
  // already has it, the next free one.
  colour(id) {
    if (this.colours.has(id)) return this.colours.get(id);
    const run = this.runs.get(id);
    if (!run) return 0;
    const used = new Set([...this.colours.entries()].filter(([one]) => this.runs.has(one)).map(([, number]) => number));
    const any = hash(run.place) % (runColours - 1);
    const first = any < grey ? any : any + 1;
    let number = first;
    for (let step = 1; used.has(number); step += 1) number = step < runColours ? (first + step) % runColours : step;
    this.colours.set(id, number);
    return number;
  }

  swatch(id) {
    const mark = element('span', { class: 'swatch' });
    mark.style.background = runColour(this.colour(id));
    return mark;
  }

  look(id) {
    this.place.set({ view: 'inside', run: id, step: '' });
    this.show();
  }

  current() {
    return this.views[this.place.get('view')] ? this.place.get('view') : 'compare';
  }

  show() {
    if (!this.known) return;
    const now = this.current();
    this.tabs.press(now);
    for (const [name, panel] of Object.entries(this.panels)) panel.hidden = name !== now;
    this.list.draw();
    this.views[now].show();
    // Charts outside of the view are not notified of a new width or new colors.
    if (this.shown && this.shown !== now) {
      this.views[now].resize();
      this.views[now].draw();
    }
    this.shown = now;
  }

  news(news) {
    if (!this.known) return;
    if (news.gone) {
      this.runs.delete(news.gone);
      this.show();
      return;
    }
    const { run } = news;
    const isNew = !this.runs.has(run.id);
    this.runs.set(run.id, run);
    if (isNew) {
      this.runs = new Map([...this.runs].sort(([, a], [, b]) => (a.place < b.place ? -1 : 1)));
      clearTimeout(this.waiting); // many may come at once
      this.waiting = setTimeout(() => {
        this.show();
        this.guard(this.readSettings());
      }, 100);
      return;
    }
    this.list.draw();
    this.views[this.current()].news?.(news);
  }

  draw() {
    this.list.draw();
    this.views[this.current()].draw();
  }

  resize() {
    this.views[this.current()].resize();
  }
}

export const board = (place, data) => new Board(place, data);
