// Returns ticks of a logarithmic axis, also between powers of ten: [value, ...] from low to high, at most eight.
const steps = [
  [1, 2, 3, 4, 5, 6, 7, 8, 9],
  [1, 2, 5],
  [1, 3],
];

// Within less than a factor of three, powers of ten are too far apart: uses round numbers at equal distances instead.
function even(low, high) {
  const unit = 10 ** Math.floor(Math.log10((high - low) / 5));
  const step = [1, 2, 5, 10].map((one) => one * unit).find((one) => (high - low) / one <= 7);
  const first = Math.ceil(low / step);
  const count = Math.floor(high / step) - first + 1;
  return Array.from({ length: count }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

export function logTicks(low, high) {
  if (high / low < 3) return even(low, high);
  const [first, last] = [Math.floor(Math.log10(low)), Math.floor(Math.log10(high))];
  for (const mantissas of steps) {
    const all = [];
    for (let power = first; power <= last; power += 1) {
      for (const one of mantissas) all.push(Number((one * 10 ** power).toPrecision(12)));
    }
    const within = all.filter((value) => value >= low && value <= high);
    if (within.length <= 8) return within;
  }
  const apart = Math.ceil((last - first + 1) / 8);
  const powers = [];
  for (let power = first; power <= last; power += apart) powers.push(10 ** power);
  return powers.filter((value) => value >= low && value <= high);
}

// Returns ends and ticks of a logarithmic axis for these values.
export function logAxis(values, ends = {}) {
  const above = values.filter((value) => value > 0);
  if (!above.length) return {};
  const min = ends.from > 0 ? ends.from : Math.min(...above);
  const max = ends.to ?? Math.max(...above);
  if (!(max > min)) return {};
  const ticks = logTicks(min, max);
  return { min, max, ticks };
}
