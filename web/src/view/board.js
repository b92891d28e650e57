// The board: runs as they train, beside one another and from inside. Data: {read_only}. Everything else is asked of the
// server (board/server.js); what is shown stands in the address (board/place.js).
import { Ask } from '../board/ask.js';
import { Compare } from '../board/compare.js';
import { Inside } from '../board/inside.js';
import { Place } from '../board/place.js';
import { RunList } from '../board/runs.js';
import { ask, follow } from '../board/server.js';
import { runColour } from '../chart/curves.js';
import { choice, element } from '../dom.js';

const mostAtFirst = 50; // runs, where the address does not say which

class Board {
  constructor(node, data) {
    this.data = data;
    this.runs = new Map(); // by id, in the order of their places
    this.place = new Place(() => this.show());
    this.trouble = element('p', { class: 'note', role: 'alert', hidden: true });
    const side = element('div', { class: 'side' });
    const body = element('div', { class: 'body' });
    node.classList.add('board');
    this.views = {};
    this.panels = {};
    const tabs = [
      ['compare', 'Compare', Compare],
      ['inside', 'Inside', Inside],
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
    node.replaceChildren(side, body);
    this.list = new RunList(this, side);
    for (const [name, , View] of tabs) {
      this.panels[name] = element('section', { 'aria-label': name, hidden: true });
      body.append(this.panels[name]);
      this.views[name] = new View(this, this.panels[name]);
    }
    follow({
      began: () => this.guard(this.readAll()),
      news: (news) => this.news(news),
      lost: () => this.tell('The server does not answer; it is tried again.'),
    });
  }

  // What goes wrong is told where it is seen.
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
    this.known = true;
    this.show();
  }

  // The runs that are shown: those the address names, or the first ones.
  chosen() {
    const named = this.place.get('runs');
    if (named === 'none') return [];
    if (!named) return [...this.runs.keys()].slice(0, mostAtFirst);
    return named.split(',').filter((id) => this.runs.has(id));
  }

  choose(ids) {
    const order = [...this.runs.keys()].filter((id) => ids.includes(id));
    const all = order.length === Math.min(this.runs.size, mostAtFirst) && order.length === this.runs.size;
    this.place.set({ runs: all ? '' : order.join(',') || 'none' });
    this.show();
  }

  // The number of a run's colour: its place among those shown.
  colour(id) {
    return Math.max(0, this.chosen().indexOf(id));
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
    // What was out of sight did not hear of another width or other colours.
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
      this.waiting = setTimeout(() => this.show(), 100);
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
