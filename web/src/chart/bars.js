// Histogram: {x: {name}, y: {name}, edges: [n + 1], series: [{name, values: [n]}], unit}, with a logarithmic y axis.
import { short } from '../numbers.js';
import { axis, base } from './style.js';
import { tip } from './tip.js';

export function histogram(c, spec) {
  const option = base(c);
  const [series] = spec.series;
  option.legend.show = false;
  option.grid.top = 16;
  const middle = (i) => String(Number(((spec.edges[i] + spec.edges[i + 1]) / 2).toPrecision(2)));
  option.xAxis = axis(c, spec.x.name, {
    type: 'category',
    data: series.values.map((_, i) => middle(i)),
    splitLine: { show: false },
    axisTick: { show: false },
  });
  // A bar of one expert must be visible, so the axis begins below 1.
  option.yAxis = axis(c, spec.y.name, {
    type: 'log',
    min: 0.5,
    startValue: 0.5,
    nameGap: 40,
    axisLabel: { formatter: (value) => (value < 1 ? '' : short(value)) },
  });
  option.series = [
    {
      type: 'bar',
      name: series.name,
      barMinHeight: 2,
      data: series.values.map((value) => (value > 0 ? value : null)),
      color: c.palette[0],
      barCategoryGap: '12%',
      itemStyle: { borderRadius: [2, 2, 0, 0] },
    },
  ];
  option.tooltip.formatter = ({ dataIndex: i, value }) =>
    tip(`${short(spec.edges[i])} to ${short(spec.edges[i + 1])} ${spec.unit}`, `${value} ${spec.y.name}`);
  return option;
}
