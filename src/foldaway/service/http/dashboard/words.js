// What the numbers mean, in sentences.

import { h, named } from "./dom.js";
import { between, chance, count, ends, interval, number, percent, places, reach, several, signed } from "./format.js";
import { MODES, SUSPICIOUS } from "./vocabulary.js";

const UNDECIDED = "not decided yet";
const COLOURS = { better: "good", "not worse": "good", alike: "good", worse: "bad", "no verdict": "bad", "worse within margin": "", higher: "", lower: "" };

/** Whether a verdict holds for a single look alone. */
const holdsOnce = (said) => said.words.endsWith(", one look");

/** The verdict in a mark of its own; strong only if it holds however often you look. */
export function badge(said) {
  return h("span", { class: `verdict ${COLOURS[said.words] ?? "soft"}` }, said.words);
}

/** The effect in a sentence that needs no statistics. */
export function verdict(row, said) {
  const decimals = reachPlaces(row);
  const [arm, outcome] = [named(row.arm), named(said.label)];
  const measure = said.apart ? `\u00a0${said.apart}` : "";
  const margin = said.margin === null ? "" : number(said.margin) + measure;
  if (row.estimate === null) return ["No effect of ", arm, " on ", outcome, " can be shown yet"];
  if (!row.reliable) return ["No error can be given for ", arm, " on ", outcome];
  if (said.anytime === "no verdict") return ["Do not trust the effect of ", arm, " on ", outcome, " yet"];
  const leads = row.estimator === said.estimator;
  const found = leads ? (holdsOnce(said) ? said.verdict : said.anytime) : clear(row);
  const once = leads && holdsOnce(said) ? " (one look)" : "";
  if (found === "worse within margin") return [arm, " makes ", outcome, ` worse, by less than ${margin}${once}`];
  if (found === "not worse") return [arm, " does not make ", outcome, ` worse by more than ${margin}${once}`];
  if (found === "alike") return [arm, " and ", named(row.control), " differ in ", outcome, ` by no more than ${margin}${once}`];
  if (found !== UNDECIDED) {
    const by = ` by ${number(Math.abs(row.estimate), decimals)}${measure}`;
    const so = ["better", "worse"].includes(found) ? `, which is ${found}` : "";
    return [arm, row.estimate > 0 ? " raises " : " lowers ", outcome, by, so, once];
  }
  if (said.question === "not worse") return ["Whether ", arm, " makes ", outcome, ` worse by more than ${margin} is open`];
  if (said.question === "alike") return ["Whether ", outcome, ` differs by more than ${margin} is open`];
  return ["No effect of ", arm, " on ", outcome, " is established"];
}

/** What the any-time interval of a row that does not lead says. */
function clear(row) {
  if (row.threshold) return UNDECIDED;
  return row.anytime_ci_lower > 0 || (row.anytime_ci_upper !== null && row.anytime_ci_upper < 0) ? "clear" : UNDECIDED;
}

/** How sure, and compared with what. */
export function explained(row, said, confidence) {
  const decimals = reachPlaces(row);
  const sure = `With ${number(100 * confidence)} % confidence the effect lies`;
  const { lower, upper, anyTime, oneLook } = ends(row);
  const range = `${sure} ${between(lower, upper, decimals)}, however often you look. `;
  const once = `If you look only once, it lies ${between(row.ci_lower, row.ci_upper, decimals)}. `;
  const told = anyTime
    ? [range, row.estimator === said.estimator && holdsOnce(said) ? once : ""]
    : [`${row.anytime_why} `, oneLook ? `${sure} ${between(lower, upper, decimals)}, if you look only once. ` : ""];
  const level = ["The level of ", named(row.control), ` is ${number(row.control_level, decimals)}${said.sign}.`];
  return [...told, ...(row.control_level === null ? [] : level)];
}

/** The three numbers that matter, each with its name. */
export function figures(row) {
  const decimals = reachPlaces(row);
  const { lower, upper, oneLook } = ends(row);
  const figure = (term, id, text) => h("div", {}, h("dt", {}, term), h("dd", { id }, text));
  return [
    figure("Effect", "estimate", signed(row.estimate, decimals)),
    figure(oneLook ? "Interval, one look" : "Interval, valid at any time", "interval", interval(lower, upper, decimals)),
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
  const { lower, upper } = ends(row);
  return places(reach(row.estimate, lower, upper));
}

/** The same for who hears the page instead of seeing it. */
export function heard(row, records) {
  const decimals = reachPlaces(row);
  const { lower, upper } = ends(row);
  const range = lower === null && upper === null ? "" : ` ${between(lower, upper, decimals)},`;
  return `${row.outcome}, ${row.arm}: ${number(row.estimate, decimals)},${range} after ${count(records)} records.`;
}

/** What the trial can still find of this effect, in one line. */
export function ahead(outlook, row, said) {
  const found = outlook.rows.find((other) => other.outcome === row.outcome && other.arm === row.arm);
  if (!found || found.smallest === null) return [];
  const days = outlook.days === null ? "" : `, in about ${several(Math.ceil(outlook.days), "day")} at the present rate`;
  return [
    `With ${count(outlook.by)} records${days}, an effect of ${number(found.smallest, places(found.smallest))} on `,
    named(said.label), ` would show with a chance of ${number(100 * outlook.power)} %.`,
  ];
}

/** What a cohort counts. */
export const cohortThing = (plan) => (plan.federated ? "message" : plan.unit ? "unit" : "record");

/** Whether sites, which have many units each, may take part in a federated trial. */
const hasSites = (plan) => Boolean(plan.unit && MODES[plan.federated?.mode]?.sites);

/** Where the records of a federated trial stay. */
export const keptWhere = (plan) => (hasSites(plan) ? "at sites and on devices" : "on devices");

/** Whose reports are counted in a federated trial. */
export const reporters = (plan) => (hasSites(plan) ? "Units at sites, and devices," : "Devices");

/** Without a p-value the check is open. Records of units may not fit though the randomisation is sound. */
export const ratioState = (ratio) => {
  if (ratio.p_value === null) return "open";
  if (ratio.p_value >= SUSPICIOUS) return "passes";
  return ratio.test === "groups" ? "look" : "fails";
};

export function ratioVerdict(ratio) {
  if (ratioState(ratio) === "open") return "It is unknown whether the records per arm fit the plan, because units may have several and too few have come.";
  const p = `p\u00a0${ratio.p_value < SUSPICIOUS ? "" : "=\u00a0"}${chance(ratio.p_value)}`;
  return ratioState(ratio) === "passes"
    ? `The ${ratio.counted} per arm fit the plan (${p}).`
    : `The ${ratio.counted} per arm do not fit the plan (${p}).`;
}
