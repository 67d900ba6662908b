// Shares as people read them: in per cent, and their differences in percentage points.

const MEASURED = ["estimate", "std_error", "threshold", "margin", "control_level", "level", "ci_lower", "ci_upper",
  "anytime_ci_lower", "anytime_ci_upper", "percentile_ci_lower", "percentile_ci_upper", "smallest"];

const times100 = (value) => (typeof value === "number" ? 100 * value : value);

/** A row whose numbers in the outcome's own unit are in per cent; its other numbers are the same in any unit. */
const scaled = (row) => ({
  ...row, ...Object.fromEntries(MEASURED.filter((name) => name in row).map((name) => [name, times100(row[name])])),
});

/** The outcomes that are shares, by name: only their rows have an odds ratio, or a reason why there is none. */
const sharesOf = (found) => new Set(found.effects
  .filter((row) => row.odds_ratio !== null || row.odds_ratio_why !== null).map((row) => row.outcome));

/** A function that scales the rows of shares, and leaves all others as they are. */
export function percentOf(found) {
  const shares = sharesOf(found);
  return (row) => (shares.has(row.outcome) ? scaled(row) : row);
}

/** The effects for a person: every number of a share in per cent. */
export function inPercent(found) {
  const [row, shares] = [percentOf(found), sharesOf(found)];
  const units = (said) => (shares.has(said.outcome)
    ? { measure: `% ${said.measure}`.trim(), apart: "percentage points", sign: "\u00a0%" }
    : { apart: said.measure, sign: "" });
  return {
    ...found,
    effects: found.effects.map(row),
    verdicts: found.verdicts.map((said) => ({ ...row(said), ...units(said) })),
    segments: found.segments.map((each) => ({ ...each, effects: each.effects.map(row) })),
  };
}
