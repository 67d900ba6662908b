/** A record as a row [1, x, y] of numbers, if there is nothing wrong with it. */
import { type Fault, RecordError } from "./errors.js"
import type { Plan } from "./plan.js"
import { clip } from "./values.js"

/** A record: the plan's columns. The arm's may be left out. */
export type Columns = Readonly<Record<string, unknown>>

export interface Row {
  /** The covariates' columns, without the intercept. */
  readonly x: readonly number[]
  /** The values. */
  readonly y: readonly number[]
  readonly weight: number
}

const LARGEST = 1e40

/** The row of a record.
 *
 * @throws RecordError if the record is faulty; the message does not repeat it.
 */
export function rowOf(plan: Plan, record: Columns, arm: string): Row {
  if (typeof record !== "object" || record === null || Array.isArray(record)) {
    throw new RecordError("the record was not taken: give one object, from columns to values.")
  }
  const given = record[plan.arm]
  if (given !== undefined && given !== null && !(plan.armValues.get(arm) ?? [arm]).includes(levelOf(given) as string)) {
    throw new RecordError(`the record was not taken: its column ${JSON.stringify(plan.arm)} is not the arm of this device.`)
  }
  const faults: Fault[] = []
  const read = <T>(column: string, reading: () => T): T | undefined => {
    try {
      return reading()
    } catch (broken) {
      if (!(broken instanceof Broken)) throw broken
      if (!faults.some((fault) => fault.column === column)) faults.push({ column, rule: broken.rule })
      return undefined
    }
  }
  const number = (column: string) => read(column, () => bounded(plan, column, numberIn(record[column]))) ?? 0
  const x = plan.covariates.flatMap((column) => {
    const levels = plan.levels.get(column)
    if (levels === undefined) return [number(column)]
    const code = read(column, () => codeIn(record[column], levels))
    return levels.slice(1).map((_, place) => Number(code === place + 1))
  })
  const y = plan.values.map((value) => value.of(number(value.column)))
  const { weight: column } = plan
  const weight = column === undefined ? 1 : (read(column, () => positive(numberIn(record[column]))) ?? 1)
  if (faults.length > 0) {
    const said = faults.map((fault) => `${fault.column} (${fault.rule})`).join("; ")
    throw new RecordError(`the record was not taken: faulty in ${said}. Correct it, and record it again.`, faults)
  }
  return { x, y, weight }
}

/** The rule that a value breaks. */
class Broken extends Error {
  constructor(readonly rule: string) {
    super(rule)
  }
}

function numberIn(value: unknown): number {
  if (value === undefined || value === null) throw new Broken("null")
  if (typeof value !== "number" && typeof value !== "boolean" && typeof value !== "bigint") throw new Broken("wrong type")
  const number = Number(value)
  if (Number.isNaN(number)) throw new Broken("NaN")
  if (!Number.isFinite(number) && typeof value === "number") throw new Broken("infinity")
  if (Math.abs(number) > LARGEST) throw new Broken("too large (over 1e40)")
  return number
}

function bounded(plan: Plan, column: string, number: number): number {
  const bounds = plan.bounds.get(column)
  if (bounds === undefined) return number
  const within = clip(number, bounds)
  if (within !== number && plan.refused.has(column)) throw new Broken("out of bounds")
  return within
}

function positive(number: number): number {
  if (number <= 1 / LARGEST) throw new Broken("not positive (over 1e-40)")
  return number
}

function codeIn(value: unknown, levels: readonly string[]): number {
  if (value === undefined || value === null) throw new Broken("null")
  const level = levelOf(value)
  if (level === undefined) throw new Broken("wrong type")
  const code = levels.indexOf(level)
  if (code < 0) throw new Broken("unknown level")
  return code
}

/** A value as the name of a level: text, a boolean, or a whole number. */
function levelOf(value: unknown): string | undefined {
  if (typeof value === "string") return value
  if (typeof value === "boolean" || typeof value === "bigint") return String(value)
  return typeof value === "number" && Number.isInteger(value) && Math.abs(value) <= 2 ** 53 ? String(value + 0) : undefined
}
