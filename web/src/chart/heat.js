// Heat map: {x: {name, categories}, y: {name, categories}, cells: [[x, y, value], ...], tips: [text, ...], scale}.
// `scale`: {kind: 'shade', low, high}, {kind: 'both', most} (diverging from zero) or {kind: 'number'} (one color per
// integer), optionally with the `unit` of the values. `picked`: [x, y] is framed; `marked`: a boolean per cell, which
// draws a dot in it.
import { axis, base, colourOf, mix } from './style.js';
import { short } from '../numbers.js';
import { tip } from './tip.js';

function fill(c, scale, value) {
  if (value === null) return 'transparent';
  if (scale.kind === 'number') return colourOf(c, value);
  if (scale.kind === 'shade') {
    return mix(c.low, c.high, Math.min(1, Math.max(0, (value - scale.low) / (scale.high - scale.low || 1))));
  }
  const share = Math.min(1, Math.abs(value) / (scale.most || 1));
  return mix(c.panel, value < 0 ? c.below : c.high, share);
}

export function heat(c, spec) {
  const option = base(c);
  option.legend.show = false;
  const longest = Math.max(...spec.y.categories.map((name) => name.length));
  option.grid = { left: Math.min(150, 30 + 7 * longest), right: 12, top: 8, bottom: spec.x.turned ? 86 : 44 };
  const bare = { type: 'category', axisTick: { show: false }, splitLine: { show: false } };
  option.xAxis = axis(c, spec.x.name, {
    ...bare,
    data: spec.x.categories,
    nameGap: spec.x.turned ? 68 : 28,
    axisLabel: {
      interval: spec.x.turned ? 0 : 'auto',
      rotate: spec.x.turned ? 60 : 0,
      width: 70,
      overflow: 'truncate',
    },
  });
  option.yAxis = axis(c, '', {
    ...bare,
    data: spec.y.categories,
    inverse: true,
    axisLabel: { color: c.text, interval: 0, width: 130, overflow: 'truncate' },
  });
  option.series = [
    {
      type: 'custom',
      data: spec.cells,
      renderItem: (params, api) => {
        const [x, y] = api.coord([api.value(0), api.value(1)]);
        const [width, height] = api.size([1, 1]);
        const [, , value] = spec.cells[params.dataIndex];
        const gap = Math.min(1.5, width / 8);
        const colour = fill(c, spec.scale, value);
        const rect = { x: x - width / 2 + gap / 2, y: y - height / 2 + gap / 2, width: width - gap, height: height - gap };
        const picked = spec.picked && spec.picked[0] === api.value(0) && spec.picked[1] === api.value(1);
        const cell = {
          type: 'rect',
          shape: rect,
          style: { fill: colour, stroke: picked ? c.text : 'none', lineWidth: 2 },
        };
        if (!spec.marked?.[params.dataIndex]) return cell;
        const dot = { type: 'circle', shape: { cx: x, cy: y, r: 3 }, style: { fill: c.text, stroke: c.panel, lineWidth: 1 } };
        return { type: 'group', children: [cell, dot] };
      },
    },
  ];
  option.tooltip.formatter = ({ dataIndex }) => {
    const [x, y, value] = spec.cells[dataIndex];
    return spec.tips
      ? tip(spec.tips[dataIndex].split('\n'))
      : tip(`${spec.y.categories[y]}, ${spec.x.categories[x]}: ${short(value)}`);
  };
  return option;
}

heat.scale = (c, { scale }) => {
  const end = (value) => (scale.unit ? `${short(value)} ${scale.unit}` : short(value));
  if (scale.kind === 'shade') return { colours: [c.low, c.high], ends: [short(scale.low), end(scale.high)] };
  if (scale.kind === 'both') {
    return { colours: [c.below, c.panel, c.high], ends: [short(-scale.most), end(scale.most)] };
  }
  return null;
};
heat.height = (spec) =>
  (spec.x.turned ? 110 : 66) + Math.max(14, Math.min(28, 420 / spec.y.categories.length)) * spec.y.categories.length;
heat.leastWidth = (spec) => 160 + 9 * spec.x.categories.length;
heat.rows = (spec) => [
  [spec.x.name ?? 'x', spec.y.name ?? 'y', 'value'],
  ...spec.cells.map(([x, y, value]) => [spec.x.categories[x], spec.y.categories[y], value]),
];
