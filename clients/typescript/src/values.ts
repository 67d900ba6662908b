/** The values that outcomes are computed from: one number of a record each. */
import { PlanError } from "./errors.js"
import type { Bounds } from "./plan.js"

export interface Value {
  readonly name: string
  readonly column: string
  /** The value of a record, from its column. */
  readonly of: (number: number) => number
  /** Between which numbers it lies, given the bounds of its column. */
  readonly within: (bounds: Bounds) => Bounds
}

/** The values of an outcome: a column's name, or a table. */
export function valuesOf(outcome: unknown): Value[] {
  if (typeof outcome === "string") return [plain(outcome)]
  const settings = outcome as ReadonlyMap<string, unknown>
  const kind = settings.get("kind") ?? "mean"
  const column = settings.get("column") as string
  const cap = settings.get("cap") as Bounds | null | undefined
  switch (kind) {
    case "mean":
      return [cap ? capped(column, cap) : plain(column)]
    case "total":
      return [plain(column)]
    case "ratio":
      return [plain(settings.get("numerator") as string), plain(settings.get("denominator") as string)]
    case "share":
      return [share(column, settings)]
  }
  throw new PlanError(`this device does not know outcomes of the kind ${JSON.stringify(kind)}: use a newer foldaway-device.`)
}

export function clip(number: number, [lower, upper]: Bounds): number {
  return Math.min(Math.max(number, lower), upper)
}

function plain(column: string): Value {
  return { name: column, column, of: (number) => number, within: (bounds) => bounds }
}

function capped(column: string, cap: Bounds): Value {
  return {
    name: `${column} within [${shortest(cap[0])}, ${shortest(cap[1])}]`,
    column,
    of: (number) => clip(number, cap),
    within: ([lower, upper]) => [clip(lower, cap), clip(upper, cap)],
  }
}

const TESTS: readonly (readonly [string, string, (number: number, threshold: number) => boolean])[] = [
  ["above", ">", (number, threshold) => number > threshold],
  ["below", "<", (number, threshold) => number < threshold],
  ["equals", "=", (number, threshold) => number === threshold],
]

function share(column: string, settings: ReadonlyMap<string, unknown>): Value {
  for (const [test, sign, passes] of TESTS) {
    const threshold = settings.get(test)
    if (typeof threshold !== "number") continue
    const name = `${column} ${sign} ${shortest(threshold)}`
    return { name, column, of: (number) => Number(passes(number, threshold)), within: () => [0, 1] }
  }
  throw new PlanError(`the share of ${JSON.stringify(column)} in this plan has no test.`)
}

/** A number as names have it: C's `%.15g`, or if these digits read back as another number, the fewest that do. */
export function shortest(number: number): string {
  const enough = Number(number.toPrecision(15)) === number
  const [mantissa = "", power = ""] = (enough ? number.toExponential(14) : number.toExponential()).split("e")
  const sign = mantissa.startsWith("-") || Object.is(number, -0) ? "-" : ""
  const digits = mantissa.replace(/[-.]/g, "").replace(/0+$/, "") || "0"
  const exponent = Number(power)
  if (exponent < -4 || exponent >= (enough ? 15 : 16)) {
    const decimals = digits.length > 1 ? `.${digits.slice(1)}` : ""
    return `${sign}${digits[0]}${decimals}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`
  const decimals = digits.slice(exponent + 1) || (enough ? "" : "0")
  return sign + digits.slice(0, exponent + 1).padEnd(exponent + 1, "0") + (decimals && `.${decimals}`)
}
