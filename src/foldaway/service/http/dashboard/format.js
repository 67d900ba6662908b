// Numbers, shares and times for people.

const MINUS = "\u2212";
const NONE = "–";

/** How many decimals a number deserves whose interval reaches this far to each side: two digits of the reach. */
export function places(reach) {
  if (!(reach > 0) || !Number.isFinite(reach)) return null;
  return Math.min(12, Math.max(0, Math.ceil(-Math.log10(reach)) + 1));
}

export function number(value, decimals = null) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-6)) return value.toExponential(2).replaceAll("-", MINUS);
  const options = decimals === null
    ? { maximumSignificantDigits: 4 }
    : { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  const text = size.toLocaleString("en-US", options);
  return value < 0 && /[1-9]/.test(text) ? MINUS + text : text;
}

export function signed(value, decimals = null) {
  const text = number(value, decimals);
  return value > 0 && /[1-9]/.test(text) ? `+${text}` : text;
}

export const count = (value) => value.toLocaleString("en-US");

/** A number of things: `several(1, "record")` is "1 record". */
export const several = (value, thing) => `${count(value)} ${thing}${value === 1 ? "" : thing.endsWith("ch") ? "es" : "s"}`;

export function compact(value) {
  if (value < 10_000) return count(value);
  return value.toLocaleString("en-US", { notation: "compact", maximumSignificantDigits: 3 });
}

/** An interval; a one-sided one has no number at its open end. */
export function interval(lower, upper, decimals) {
  if (lower === null && upper === null) return NONE;
  if (lower === null) return `≤ ${number(upper, decimals)}`;
  return upper === null ? `≥ ${number(lower, decimals)}` : `${number(lower, decimals)} to ${number(upper, decimals)}`;
}

/** The ends of an effect's interval: that which stays valid however often you look, or else that for a single look. */
export function ends(row) {
  const anyTime = row.anytime_ci_lower !== null || row.anytime_ci_upper !== null;
  const [lower, upper] = anyTime ? [row.anytime_ci_lower, row.anytime_ci_upper] : [row.ci_lower, row.ci_upper];
  return { lower, upper, anyTime, oneLook: !anyTime && (lower !== null || upper !== null) };
}

export function between(lower, upper, decimals) {
  if (lower === null) return `at ${number(upper, decimals)} or below`;
  if (upper === null) return `at ${number(lower, decimals)} or above`;
  return `between ${number(lower, decimals)} and ${number(upper, decimals)}`;
}

/** How far an interval reaches from an estimate, to the side that is farther of those it has; NaN if it has none. */
export function reach(estimate, lower, upper) {
  const ends = [lower, upper].filter((end) => end !== null && end !== undefined);
  return ends.length ? Math.max(...ends.map((end) => Math.abs(end - estimate))) : NaN;
}

export function percent(share, digits = 2) {
  if (share === null || share === undefined || !Number.isFinite(share)) return NONE;
  return `${signed(100 * share, Math.abs(share) < 0.0995 ? digits : Math.max(0, digits - 1))} %`;
}

export function share(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(1)}\u00a0%` : NONE;
}

export function chance(p) {
  if (p === null || !Number.isFinite(p)) return NONE;
  return p < 0.001 ? "< 0.001" : p.toFixed(3);
}

/** How long ago, in hours or days: the server tells no finer times. */
export function ago(seconds) {
  const hours = Math.floor(seconds / 3600);
  if (hours < 1) return "within the hour";
  return hours < 36 ? `${several(hours, "hour")} ago` : `${several(Math.floor(hours / 24), "day")} ago`;
}

export function moment(seconds) {
  return new Date(1000 * seconds).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

export const day = (seconds) => new Date(1000 * seconds).toLocaleDateString("en-GB", { dateStyle: "medium" });
