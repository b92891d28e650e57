// A map of keys: {experts: [number, ...], share: [fraction of assignments, ...],
//   frames: {steps, x, y, places: [per step: [[x, y] per key]]},         paths of the keys, in one PCA frame
//   tsne: {places: [[x, y], ...], note},                                 only if the program computed one
//   neighbours: {of: [[place, ...], ...], away: [[distance, ...], ...]}} nearest neighbors, for UMAP
// Neighbors are exact, so the page does not need the keys themselves.
import { UMAP } from 'umap-js';
import { button, choice, element } from '../dom.js';
import { percent, randomFrom } from '../numbers.js';
import { axis, base, mix } from './style.js';
import { tip } from './tip.js';

const umapSeed = 0;

export function umapPlaces({ of, away }) {
  const umap = new UMAP({ nNeighbors: of[0].length, random: randomFrom(umapSeed) });
  umap.setPrecomputedKNN(
    of.map((one) => [...one]),
    away.map((one) => [...one]),
  );
  return umap.fit(of.map(() => [])); // with given neighbors, only the number of points matters
}

function bounds(places, which) {
  let [low, high] = [Infinity, -Infinity];
  for (const frame of places) {
    for (const point of frame) {
      low = Math.min(low, point[which]);
      high = Math.max(high, point[which]);
    }
  }
  const margin = 0.06 * (high - low || 1);
  return { min: low - margin, max: high + margin };
}

const names = { pca: 'PCA', tsne: 't-SNE', umap: 'UMAP' };

const noUnits = 'Axes have no unit: neighboring keys are close together; distances between groups are not meaningful.';

// The display: positions, and the length of the paths.
function view(spec, state) {
  if (state.method === 'pca') {
    const { steps, x, y, places } = spec.frames;
    return {
      places: places.slice(0, state.step + 1),
      frame: places,
      x,
      y,
      note: steps.length > 1 ? `step ${steps[state.step]}` : '',
    };
  }
  if (state.method === 'tsne')
    return { places: [spec.tsne.places], frame: [spec.tsne.places], x: '', y: '', note: spec.tsne.note };
  state.umap ??= umapPlaces(spec.neighbours);
  const count = spec.neighbours.of[0].length;
  const how = `${count} neighbors, minimum distance 0.1, seed ${umapSeed}`;
  const note = `UMAP of ${spec.experts.length} keys: ${how}. ${noUnits}`;
  return { places: [state.umap], frame: [state.umap], x: '', y: '', note };
}

export function keys(c, spec, state) {
  const option = base(c);
  const { places, frame, x, y } = view(spec, state);
  option.legend.show = false;
  const bare = {
    type: 'value',
    scale: true,
    axisLabel: { show: false },
    axisTick: { show: false },
    splitLine: { show: false },
    axisLine: { show: true, onZero: false, lineStyle: { color: c.line } },
    nameGap: 14,
  };
  option.xAxis = axis(c, x, { ...bare, ...bounds(frame, 0) });
  option.yAxis = axis(c, y, { ...bare, ...bounds(frame, 1) });
  option.grid = { left: 34, right: 14, top: 14, bottom: 34 };
  const most = Math.max(...spec.share, 1e-9);
  const part = (place) => Math.sqrt(spec.share[place] / most);
  const [first, last] = [places[0], places[places.length - 1]];
  const moved = places.length > 1;
  option.series = [
    ...(moved
      ? [
          {
            type: 'custom',
            name: 'way',
            silent: true,
            data: first,
            z: 2,
            renderItem: (params, api) => ({
              type: 'polyline',
              shape: { points: places.map((at) => api.coord(at[params.dataIndex])) },
              style: { fill: 'none', stroke: c.muted, lineWidth: 1, opacity: 0.45 },
            }),
          },
          {
            type: 'scatter',
            name: 'drawn',
            silent: true,
            data: first,
            symbolSize: 4,
            z: 3,
            itemStyle: { color: c.panel, borderColor: c.muted, borderWidth: 1 },
          },
        ]
      : []),
    {
      type: 'scatter',
      name: 'now',
      z: 4,
      symbolSize: (_, { dataIndex }) => 5 + 17 * part(dataIndex),
      data: last.map((value, place) => ({
        value,
        itemStyle: { color: mix(c.low, c.high, part(place)), opacity: 0.9, borderColor: c.panel, borderWidth: 1 },
      })),
      label: {
        show: spec.experts.length <= 128,
        position: 'right',
        distance: 2,
        fontSize: 9,
        color: c.muted,
        formatter: ({ dataIndex }) => String(spec.experts[dataIndex]),
      },
      labelLayout: { hideOverlap: true },
    },
  ];
  option.tooltip.formatter = ({ dataIndex }) =>
    tip(`expert ${spec.experts[dataIndex]}`, `${percent(spec.share[dataIndex])} of the assignments`);
  return option;
}

keys.height = () => 400;
keys.rows = (spec, state) => {
  const { places, note } = view(spec, state);
  const now = places[places.length - 1];
  return [
    ['expert', 'x', 'y', 'share of assignments', note],
    ...spec.experts.map((expert, i) => [expert, now[i][0], now[i][1], spec.share[i]]),
  ];
};

// Keeps the selected map, and the step unless it was the last one; then it follows new steps.
keys.start = (spec, before) => {
  const last = spec.frames.steps.length - 1;
  if (before) clearInterval(before.playing);
  const has = { pca: true, tsne: !!spec.tsne, umap: !!spec.neighbours };
  return {
    method: before && has[before.method] ? before.method : 'pca',
    step: before && before.step < before.last ? Math.min(before.step, last) : last,
    last,
    playing: 0,
  };
};

// Selects the map and the saved step.
keys.controls = (spec, state, redraw) => {
  const methods = ['pca', ...(spec.tsne ? ['tsne'] : []), ...(spec.neighbours ? ['umap'] : [])];
  const note = element('p', { class: 'now', 'aria-live': 'polite' });
  const { row, press } = choice(
    'map',
    methods.map((method) => [method, names[method]]),
    state.method,
    (method) => {
      state.method = method;
      update();
    },
  );
  const { steps } = spec.frames;
  const slider = element('input', {
    type: 'range',
    min: 0,
    max: steps.length - 1,
    'aria-label': 'saved step',
    input: () => {
      stop();
      state.step = Number(slider.value);
      update();
    },
  });
  const stop = () => {
    clearInterval(state.playing);
    state.playing = 0;
  };
  const play = button('Play', () => {
    const going = state.playing !== 0;
    stop();
    if (!going) {
      if (state.step === steps.length - 1) state.step = 0;
      state.playing = setInterval(() => {
        state.step += 1;
        if (state.step === steps.length - 1) stop();
        update();
      }, 250);
    }
    update();
  });
  const time = element('div', { class: 'time' }, play, slider);
  function update() {
    press(state.method);
    slider.value = String(state.step);
    slider.setAttribute('aria-valuetext', `step ${steps[state.step]}`);
    play.textContent = state.playing ? 'Pause' : 'Play';
    time.hidden = state.method !== 'pca' || steps.length < 2;
    redraw();
    note.textContent = view(spec, state).note;
  }
  update();
  return element('div', { class: 'controls' }, methods.length > 1 ? row : [], time, note);
};
