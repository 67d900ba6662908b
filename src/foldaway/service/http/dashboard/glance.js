// What to do, and every outcome at a glance: one line each, with the verdict, the effect, its interval and both levels.

import { h, named, table } from "./dom.js";
import { ends, interval, number, places, reach, signed } from "./format.js";
import { badge } from "./words.js";

/** The sentence for whoever reads no further, one for each arm, and the rule that decided. */
export function decisions({ decisions: those }) {
  const rule = those[0]?.rule;
  return [...those.map((each) => h("p", { class: "decision" }, named(each.sentence))),
    rule ? h("p", { class: "soft small" }, named(rule)) : null].filter(Boolean);
}

/** The lines; `choose` is told which outcome and arm somebody wants to see more of. */
export function glance({ verdicts, confidence }, choose) {
  const several = new Set(verdicts.map((said) => said.arm)).size > 1;
  const levels = several ? ["Control", "In the arm"] : [verdicts[0].control, verdicts[0].arm].map((arm) => named(arm));
  // Where intervals are of two kinds, each says its own, and the heading neither.
  const kinds = [...new Set(verdicts.map(kindOf).filter(Boolean))];
  const interval = `${number(100 * confidence)} % interval${kinds.length === 1 ? `, ${kinds[0]}` : ""}`;
  const header = ["Outcome", "Verdict", "Effect", interval, ...levels];
  const rows = verdicts.map((said) => [
    [h("button", { class: "link", type: "button", onclick: () => choose(said.outcome, said.arm) },
      named(said.label), said.measure ? h("small", {}, ` ${said.measure}`) : null),
    several ? h("div", { class: "soft small" }, named(said.arm)) : null],
    badge(said),
    ...figures(said, kinds.length > 1),
  ]);
  return table("All results at a glance", header, rows, { class: "glance" });
}

/** For how many looks the interval of a line is; nothing if it has none. */
function kindOf(said) {
  const { anyTime, oneLook } = ends(said);
  return anyTime ? "any time" : oneLook ? "one look" : null;
}

function figures(said, labelled) {
  const { lower, upper } = ends(said);
  const kind = labelled ? kindOf(said) : null;
  const decimals = places(reach(said.estimate, lower, upper));
  return [signed(said.estimate, decimals),
    [interval(lower, upper, decimals), kind ? h("div", { class: "soft small" }, kind) : null],
    number(said.control_level, decimals), number(said.level, decimals)];
}
