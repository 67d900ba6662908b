/** What makes ỹ of a record: its values less what the plan's coefficients predict from its covariates. */
import { type Bounds, type Coefficients, type Plan, columnsOf } from "./plan.js"
import { type Value, clip } from "./values.js"
import type { Row } from "./rows.js"

/** ỹ of a row, by value; nothing if the plan has no coefficients. */
export function adjusted(plan: Plan, row: Row): number[] {
  const { coefficients } = plan
  if (coefficients === undefined) return []
  const names = plan.regressors.slice(1)
  return plan.values.map((value, place) => {
    let predicted = 0
    names.forEach((name, column) => {
      const slope = slopeOf(coefficients, value, name)
      predicted += slope * ((row.x[column] ?? 0) - (coefficients.center.get(name) ?? 0))
    })
    return (row.y[place] ?? 0) - (plan.release ? clip(predicted, reach(plan, coefficients, value)) : predicted)
  })
}

function slopeOf(coefficients: Coefficients, value: Value, name: string): number {
  return coefficients.slopes.get(value.name)?.get(name) ?? 0
}

/** The least and the largest prediction of a value, covariates being within their bounds; at most the value's range. */
function reach(plan: Plan, coefficients: Coefficients, value: Value): Bounds {
  let least = 0
  let largest = 0
  for (const covariate of plan.covariates) {
    const own = partsOf(plan, coefficients, value, covariate)
    least += Math.min(...own)
    largest += Math.max(...own)
  }
  const [lower, upper] = value.within(plan.bounds.get(value.column) ?? [-Infinity, Infinity])
  const range: Bounds = [lower - upper, upper - lower]
  return [clip(least, range), clip(largest, range)]
}

/** What a covariate can add to a prediction, at its ends: at its bounds, or at each of its levels. */
function partsOf(plan: Plan, coefficients: Coefficients, value: Value, covariate: string): number[] {
  const levels = plan.levels.get(covariate)
  const columns = columnsOf(covariate, levels).map((name) => ({
    slope: slopeOf(coefficients, value, name),
    center: coefficients.center.get(name) ?? 0,
  }))
  if (levels !== undefined) {
    const none = columns.reduce((sum, { slope, center }) => sum - slope * center, 0)
    return [none, ...columns.map(({ slope }) => none + slope)]
  }
  const ends = plan.bounds.get(covariate) ?? [-Infinity, Infinity]
  return columns.flatMap(({ slope, center }) => ends.map((end) => (slope === 0 ? 0 : slope * (end - center))))
}
