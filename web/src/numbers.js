// Formats numbers for display.
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(4)));
}

export const percent = (share) => `${short(Number((100 * share).toPrecision(3)))} %`;

// Formats seconds: 1:02:03, 4:05, 12 s.
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return '–';
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const two = (value) => String(value).padStart(2, '0');
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

// Formats milliseconds since 1970 as local date and time.
export const moment = (value) =>
  new Date(value).toLocaleString('en-CA', { dateStyle: 'short', timeStyle: 'medium', hour12: false });

// Random numbers from a seed (mulberry32), so that a picture is reproducible.
export function randomFrom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// Rounds the ends of a selected range to as few digits as distinguish them; to integers for counts.
export function stretchOf([from, to], whole) {
  const unit = 10 ** Math.floor(Math.log10((to - from) / 100));
  const step = whole ? Math.max(1, unit) : unit;
  const round = (value) => Number((Math.round(value / step) * step).toPrecision(12));
  return [round(from), round(to)];
}
