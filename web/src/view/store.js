// The store of a memory during reading: its slots as dots by their keys, frame by frame. Data: {frames: [{tokens,
// births, hits, lost, taken, dots: [[slot, x, y, count, state], ...]}], slots: [{slot, met, text, offset, before,
// token, after}], of}. State of a slot since the previous frame: 1 = unchanged, 2 = a token was merged into it, 3 =
// inserted, 4 = came from another memory, or one of that memory's slots was merged into it.
import { button, element } from '../dom.js';
import { colours } from '../chart/style.js';

const names = { 1: 'unchanged', 2: 'a token merged into it', 3: 'inserted', 4: 'merged from another memory' };

class Store {
  constructor(place, data) {
    this.data = data;
    this.frame = data.frames.length - 1;
    this.pick = null;
    const all = data.frames.flatMap(({ dots }) => dots);
    const range = (i) => [Math.min(...all.map((dot) => dot[i])), Math.max(...all.map((dot) => dot[i]))];
    this.bounds = [range(1), range(2)];
    this.states = [3, 2, 4, 1].filter((state) => state !== 4 || all.some((dot) => dot[4] === 4));
    this.slider = element('input', {
      type: 'range',
      min: 0,
      max: data.frames.length - 1,
      value: this.frame,
      'aria-label': 'moment of reading',
      input: () => {
        this.frame = Number(this.slider.value);
        this.draw();
      },
    });
    this.play = button('play', () => this.toggle());
    this.summary = element('span', { 'aria-live': 'polite' });
    this.canvas = element('canvas', { role: 'img', 'aria-label': 'slots by their keys', click: (event) => this.choose(event) });
    this.seen = element('section', { 'aria-live': 'polite', 'aria-label': 'selected slot' });
    this.legend = element('p', { class: 'under' });
    place.replaceChildren(
      element('div', { class: 'controls' }, this.play, this.slider, this.summary),
      this.canvas,
      this.legend,
      this.seen,
    );
    this.draw();
  }

  toggle() {
    if (this.timer) {
      clearInterval(this.timer);
      this.timer = null;
    } else {
      this.frame = 0;
      this.timer = setInterval(() => {
        if (this.frame + 1 >= this.data.frames.length) this.toggle();
        else this.frame += 1;
        this.draw();
      }, 600);
    }
    this.play.textContent = this.timer ? 'stop' : 'play';
    this.draw();
  }

  spot([, x, y]) {
    const [[left, right], [low, high]] = this.bounds;
    const edge = 12;
    return [
      edge + ((x - left) / (right - left || 1)) * (this.width - 2 * edge),
      this.height - edge - ((y - low) / (high - low || 1)) * (this.height - 2 * edge),
    ];
  }

  colour(c, state) {
    return [c.line, c.muted, c.palette[0], c.palette[1], c.palette[2]][state];
  }

  choose(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let nearest = 14;
    this.pick = null;
    for (const dot of this.data.frames[this.frame].dots) {
      const [dx, dy] = this.spot(dot);
      const away = Math.hypot(dx - x, dy - y);
      if (away >= nearest) continue;
      nearest = away;
      [this.pick] = dot;
    }
    this.draw();
  }

  draw() {
    const c = colours();
    const { frames, slots, of } = this.data;
    const frame = frames[this.frame];
    this.slider.value = this.frame;
    const instead = frame.lost ? ` (${frame.lost} replaced another slot)` : '';
    const taken = frame.taken ? `, ${frame.taken} merged from another memory` : '';
    this.summary.textContent = `${frame.tokens} tokens read; since the previous frame: ${frame.births} inserted${instead}, ${frame.hits} merged into${taken}`;
    this.width = Math.max(240, this.canvas.parentElement.clientWidth);
    this.height = Math.round(Math.min(520, this.width * 0.6));
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = this.width * scale;
    this.canvas.height = this.height * scale;
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    const paint = this.canvas.getContext('2d');
    paint.scale(scale, scale);
    for (const dot of [...frame.dots].sort((a, b) => a[4] - b[4])) {
      const [x, y] = this.spot(dot);
      paint.globalAlpha = dot[4] === 1 ? 0.45 : 0.85;
      paint.fillStyle = this.colour(c, dot[4]);
      paint.beginPath();
      paint.arc(x, y, 1.6 + Math.log2(1 + dot[3]), 0, 2 * Math.PI);
      paint.fill();
      if (dot[0] !== this.pick) continue;
      paint.globalAlpha = 1;
      paint.strokeStyle = c.text;
      paint.lineWidth = 2;
      paint.stroke();
    }
    this.legend.replaceChildren(
      ...this.states.flatMap((state, i) => {
        const mark = element('span', {}, '● ');
        mark.style.color = this.colour(c, state);
        return [mark, names[state], i + 1 < this.states.length ? ', ' : '. '];
      }),
      `${slots.length} of ${of} slots are shown; larger dots have matched more tokens.`,
    );
    this.drawSeen();
  }

  drawSeen() {
    const one = this.pick === null ? null : this.data.slots[this.pick];
    if (!one || one.token === undefined) {
      this.seen.replaceChildren();
      return;
    }
    const merged = one.met > 1 ? ` ${one.met - 1} more tokens have merged into it since.` : ' Nothing has merged into it.';
    this.seen.replaceChildren(
      element('h3', {}, `Slot ${one.slot}, at the end`),
      one.met === undefined ? [] : element('p', {}, `Inserted here.${merged}`),
      element(
        'blockquote',
        {},
        one.before,
        element('mark', {}, one.token),
        one.after,
        element('footer', {}, `${one.text}, token ${one.offset}`),
      ),
    );
  }

  resize() {
    this.draw();
  }
}

export const store = (place, data) => new Store(place, data);
