// Settings against results: parallel coordinates of all settings that differ, and a scatter plot of one setting.
import { element } from '../dom.js';
import { plain } from './filter.js';
import { Figure } from './figure.js';

const results = [
  ['loss', 'validation loss'],
  ['bits_per_byte', 'bits per byte'],
  ['train_loss', 'training loss'],
  ['tokens_per_second', 'tokens/s'],
  ['seconds', 'training time, s'],
];
const mostAxes = 9;
const about = 'One line per run; thicker lines have lower results. Settings that are equal in all runs are omitted.';

export class Sweep {
  constructor(board, place) {
    this.board = board;
    const select = (label, key) =>
      element('select', {
        'aria-label': label,
        change: ({ target }) => {
          board.place.set({ [key]: target.value });
          this.show();
        },
      });
    this.result = select('result', 'result');
    this.result.append(...results.map(([value, words]) => element('option', { value }, words)));
    this.setting = select('setting', 'setting');
    this.parallel = new Figure('Settings and result');
    this.scatter = new Figure('Result against one setting');
    this.empty = element('p', { class: 'note', hidden: true });
    place.append(
      element(
        'div',
        { class: 'controls' },
        element('label', {}, 'result ', this.result),
        element('label', {}, 'setting ', this.setting),
      ),
      this.empty,
      this.parallel.node,
      this.scatter.node,
    );
  }

  // Returns the axis of a setting's values: numeric, logarithmic if they span a wide range, or a list of texts.
  axis(key, runs) {
    const values = runs.map((run) => plain(this.board.settingsOf(run.id)?.[key]));
    const name = this.board.shortName(key);
    if (values.every((value) => typeof value === 'number')) {
      const [low, high] = [Math.min(...values), Math.max(...values)];
      return { axis: { name, log: low > 0 && high / low >= 3 && new Set(values).size > 1 }, values };
    }
    const texts = values.map((value) => (value === undefined ? 'not set' : String(value)));
    const categories = [...new Set(texts)].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
    return { axis: { name, categories }, values: texts.map((text) => categories.indexOf(text)) };
  }

  // Settings that separate the runs in the same way show the same lines: the first of them stands for the others. The
  // more values a setting has, the earlier it gets an axis.
  independent(names, runs) {
    const groups = new Map();
    for (const key of names) {
      const { values } = this.axis(key, runs);
      const order = [...new Set(values)];
      const pattern = values.map((value) => order.indexOf(value)).join(' ');
      groups.set(pattern, [...(groups.get(pattern) ?? []), key]);
    }
    const kinds = (keys) => new Set(this.axis(keys[0], runs).values).size;
    const chosen = new Set([...groups.values()].sort((a, b) => kinds(b) - kinds(a)).slice(0, mostAxes));
    const lists = [...groups.values()].filter((keys) => chosen.has(keys));
    const words = (keys) => keys.map((key) => this.board.shortName(key)).join(', ');
    const together = lists
      .filter((keys) => keys.length > 1)
      .map(([first, ...others]) => ` ${this.board.shortName(first)} varies together with ${words(others)}.`);
    return { shown: lists.map(([first]) => first), together: together.join('') };
  }

  show() {
    const { place } = this.board;
    const names = this.board.settingNames();
    const same = names.join('\n');
    if (this.setting.dataset.entries !== same) {
      this.setting.replaceChildren(...names.map((key) => element('option', { value: key }, this.board.shortName(key))));
      this.setting.dataset.entries = same;
    }
    this.result.value = results.some(([value]) => value === place.get('result')) ? place.get('result') : 'loss';
    this.setting.value = names.includes(place.get('setting'))
      ? place.get('setting')
      : (names.find((key) => key === 'train.lr') ?? names[0] ?? '');
    this.draw();
  }

  draw() {
    const result = this.result.value;
    const [, words] = results.find(([value]) => value === result) ?? results[0];
    const runs = this.board
      .chosen()
      .map((id) => this.board.runs.get(id))
      .filter((run) => run[result] !== undefined && this.board.settingsOf(run.id));
    const names = this.board.settingNames().filter((key) => new Set(this.axis(key, runs).values).size > 1);
    const few = runs.length < 2 || !names.length;
    this.empty.hidden = !few;
    this.parallel.node.hidden = few;
    this.scatter.node.hidden = few || !this.setting.value;
    this.empty.textContent = 'Select at least two runs that differ in a setting and have this result.';
    if (few) return;
    const { shown, together } = this.independent(names, runs);
    const axes = shown.map((key) => this.axis(key, runs));
    this.parallel.note.textContent = `${about}${together}`;
    this.parallel.show({
      kind: 'parallel',
      axes: [...axes.map(({ axis }) => axis), { name: words }],
      lines: runs.map((run, i) => ({ name: run.name, values: [...axes.map(({ values }) => values[i]), run[result]] })),
    });
    const { axis, values } = this.axis(this.setting.value, runs);
    this.scatter.show({
      kind: 'points',
      x: axis,
      y: { name: words },
      dots: runs.map((run, i) => ({
        name: run.name,
        colour: this.board.colour(run.id),
        x: values[i],
        y: run[result],
      })),
    });
  }

  news() {
    if (this.waiting) return;
    this.waiting = setTimeout(() => {
      this.waiting = 0;
      if (this.board.current() === 'settings') this.draw();
    }, 1000);
  }

  resize() {
    this.parallel.resize();
    this.scatter.resize();
  }
}
