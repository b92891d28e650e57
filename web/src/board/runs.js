// The list of runs: which are displayed, their progress, and the color of their curves.
import { runColour } from '../chart/curves.js';
import { button, element } from '../dom.js';
import { short } from '../numbers.js';
import { filterOf } from './filter.js';

export class RunList {
  constructor(board, place) {
    this.board = board;
    this.lines = new Map();
    this.filter = element('input', {
      type: 'search',
      placeholder: 'filter: name, loss<3.5, top_k=2',
      title: 'part of a name, /regular expression/, or conditions such as loss<3.5 lr>=0.002 top_k=2 state=done',
      'aria-label': 'filter runs',
      input: () => this.draw(),
    });
    this.order = element('select', { 'aria-label': 'sort runs by', change: () => this.draw() });
    this.order.append(
      ...[
        ['', 'by name'],
        ['loss', 'by loss'],
        ['state', 'by state'],
      ].map(([value, words]) => element('option', { value }, words)),
    );
    this.list = element('ul', { class: 'runs', tabindex: 0, 'aria-label': 'runs' });
    this.told = element('p', { class: 'under', role: 'status' });
    this.trash = button('trash', () => board.guard(board.labels.trash()), { class: 'small', hidden: !board.changes });
    const selected = () => board.chosen().map((id) => board.runs.get(id));
    this.many = button('edit', () => board.labels.editMany(selected()), {
      class: 'small',
      title: 'tags, notes and deletion of all selected runs',
    });
    const fold = element(
      'details',
      { open: true },
      element('summary', {}, 'Runs'),
      element(
        'div',
        { class: 'controls' },
        this.filter,
        this.order,
        button('all', () => board.choose(this.matching())),
        button('none', () => board.choose([])),
      ),
      this.list,
      element('div', { class: 'controls ends' }, this.told, element('span', {}, this.many, ' ', this.trash)),
    );
    if (window.matchMedia('(max-width: 60rem)').matches) fold.open = false;
    place.append(fold);
  }

  matching() {
    let fits = () => true;
    try {
      fits = filterOf(this.filter.value);
      this.filter.setCustomValidity('');
    } catch (error) {
      this.filter.setCustomValidity(error.message);
    }
    const runs = [...this.board.runs.values()].filter((run) => fits(run, this.board.settingsOf(run.id)));
    if (this.order.value === 'loss') runs.sort((a, b) => (a.loss ?? Infinity) - (b.loss ?? Infinity));
    if (this.order.value === 'state') runs.sort((a, b) => b.state.localeCompare(a.state));
    return runs.map(({ id }) => id);
  }

  line(run) {
    const mark = element('span', { class: 'swatch' });
    const box = element('input', {
      type: 'checkbox',
      change: () => {
        const others = this.board.chosen().filter((id) => id !== run.id);
        this.board.choose(box.checked ? [...others, run.id] : others);
      },
    });
    const name = element('span', { class: 'name' });
    const state = element('span', { class: 'state' });
    const note = element('span', { class: 'state about' });
    const inside = button('inside', () => this.board.look(run.id), { class: 'small' });
    const edit = button('edit', () => this.board.labels.edit(this.board.runs.get(run.id)), {
      class: 'small',
      hidden: !this.board.changes,
      title: 'name, tags, note, delete',
    });
    const tags = element('div', { class: 'tags' });
    const node = element(
      'li',
      {},
      element('label', {}, box, mark, name, state, note),
      element('div', { class: 'acts' }, inside, edit),
      tags,
    );
    return { node, mark, box, name, state, note, tags, inside, edit };
  }

  // A tag is a button that filters by it.
  showTags(place, tags) {
    const same = tags.join('\n');
    if (place.dataset.tags === same) return;
    place.dataset.tags = same;
    place.hidden = !tags.length;
    place.replaceChildren(
      ...tags.map((tag) =>
        button(
          tag,
          () => {
            const term = /[\s"]/.test(tag) ? `tag="${tag}"` : `tag=${tag}`;
            this.filter.value = this.filter.value.includes(term) ? this.filter.value.replace(term, '').trim() : term;
            this.draw();
          },
          { class: 'tag', title: `only runs with the tag ${tag}` },
        ),
      ),
    );
  }

  draw() {
    const shown = this.matching();
    const chosen = new Set(this.board.chosen());
    const nodes = [];
    for (const run of shown.map((id) => this.board.runs.get(id))) {
      if (!this.lines.has(run.id)) this.lines.set(run.id, this.line(run));
      const { node, mark, box, name, state, note, tags, inside, edit } = this.lines.get(run.id);
      box.checked = chosen.has(run.id);
      mark.style.background = box.checked ? runColour(this.board.colour(run.id)) : 'transparent';
      name.textContent = run.name;
      name.title = run.title ? `${run.place}: ${run.title}` : run.place;
      note.textContent = (run.note ?? '').split('\n')[0];
      note.title = run.note ?? '';
      note.hidden = !run.note;
      this.showTags(tags, run.tags ?? []);
      const loss = run.loss ?? run.train_loss;
      const told = [
        run.state,
        run.steps && run.step < run.steps ? `${short(run.step)} of ${short(run.steps)}` : `step ${short(run.step)}`,
        loss === undefined ? '' : `loss ${short(loss)}`,
      ];
      state.textContent = run.trouble ?? told.filter(Boolean).join(', ');
      state.classList.toggle('running', run.state === 'running');
      inside.hidden = !run.layers;
      inside.setAttribute('aria-label', `inside ${run.name}`);
      edit.setAttribute('aria-label', `edit ${run.name}`);
      nodes.push(node);
    }
    for (const id of this.lines.keys()) if (!this.board.runs.has(id)) this.lines.delete(id);
    // Nodes that keep their place keep the keyboard focus.
    if (nodes.length !== this.list.childElementCount || nodes.some((node, i) => node !== this.list.children[i]))
      this.list.replaceChildren(...nodes);
    const running = [...this.board.runs.values()].filter(({ state }) => state === 'running').length;
    const { size } = this.board.runs;
    const fit = shown.length < size ? `, ${shown.length} match the filter` : '';
    this.many.textContent = `edit ${chosen.size}`;
    this.many.setAttribute('aria-label', `edit ${chosen.size} selected runs`);
    this.many.hidden = !this.board.changes || chosen.size < 2;
    this.told.textContent = `${size} runs, ${running} running, ${chosen.size} selected${fit}`;
  }
}
