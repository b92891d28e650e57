// Scatter plot of a setting and a result, one dot per run: {x: {name, log, categories}, y: {name}, dots: [{name,
// colour, x, y}]}. With `categories`, x is an index in that list.
import { short } from '../numbers.js';
import { runLook } from './curves.js';
import { axis, base } from './style.js';
import { logAxis } from './ticks.js';
import { tip } from './tip.js';

const xText = (spec, value) => (spec.x.categories ? spec.x.categories[value] : short(value));

export function points(c, spec) {
  const option = base(c);
  option.legend.show = false;
  option.grid = { ...option.grid, top: 14 };
  const { ticks } = spec.x.log ? logAxis(spec.dots.map(({ x }) => x)) : {};
  const more = ticks
    ? {
        min: Math.min(...ticks, ...spec.dots.map(({ x }) => x)) / 1.1,
        max: Math.max(...ticks, ...spec.dots.map(({ x }) => x)) * 1.1,
        axisTick: { customValues: ticks, lineStyle: { color: c.line } },
      }
    : {};
  option.xAxis = axis(c, spec.x.name, {
    type: spec.x.categories ? 'category' : spec.x.log ? 'log' : 'value',
    data: spec.x.categories,
    scale: true,
    boundaryGap: spec.x.categories ? true : ['6%', '6%'],
    minInterval: spec.dots.every(({ x }) => Number.isInteger(x)) ? 1 : undefined,
    splitLine: { show: false },
    ...more,
    axisLabel: spec.x.categories ? {} : { formatter: short, ...(ticks && { customValues: ticks }) },
  });
  option.yAxis = axis(c, spec.y.name, { type: 'value', scale: true, nameGap: 46, axisLabel: { formatter: short } });
  option.series = [
    {
      type: 'scatter',
      symbolSize: 10,
      data: spec.dots.map(({ x, y, colour }) => ({
        value: [x, y],
        itemStyle: { color: runLook(c, colour).colour, borderColor: c.panel, borderWidth: 1 },
      })),
    },
  ];
  option.tooltip.formatter = ({ dataIndex }) => {
    const { name, x, y, colour } = spec.dots[dataIndex];
    return tip(`${spec.x.name} ${xText(spec, x)}`, { colour: runLook(c, colour).colour, name, value: short(y) });
  };
  return option;
}

points.height = () => 300;
points.rows = (spec) => [
  ['run', spec.x.name, spec.y.name],
  ...spec.dots.map(({ name, x, y }) => [name, xText(spec, x), y]),
];
