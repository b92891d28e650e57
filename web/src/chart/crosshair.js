// Crosshair over curves: a line that follows the pointer, with the value of every curve at its x.
import { element } from '../dom.js';

const mostLines = 14; // maximum number of values, nearest first
const mostDots = 40;

export class Crosshair {
  // `drawing`: converts positions to pixels; `read(x)` returns the values of the curves at x.
  constructor(sheet, drawing, read) {
    Object.assign(this, { sheet, drawing, read });
    this.line = element('div', { class: 'cross', hidden: true });
    this.tip = element('div', { class: 'cross-tip', hidden: true });
    this.dots = [];
    for (const node of [this.line, this.tip]) node.setAttribute('aria-hidden', 'true');
    sheet.append(this.line, this.tip);
  }

  hide() {
    this.line.hidden = true;
    this.tip.hidden = true;
    for (const dot of this.dots) dot.remove();
    this.dots = [];
  }

  // Moves to x on the axis; `height`: the pointer's pixel, if the pointer is over this chart.
  show(x, height) {
    this.hide();
    const { x: at, title, lines } = this.read(x);
    const [left] = this.drawing.convertToPixel({ gridIndex: 0 }, [at, lines[0]?.y ?? 0]);
    const [top, bottom] = this.ends();
    if (!Number.isFinite(left) || !this.drawing.containPixel({ gridIndex: 0 }, [left, (top + bottom) / 2])) return;
    Object.assign(this.line.style, { left: `${left}px`, top: `${top}px`, height: `${bottom - top}px` });
    this.line.hidden = false;
    const spots = lines.map((line) => this.drawing.convertToPixel({ gridIndex: 0 }, [at, line.y])[1]);
    lines.slice(0, mostDots).forEach((line, i) => {
      if (spots[i] < top - 1 || spots[i] > bottom + 1) return;
      const dot = element('span', { class: 'cross-dot' });
      Object.assign(dot.style, { left: `${left}px`, top: `${spots[i]}px`, background: line.colour });
      this.dots.push(dot);
    });
    this.sheet.append(...this.dots);
    if (height === undefined || !lines.length) return;
    const near = spots.reduce((best, y, i) => (Math.abs(y - height) < Math.abs(spots[best] - height) ? i : best), 0);
    const first = Math.max(0, Math.min(near - Math.floor(mostLines / 2), lines.length - mostLines));
    const part = lines.slice(first, first + mostLines);
    const row = (line, i) => {
      const mark = element('span', { class: 'mark' });
      mark.style.background = line.colour;
      return element(
        'div',
        { class: first + i === near ? 'line near' : 'line' },
        mark,
        element('span', { class: 'name' }, line.name),
        element('span', { class: 'value' }, line.value),
      );
    };
    const rest = lines.length - part.length;
    this.tip.replaceChildren(
      element('div', {}, title),
      ...part.map(row),
      ...(rest > 0 ? [element('div', { class: 'under' }, `and ${rest} more`)] : []),
    );
    this.tip.hidden = false;
    const width = this.sheet.clientWidth;
    const right = left < width / 2;
    this.tip.style.left = right ? `${left + 12}px` : '';
    this.tip.style.right = right ? '' : `${width - left + 12}px`;
  }

  ends() {
    const height = this.drawing.getHeight();
    const { top = 14, bottom = 44 } = this.drawing.getOption().grid?.[0] ?? {};
    return [Number(top), height - Number(bottom)];
  }
}
