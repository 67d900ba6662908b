// Every outcome at a glance: one line each, with both levels, the effect, its interval and the verdict.

import { h, named, table } from "./dom.js";
import { interval, number, places, reach, signed } from "./format.js";
import { badge, longer } from "./words.js";

/** The lines; `choose` is told which outcome and arm somebody wants to see more of. */
export function glance(verdicts, choose) {
  const several = new Set(verdicts.map((said) => said.arm)).size > 1;
  const header = ["Outcome", ...(several ? ["Arm"] : []), "Verdict", "Effect", "Interval",
    ...(several ? ["Control", "In the arm"] : [verdicts[0].control, verdicts[0].arm].map((arm) => named(arm)))];
  const rows = verdicts.map((said) => [
    h("button", { class: "link", type: "button", onclick: () => choose(said.outcome, said.arm) },
      named(said.label), said.measure ? h("small", {}, ` ${said.measure}`) : null),
    ...(several ? [named(said.arm)] : []),
    h("span", { title: longer(said) }, badge(said)),
    ...figures(said),
  ]);
  return table("All results at a glance", header, rows, { class: several ? "glance arms-too" : "glance" });
}

function figures(said) {
  const anyTime = said.anytime_ci_lower !== null || said.anytime_ci_upper !== null;
  const [lower, upper] = anyTime ? [said.anytime_ci_lower, said.anytime_ci_upper] : [said.ci_lower, said.ci_upper];
  const decimals = places(reach(said.estimate, lower, upper));
  return [signed(said.estimate, decimals), interval(lower, upper, decimals),
    number(said.control_level, decimals), number(said.level, decimals)];
}
