/** Mode delta: a device keeps a count, and the sum of each value. */
import { packed } from "../bytes.js"
import { type Mode, added } from "./mode.js"

export const delta: Mode = {
  name: "delta",
  takeIn: (_, sums, row) => added(sums, row.y),
  report: (_, { number, arm, n, sums }) => ({ number, arm, n, sums: packed(sums) }),
}
