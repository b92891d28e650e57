// One chart in an element of a page. Its spec is data: `kind` selects one of the kinds below, whose file documents the
// other members. The board and the pages of the command line draw all charts with this module.
import { BarChart, CustomChart, LineChart, ParallelChart, ScatterChart } from 'echarts/charts';
import { GridComponent, LegendComponent, ParallelComponent, TooltipComponent } from 'echarts/components';
import * as echarts from 'echarts/core';
import { LabelLayout } from 'echarts/features';
import { SVGRenderer } from 'echarts/renderers';
import { element } from '../dom.js';
import { histogram } from './bars.js';
import { Crosshair } from './crosshair.js';
import { curves } from './curves.js';
import { dots } from './dots.js';
import { field } from './field.js';
import { heat } from './heat.js';
import { keys } from './keys.js';
import { lines } from './lines.js';
import { parallel } from './parallel.js';
import { points } from './points.js';
import { colours } from './style.js';
import { together } from './together.js';

echarts.use([
  BarChart,
  CustomChart,
  LineChart,
  ParallelChart,
  ScatterChart,
  GridComponent,
  LegendComponent,
  ParallelComponent,
  TooltipComponent,
  LabelLayout,
  SVGRenderer,
]);

const leastStretch = 6; // pixels; a shorter drag is a click

// Returns only the points in a range of the x axis and their neighbors, so that lines reach the edges.
function cutTo(option, [from, to]) {
  Object.assign(option.xAxis, { min: from, max: to });
  for (const one of option.series) {
    const within = one.data.map(([x]) => x >= from && x <= to);
    one.data = one.data.filter((point, i) => within[i] || within[i - 1] || within[i + 1]);
  }
}

const kinds = { lines, histogram, dots, heat, keys, curves, field, together, parallel, points };

export class Chart {
  // `place`: an empty element of the page; `label`: a description for screen readers; `click` receives the index of a
  // clicked mark. `before`: the state of the previous chart of this kind. `zoom` receives the range [from, to] of the x
  // axis that the reader selected by dragging, or nothing after a double click; without `zoom` the chart shows the
  // range itself. `hover` receives the position under the pointer on the x axis, or nothing when it leaves.
  constructor(place, spec, label, { click, before, zoom, hover } = {}) {
    this.kind = kinds[spec.kind];
    if (!this.kind) throw new Error(`there is no chart of kind ${spec.kind}`);
    this.spec = spec;
    this.state = this.kind.start?.(spec, before);
    this.sheet = element('div', { class: 'sheet', role: 'img', 'aria-label': label });
    this.sheet.style.height = `${this.kind.height?.(spec) ?? 320}px`;
    const width = this.kind.leastWidth?.(spec);
    if (width) this.sheet.style.minWidth = `${width}px`;
    // A chart wider than the screen scrolls in its own frame, which is reachable by keyboard.
    const frame = width
      ? element('div', { class: 'wide', tabindex: 0, role: 'group', 'aria-label': label }, this.sheet)
      : this.sheet;
    place.replaceChildren(frame);
    this.drawing = echarts.init(this.sheet, null, { renderer: 'svg' });
    if (this.kind.hover) this.tellUnderPointer(place);
    if (this.kind.scale) place.append(this.legend());
    if (this.kind.crosshair) this.followPointer(hover);
    if (this.kind.zooms) this.followDragging(zoom ?? ((stretch) => this.showStretch(stretch)));
    if (click) this.drawing.on('click', ({ dataIndex }) => click(dataIndex));
    if (this.kind.controls) place.prepend(this.kind.controls(spec, this.state, () => this.draw()));
    else this.draw();
  }

  // If all marks are one image, a line below it describes the mark under the pointer.
  tellUnderPointer(place) {
    const told = element('p', { class: 'now' }, '\u00a0');
    place.append(told);
    this.drawing.getZr().on('mousemove', ({ offsetX, offsetY }) => {
      const spot = this.drawing.convertFromPixel({ gridIndex: 0 }, [offsetX, offsetY]);
      told.textContent = this.kind.hover(this.spec, spot) || '\u00a0';
    });
  }

  followPointer(hover) {
    this.cross = new Crosshair(this.sheet, this.drawing, (x) => this.kind.crosshair(colours(), this.spec, x));
    const place = this.drawing.getZr();
    place.on('mousemove', ({ offsetX, offsetY }) => {
      if (!this.drawing.containPixel({ gridIndex: 0 }, [offsetX, offsetY])) {
        this.cross.hide();
        hover?.(null);
        return;
      }
      const x = this.drawing.convertFromPixel({ xAxisIndex: 0 }, offsetX);
      this.cross.show(x, offsetY);
      hover?.(x);
    });
    place.on('globalout', () => {
      this.cross.hide();
      hover?.(null);
    });
  }

  // Shows the crosshair at x, the position in another chart.
  mark(x) {
    if (x === null) this.cross?.hide();
    else this.cross?.show(x);
  }

  // Color scale of a heat map, from low to high.
  legend() {
    this.bar = element('span', { class: 'bar' });
    this.scaleEnds = [element('span'), element('span')];
    const [low, high] = this.scaleEnds;
    this.scaleNode = element('p', { class: 'scale' }, low, this.bar, high);
    return this.scaleNode;
  }

  showScale() {
    const scale = this.kind.scale(colours(), this.spec);
    this.scaleNode.hidden = !scale;
    if (!scale) return;
    this.bar.style.background = `linear-gradient(to right, ${scale.colours.join(', ')})`;
    [this.scaleEnds[0].textContent, this.scaleEnds[1].textContent] = scale.ends;
  }

  // A finger scrolls the page; a mouse or pen selects a range.
  followDragging(zoom) {
    const mark = element('div', { class: 'stretch', hidden: true });
    this.sheet.append(mark);
    const spot = ({ clientX, clientY }) => {
      const box = this.sheet.getBoundingClientRect();
      return [clientX - box.left, clientY - box.top];
    };
    let began = null;
    const stretch = (event) => [began, spot(event)[0]].sort((a, b) => a - b);
    this.sheet.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || event.pointerType === 'touch') return;
      const here = spot(event);
      if (!this.drawing.containPixel({ gridIndex: 0 }, here)) return;
      [began] = here;
      this.sheet.setPointerCapture(event.pointerId);
    });
    this.sheet.addEventListener('pointermove', (event) => {
      if (began === null) return;
      const [left, right] = stretch(event);
      mark.hidden = right - left < leastStretch;
      mark.style.left = `${left}px`;
      mark.style.width = `${right - left}px`;
    });
    const ended = (event) => {
      if (began === null) return;
      const [left, right] = stretch(event);
      began = null;
      mark.hidden = true;
      if (event.type !== 'pointerup' || right - left < leastStretch) return;
      const at = (x) => this.drawing.convertFromPixel({ xAxisIndex: 0 }, x);
      zoom(this.kind.zooms(this.spec, [at(left), at(right)]));
    };
    this.sheet.addEventListener('pointerup', ended);
    this.sheet.addEventListener('pointercancel', ended);
    this.sheet.addEventListener('dblclick', (event) => {
      if (this.drawing.containPixel({ gridIndex: 0 }, spot(event))) zoom(null);
    });
  }

  showStretch(stretch) {
    this.stretch = stretch;
    this.draw();
  }

  draw() {
    const option = this.kind(colours(), this.spec, this.state);
    if (this.stretch) cutTo(option, this.stretch);
    if (this.kind.scale) this.showScale();
    this.cross?.hide();
    this.drawing.setOption(option, { notMerge: true });
  }

  resize() {
    this.drawing.resize();
  }

  // Draws with another height; without one, with the usual one.
  stretchTo(height = this.kind.height?.(this.spec) ?? 320) {
    this.sheet.style.height = `${height}px`;
    this.drawing.resize();
  }

  // Replaces the data; returns false if they require another frame.
  update(spec) {
    const same = (part) => this.kind[part]?.(spec) === this.kind[part]?.(this.spec);
    if (spec.kind !== this.spec.kind || this.kind.controls || !same('height') || !same('leastWidth')) return false;
    this.spec = spec;
    this.draw();
    return true;
  }

  dispose() {
    this.drawing.dispose();
  }

  // Returns the chart as a file: the current drawing, or its numbers as rows.
  svg() {
    return new XMLSerializer().serializeToString(this.sheet.querySelector('svg'));
  }

  size() {
    return [this.drawing.getWidth(), this.drawing.getHeight()];
  }

  rows() {
    return this.kind.rows(this.spec, this.state);
  }
}
