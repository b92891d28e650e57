// A field of many cells: {x: {name, values}, y: {name, values}, rows: [per x: [value, ...]], unit, middle}. Color
// diverges from `middle` (the uniform load). Drawn as one image, since there may be a hundred thousand cells.
import { element } from '../dom.js';
import { short } from '../numbers.js';
import { axis, base } from './style.js';

const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

const highest = (spec) => Math.max(...spec.rows.map((row) => Math.max(...row)), spec.middle * 2);

// Rendered at its display size, so that cells are not distorted.
function picture(c, spec, across, down) {
  const [width, height] = [spec.x.values.length, spec.y.values.length];
  const canvas = element('canvas', { width, height });
  const paint = canvas.getContext('2d');
  const image = paint.createImageData(width, height);
  const [none, low, high] = [parts(c.panel), parts(c.low), parts(c.high)];
  const most = highest(spec);
  const blend = (from, to, share) => from.map((value, i) => value + (to[i] - value) * share);
  spec.rows.forEach((row, x) =>
    row.forEach((value, y) => {
      const colour =
        value <= spec.middle
          ? blend(none, low, value / spec.middle)
          : blend(low, high, Math.sqrt((value - spec.middle) / (most - spec.middle)));
      const at = 4 * (y * width + x);
      image.data.set([...colour.map(Math.round), 255], at);
    }),
  );
  paint.putImageData(image, 0, 0);
  const large = element('canvas', { width: Math.round(2 * across), height: Math.round(2 * down) });
  const pen = large.getContext('2d');
  pen.imageSmoothingEnabled = false;
  pen.drawImage(canvas, 0, 0, large.width, large.height);
  return large.toDataURL('image/png');
}

export function field(c, spec) {
  const option = base(c);
  option.legend.show = false;
  option.tooltip.show = false;
  option.grid = { left: 62, right: 18, top: 10, bottom: 44 };
  const bare = { type: 'category', axisTick: { show: false }, splitLine: { show: false } };
  option.xAxis = axis(c, spec.x.name, { ...bare, data: spec.x.values.map(short) });
  option.yAxis = axis(c, spec.y.name, { ...bare, data: spec.y.values.map(String), inverse: true, nameGap: 40 });
  option.series = [
    {
      type: 'custom',
      data: [[0, 0]],
      renderItem: ({ coordSys: { x, y, width, height } }) => ({
        type: 'image',
        style: { image: picture(c, spec, width, height), x, y, width, height },
      }),
    },
  ];
  return option;
}

field.height = (spec) => Math.min(520, 70 + Math.max(120, 7 * spec.y.values.length));
field.hover = (spec, [x, y]) => {
  const value = spec.rows[x]?.[y];
  if (value === undefined) return '';
  return `${spec.y.name} ${spec.y.values[y]}, ${spec.x.name} ${short(spec.x.values[x])}: ${short(value)} ${spec.unit}`;
};
field.scale = (c, spec) => ({
  colours: [c.panel, c.low, c.high],
  ends: ['0', `${short(highest(spec))} ${spec.unit}; middle = ${short(spec.middle)}`],
});
field.rows = (spec) => [
  [spec.x.name, spec.y.name, spec.unit],
  ...spec.rows.flatMap((row, x) => row.map((value, y) => [spec.x.values[x], spec.y.values[y], value])),
];
