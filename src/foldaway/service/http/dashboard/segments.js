// The effect within each level of the plan's segments, for the outcome and the arm that are looked at.

import { h, named, table } from "./dom.js";
import { forest, legend } from "./forest.js";
import { chance, interval, places, reach, several, signed } from "./format.js";

const OTHERS = "(others)";
const MOST = 10; // levels that are drawn at once: the largest, which come first
const levelOf = (row) => row.segment || OTHERS;

/** The card: drawn anew only if it says something else; what somebody has opened stays open. */
export class Segments {
  constructor() {
    this.element = h("section", { class: "card", "aria-label": "Effects by segment", hidden: true });
  }

  show(all, row, said) {
    const state = JSON.stringify([row.outcome, row.arm, all]);
    if (state === this.shown) return;
    this.shown = state;
    const details = () => [...this.element.querySelectorAll("details")];
    const open = details().filter((each) => each.open).map((each) => each.dataset.of);
    const held = this.element.contains(document.activeElement) ? document.activeElement.closest("details")?.dataset.of : null;
    const parts = content(all, row, said);
    this.element.hidden = !parts.length;
    this.element.replaceChildren(...parts);
    for (const each of details()) {
      each.open = open.includes(each.dataset.of);
      if (held && each.dataset.of === held) each.querySelector("summary").focus();
    }
  }
}

/** Nothing without segments. */
function content(all, row, said) {
  const those = all.filter((each) => each.outcome === row.outcome && each.arm === row.arm);
  if (!those.length) return [];
  return [
    h("h2", {}, "Effects of ", named(row.arm), " on ", named(said.label), " by segment"),
    ...those.map((each) => h("div", { class: "segment" },
      h("h3", {}, "By ", named(each.column)),
      h("p", { class: "soft small" }, each.summary),
      ...drawn(each, `Effects on ${said.label} by ${each.column}`),
      ...withheld(each),
      numbers(each, `All effects on ${said.label} by ${each.column}`)))];
}

function drawn(each, caption) {
  const words = {
    column: each.column, name: levelOf, about: (level) => (level.n === null ? "" : several(level.n, "record")),
  };
  const more = each.effects.slice(MOST);
  return [
    forest(each.effects.slice(0, MOST), null, caption, words, each.effects),
    ...legend(each.effects),
    more.length
      ? h("details", { "data-of": `more ${each.column}` },
        h("summary", {}, `${several(more.length, "smaller level")}`),
        forest(more, null, `${caption}, smaller levels`, words, each.effects))
      : null];
}

/** Each reason once, with the levels that it is about. */
function withheld(each) {
  const reasons = new Map();
  for (const level of each.effects.filter((level) => level.why)) {
    reasons.set(level.why, [...(reasons.get(level.why) ?? []), level]);
  }
  if (!reasons.size) return [];
  const names = (levels) => levels.slice(0, MOST).flatMap((level, i) => [i ? ", " : "", named(levelOf(level))]);
  const rest = (levels) => (levels.length > MOST ? ` and ${levels.length - MOST} more` : "");
  return [h("ul", { class: "notes soft small" }, [...reasons].map(([why, levels]) =>
    h("li", {}, ...names(levels), rest(levels), ": ", why)))];
}

function numbers(each, caption) {
  const adjusted = each.effects.some((level) => level.p_adjusted !== null);
  const smallest = Math.min(...each.effects.map((level) => reach(level.estimate, level.ci_lower, level.ci_upper)).filter((far) => far > 0));
  const decimals = places(smallest);
  const header = [named(each.column), "Effect", "Interval, one look", "p", ...(adjusted ? ["Adjusted p"] : [])];
  const rows = each.effects.map((level) => [
    named(levelOf(level)), signed(level.estimate, decimals), interval(level.ci_lower, level.ci_upper, decimals),
    chance(level.p_value), ...(adjusted ? [chance(level.p_adjusted)] : []),
  ]);
  return h("details", { "data-of": `numbers ${each.column}` }, h("summary", {}, "All numbers"), table(caption, header, rows));
}
