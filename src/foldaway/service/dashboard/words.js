// What the numbers mean, in sentences.

import { h, named } from "./dom.js";
import { chance, count, interval, number, places, percent } from "./format.js";

/** The effect in a sentence that needs no statistics. */
export function verdict(row) {
  const decimals = reachPlaces(row);
  const by = number(Math.abs(row.estimate), decimals);
  if (row.anytime_ci_lower > 0) return [named(row.arm), " raises ", named(row.outcome), ` by ${by}`];
  if (row.anytime_ci_upper < 0) return [named(row.arm), " lowers ", named(row.outcome), ` by ${by}`];
  if (row.anytime_ci_lower === null) return ["No error can be given for ", named(row.arm), " on ", named(row.outcome)];
  return ["No effect of ", named(row.arm), " on ", named(row.outcome), " is established so far"];
}

/** How sure, and compared with what. */
export function explained(row, confidence) {
  const decimals = reachPlaces(row);
  const sure = `${number(100 * confidence)} % confidence`;
  const range = interval(row.anytime_ci_lower, row.anytime_ci_upper, decimals);
  const told = row.anytime_ci_lower === null
    ? []
    : [`With ${sure} the effect lies between `, h("strong", {}, range), ", however often you look."];
  const relative = row.relative === null
    ? []
    : [" The estimate is ", h("strong", {}, percent(row.relative)), " of ", named(row.control), "’s level of ",
      `${number(row.control_level, decimals)}.`];
  return [...told, ...relative];
}

export function reachPlaces(row) {
  return places((row.anytime_ci_upper - row.anytime_ci_lower) / 2);
}

/** The same for who hears the page instead of seeing it. */
export function heard(row, records) {
  const decimals = reachPlaces(row);
  const range = interval(row.anytime_ci_lower, row.anytime_ci_upper, decimals);
  return `${row.outcome}, ${row.arm}: ${number(row.estimate, decimals)}, between ${range}, after ${count(records)} records.`;
}

// Customary for this check; foldaway's own results have the same bound.
const SUSPICIOUS = 0.001;

export const fits = (ratio) => !(ratio.p_value < SUSPICIOUS);

export function ratioVerdict(ratio) {
  const p = `p ${ratio.p_value < 0.001 ? "" : "= "}${chance(ratio.p_value)}`;
  return fits(ratio)
    ? `The ${ratio.counted} per arm fit the plan (${p}).`
    : `The ${ratio.counted} per arm do not fit the plan (${p}).`;
}
