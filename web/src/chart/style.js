// Colors of the page's style sheet, and settings shared by all charts.
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return {
    text: get('--text'),
    muted: get('--muted'),
    line: get('--line'),
    panel: get('--panel'),
    font: get('--font'),
    palette: [1, 2, 3, 4, 5, 6, 7, 8].map((i) => get(`--c${i}`)),
    runs: Array.from({ length: 24 }, (_, i) => get(`--r${i + 1}`)),
    low: get('--shade-low'),
    high: get('--shade-high'),
    below: get('--shade-below'),
    dark: window.matchMedia('(prefers-color-scheme: dark)').matches,
  };
}

export function mix(from, to, share) {
  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const [a, b] = [parts(from), parts(to)];
  return `rgb(${a.map((value, i) => Math.round(value + (b[i] - value) * share)).join(',')})`;
}

// Returns a distinct color for each of any number of items: neighboring indices get distant hues.
export const colourOf = (c, number) => `hsl(${Math.round((number * 137.508) % 360)},${c.dark ? '50%,62%' : '58%,46%'})`;

export function axis(c, name, more = {}) {
  const { axisLabel, ...rest } = more;
  return {
    name,
    nameLocation: 'middle',
    nameGap: 28,
    nameTextStyle: { color: c.muted, fontSize: 12, fontFamily: c.font },
    axisLine: { lineStyle: { color: c.line } },
    axisTick: { lineStyle: { color: c.line } },
    axisLabel: { color: c.muted, fontSize: 11, fontFamily: c.font, hideOverlap: true, ...axisLabel },
    splitLine: { lineStyle: { color: c.line, opacity: 0.6 } },
    ...rest,
  };
}

export function base(c) {
  const words = { color: c.text, fontSize: 12, fontFamily: c.font };
  return {
    animation: false,
    textStyle: { fontFamily: c.font },
    grid: { left: 62, right: 18, top: 40, bottom: 44 },
    tooltip: { confine: true, backgroundColor: c.panel, borderColor: c.line, textStyle: words },
    legend: {
      type: 'scroll',
      top: 0,
      left: 0,
      right: 0,
      itemWidth: 18,
      itemHeight: 8,
      icon: 'roundRect',
      textStyle: words,
      pageTextStyle: { color: c.muted },
      pageIconColor: c.muted,
      pageIconInactiveColor: c.line,
    },
  };
}

// A few names are all shown, on two lines if necessary; many are paged.
export function fitLegend(option, names) {
  option.legend.data = names;
  if (names.length > 6) return;
  option.legend.type = 'plain';
  if (names.join('').length > 40) option.grid.top = 58;
}
