// Curves of several runs: {x: {name, unit, log, from, to}, y: {name, log}, series: [{name, colour, points: [[x, y], ...],
// smooth: [[x, y], ...]}], bands: [{name, colour, points: [[x, mean, low, high], ...]}]}. `colour` is the number of a
// run; `unit` of x is step, tokens or seconds. With `smooth` the points themselves stand behind it, pale.
import { duration, short, stretchOf } from '../numbers.js';
import { axis, base, colourOf } from './style.js';
import { tip } from './tip.js';

// The first runs have the colours of every chart, later ones any others.
export function runLook(c, number) {
  if (number < 2 * c.palette.length) {
    return { colour: c.palette[number % c.palette.length], dash: number < c.palette.length ? undefined : [5, 3] };
  }
  return { colour: colourOf(c, number), dash: undefined };
}

// The same for the style sheet, which knows light and dark by itself.
export const runColour = (number) =>
  number < 16 ? `var(--c${(number % 8) + 1})` : runLook({ palette: [] }, number).colour;

const shown = (spec, points) =>
  points.filter(([x, y]) => x !== null && y !== null && !(spec.x.log && x <= 0) && !(spec.y.log && y <= 0));

const xText = (spec) => (spec.x.unit === 'seconds' ? duration : short);

function bandSeries(c, spec, one) {
  const { colour } = runLook(c, one.colour);
  const points = one.points.filter(([x, , low]) => !(spec.x.log && x <= 0) && !(spec.y.log && low <= 0));
  if (!points.length) return [];
  const area = {
    type: 'custom',
    name: one.name,
    silent: true,
    clip: true,
    z: 2,
    data: [points[0]],
    encode: { x: 0, y: [2, 3] },
    renderItem: (params, api) => ({
      type: 'polygon',
      shape: {
        points: [
          ...points.map(([x, , low]) => api.coord([x, low])),
          ...points.map(([x, , , high]) => api.coord([x, high])).reverse(),
        ],
      },
      style: { fill: colour, opacity: 0.22 },
    }),
  };
  const middle = {
    type: 'line',
    name: one.name,
    data: points.map(([x, mean]) => [x, mean]),
    color: colour,
    showSymbol: false,
    lineStyle: { color: colour, width: 2.2 },
    z: 4,
  };
  return [area, middle];
}

function lineSeries(c, spec, one) {
  const { colour, dash } = runLook(c, one.colour);
  const line = (points, more) => ({
    type: 'line',
    name: one.name,
    data: shown(spec, points),
    color: colour,
    symbol: 'circle',
    symbolSize: 5,
    showSymbol: points.length <= 40 && spec.series.length <= 12,
    lineStyle: { color: colour, width: 1.8, type: dash },
    emphasis: { focus: 'series' },
    z: 4,
    ...more,
  });
  if (!one.smooth) return [line(one.points)];
  const pale = { silent: true, showSymbol: false, z: 2, lineStyle: { color: colour, width: 1, opacity: 0.28 } };
  return [
    line(one.points, pale),
    line(one.smooth, { showSymbol: one.smooth.length === 1, lineStyle: { color: colour, width: 2.2 } }),
  ];
}

export function curves(c, spec) {
  const option = base(c);
  option.legend.show = false; // the list of runs is the legend
  option.grid = { ...option.grid, top: 14 };
  const text = xText(spec);
  option.xAxis = axis(c, spec.x.name, {
    type: spec.x.log ? 'log' : 'value',
    min: spec.x.from ?? 'dataMin',
    max: spec.x.to ?? 'dataMax',
    splitLine: { show: false },
    axisLabel: { formatter: text },
  });
  option.yAxis = axis(c, spec.y.name, {
    type: spec.y.log ? 'log' : 'value',
    scale: true,
    nameGap: 46,
    axisLabel: { formatter: (value) => (spec.y.log ? String(Number(value.toPrecision(3))) : short(value)) },
  });
  option.series = [
    ...spec.series.flatMap((one) => lineSeries(c, spec, one)),
    ...(spec.bands ?? []).flatMap((one) => bandSeries(c, spec, one)),
  ];
  option.tooltip.trigger = 'item';
  option.tooltip.formatter = ({ value, color, seriesName }) =>
    tip(`${spec.x.name} ${text(value[0])}`, { colour: color, name: seriesName, value: short(value[1]) });
  return option;
}

curves.zooms = (spec, ends) => stretchOf(ends, spec.x.unit !== 'seconds');
curves.height = () => 280;
curves.rows = (spec) => [
  [spec.x.name, 'run', spec.y.name],
  ...spec.series.flatMap((one) => one.points.map(([x, y]) => [x, one.name, y])),
];
