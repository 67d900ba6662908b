// Every outcome at a glance: one line each, with the verdict, the effect, its interval and both levels.

import { h, named, table } from "./dom.js";
import { interval, number, places, reach, signed } from "./format.js";
import { badge } from "./words.js";

/** The lines; `choose` is told which outcome and arm somebody wants to see more of.
 *
 * While a trial is open, people look again and again, so its intervals are those that stay valid.
 */
export function glance({ verdicts, confidence }, open, choose) {
  const several = new Set(verdicts.map((said) => said.arm)).size > 1;
  const levels = several ? ["Control", "In the arm"] : [verdicts[0].control, verdicts[0].arm].map((arm) => named(arm));
  const header = ["Outcome", "Verdict", "Effect", `${number(100 * confidence)} % interval`, ...levels];
  if (open) header[3] += ", any time";
  const rows = verdicts.map((said) => [
    [h("button", { class: "link", type: "button", onclick: () => choose(said.outcome, said.arm) },
      named(said.label), said.measure ? h("small", {}, ` ${said.measure}`) : null),
    several ? h("div", { class: "soft small" }, named(said.arm)) : null],
    badge(said),
    ...figures(said, open),
  ]);
  return table("All results at a glance", header, rows, { class: "glance" });
}

function figures(said, open) {
  const anyTime = open && (said.anytime_ci_lower !== null || said.anytime_ci_upper !== null);
  const [lower, upper] = anyTime ? [said.anytime_ci_lower, said.anytime_ci_upper] : [said.ci_lower, said.ci_upper];
  const decimals = places(reach(said.estimate, lower, upper));
  return [signed(said.estimate, decimals), interval(lower, upper, decimals),
    number(said.control_level, decimals), number(said.level, decimals)];
}
