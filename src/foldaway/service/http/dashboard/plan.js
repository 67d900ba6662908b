// The plan on the page: what was asked, in a few lines, and word for word.

import { h, named } from "./dom.js";
import { number, share } from "./format.js";
import { MODES } from "./vocabulary.js";

const LEAST = 10; // records of every arm, where the plan does not say

/** How many records of every arm there must be before effects are told. */
export const smallestCell = (plan) => plan.privacy?.smallest_cell ?? LEAST;

/** By arm its probability, which a plan writes alone or, beside what the column says for the arm, as a share. */
export const probabilities = (plan) => Object.fromEntries(Object.entries(plan.arms).map(([arm, said]) => [arm, said.share ?? said]));

/** Whether effects come at the end alone: they are released with noise, or devices send what the errors need then. */
export const atEnd = (plan) => Boolean(plan.release) || MODES[plan.federated?.mode]?.at_end;

/** Whether there cannot be effects yet: no need to ask. */
export function tooEarly(plan, status) {
  if (status.status === "ended") return false;
  return atEnd(plan) || status.records < Object.keys(plan.arms).length * smallestCell(plan);
}

/** Names in a row; a column may also come as a table, with its levels or bounds. */
const list = (names) => names.flatMap((each, i) => [i ? ", " : "", named(each.column ?? each)]);

/** What people read of an outcome: its label or name, or else what it is made of. */
function titleOf(outcome) {
  if (typeof outcome === "string") return outcome;
  if (outcome.quantiles && !outcome.label && !outcome.name) {
    return `${outcome.column} ${outcome.quantiles.map((each) => `p${number(100 * each)}`).join(", ")}`;
  }
  if (outcome.kind === "survival" && !outcome.label && !outcome.name) {
    return outcome.at?.length ? `${outcome.time} beyond ${outcome.at.join(", ")}` : `${outcome.time} up to ${outcome.until}`;
  }
  const made = outcome.column ?? [outcome.numerator, outcome.denominator].filter(Boolean).join(" / ");
  return outcome.label || outcome.name || (outcome.kind && !["mean", "ratio"].includes(outcome.kind) ? `${outcome.kind} of ${made}` : made);
}

/** The card's content. */
export function planCard(plan) {
  const fact = (term, ...text) => h("div", { class: "tall" }, h("dt", {}, term), h("dd", {}, ...text));
  const outcomes = plan.outcomes.map(titleOf);
  return [
    h("h2", {}, "The plan"),
    h("dl", { class: "facts plain" },
      fact("Arms", Object.entries(probabilities(plan)).flatMap(([arm, p], i) => [i ? ", " : "", named(arm), `: ${share(p, 1)}`])),
      fact(outcomes.length === 1 ? "Outcome" : "Outcomes", list(outcomes)),
      plan.covariates?.length ? fact("Adjusted for", list(plan.covariates)) : null,
      plan.unit ? fact("Randomised by", named(plan.unit)) : null,
      plan.segments?.length ? fact("Segments", list(plan.segments)) : null),
    h("details", {}, h("summary", {}, "Word for word"), h("pre", { class: "plan", tabindex: "0", role: "region", "aria-label": "The plan, word for word" }, JSON.stringify(plan, null, 2))),
  ];
}
