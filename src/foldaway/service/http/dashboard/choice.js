// Which effect is looked at: an outcome, an arm, an estimator.

import { h } from "./dom.js";
import { ERRORS, ESTIMATORS } from "./vocabulary.js";

export const keyOf = (row) => JSON.stringify([row.outcome, row.arm, row.estimator]);

/** The name that ranks first; the first of those of one rank. */
const best = (words, names) => names.reduce((a, b) => (words[b].rank < words[a].rank ? b : a));

/** One row for each outcome, arm and estimator: of those that are reliable, if any is, the kind that ranks first. */
export function headline(rows) {
  const lead = new Map();
  for (const row of rows) {
    const other = lead.get(keyOf(row));
    if (!other || leads(row, other)) lead.set(keyOf(row), row);
  }
  return [...lead.values()];
}

const leads = (row, other) =>
  row.reliable === other.reliable ? best(ERRORS, [other.se_kind, row.se_kind]) !== other.se_kind : row.reliable;

/** Of the estimators with a reliable row, if there is any, the one that ranks first. */
function leading(rows) {
  const reliable = rows.filter((row) => row.reliable);
  return best(ESTIMATORS, (reliable.length ? reliable : rows).map((row) => row.estimator));
}

export class Choice {
  constructor(changed) {
    this.fields = { outcome: "Outcome", arm: "Arm", estimator: "Estimator" };
    this.selects = {};
    this.element = h("div", { class: "choice" });
    for (const [field, label] of Object.entries(this.fields)) {
      const select = h("select", { id: `choose-${field}`, onchange: () => {
        if (field === "estimator") this.liked = select.value;
        this.offer(this.rows, this.labels);
        changed();
      } });
      this.selects[field] = select;
      this.element.append(h("div", {}, h("label", { for: select.id }, label), select));
    }
  }

  /** Offer what there is, and keep what was chosen; of estimators, those of the outcome: a quantile has no adjusted one. */
  offer(rows, labels) {
    [this.rows, this.labels] = [rows, labels];
    for (const [field, select] of Object.entries(this.selects)) {
      const estimator = field === "estimator";
      const those = estimator ? rows.filter((row) => row.outcome === this.selects.outcome.value) : rows;
      const values = [...new Set(those.map((row) => row[field]))];
      const offered = [...select.options].map((option) => option.value);
      if (JSON.stringify(values) === JSON.stringify(offered)) continue;
      const chosen = estimator ? this.liked : select.value;
      select.replaceChildren(...values.map((value) => h("option", { value }, labels[value] ?? value)));
      select.value = values.includes(chosen) ? chosen : estimator ? leading(those) : values[0];
      select.parentElement.hidden = values.length < 2;
    }
  }

  /** Choose an outcome and an arm, if they are offered. */
  choose(outcome, arm) {
    for (const [field, value] of Object.entries({ outcome, arm })) {
      const select = this.selects[field];
      if ([...select.options].some((option) => option.value === value)) select.value = value;
    }
    this.offer(this.rows, this.labels);
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
