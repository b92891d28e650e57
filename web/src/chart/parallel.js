// Parallel coordinates, one line per run: {axes: [{name, log, categories}], lines: [{name, values: [...]}], result}. A
// value is a number, or an index in `categories`. The last axis is the result, which determines the shade of the lines:
// the lowest are the strongest.
import { short } from '../numbers.js';
import { base, mix } from './style.js';
import { logAxis } from './ticks.js';
import { tip } from './tip.js';

const text = (one, value) => (one.categories ? one.categories[value] : short(value));

export function parallel(c, spec) {
  const option = base(c);
  option.legend.show = false;
  const results = spec.lines.map(({ values }) => values.at(-1));
  // Shades by rank, so that one outlier does not make the other runs look alike.
  const order = [...new Set(results)].sort((a, b) => b - a);
  const share = (value) => (order.length > 1 ? order.indexOf(value) / (order.length - 1) : 1);
  option.parallel = { left: 40, right: 60, top: 42, bottom: 18, parallelAxisDefault: { nameLocation: 'start' } };
  option.parallelAxis = spec.axes.map((one, dim) => {
    const values = spec.lines.map((line) => line.values[dim]);
    // A few values are the ticks; otherwise round numbers are.
    const distinct = [...new Set(values)].sort((a, b) => a - b);
    const few = !one.categories && dim + 1 < spec.axes.length && distinct.length <= 6 ? distinct : undefined;
    const { min, max, ticks = few } = one.log ? { ...logAxis(values), ...(few && { ticks: few }) } : {};
    return {
      dim,
      name: one.name,
      type: one.categories ? 'category' : one.log ? 'log' : 'value',
      data: one.categories,
      scale: true,
      minInterval: one.categories || values.every(Number.isInteger) ? 1 : undefined,
      min,
      max,
      nameLocation: 'end',
      nameGap: 14,
      nameTextStyle: { color: c.text, fontSize: 11, fontFamily: c.font },
      axisLine: { lineStyle: { color: c.muted } },
      axisTick: { lineStyle: { color: c.muted }, ...(ticks && { customValues: ticks }) },
      z: 5, // labels above the lines
      axisLabel: {
        backgroundColor: c.panel,
        padding: [1, 2],
        color: c.muted,
        fontSize: 11,
        fontFamily: c.font,
        ...(one.categories ? {} : { formatter: short }),
        ...(ticks && { customValues: ticks }),
      },
    };
  });
  option.series = [
    {
      type: 'parallel',
      data: spec.lines.map(({ values }) => ({
        value: values,
        lineStyle: {
          color: mix(c.low, c.high, share(values.at(-1))),
          width: 1.2 + 1.4 * share(values.at(-1)),
          opacity: 0.85,
        },
      })),
      emphasis: { lineStyle: { width: 4, opacity: 1 } },
    },
  ];
  option.tooltip.formatter = ({ dataIndex }) => {
    const { name, values } = spec.lines[dataIndex];
    return tip(
      name,
      spec.axes.map((one, i) => `${one.name} ${text(one, values[i])}`),
    );
  };
  return option;
}

parallel.height = () => 340;
parallel.leastWidth = (spec) => 90 * spec.axes.length;
parallel.rows = (spec) => [
  ['run', ...spec.axes.map(({ name }) => name)],
  ...spec.lines.map(({ name, values }) => [name, ...values.map((value, i) => text(spec.axes[i], value))]),
];
