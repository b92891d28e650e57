// One chart in one place of a page. Its spec is data: `kind` says which of the kinds below draws it, and the head of
// that kind's file what else it holds. The board and the pages of the command line draw with this alone.
import { BarChart, CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import { GridComponent, LegendComponent, TooltipComponent } from 'echarts/components';
import * as echarts from 'echarts/core';
import { LabelLayout } from 'echarts/features';
import { SVGRenderer } from 'echarts/renderers';
import { element } from '../dom.js';
import { histogram } from './bars.js';
import { curves } from './curves.js';
import { dots } from './dots.js';
import { field } from './field.js';
import { heat } from './heat.js';
import { keys } from './keys.js';
import { lines } from './lines.js';
import { colours } from './style.js';
import { together } from './together.js';

echarts.use([
  BarChart,
  CustomChart,
  LineChart,
  ScatterChart,
  GridComponent,
  LegendComponent,
  TooltipComponent,
  LabelLayout,
  SVGRenderer,
]);

const kinds = { lines, histogram, dots, heat, keys, curves, field, together };

export class Chart {
  // `place`: an empty element that is in the page; `label`: what is drawn, for those who do not see it; `click` gets
  // the index of a mark that was clicked.
  // `before`: the state of a chart of this kind that stood here.
  constructor(place, spec, label, { click, before } = {}) {
    this.kind = kinds[spec.kind];
    if (!this.kind) throw new Error(`there is no chart of kind ${spec.kind}`);
    this.spec = spec;
    this.state = this.kind.start?.(spec, before);
    this.sheet = element('div', { class: 'sheet', role: 'img', 'aria-label': label });
    this.sheet.style.height = `${this.kind.height?.(spec) ?? 320}px`;
    const width = this.kind.leastWidth?.(spec);
    if (width) this.sheet.style.minWidth = `${width}px`;
    // What may be wider than the screen scrolls in a frame of its own, which the keyboard can reach.
    const frame = width
      ? element('div', { class: 'wide', tabindex: 0, role: 'group', 'aria-label': label }, this.sheet)
      : this.sheet;
    place.replaceChildren(frame);
    this.drawing = echarts.init(this.sheet, null, { renderer: 'svg' });
    if (this.kind.hover) this.tellUnderPointer(place);
    if (click) this.drawing.on('click', ({ dataIndex }) => click(dataIndex));
    if (this.kind.controls) place.prepend(this.kind.controls(spec, this.state, () => this.draw()));
    else this.draw();
  }

  // Where marks are one picture, what lies under the pointer is told below it.
  tellUnderPointer(place) {
    const told = element('p', { class: 'now' }, '\u00a0');
    place.append(told);
    this.drawing.getZr().on('mousemove', ({ offsetX, offsetY }) => {
      const spot = this.drawing.convertFromPixel({ gridIndex: 0 }, [offsetX, offsetY]);
      told.textContent = this.kind.hover(this.spec, spot) || '\u00a0';
    });
  }

  draw() {
    this.drawing.setOption(this.kind(colours(), this.spec, this.state), { notMerge: true });
  }

  resize() {
    this.drawing.resize();
  }

  // Other data in the same place; false where they need another frame.
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

  // As a file: the drawing as it stands, or the numbers in it as rows.
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
