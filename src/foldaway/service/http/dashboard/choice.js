// Which effect is looked at: an outcome, an arm, an estimator.

import { h } from "./dom.js";

// The covariates make an estimate more precise; where there are none, these do not exist.
const FIRST = ["interacted", "regression", "difference", "ipw"];

// Which kind of error speaks for an estimate, best first; the server's history has the same order.
const KINDS = ["CR3", "CR2", "CR1", "bootstrap", "HC2", "HC1"];

export const keyOf = (row) => JSON.stringify([row.outcome, row.arm, row.estimator]);

/** One row for each outcome, arm and estimator. */
export function headline(rows) {
  const best = new Map();
  const rank = (row) => (KINDS.includes(row.se_kind) ? KINDS.indexOf(row.se_kind) : KINDS.length);
  for (const row of rows) {
    const other = best.get(keyOf(row));
    if (!other || rank(row) < rank(other)) best.set(keyOf(row), row);
  }
  return [...best.values()];
}

export class Choice {
  constructor(changed) {
    this.fields = { outcome: "Outcome", arm: "Arm", estimator: "Estimator" };
    this.selects = {};
    this.element = h("div", { class: "choice" });
    for (const [field, label] of Object.entries(this.fields)) {
      const select = h("select", { id: `choose-${field}`, onchange: changed });
      this.selects[field] = select;
      this.element.append(h("div", {}, h("label", { for: select.id }, label), select));
    }
  }

  /** Offer what there is, and keep what was chosen. */
  offer(rows) {
    for (const [field, select] of Object.entries(this.selects)) {
      const values = [...new Set(rows.map((row) => row[field]))];
      const offered = [...select.options].map((option) => option.value);
      if (JSON.stringify(values) === JSON.stringify(offered)) continue;
      const kept = select.value;
      select.replaceChildren(...values.map((value) => h("option", { value }, value)));
      const first = field === "estimator" ? FIRST.find((name) => values.includes(name)) : undefined;
      select.value = values.includes(kept) ? kept : (first ?? values[0]);
      select.parentElement.hidden = values.length < 2;
    }
  }

  get wanted() {
    return Object.fromEntries(Object.entries(this.selects).map(([field, select]) => [field, select.value]));
  }

  /** The row that was chosen. */
  among(rows) {
    const key = keyOf(this.wanted);
    return rows.find((row) => keyOf(row) === key) ?? null;
  }
}
