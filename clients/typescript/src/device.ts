/** A device: its arm, its records, its one report. What it keeps survives restarts, and kills at any moment. */
import { base64, fromBase64, randomBytes, utf8 } from "./bytes.js"
import { Custody, type Status, nothing, sweep } from "./custody.js"
import { type Drawn, draw } from "./draws.js"
import { PlanError, RecordError, ServerError, StateError } from "./errors.js"
import { Link, clock, pauses, sleep, trialAddress } from "./link.js"
import { modeOf } from "./modes/index.js"
import type { Mode } from "./modes/mode.js"
import { type Plan, readPlan } from "./plan.js"
import { Reporting, has, servedPlan } from "./reporting.js"
import { type Columns, rowOf } from "./rows.js"
import { DatabaseStore } from "./stores/database.js"
import type { Kept, State, Store } from "./stores/store.js"

export interface DeviceOptions {
  /** The trial's ingest token. */
  readonly token: string
  /** What the app's own server has given this device to join with, if the plan asks for it. */
  readonly invitation?: string
  /** The plan's bytes or text as the server gives them out, to begin without a network. */
  readonly plan?: Uint8Array | string
  /** Where the device keeps its state in Node; `~/.foldaway` by default. Every device needs a folder of its own. */
  readonly folder?: string
  /** Where it keeps its state, in place of the folder or of the browser's IndexedDB. */
  readonly store?: Store
  /** Seconds to go on trying while the server does not answer; 10 by default. */
  readonly patience?: number
  /** Told when the server refuses this device while it takes records; by default a warning in the console. */
  readonly onRefusal?: (refused: PlanError | ServerError) => void
}

// Seconds between two attempts to enrol beside the records.
const ENROL_AGAIN = 30

export class Device {
  readonly #plan: Plan | undefined
  readonly #mode: Mode | undefined
  readonly #custody: Custody
  readonly #reporting: Reporting | undefined
  readonly #patience: number
  readonly #onRefusal: (refused: PlanError | ServerError) => void
  #drawn: Drawn | undefined
  #joining: Promise<void> | undefined
  #joinAfter = -Infinity

  private constructor(
    readonly trial: string,
    link: Link,
    store: Store,
    found: { plan: Plan; drawn: Drawn | undefined } | undefined,
    options: DeviceOptions,
  ) {
    this.#custody = new Custody(trial, store)
    this.#patience = options.patience ?? 10
    this.#onRefusal = options.onRefusal ?? ((refused) => console.warn(`the record was taken, but ${refused.message}`))
    if (found === undefined) return
    this.#plan = found.plan
    this.#drawn = found.drawn
    this.#mode = modeOf(found.plan.mode)
    this.#reporting = new Reporting(found.plan, this.#mode, this.#custody, link)
  }

  /** The device of this folder or origin for a trial. A device that knows the plan, or is given it, needs no network.
   *
   * @throws PlanError if the address, the token or the plan cannot be used, or the device knows the trial under another plan.
   * @throws ServerError if the plan has to be asked for, and the server cannot be reached.
   */
  static async open(trialUrl: string, options: DeviceOptions): Promise<Device> {
    const { url, name } = trialAddress(trialUrl)
    const link = new Link(url, options.token)
    const store = options.store ?? (await ownStore(options.folder))
    await sweep(store)
    const kept = await store.change(name, (kept) => ({ answer: kept }))
    if (kept === "damaged") return new Device(name, link, store, undefined, options)
    const given = await planIn(options.plan)
    if (given !== undefined && given.name !== name) {
      throw new PlanError("the plan is that of another trial than the one in the address.")
    }
    if (given !== undefined) requireSame(given, kept)
    if (kept !== undefined && "forgotten" in kept) return new Device(name, link, store, undefined, options)
    const known = kept === undefined ? undefined : await readPlan(utf8(kept.plan))
    const plan = known ?? given ?? (await readPlan(await servedPlan(link, options.patience ?? 10)))
    if (plan.name !== name) throw new PlanError("the address answers with the plan of another trial.")
    modeOf(plan.mode) // before anything is kept
    const { invitation } = options
    if (plan.invited && kept === undefined && !invitation) {
      throw new PlanError("this trial takes devices by invitation alone: get one from the app's server, and pass it as `invitation`.")
    }
    const state = kept ?? (await begun(store, plan))
    requireSame(plan, state)
    if (invitation) {
      await store.change(name, (kept) => {
        const joins = kept !== undefined && kept !== "damaged" && !("forgotten" in kept) && kept.stage === "collecting" && !kept.enrolled
        return { ...(joins && { kept: { ...kept, invitation } }), answer: undefined }
      })
    }
    const drawn = "forgotten" in state || state.identity === "" ? undefined : await draw(plan, fromBase64(state.identity))
    return new Device(name, link, store, "forgotten" in state ? undefined : { plan, drawn }, options)
  }

  /** The device's arm, which it has worked out by itself from a random number that never leaves it. */
  get arm(): string {
    return this.#own(this.#drawn).arm
  }

  /** The fingerprint of the plan. */
  get fingerprint(): string {
    return this.#own(this.#plan).fingerprint
  }

  /** Where the device stands, as far as it knows without asking. */
  async status(): Promise<Status> {
    return await this.#custody.status()
  }

  /** Take a record in: it is folded into what the device keeps, and not kept. Never waits for the network.
   *
   * @throws RecordError if the record is faulty; it was not taken, and the message does not repeat it.
   * @throws StateError if the device has reported, or has forgotten the trial.
   */
  async record(record: Columns): Promise<void> {
    const [plan, mode, { arm }] = [this.#own(this.#plan), this.#own(this.#mode), this.#own(this.#drawn)]
    const row = rowOf(plan, record, arm)
    const enrolled = await this.#custody.change((state) => {
      if (state.stage !== "collecting") throw notTaken(state)
      if (state.records >= plan.deviceRecords) {
        throw new RecordError(
          `the record was not taken: the plan takes no more records of a device than ${plan.deviceRecords}.`,
        )
      }
      const until = state.until || Date.now() / 1000 + plan.retention
      const sums = mode.takeIn(plan, state.sums, row)
      return { change: { sums, records: state.records + 1, until }, answer: state.enrolled }
    })
    if (!enrolled) this.#join(arm)
  }

  /** Send what the records came to, once. It ends the device's part. Call it again, now or after a restart, until the
   * status is settled: nothing is ever counted twice.
   *
   * @param wait Seconds to go on asking until the status is settled.
   * @param keepReport Keep the report also when it is counted, as long as the plan allows, to be able to `withdraw` it.
   * @throws ServerError if the server cannot be reached, or refuses. The device keeps what it has.
   */
  async report({ wait = 0, keepReport = false }: { wait?: number; keepReport?: boolean } = {}): Promise<Status> {
    if (keepReport && !(await this.status()).settled) {
      await this.#custody.change(() => ({ change: { keep: true }, answer: undefined }))
    }
    return await this.#tell(wait)
  }

  /** Take the device out of the trial: until the trial ends, effects are as if it had never reported. A report that was
   * counted is taken out together with others that come. Call it again, or `report`, until the status is settled.
   *
   * @param wait Seconds to go on asking until the status is settled.
   * @throws StateError if the report may be counted, and the device has not kept it.
   * @throws ServerError if the server cannot be reached, or refuses. The device will withdraw when it is called again.
   */
  async withdraw({ wait = 0 }: { wait?: number } = {}): Promise<Status> {
    await this.#custody.withdraw()
    return await this.#tell(wait)
  }

  async #tell(wait: number): Promise<Status> {
    const until = clock() + wait
    const reporting = this.#reporting
    if (reporting === undefined) return await this.status()
    for (const pause of pauses(0.2, 30)) {
      const status = await reporting.report(this.#drawn, Math.max(clock() + this.#patience, until))
      if (nothing(status) || clock() + pause > until) return status
      await sleep(pause)
    }
    throw new Error("unreachable")
  }

  /** Delete everything that the device keeps, for good: what remains is a mark that the trial was forgotten.
   *
   * A report that the server has not yet made durable may still be lost there, and cannot be sent again.
   *
   * @param keepReport Keep the report alone until it is safe: call `report` again later, also after a restart.
   */
  async forget({ keepReport = false }: { keepReport?: boolean } = {}): Promise<void> {
    this.#drawn = undefined
    await this.#custody.forget(this.#plan?.fingerprint ?? "", keepReport)
  }

  /** Enrol beside the records, which are taken whatever comes of it. */
  #join(arm: string): void {
    if (this.#joining !== undefined || clock() < this.#joinAfter) return
    this.#joinAfter = clock() + ENROL_AGAIN
    this.#joining = this.#own(this.#reporting)
      .enrol(arm, clock() + this.#patience)
      .catch(async (refused: unknown) => {
        if (has(refused, 410)) await this.#custody.end("missed")
        else if (refused instanceof PlanError || (refused instanceof ServerError && !refused.passes)) this.#onRefusal(refused)
      })
      .catch(() => undefined) // the store's: the next record or report says so
      .finally(() => (this.#joining = undefined))
  }

  #own<T>(part: T | undefined): T {
    if (part !== undefined) return part
    throw new StateError(`this device has forgotten the trial ${this.trial}, or what it kept cannot be read.`)
  }
}

async function ownStore(folder: string | undefined): Promise<Store> {
  if (folder === undefined && typeof indexedDB !== "undefined") return new DatabaseStore()
  return new (await import("./stores/folder.js")).FolderStore(folder)
}

async function planIn(plan: Uint8Array | string | undefined): Promise<Plan | undefined> {
  return plan === undefined ? undefined : await readPlan(typeof plan === "string" ? utf8(plan) : plan)
}

function requireSame(plan: Plan, kept: Kept | undefined): void {
  if (kept === undefined) return
  const known = "forgotten" in kept ? kept.forgotten : kept.fingerprint
  if (known === "" || known === plan.fingerprint) return
  throw new PlanError("this device knows the trial under another plan; a plan never changes.")
}

/** Keep a new device, unless another program or tab has just made one: then that one. */
async function begun(store: Store, plan: Plan): Promise<Kept> {
  const fresh: State = {
    plan: plan.text,
    fingerprint: plan.fingerprint,
    identity: base64(await randomBytes(16)),
    number: base64(await randomBytes(16)),
    enrolled: false,
    stage: "collecting",
    records: 0,
    sums: [],
    report: "",
    until: 0,
  }
  return await store.change(plan.name, (kept) =>
    kept === undefined || kept === "damaged" ? { kept: fresh, answer: fresh } : { answer: kept },
  )
}

function notTaken({ stage }: State): StateError {
  const why =
    stage === "reporting" || stage === "counted" ? "this device has sent its report, and its part has ended" : `this device is ${stage}`
  return new StateError(`the record was not taken: ${why}.`)
}
