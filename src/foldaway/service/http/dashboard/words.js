// What the numbers mean, in sentences.

import { h, named } from "./dom.js";
import { between, chance, count, interval, number, percent, places, several, signed } from "./format.js";
import { SUSPICIOUS } from "./vocabulary.js";

/** The effect in a sentence that needs no statistics. */
export function verdict(row) {
  const decimals = reachPlaces(row);
  const by = number(Math.abs(row.estimate), decimals);
  if (row.anytime_ci_lower > 0) return [named(row.arm), " raises ", named(row.outcome), ` by ${by}`];
  if (row.anytime_ci_upper < 0) return [named(row.arm), " lowers ", named(row.outcome), ` by ${by}`];
  if (row.estimate === null) return ["No effect of ", named(row.arm), " on ", named(row.outcome), " can be told yet"];
  if (!row.reliable) return ["No error can be given for ", named(row.arm), " on ", named(row.outcome)];
  return ["No effect of ", named(row.arm), " on ", named(row.outcome), " is established so far"];
}

/** How sure, and compared with what. */
export function explained(row, confidence) {
  const decimals = reachPlaces(row);
  const range = between(row.anytime_ci_lower, row.anytime_ci_upper, decimals);
  const told = row.anytime_ci_lower === null
    ? [`${row.anytime_why} `]
    : [`With ${number(100 * confidence)} % confidence the effect lies ${range}, however often you look. `];
  const level = ["The level of ", named(row.control), ` is ${number(row.control_level, decimals)}.`];
  return [...told, ...(row.control_level === null ? [] : level)];
}

/** The three numbers that matter, each with its name. */
export function figures(row) {
  const decimals = reachPlaces(row);
  const figure = (term, id, text) => h("div", {}, h("dt", {}, term), h("dd", { id }, text));
  return [
    figure("Effect", "estimate", signed(row.estimate, decimals)),
    figure("Interval, valid at any time", "interval", interval(row.anytime_ci_lower, row.anytime_ci_upper, decimals)),
    figure("Relative to control", "relative", relative(row)),
  ];
}

/** The effect as a share of the control's level; a dash where that misleads, by the rule of foldaway's own reports. */
export function relative(row) {
  const tells = row.control_level > 0 && row.relative_std_error !== null
    && row.relative_std_error < 0.5 * Math.max(1, Math.abs(row.relative));
  return percent(tells ? row.relative : null);
}

/** Why numbers of these rows are not there, and notes on them, each once. */
export const reasons = (rows) =>
  [...new Set(rows.flatMap((row) => [row.why, row.note, row.anytime_why, row.relative_why]).filter(Boolean))];

export function reachPlaces(row) {
  return places(((row.anytime_ci_upper ?? row.ci_upper) - (row.anytime_ci_lower ?? row.ci_lower)) / 2);
}

/** The same for who hears the page instead of seeing it. */
export function heard(row, records) {
  const decimals = reachPlaces(row);
  const range = row.anytime_ci_lower === null ? "" : ` ${between(row.anytime_ci_lower, row.anytime_ci_upper, decimals)},`;
  return `${row.outcome}, ${row.arm}: ${number(row.estimate, decimals)},${range} after ${count(records)} records.`;
}

/** What the trial can still find of this effect, in one line. */
export function ahead(outlook, row) {
  const found = outlook.rows.find((other) => other.outcome === row.outcome && other.arm === row.arm);
  if (!found || found.smallest === null) return [];
  const days = outlook.days === null ? "" : `, in about ${several(Math.ceil(outlook.days), "day")} at the present rate`;
  return [
    `With ${count(outlook.by)} records${days}, an effect of ${number(found.smallest, places(found.smallest))} on `,
    named(row.outcome), ` would show with a chance of ${number(100 * outlook.power)} %.`,
  ];
}

/** What an arm needs some of before its effects are told. */
export const durableThing = (plan) => (plan.federated ? "durable report" : "durable record");

/** Without a p-value the check is open: a unit may have several records, and units cannot be counted. */
export const ratioState = (ratio) => {
  if (ratio.p_value === null) return "open";
  return ratio.p_value < SUSPICIOUS ? "fails" : "passes";
};

export function ratioVerdict(ratio) {
  if (ratioState(ratio) === "open") return "Whether the records per arm fit the plan cannot be told: units may have several.";
  const p = `p\u00a0${ratio.p_value < SUSPICIOUS ? "" : "=\u00a0"}${chance(ratio.p_value)}`;
  return ratioState(ratio) === "passes"
    ? `The ${ratio.counted} per arm fit the plan (${p}).`
    : `The ${ratio.counted} per arm do not fit the plan (${p}).`;
}
