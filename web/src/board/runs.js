// The list of runs: which are shown, what each is doing, and the colour of its curves.
import { runColour } from '../chart/curves.js';
import { button, element } from '../dom.js';
import { short } from '../numbers.js';

export class RunList {
  constructor(board, place) {
    this.board = board;
    this.lines = new Map();
    this.filter = element('input', {
      type: 'search',
      placeholder: 'part of a name',
      'aria-label': 'show runs whose name holds',
      input: () => this.draw(),
    });
    this.list = element('ul', { class: 'runs', tabindex: 0, 'aria-label': 'runs' });
    this.told = element('p', { class: 'under', role: 'status' });
    const fold = element(
      'details',
      { open: true },
      element('summary', {}, 'Runs'),
      element(
        'div',
        { class: 'controls' },
        this.filter,
        button('all', () => board.choose(this.matching())),
        button('none', () => board.choose([])),
      ),
      this.list,
      this.told,
    );
    if (window.matchMedia('(max-width: 60rem)').matches) fold.open = false;
    place.append(fold);
  }

  matching() {
    const part = this.filter.value.toLowerCase();
    return [...this.board.runs.values()].filter(({ place }) => place.toLowerCase().includes(part)).map(({ id }) => id);
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
    const inside = button('inside', () => this.board.look(run.id), { class: 'small' });
    const node = element('li', {}, element('label', {}, box, mark, name, state), inside);
    return { node, mark, box, name, state, inside };
  }

  draw() {
    const shown = new Set(this.matching());
    const chosen = new Set(this.board.chosen());
    const nodes = [];
    for (const run of this.board.runs.values()) {
      if (!this.lines.has(run.id)) this.lines.set(run.id, this.line(run));
      const { node, mark, box, name, state, inside } = this.lines.get(run.id);
      if (!shown.has(run.id)) continue;
      box.checked = chosen.has(run.id);
      mark.style.background = box.checked ? runColour(this.board.colour(run.id)) : 'transparent';
      name.textContent = run.name;
      name.title = run.title ? `${run.place}: ${run.title}` : run.place;
      const loss = run.loss ?? run.train_loss;
      const told = [
        run.state,
        run.steps ? `${short(run.step)} of ${short(run.steps)}` : `step ${short(run.step)}`,
        loss === undefined ? '' : `loss ${short(loss)}`,
      ];
      state.textContent = run.trouble ?? told.filter(Boolean).join(', ');
      state.classList.toggle('running', run.state === 'running');
      inside.hidden = !run.layers;
      inside.setAttribute('aria-label', `inside ${run.name}`);
      nodes.push(node);
    }
    for (const id of this.lines.keys()) if (!this.board.runs.has(id)) this.lines.delete(id);
    // Nodes that stay where they are keep the keyboard's place.
    if (nodes.length !== this.list.childElementCount || nodes.some((node, i) => node !== this.list.children[i]))
      this.list.replaceChildren(...nodes);
    const running = [...this.board.runs.values()].filter(({ state }) => state === 'running').length;
    this.told.textContent = `${this.board.runs.size} runs, ${running} running, ${chosen.size} shown`;
  }
}
