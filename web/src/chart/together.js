// Experts chosen together: {sets: [{experts: [number, ...], share}, ...]}. Experts are arranged in a circle; the
// thickness of a line shows the fraction of positions that chose both.
import { percent } from '../numbers.js';
import { base, colourOf } from './style.js';
import { tip } from './tip.js';

function parts(spec) {
  const experts = [...new Set(spec.sets.flatMap((one) => one.experts))].sort((a, b) => a - b);
  const pairs = new Map();
  const alone = new Map();
  for (const { experts: set, share } of spec.sets) {
    set.forEach((a, i) => {
      alone.set(a, (alone.get(a) ?? 0) + share);
      set.slice(i + 1).forEach((b) => {
        const key = a < b ? `${a} ${b}` : `${b} ${a}`;
        pairs.set(key, (pairs.get(key) ?? 0) + share);
      });
    });
  }
  return { experts, pairs: [...pairs].map(([key, share]) => [...key.split(' ').map(Number), share]), alone };
}

export function together(c, spec) {
  const option = base(c);
  option.legend.show = false;
  const { experts, pairs, alone } = parts(spec);
  const angle = (expert) => (2 * Math.PI * experts.indexOf(expert)) / experts.length - Math.PI / 2;
  const spot = (expert) => [Math.cos(angle(expert)), Math.sin(angle(expert))];
  const hidden = { type: 'value', min: -1.25, max: 1.25, show: false };
  option.grid = { left: 8, right: 8, top: 8, bottom: 8 };
  option.xAxis = hidden;
  option.yAxis = { ...hidden, inverse: true };
  const most = Math.max(...pairs.map(([, , share]) => share), 1e-9);
  const strongest = Math.max(...alone.values(), 1e-9);
  option.series = [
    {
      type: 'custom',
      name: 'pairs',
      data: pairs,
      encode: { x: 0, y: 1 },
      renderItem: ({ dataIndex }, api) => {
        const [a, b, share] = pairs[dataIndex];
        const [from, to] = [api.coord(spot(a)), api.coord(spot(b))];
        return {
          type: 'line',
          shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] },
          style: { stroke: c.palette[0], lineWidth: 1 + (9 * share) / most, opacity: 0.25 + (0.5 * share) / most },
        };
      },
      tooltip: {
        formatter: ({ dataIndex }) =>
          tip(
            `experts ${pairs[dataIndex][0]} and ${pairs[dataIndex][1]}`,
            `${percent(pairs[dataIndex][2])} of positions`,
          ),
      },
    },
    {
      type: 'scatter',
      name: 'experts',
      z: 4,
      data: experts.map((expert) => ({
        value: spot(expert),
        symbolSize: 10 + 14 * Math.sqrt(alone.get(expert) / strongest),
        itemStyle: { color: colourOf(c, expert), borderColor: c.panel, borderWidth: 1.5 },
      })),
      label: {
        show: true,
        position: 'top',
        color: c.text,
        fontSize: 11,
        formatter: ({ dataIndex }) => String(experts[dataIndex]),
      },
      tooltip: {
        formatter: ({ dataIndex }) =>
          tip(`expert ${experts[dataIndex]}`, `in sets of ${percent(alone.get(experts[dataIndex]))} of positions`),
      },
    },
  ];
  return option;
}

together.height = () => 340;
together.rows = (spec) => [['expert', 'expert', 'share of positions'], ...parts(spec).pairs];
