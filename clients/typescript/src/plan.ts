/** A plan, read from the bytes that a server gives out. */
import { sha256, utf8 } from "./bytes.js"
import { PlanError } from "./errors.js"
import { type Value, valuesOf } from "./values.js"

export type Bounds = readonly [number, number]

export interface Plan {
  /** The plan as it was served; nobody writes it again. */
  readonly text: string
  readonly fingerprint: string
  readonly name: string
  /** The column that names the arm. */
  readonly arm: string
  readonly arms: ReadonlyMap<string, number>
  /** What the column says for each arm. */
  readonly armValues: ReadonlyMap<string, readonly string[]>
  readonly values: readonly Value[]
  readonly covariates: readonly string[]
  readonly levels: ReadonlyMap<string, readonly string[]>
  readonly bounds: ReadonlyMap<string, Bounds>
  /** The columns of which values beyond their bounds are faulty; those of others are clipped. */
  readonly refused: ReadonlySet<string>
  readonly weight: string | undefined
  readonly groups: number
  readonly coefficients: Coefficients | undefined
  readonly release: boolean
  /** How many seconds a device may keep anything of its records. */
  readonly retention: number
  readonly mode: string
  /** The most records of a device. */
  readonly deviceRecords: number
  readonly expectedUnits: number | undefined
  /** In mode shares, the public keys of both servers, in base64. */
  readonly servers: { readonly leader: string | undefined; readonly helper: string | undefined }
  readonly invited: boolean
  /** The names of a row's regressors: the intercept, and the columns of the covariates. */
  readonly regressors: readonly string[]
}

export interface Coefficients {
  /** By column of a covariate. */
  readonly center: ReadonlyMap<string, number>
  /** By value and column. */
  readonly slopes: ReadonlyMap<string, ReadonlyMap<string, number>>
}

type Table = ReadonlyMap<string, unknown>

/** The plan in these bytes.
 *
 * @throws PlanError if it is none, or not one for devices.
 */
export async function readPlan(bytes: Uint8Array): Promise<Plan> {
  let text: string, plan: Table
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)
    plan = ordered(text) as Table
    plan.get("name")
  } catch {
    throw new PlanError("this is not a trial's plan: use the bytes that the trial's address with /plan at its end answers with.")
  }
  const federated = table(plan, "federated")
  const mode = federated.get("mode")
  if (typeof mode !== "string") throw new PlanError("this plan is not for devices: it has no [federated] table.")
  const arms = table(plan, "arms")
  const written = list(plan, "covariates").map(columnOf)
  const covariates = written.map((each) => each.get("column") as string)
  const levels = new Map(
    written.flatMap((each) => (each.has("levels") ? [[each.get("column") as string, each.get("levels") as readonly string[]]] : [])),
  )
  const limits = [...list(plan, "outcomes"), ...written].flatMap(limitsOf)
  const keys = list<Table>(federated, "servers").map((server) => server.get("key") as string)
  const values = new Map(list(plan, "outcomes").flatMap(valuesOf).map((value) => [value.name, value]))
  return {
    text,
    fingerprint: await sha256(utf8(text)),
    name: plan.get("name") as string,
    arm: plan.get("arm") as string,
    arms: sharesOf(arms),
    armValues: new Map([...arms].map(([arm, written]) => [arm, valuesOfArm(arm, written)])),
    values: [...values.values()],
    covariates,
    levels,
    bounds: new Map(limits.map(({ column, bounds }) => [column, bounds])),
    refused: new Set(limits.filter(({ refused }) => refused).map(({ column }) => column)),
    weight: plan.get("weight") as string | undefined,
    groups: groupsOf(plan),
    coefficients: coefficientsOf(plan),
    release: plan.get("release") !== undefined,
    retention: (table(plan, "privacy").get("retention") as number | undefined) ?? 2_592_000,
    mode,
    invited: federated.get("invited") === true,
    deviceRecords: (federated.get("device_records") as number | undefined) ?? 1_000,
    expectedUnits: plan.get("expected_units") as number | undefined,
    servers: { leader: keys[0], helper: keys[1] },
    regressors: ["1", ...covariates.flatMap((name) => columnsOf(name, levels.get(name)))],
  }
}

/** Into how many groups devices are dealt: as many as leave `smallest_cell` of them in each, if the plan expects some. */
function groupsOf(plan: Table): number {
  const least = (table(plan, "privacy").get("smallest_cell") as number | undefined) ?? 10
  let fewest = 16
  while (fewest <= least && fewest < 4096) fewest *= 2
  const expected = plan.get("expected_units") as number | undefined
  if (expected === undefined) return Math.max(128, fewest)
  const units = expected * Math.min(...sharesOf(table(plan, "arms")).values())
  let groups = 4096
  while (groups > fewest && units < least * groups) groups /= 2
  return groups
}

/** The columns that a covariate makes: itself, or one for each of its levels but the first. */
export function columnsOf(name: string, levels: readonly string[] | undefined): string[] {
  return levels === undefined ? [name] : levels.slice(1).map((level) => `${name}[${level}]`)
}

/** Bounds that an outcome or a covariate gives columns, and whether values beyond them are faulty. */
function limitsOf(written: unknown): { column: string; bounds: Bounds; refused: boolean }[] {
  if (!(written instanceof Map) || !written.has("bounds")) return []
  const bounds = written.get("bounds") as Bounds | ReadonlyMap<string, Bounds>
  const of = bounds instanceof Map ? [...bounds] : [[written.get("column"), bounds]]
  return (of as [string, Bounds][]).map(([column, ends]) => ({ column, bounds: ends, refused: written.get("beyond") === "refuse" }))
}

/** A column of which a plan says more than its name, or that alone. */
function columnOf(written: unknown): Table {
  return written instanceof Map ? written : new Map([["column", written]])
}

/** Each arm's probability: a number, or the `share` of a table. */
function sharesOf(arms: Table): ReadonlyMap<string, number> {
  return new Map([...arms].map(([arm, written]) => [arm, (written instanceof Map ? written.get("share") : written) as number]))
}

function valuesOfArm(arm: string, written: unknown): readonly string[] {
  if (!(written instanceof Map)) return [arm]
  const values = written.get("values") as string | string[]
  return typeof values === "string" ? [values] : values
}

function coefficientsOf(plan: Table): Coefficients | undefined {
  const found = plan.get("coefficients")
  if (!(found instanceof Map)) return undefined
  return { center: table(found, "center"), slopes: table(found, "slopes") } as Coefficients
}

function table(of: Table, name: string): Table {
  const found = of.get(name)
  return found instanceof Map ? found : new Map()
}

function list<T = unknown>(of: Table, name: string): T[] {
  return (of.get(name) as T[] | undefined) ?? []
}

/** JSON whose objects are maps: objects of JavaScript put names that are digits first, and the order of arms counts. */
function ordered(text: string): unknown {
  const marked = text.replace(/"((?:[^"\\]|\\.)*)"(\s*:)?/g, (all, name, colon) => (colon ? `"_${name}"${colon}` : all))
  return JSON.parse(marked, (_, found) =>
    found !== null && typeof found === "object" && !Array.isArray(found)
      ? new Map(Object.entries(found).map(([name, value]) => [name.slice(1), value]))
      : found,
  )
}
