/** Mode sums: a device draws a group, and keeps a count, the sum of each value and, with coefficients, of each ỹ. */
import { packed } from "../bytes.js"
import { adjusted } from "../predictor.js"
import { type Mode, added } from "./mode.js"

export const sums: Mode = {
  name: "sums",
  takeIn: (plan, sums, row) => added(sums, [...row.y, ...adjusted(plan, row)]),
  report: (_, { number, arm, n, group, sums }) => ({ number, arm, n, group, sums: packed(sums) }),
}
