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
  const header = ["Outcome", "Verdict", "Effect", `${number(100 * confidence)} % interval, any time`, ...levels];
  const rows = verdicts.map((said) => [
    [h("button", { class: "link", type: "button", onclick: () => choose(said.outcome, said.arm) },
      named(said.label), said.measure ? h("small", {}, ` ${said.measure}`) : null),
    several ? h("div", { class: "soft small" }, named(said.arm)) : null],
    badge(said),
    ...figures(said),
  ]);
  return table("All results at a glance", header, rows, { class: "glance" });
}

function figures(said) {
  const { lower, upper, oneLook } = ends(said);
  const decimals = places(reach(said.estimate, lower, upper));
  return [signed(said.estimate, decimals),
    [interval(lower, upper, decimals), oneLook ? h("div", { class: "soft small" }, "one look") : null],
    number(said.control_level, decimals), number(said.level, decimals)];
}
