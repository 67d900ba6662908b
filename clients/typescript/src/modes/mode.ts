/** The contract of a mode: what a device keeps in place of its records, and what it sends once. */
import type { Plan } from "../plan.js"
import type { Row } from "../rows.js"

/** What a device holds when it makes its report. */
export interface Holding {
  /** The report's number, in base64. */
  readonly number: string
  readonly arm: string
  readonly group: number
  /** How many records the device has taken. */
  readonly n: number
  /** What they came to. */
  readonly sums: readonly number[]
}

export interface Mode {
  readonly name: string
  /** What is kept in place of records, with one more of them in it; `sums` is empty before the first. */
  takeIn(plan: Plan, sums: readonly number[], row: Row): number[]
  /** The report, as JSON has it; a mode that encrypts takes its time. */
  report(plan: Plan, holding: Holding): object | Promise<object>
}

export function added(sums: readonly number[], row: readonly number[]): number[] {
  return row.map((value, place) => value + (sums[place] ?? 0))
}
