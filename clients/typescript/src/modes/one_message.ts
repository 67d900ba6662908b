/** Mode one-message: a device keeps the triangular factor R of its rows z = [1, x, y], R'R = Σ w z z'. */
import { packed } from "../bytes.js"
import type { Mode } from "./mode.js"

export const oneMessage: Mode = {
  name: "one-message",
  takeIn: (_, factor, { x, y, weight }) => withRow(factor, [1, ...x, ...y].map((number) => Math.sqrt(weight) * number)),
  report: (_, { number, arm, n, sums }) => ({ number, arm, n, factor: packed(sums), first: true }),
}

/** The factor, its upper triangle row by row, with one more row: rotated in, since sums of squares lose half the digits. */
function withRow(factor: readonly number[], row: number[]): number[] {
  const columns = row.length
  const R = factor.length > 0 ? [...factor] : new Array<number>((columns * (columns + 1)) / 2).fill(0)
  let place = 0
  for (let i = 0; i < columns; i++) {
    const [a, b] = [R[place] ?? 0, row[i] ?? 0]
    const length = Math.hypot(a, b)
    const [cosine, sine] = length > 0 ? [a / length, b / length] : [1, 0]
    for (let j = i; j < columns; j++, place++) {
      const [above, below] = [R[place] ?? 0, row[j] ?? 0]
      R[place] = cosine * above + sine * below
      row[j] = cosine * below - sine * above
    }
  }
  return R
}
