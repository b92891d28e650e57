// A chart in its frame, with buttons to save it as SVG, PNG or CSV.
import { Chart } from '../chart/chart.js';
import { button, element } from '../dom.js';
import { save } from './save.js';

// Quotes a text with a comma, a quote or a line end. A text that a spreadsheet would interpret as a formula is
// prefixed.
function cell(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
export const csv = (rows) => `${rows.map((row) => row.map(cell).join(',')).join('\n')}\n`;

const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '') || 'chart';

// Adds the page's background to the drawing.
function svgFile(chart) {
  const [width, height] = chart.size();
  const back = getComputedStyle(document.documentElement).getPropertyValue('--panel').trim();
  return chart.svg().replace(/^(<svg[^>]*>)/, `$1<rect width="${width}" height="${height}" fill="${back}"></rect>`);
}

function pngFile(chart) {
  const [width, height] = chart.size();
  return new Promise((done, fail) => {
    const image = new Image();
    image.onload = () => {
      const canvas = element('canvas', { width: 2 * width, height: 2 * height });
      canvas.getContext('2d').drawImage(image, 0, 0, 2 * width, 2 * height);
      canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error('the picture could not be drawn'))), 'image/png');
    };
    image.onerror = () => fail(new Error('the picture could not be drawn'));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgFile(chart))}`;
  });
}

export class Figure {
  // `rows`: function that returns all data, if there is more than what is drawn.
  constructor(title, { note = '', rows } = {}) {
    this.title = title;
    this.rows = rows;
    this.plot = element('div', { class: 'plot' });
    this.note = element('p', { class: 'under' }, note);
    const kinds = [
      ['SVG', async () => new Blob([svgFile(this.chart)], { type: 'image/svg+xml' })],
      ['PNG', () => pngFile(this.chart)],
      ['CSV', async () => new Blob([csv(await (this.rows?.() ?? this.chart.rows()))], { type: 'text/csv' })],
    ];
    this.larger = button('⤢', () => this.expand(!this.expanded), {
      'aria-label': `${title} larger`,
      'aria-pressed': 'false',
      title: 'larger or smaller',
    });
    this.tools = element(
      'span',
      { class: 'tools' },
      this.larger,
      kinds.map(([name, make]) =>
        button(
          name,
          async () => {
            if (!this.chart) return;
            save(`${fileName(this.title)}.${name.toLowerCase()}`, await make());
          },
          { 'aria-label': `${title} as ${name}`, title: `download as ${name}` },
        ),
      ),
    );
    this.node = element(
      'figure',
      { class: 'chart', 'aria-label': title },
      element('figcaption', {}, title, this.tools),
      this.plot,
      this.note,
    );
  }

  // Expanded, a chart takes the whole width and most of the height of the window.
  expand(expanded) {
    this.expanded = expanded;
    this.node.classList.toggle('expanded', expanded);
    this.larger.setAttribute('aria-pressed', String(expanded));
    this.chart?.stretchTo(expanded ? Math.max(320, Math.round(0.72 * window.innerHeight)) : undefined);
    if (expanded) this.node.scrollIntoView({ block: 'nearest' });
  }

  show(spec, options) {
    if (this.chart?.update(spec)) return;
    const before = this.chart?.spec.kind === spec.kind ? this.chart.state : undefined;
    this.chart?.dispose();
    this.chart = new Chart(this.plot, spec, this.title, { before, ...options });
    if (this.expanded) this.expand(true);
  }

  draw() {
    this.chart?.draw();
  }

  resize() {
    this.chart?.resize();
  }
}
