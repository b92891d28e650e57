// A chart of the report from its spec. Every spec has `kind`, `x.name` and, but for dots, `y.name`.
//   lines:     series [{name, role, points: [[x, y], ...], shade}], y.log, y.end (where the axis ends)
//   histogram: edges [n + 1], series [{name, values [n]}], logarithmic upwards
//   dots:      categories, series [{name, points: [[category, value], ...]}], x.begin, x.end
//   map:       steps, keys [{expert, share, path: [[x, y], ...]}], the last point of a path is now
// Roles say what a series is: train, valid, real, seed, published-train, published-valid, middle, layer, category.
import { BarChart, CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import { GridComponent, LegendComponent, TooltipComponent } from 'echarts/components';
import * as echarts from 'echarts/core';
import { LabelLayout } from 'echarts/features';
import { SVGRenderer } from 'echarts/renderers';

echarts.use([BarChart, CustomChart, LineChart, ScatterChart, GridComponent, LegendComponent, TooltipComponent, LabelLayout, SVGRenderer]);

function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return {
    text: get('--text'), muted: get('--muted'), line: get('--line'), panel: get('--panel'), font: get('--font'),
    palette: [1, 2, 3, 4, 5, 6, 7, 8].map((i) => get(`--c${i}`)),
    low: get('--shade-low'), high: get('--shade-high'),
  };
}

function mix(from, to, share) {
  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const [a, b] = [parts(from), parts(to)];
  return `rgb(${a.map((value, i) => Math.round(value + (b[i] - value) * share)).join(',')})`;
}

const short = (value) => {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(4)));
};
const escapeText = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

function axis(c, name, more) {
  return {
    name, nameLocation: 'middle', nameGap: 28,
    nameTextStyle: { color: c.muted, fontSize: 12, fontFamily: c.font },
    axisLine: { lineStyle: { color: c.line } },
    axisTick: { lineStyle: { color: c.line } },
    axisLabel: { color: c.muted, fontSize: 11, fontFamily: c.font, hideOverlap: true },
    splitLine: { lineStyle: { color: c.line, opacity: 0.6 } },
    ...more,
  };
}

function base(c) {
  return {
    animation: false,
    textStyle: { fontFamily: c.font },
    grid: { left: 62, right: 18, top: 40, bottom: 44 },
    tooltip: {
      confine: true, backgroundColor: c.panel, borderColor: c.line, textStyle: { color: c.text, fontSize: 12, fontFamily: c.font },
    },
    legend: {
      type: 'scroll', top: 0, left: 0, right: 0, itemWidth: 18, itemHeight: 8, icon: 'roundRect',
      textStyle: { color: c.text, fontSize: 12, fontFamily: c.font }, pageTextStyle: { color: c.muted }, pageIconColor: c.muted, pageIconInactiveColor: c.line,
    },
  };
}

// How a series of a line chart looks, by what it is.
function look(c, series, place) {
  const [first, second, third] = c.palette;
  switch (series.role) {
    case 'train': return { color: c.muted, width: 1.2, opacity: 0.75, symbol: false };
    case 'valid': return { color: first, width: 2.4, symbol: true };
    case 'real': return { color: third, width: 2.4, symbol: true };
    case 'seed': return { color: c.palette[6], width: 1.2, symbol: false };
    case 'published-train': return { color: second, width: 1.2, dash: [2, 4], symbol: true, hollow: true };
    case 'published-valid': return { color: second, width: 1.6, dash: [6, 4], symbol: true, hollow: true };
    case 'layer': return { color: mix(c.low, c.high, series.shade ?? 0), width: 1.2, symbol: false };
    case 'middle': return { color: first, width: 2.8, symbol: true };
    default: return { color: c.palette[place % c.palette.length], width: 1.8, dash: place >= c.palette.length ? [5, 3] : undefined, symbol: true };
  }
}

// All seeds but the first have one entry in the legend; the tooltip tells them apart.
const legendName = (series) => (series.role === 'seed' ? 'other seeds' : series.name);

function lines(c, spec) {
  const option = base(c);
  const few = spec.series.every((series) => series.points.length <= 60);
  option.xAxis = axis(c, spec.x.name, { type: 'value', min: spec.y.log ? 1 : 0, max: 'dataMax', splitLine: { show: false }, axisLabel: { ...axis(c).axisLabel, formatter: short } });
  option.yAxis = axis(c, spec.y.name, {
    type: spec.y.log ? 'log' : 'value', scale: true, nameGap: 44, max: spec.y.end, ...(spec.y.log ? { logBase: 10 } : {}),
    axisLabel: { ...axis(c).axisLabel, formatter: (value) => (spec.y.log ? Number(value.toPrecision(3)).toString() : short(value)) },
  });
  option.series = spec.series.map((series, place) => {
    const style = look(c, series, place);
    const dense = series.points.length > 60;
    const layer = series.role === 'layer' || series.role === 'middle';
    return {
      type: 'line', name: legendName(series), data: series.points, color: style.color, z: series.role === 'layer' || series.role === 'train' ? 2 : 4,
      lineStyle: { color: style.color, width: style.width, type: style.dash, opacity: style.opacity ?? 1 },
      showSymbol: style.symbol && !dense, symbol: 'circle', symbolSize: 6,
      itemStyle: style.hollow ? { color: c.panel, borderColor: style.color, borderWidth: 1.6 } : { color: style.color },
      emphasis: { focus: 'series' },
      ...(layer && !spec.y.log ? {
        endLabel: { show: true, formatter: series.name.replace(/\D+/g, ''), color: style.color, fontSize: 10, distance: 4, fontWeight: series.role === 'middle' ? 700 : 400 },
        labelLayout: { hideOverlap: true },
      } : {}),
    };
  });
  option.legend.data = [...new Set(spec.series.filter((series) => series.role !== 'layer').map(legendName))];
  // A few names are all shown, on two lines where they need them; many are paged through.
  if (option.legend.data.length <= 6) {
    option.legend.type = 'plain';
    if (option.legend.data.join('').length > 40) option.grid.top = 58;
  }
  const layered = spec.series.some((series) => series.role === 'layer');
  option.tooltip.trigger = few && !layered && spec.series.length <= 10 ? 'axis' : 'item';
  option.tooltip.formatter = (what) => {
    const list = Array.isArray(what) ? what : [what];
    const head = `${escapeText(spec.x.name)} ${short(list[0].value[0])}`;
    return [head, ...list.map((one) => `${one.marker}${escapeText(spec.series[one.seriesIndex].name)} <b>${short(one.value[1])}</b>`)].join('<br>');
  };
  return option;
}

function histogram(c, spec) {
  const option = base(c);
  const [series] = spec.series;
  option.legend.show = false;
  option.grid.top = 16;
  const label = (i) => `${short(spec.edges[i])} to ${short(spec.edges[i + 1])}`;
  option.xAxis = axis(c, spec.x.name, {
    type: 'category', data: series.values.map((_, i) => String(Number(((spec.edges[i] + spec.edges[i + 1]) / 2).toPrecision(2)))), splitLine: { show: false },
    axisTick: { show: false },
  });
  // One expert must be seen: the axis begins below 1.
  option.yAxis = axis(c, spec.y.name, { type: 'log', min: 0.5, startValue: 0.5, nameGap: 40, axisLabel: { ...axis(c).axisLabel, formatter: (value) => (value < 1 ? '' : short(value)) } });
  option.series = [{
    type: 'bar', name: series.name, barMinHeight: 2, data: series.values.map((value) => (value > 0 ? value : null)), color: c.palette[0], barCategoryGap: '12%',
    itemStyle: { borderRadius: [2, 2, 0, 0] },
  }];
  option.tooltip.formatter = (one) => `${label(one.dataIndex)} times a fair share<br><b>${one.value}</b> experts`;
  return option;
}

function dots(c, spec) {
  const option = base(c);
  option.legend.show = false;
  const longest = Math.max(...spec.categories.map((name) => name.length));
  option.grid = { ...option.grid, top: 10, left: Math.min(190, 20 + 7 * longest) };
  option.xAxis = axis(c, spec.x.name, { type: 'value', scale: true, min: spec.x.begin, max: spec.x.end, boundaryGap: ['12%', '12%'], axisLabel: { ...axis(c).axisLabel, formatter: short } });
  option.yAxis = axis(c, '', {
    type: 'category', data: spec.categories, inverse: true, axisTick: { show: false }, splitLine: { show: true, lineStyle: { color: c.line, opacity: 0.6 } },
    axisLabel: { ...axis(c).axisLabel, color: c.text, width: 170, overflow: 'truncate', interval: 0 },
  });
  option.series = spec.series.map((series) => ({
    type: 'scatter', name: series.name, data: series.points.map(([place, value]) => [value, place]), symbolSize: 11, color: c.palette[0],
    itemStyle: { opacity: 0.85, borderColor: c.panel, borderWidth: 1 },
  }));
  option.tooltip.formatter = (one) => `${escapeText(one.seriesName)} <b>${short(one.value[0])}</b>`;
  return option;
}

function map(c, spec) {
  const option = base(c);
  option.legend.show = false;
  option.grid.top = 14;
  const bounds = (place) => {
    const values = spec.keys.flatMap((key) => key.path.map((point) => point[place]));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const margin = 0.06 * (high - low || 1);
    return { min: low - margin, max: high + margin };
  };
  const bare = { type: 'value', scale: true, axisLabel: { show: false }, axisTick: { show: false }, splitLine: { show: false }, axisLine: { show: true, onZero: false, lineStyle: { color: c.line } } };
  option.xAxis = axis(c, spec.x.name, { ...bare, ...bounds(0), nameGap: 14 });
  option.yAxis = axis(c, spec.y.name, { ...bare, ...bounds(1), nameGap: 14 });
  option.grid = { ...option.grid, left: 34, bottom: 34 };
  const most = Math.max(...spec.keys.map((key) => key.share), 1e-9);
  const size = (key) => 5 + 17 * Math.sqrt(key.share / most);
  option.series = [
    {
      type: 'custom', name: 'way', silent: true, data: spec.keys.map((key) => key.path[0]), z: 2,
      renderItem: (params, api) => ({
        type: 'polyline',
        shape: { points: spec.keys[params.dataIndex].path.map((place) => api.coord(place)) },
        style: { fill: 'none', stroke: c.muted, lineWidth: 1, opacity: 0.45 },
      }),
    },
    {
      type: 'scatter', name: 'drawn', silent: true, data: spec.keys.map((key) => key.path[0]), symbolSize: 4, z: 3,
      itemStyle: { color: c.panel, borderColor: c.muted, borderWidth: 1 },
    },
    {
      type: 'scatter', name: 'now', z: 4, symbolSize: (_, params) => size(spec.keys[params.dataIndex]),
      data: spec.keys.map((key) => ({ value: key.path[key.path.length - 1], itemStyle: { color: mix(c.low, c.high, Math.sqrt(key.share / most)), opacity: 0.9, borderColor: c.panel, borderWidth: 1 } })),
    },
  ];
  option.tooltip.formatter = (one) => {
    const key = spec.keys[one.dataIndex];
    return `expert ${key.expert}<br>${short(100 * key.share)} % of the choices`;
  };
  return option;
}

const kinds = { lines, histogram, dots, map };

export function drawChart(element, spec) {
  const rows = spec.kind === 'dots' ? spec.categories.length : 0;
  element.style.height = rows > 0 ? `${Math.max(140, 70 + 26 * rows)}px` : '320px';
  const chart = echarts.init(element, null, { renderer: 'svg' });
  chart.setOption(kinds[spec.kind](colours(), spec));
  return chart;
}
