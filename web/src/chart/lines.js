// Curves: {x: {name}, y: {name, log, end}, series: [{name, role, points: [[x, y], ...], shade}]}. `role` determines the
// appearance of a series; `shade` (0 to 1) places a layer between the first and the last.
import { short, stretchOf } from '../numbers.js';
import { axis, base, fitLegend, mix } from './style.js';
import { logAxis } from './ticks.js';
import { tip } from './tip.js';

function look(c, series, place) {
  const [first, second, third] = c.palette;
  switch (series.role) {
    case 'train':
      return { color: c.muted, width: 1.2, opacity: 0.75, symbol: false };
    case 'valid':
      return { color: first, width: 2.4, symbol: true };
    case 'real':
      return { color: third, width: 2.4, symbol: true };
    case 'seed':
      return { color: c.palette[6], width: 1.2, symbol: false };
    case 'published-train':
      return { color: second, width: 1.2, dash: [2, 4], symbol: true, hollow: true };
    case 'published-valid':
      return { color: second, width: 1.6, dash: [6, 4], symbol: true, hollow: true };
    case 'layer':
      return { color: mix(c.low, c.high, 0.3 + 0.7 * (series.shade ?? 0)), width: 1.4, symbol: false };
    case 'middle':
      return { color: first, width: 2.8, symbol: true };
    case 'frozen':
      return { color: c.muted, width: 1.8, dash: [6, 4], symbol: true };
    case 'active':
      return { color: first, width: 2.2, symbol: true };
    case 'nothing':
      return { color: c.muted, width: 1, dash: [2, 3], symbol: false };
    default: {
      const dash = place >= c.palette.length ? [5, 3] : undefined;
      return { color: c.palette[place % c.palette.length], width: 1.8, dash, symbol: true };
    }
  }
}

// Further seeds share one legend entry; the tooltip distinguishes them.
const legendName = (series) => (series.role === 'seed' ? 'other seeds' : series.name);

function line(c, spec, series, place) {
  const style = look(c, series, place);
  const layer = series.role === 'layer' || series.role === 'middle';
  const behind = series.role === 'layer' || series.role === 'train' || series.role === 'nothing';
  const numbered = layer && !spec.y.log;
  return {
    type: 'line',
    name: legendName(series),
    data: series.points,
    color: style.color,
    z: behind ? 2 : 4,
    lineStyle: { color: style.color, width: style.width, type: style.dash, opacity: style.opacity ?? 1 },
    showSymbol: style.symbol && series.points.length <= 60,
    symbol: 'circle',
    symbolSize: 6,
    itemStyle: style.hollow ? { color: c.panel, borderColor: style.color, borderWidth: 1.6 } : { color: style.color },
    emphasis: { focus: 'series' },
    ...(numbered && {
      endLabel: {
        show: true,
        formatter: series.name.replace(/\D+/g, ''),
        color: style.color,
        fontSize: 10,
        distance: 4,
        fontWeight: series.role === 'middle' ? 700 : 400,
      },
      labelLayout: { hideOverlap: true },
    }),
  };
}

export function lines(c, spec) {
  const option = base(c);
  option.xAxis = axis(c, spec.x.name, {
    type: 'value',
    min: spec.y.log ? 1 : 0,
    max: 'dataMax',
    splitLine: { show: false },
    axisLabel: { formatter: short },
  });
  option.yAxis = axis(c, spec.y.name, {
    type: spec.y.log ? 'log' : 'value',
    scale: true,
    nameGap: 44,
    max: spec.y.end,
    axisLabel: { formatter: spec.y.log ? (value) => String(Number(value.toPrecision(3))) : short },
  });
  const { min, max, ticks } = spec.y.log
    ? logAxis(spec.series.flatMap(({ points }) => points.map(([, y]) => y)), { to: spec.y.end })
    : {};
  if (ticks) {
    Object.assign(option.yAxis, { min, max, axisTick: { customValues: ticks, lineStyle: { color: c.line } } });
    option.yAxis.axisLabel.customValues = ticks;
  }
  option.series = spec.series.map((series, place) => line(c, spec, series, place));
  fitLegend(option, [...new Set(spec.series.filter((series) => series.role !== 'layer').map(legendName))]);
  const few = spec.series.length <= 10 && spec.series.every((series) => series.points.length <= 60);
  const layered = spec.series.some((series) => series.role === 'layer');
  option.tooltip.trigger = few && !layered ? 'axis' : 'item';
  option.tooltip.formatter = (what) => {
    const list = [what].flat();
    return tip(
      `${spec.x.name} ${short(list[0].value[0])}`,
      list.map((one) => ({ colour: one.color, name: spec.series[one.seriesIndex].name, value: short(one.value[1]) })),
    );
  };
  return option;
}

lines.zooms = (spec, ends) => stretchOf(ends, false);
lines.rows = (spec) => [
  [spec.x.name, 'curve', spec.y.name],
  ...spec.series.flatMap((series) => series.points.map(([x, y]) => [x, series.name, y])),
];
