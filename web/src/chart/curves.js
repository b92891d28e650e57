// Curves of several runs: {x: {name, unit, log, from, to}, y: {name, log, calm}, series: [{name, colour, dash, points: [[x,
// y], ...], smooth: [[x, y], ...]}], bands: [{name, colour, points: [[x, mean, low, high], ...]}]}. `colour` is the
// index of a run; `dash` the index of a metric, if there are several; `unit` of x is step, tokens,
// seconds, clock (milliseconds since 1970) or metric (points not in the order of x). With `smooth`, the raw points are
// drawn pale below it.
import { duration, moment, short, stretchOf } from '../numbers.js';
import { axis, base, colourOf } from './style.js';
import { logAxis } from './ticks.js';

export const runColours = 24; // distinguishable colors in style/frame.css
const dashes = [undefined, [6, 3], [2, 3], [8, 3, 2, 3]];

// Runs beyond the number of colors reuse them with dashes.
export function runLook(c, number, dash = 0) {
  const colour = c.runs[number % runColours] ?? colourOf(c, number);
  return { colour, dash: dashes[(dash + Math.floor(number / runColours)) % dashes.length] };
}

// The same as CSS, which adapts to light and dark mode.
export const runColour = (number) => `var(--r${(number % runColours) + 1})`;

const shown = (spec, points) =>
  points.filter(([x, y]) => x !== null && y !== null && !(spec.x.log && x <= 0) && !(spec.y.log && y <= 0));

const xText = (spec) => ({ seconds: duration, clock: moment })[spec.x.unit] ?? short;

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
  const { colour, dash } = runLook(c, one.colour, one.dash);
  const line = (points, more) => ({
    type: 'line',
    name: one.name,
    data: shown(spec, points),
    color: colour,
    symbol: 'circle',
    symbolSize: 5,
    showSymbol: points.length === 1 || (points.length <= 40 && spec.series.length <= 12),
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

const spread = (points, which) => points.map((point) => point[which]);

// A logarithmic axis also has ticks between the powers of ten.
function scaled(c, part, points, which, more) {
  if (!part.log) return more;
  const { min, max, ticks } = logAxis(spread(points, which), part);
  if (!ticks) return more;
  return {
    ...more,
    min,
    max,
    axisTick: { customValues: ticks, lineStyle: { color: c.line } },
    axisLabel: { ...more.axisLabel, customValues: ticks },
  };
}

export function curves(c, spec) {
  const option = base(c);
  option.legend.show = false; // the list of runs is the legend
  option.tooltip.show = false; // the crosshair shows more
  option.grid = { ...option.grid, top: 14 };
  const text = xText(spec);
  const points = [
    ...spec.series.flatMap((one) => shown(spec, one.points)),
    ...(spec.bands ?? []).flatMap((one) => one.points.flatMap(([x, , low, high]) => [[x, low], [x, high]])),
  ];
  const ends = spec.y.calm ? calmRange(points.map(([, y]) => y), spec.y.log) : {};
  option.xAxis = axis(
    c,
    spec.x.name,
    scaled(c, spec.x, points, 0, {
      type: spec.x.unit === 'clock' ? 'time' : spec.x.log ? 'log' : 'value',
      // From 0, unless the data begin far from it.
      min: spec.x.from ?? (spec.x.log || spec.x.unit === 'clock' ? 'dataMin' : ({ min, max }) => (min > 0 && min < 0.5 * max ? 0 : min)),
      max: spec.x.to ?? 'dataMax',
      splitLine: { show: false },
      axisLabel: spec.x.unit === 'clock' ? {} : { formatter: text },
    }),
  );
  option.yAxis = axis(
    c,
    spec.y.name,
    scaled(c, { ...spec.y, ...ends }, points, 1, {
      type: spec.y.log ? 'log' : 'value',
      scale: true,
      min: ends.from,
      max: ends.to,
      nameGap: 46,
      axisLabel: { formatter: (value) => (spec.y.log ? String(Number(value.toPrecision(3))) : short(value)) },
    }),
  );
  option.series = [
    ...spec.series.flatMap((one) => lineSeries(c, spec, one)),
    ...(spec.bands ?? []).flatMap((one) => bandSeries(c, spec, one)),
  ];
  return option;
}

// Returns the ends of an axis that leave out the 5% of values at each end, with some room beyond the others.
function calmRange(values, log) {
  const sorted = values.filter((y) => y !== null && !(log && y <= 0)).sort((a, b) => a - b);
  if (sorted.length < 20) return {};
  const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
  const [low, high] = [at(0.05), at(0.95)];
  if (!(high > low)) return {};
  if (log) return { from: low * (low / high) ** 0.08, to: high * (high / low) ** 0.08 };
  const room = 0.08 * (high - low);
  const round = 10 ** (Math.floor(Math.log10(high - low)) - 1);
  return { from: Math.floor((low - room) / round) * round, to: Math.ceil((high + room) / round) * round };
}

// Returns the value of a curve at x, interpolated; nothing outside of its range.
function valueAt(points, x) {
  if (!points.length || x < points[0][0] || x > points.at(-1)[0]) return null;
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle;
    else high = middle;
  }
  const [[x0, y0], [x1, y1]] = [points[low], points[high]];
  if (y0 === null || y1 === null) return null;
  return x1 > x0 ? y0 + ((y1 - y0) * (x - x0)) / (x1 - x0) : y0;
}

// Returns the value of the point that is nearest in x: points over another metric are not in the order of x.
function nearestTo(points, x) {
  if (!points.length) return null;
  const [low, high] = points.reduce(([a, b], [one]) => [Math.min(a, one), Math.max(b, one)], [Infinity, -Infinity]);
  if (x < low || x > high) return null;
  return points.reduce((best, one) => (Math.abs(one[0] - x) < Math.abs(best[0] - x) ? one : best))[1];
}

// Returns the contents of a crosshair at x: {title, lines: [{colour, name, y, value}]}, highest first.
curves.crosshair = (c, spec, x) => {
  const at = ['seconds', 'metric'].includes(spec.x.unit) ? x : Math.round(x);
  const read = spec.x.unit === 'metric' ? nearestTo : valueAt;
  const lines = [
    ...spec.series.map((one) => ({ one, y: read(one.smooth ?? one.points, at) })),
    ...(spec.bands ?? []).map((one) => ({ one, y: valueAt(one.points, at) })),
  ]
    .filter(({ y }) => y !== null)
    .map(({ one, y }) => ({ colour: runLook(c, one.colour).colour, name: one.name, y, value: short(y) }))
    .sort((a, b) => b.y - a.y);
  return { x: at, title: `${spec.x.name} ${xText(spec)(at)}`, lines };
};
curves.zooms = (spec, ends) => stretchOf(ends, !['seconds', 'metric'].includes(spec.x.unit));
curves.height = () => 280;
curves.rows = (spec) => [
  [spec.x.name, 'run', spec.y.name],
  ...spec.series.flatMap((one) => one.points.map(([x, y]) => [x, one.name, y])),
];
