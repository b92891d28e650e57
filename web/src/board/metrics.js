// Metrics of the charts that compare runs, and what can be on their x axis.

// [name in the server's answers, title, unit]
export const metrics = [
  ['eval.loss', 'Validation loss', 'nats/token'],
  ['eval.padded_loss', 'Validation loss, padding included', 'nats/position'],
  ['eval.bits_per_byte', 'Bits per byte', 'bits'],
  ['train.loss', 'Training loss', 'nats'],
  ['epoch.train_loss', 'Mean training loss per epoch', 'nats'],
  ['train.auxiliary_loss', 'Auxiliary loss', 'nats'],
  ['train.gradient_norm', 'Gradient norm', 'norm'],
  ['train.lr', 'Learning rate', 'rate'],
  ['rates.tokens_per_second', 'Tokens per second', 'tokens/s'],
  ['rates.share_of_peak', "Share of the GPU's peak", 'share'],
  ['rates.gpu_utilization', 'GPU utilization', 'share'],
  ['rates.gpu_memory_gib', 'GPU memory in use', 'GiB'],
  ['rates.gpu_watts', 'GPU power', 'W'],
  ['rates.cpu_cores', 'CPU cores in use', 'cores'],
  ['rates.memory_gib', 'Memory of the process', 'GiB'],
];
export const ofMachine = ([metric]) => metric.startsWith('rates.');

// `place`: where a row of the server's news contains the value, if it does.
const axes = {
  step: { words: 'steps', name: 'step', unit: 'step', place: 0 },
  tokens: { words: 'tokens', name: 'tokens read', unit: 'tokens', place: 1 },
  time: { words: 'training time', name: 'training time', unit: 'seconds', place: 2 },
  elapsed: { words: 'time since the start', name: 'time since the start, with pauses', unit: 'seconds' },
  clock: { words: 'date and time', name: 'date and time', unit: 'clock' },
};

const titleOf = (metric) =>
  metrics.find(([name]) => name === metric)?.[1] ?? metric.slice(metric.indexOf('.') + 1).replace(/_/g, ' ');

// Any metric can be an axis: each point of a curve is drawn at the value that this metric had at the same step.
export const axisOf = (x) => axes[x] ?? { name: titleOf(x).toLowerCase(), unit: 'metric' };

// Entries of the selection of an x axis: [[value, words], ...] of the fixed ones and of the metrics that runs have.
export function axisEntries(runs, now) {
  const logged = new Set(runs.flatMap((run) => run.metrics));
  if (!axes[now]) logged.add(now);
  const known = metrics.map(([name]) => name).filter((name) => logged.has(name));
  const others = [...logged].filter((name) => !known.includes(name)).sort();
  return {
    fixed: Object.entries(axes).map(([value, { words }]) => [value, words]),
    metrics: [...known, ...others].map((name) => [name, titleOf(name).toLowerCase()]),
  };
}
