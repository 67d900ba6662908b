// The intervals as they are now, one row for each arm and estimator, on one scale.

import { h, named, s } from "./dom.js";
import { ends, interval, number, places, reach, signed } from "./format.js";
import { decimalsOf, rangeOf, scale, ticks } from "./scale.js";

const byArm = { column: "Arm", name: (row) => row.arm, about: (row) => `${row.estimator}, ${row.se_kind}` };

/** A table whose middle column is a drawing; what it draws also stands beside it in numbers, with the decimals of all rows. */
export function forest(rows, chosen, caption, { column, name, about } = byArm, all = rows) {
  const range = rangeOf(rows.flatMap((row) => [row.estimate, row.anytime_ci_lower, row.anytime_ci_upper,
    row.ci_lower, row.ci_upper, ...(row.threshold ? [row.threshold] : []), ...(row.alternative === "within" ? [-row.threshold] : [])]));
  const x = scale(range, [3, 97]);
  const reaches = all.map((row) => reach(row.estimate, row.ci_lower, row.ci_upper));
  const decimals = places(Math.min(...reaches.filter((each) => each > 0)));
  const body = rows.map((row) => h("tr", { class: row === chosen ? "chosen" : null },
    h("th", { scope: "row" },
      named(name(row)), h("span", { class: "soft small" }, about(row))),
    h("td", { class: "drawn" }, drawn(row, x)),
    h("td", { class: "numbers" },
      h("strong", {}, signed(row.estimate, decimals)),
      h("span", { class: "soft small" }, interval(ends(row).lower, ends(row).upper, decimals)))));
  const marks = ticks(range, 3);
  const foot = s("svg", { class: "scale", "aria-hidden": "true", focusable: "false", width: "100%", height: 20 },
    ...marks.map((mark) => s("text", { class: "tick", x: `${x(mark)}%`, y: 14, "text-anchor": "middle" },
      number(mark, decimalsOf(marks)))));
  return h("table", { class: "forest" },
    h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {},
      h("th", { scope: "col" }, named(column)),
      h("th", { scope: "col", class: "drawn" }, "Interval"),
      h("th", { scope: "col", class: "numbers" }, "Effect"))),
    h("tbody", {}, body),
    h("tfoot", {}, h("tr", {}, h("td", {}), h("td", { class: "drawn" }, foot), h("td", {}))));
}

const marginsOf = (row) => (!row.threshold ? [] : row.alternative === "within" ? [-row.threshold, row.threshold] : [row.threshold]);

/** What the broken lines are; nothing where there is no margin. */
export function legend(rows) {
  const margins = [...new Set(rows.flatMap(marginsOf).map(Math.abs))];
  if (!margins.length) return [];
  const key = (kind) => s("svg", { class: "key", width: 16, height: 16, "aria-hidden": "true" },
    s("line", { class: kind, x1: 8, x2: 8, y1: 0, y2: 16 }));
  return [h("ul", { class: "keys soft small", "aria-label": "Lines" },
    h("li", {}, key("zero"), "No effect"),
    h("li", {}, key("margin"), `The ${margins.length > 1 ? "margins" : "margin"}: ${margins.map((margin) => number(margin)).join(", ")}`))];
}

function drawn(row, x) {
  const at = (value) => `${x(value).toFixed(2)}%`;
  const end = (value, open) => (value === null ? open : at(value));
  const line = (kind, lower, upper) => (lower === null && upper === null
    ? null
    : s("line", { class: kind, x1: end(lower, "0%"), x2: end(upper, "100%"), y1: "50%", y2: "50%" }));
  const margins = marginsOf(row);
  return s("svg", { width: "100%", "aria-hidden": "true", focusable: "false" },
    s("line", { class: "zero", x1: at(0), x2: at(0), y1: 0, y2: "100%" }),
    ...margins.map((margin) => s("line", { class: "margin", x1: at(margin), x2: at(margin), y1: 0, y2: "100%" })),
    line("reach", row.anytime_ci_lower, row.anytime_ci_upper),
    line("look", row.ci_lower, row.ci_upper),
    row.estimate === null ? null : s("circle", { class: "now", cx: at(row.estimate), cy: "50%", r: 5 }));
}
