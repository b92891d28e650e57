// One dot per value, one row per category: {x: {name, begin, end}, categories, legend, series: [{name, role, points:
// [[category, value, low, high], ...]}]}; low and high, if given, are drawn as an error bar. With `legend` each series
// has its own color; the role `chance` marks the expected value by chance.
import { short } from '../numbers.js';
import { axis, base, fitLegend } from './style.js';
import { tip } from './tip.js';

function look(c, spec, place) {
  const colour = c.palette[spec.legend ? place % c.palette.length : 0];
  if (spec.series[place].role !== 'chance') return { colour, fill: colour };
  return { colour: c.muted, fill: c.panel };
}

const whiskers = (series, colour) => ({
  type: 'custom',
  name: series.name,
  silent: true,
  z: 2,
  color: colour,
  data: series.points,
  encode: { x: [1, 2, 3], y: 0 },
  renderItem: (params, api) => {
    const place = api.value(0);
    const [from, to] = [api.coord([api.value(2), place]), api.coord([api.value(3), place])];
    return {
      type: 'line',
      shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] },
      style: { stroke: colour, lineWidth: 2 },
    };
  },
});

export function dots(c, spec) {
  const option = base(c);
  const longest = Math.max(...spec.categories.map((name) => name.length));
  option.grid = { ...option.grid, top: 10, left: Math.min(190, 20 + 7 * longest) };
  if (spec.legend) {
    option.grid.top = 36;
    fitLegend(
      option,
      spec.series.map((series) => series.name),
    );
  } else {
    option.legend.show = false;
  }
  option.xAxis = axis(c, spec.x.name, {
    type: 'value',
    scale: true,
    min: spec.x.begin,
    max: spec.x.end,
    boundaryGap: ['12%', '12%'],
    axisLabel: { formatter: short },
  });
  option.yAxis = axis(c, '', {
    type: 'category',
    data: spec.categories,
    inverse: true,
    axisTick: { show: false },
    splitLine: { show: true, lineStyle: { color: c.line, opacity: 0.6 } },
    axisLabel: { color: c.text, width: 170, overflow: 'truncate', interval: 0 },
  });
  option.series = spec.series.flatMap((series, place) => {
    const { colour, fill } = look(c, spec, place);
    const marks = {
      type: 'scatter',
      name: series.name,
      data: series.points.map(([category, value]) => [value, category]),
      symbolSize: 11,
      z: 3,
      color: colour,
      itemStyle: { color: fill, opacity: 0.9, borderColor: fill === colour ? c.panel : colour, borderWidth: 1.5 },
    };
    return series.points.some((point) => point.length > 2) ? [whiskers(series, colour), marks] : [marks];
  });
  option.tooltip.formatter = (one) =>
    tip(spec.legend ? spec.categories[one.value[1]] : [], {
      colour: one.color,
      name: one.seriesName,
      value: short(one.value[0]),
    });
  return option;
}

dots.height = (spec) => Math.max(140, 70 + 26 * spec.categories.length + (spec.legend ? 26 : 0));
