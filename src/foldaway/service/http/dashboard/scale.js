// From numbers to places on a drawing.

/** A linear map from a range of numbers to a range of places. */
export function scale([from, to], [start, end]) {
  const span = to - from || 1;
  const map = (value) => start + ((value - from) / span) * (end - start);
  map.back = (place) => from + ((place - start) / (end - start)) * span;
  return map;
}

/** Round numbers in a range, about as many as asked for: steps of 1, 2 or 5 times a power of ten. */
export function ticks([from, to], wanted) {
  const rough = (to - from) / Math.max(1, wanted);
  if (!(rough > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i += 1) found.push(i * step + 0); // adding zero takes the minus off a zero
  return found;
}

/** Decimals that tell these ticks apart. */
export function decimalsOf(marks) {
  const step = marks.length > 1 ? Math.abs(marks[1] - marks[0]) : Math.abs(marks[0]) || 1;
  return Math.min(12, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
}

/** A range around numbers, zero among them, with some air. */
export function rangeOf(values) {
  const real = values.filter((value) => Number.isFinite(value));
  const low = Math.min(0, ...real);
  const high = Math.max(0, ...real);
  const air = 0.08 * (high - low) || 1;
  return [low === 0 && high > 0 ? -air : low - air, high === 0 && low < 0 ? air : high + air];
}
