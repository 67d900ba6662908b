// The effect within each level of the plan's segments, for the outcome and the arm that are looked at.

import { h, named } from "./dom.js";
import { forest } from "./forest.js";
import { several } from "./format.js";

const OTHERS = "(others)";
const levelOf = (row) => row.segment || OTHERS;

/** The card's content; nothing without segments. */
export function segments(all, row, said) {
  const those = all.filter((each) => each.outcome === row.outcome && each.arm === row.arm);
  if (!those.length) return [];
  return [
    h("h2", {}, "Effects of ", named(row.arm), " on ", named(said.label), " by segment"),
    ...those.map((each) => h("div", { class: "segment" },
      h("h3", {}, "By ", named(each.column)),
      h("p", { class: "soft small" }, each.summary),
      forest(each.effects, null, `Effects on ${said.label} by ${each.column}`,
        { column: each.column, name: levelOf, about: (level) => (level.n === null ? "" : several(level.n, "record")) }),
      h("ul", { class: "notes soft small" }, each.effects.filter((level) => level.why)
        .map((level) => h("li", {}, named(levelOf(level)), ": ", level.why)))))];
}
