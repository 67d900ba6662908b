/** What a device holds of one trial, changed a step at a time, and never with records that were kept for too long. */
import { StateError } from "./errors.js"
import type { Ended, Kept, Last, State, Step, Store } from "./stores/store.js"

const ENDED: readonly string[] = [
  "counted", "missed", "withdrawn", "withdrawn too late", "expired", "expired while pending",
] satisfies Ended[]

export type Standing = "new" | "enrolled" | "pending" | Last | "forgotten"

/** Where a device stands. */
export interface Status {
  readonly trial: string
  /** `new`: the server does not know of it. `enrolled`: the server waits for its report. `pending`: its report waits
   * for others at the server. `leaving`: all but its report is forgotten. `withdrawing`: its withdrawal waits for others.
   * The others are how a device ends. */
  readonly state: Standing
  /** How many records were taken. */
  readonly records: number
  /** Whether reporting again would change nothing. */
  readonly settled: boolean
}

/** Whether a device has nothing to send. */
export function nothing({ state, records, settled }: Status): boolean {
  return settled || (records === 0 && state !== "leaving" && state !== "withdrawing")
}

/** The trial was forgotten. */
export class Forgotten extends StateError {}

export class Custody {
  constructor(
    readonly trial: string,
    private readonly store: Store,
  ) {}

  /** Change the state, in one transaction; `step` gives what is to be different, and an answer.
   *
   * @throws StateError if the trial was forgotten, or the storage was cleared.
   */
  async change<T>(step: (state: State) => { change?: Partial<State>; answer: T }): Promise<T> {
    const done = await this.store.change<{ answer: T } | { thrown: unknown }>(this.trial, (kept) => {
      let now: Kept | undefined
      try {
        const state = this.#held(kept)
        if (state !== kept) now = state // expired, which stays so whatever comes next
        if ("forgotten" in state) throw this.#gone()
        const { change, answer } = step(state)
        return { kept: { ...state, ...change }, answer: { answer } }
      } catch (thrown) {
        return { ...(now && { kept: now }), answer: { thrown } }
      }
    })
    if ("thrown" in done) throw done.thrown
    return done.answer
  }

  async state(): Promise<State> {
    return await this.change((state) => ({ answer: state }))
  }

  async status(): Promise<Status> {
    try {
      return statusOf(this.trial, await this.state())
    } catch (error) {
      if (!(error instanceof Forgotten)) throw error
      return statusOf(this.trial, { forgotten: "" })
    }
  }

  /** The device's part is over, and what it kept of its records goes; all of it, if it is leaving. What ended before stays
   * as it ended, and whoever withdraws has only that to do. */
  async end(stage: "counted" | "missed" | "withdrawn" | "withdrawn too late"): Promise<Status> {
    return await this.store.change(this.trial, (kept) => {
      const state = this.#held(kept)
      const status = (state: Kept) => statusOf(this.trial, state)
      if ("forgotten" in state || ENDED.includes(state.stage)) return { kept: state, answer: status(state) }
      if ((state.stage === "withdrawing") !== stage.startsWith("withdrawn")) return { answer: status(state) }
      const kept_ = stage === "counted" && state.keep ? { sums: [] } : NOTHING
      const ended: Kept = leaves(state) ? { forgotten: state.fingerprint } : { ...state, stage, ...kept_ }
      return { kept: ended, answer: status(ended) }
    })
  }

  /** Be withdrawn, if no report was made; else have it to take out.
   *
   * @throws StateError if the report may be counted, and is kept no longer.
   */
  async withdraw(): Promise<void> {
    await this.change((state) => {
      const { stage, report } = state
      if (stage === "collecting") return { change: { stage: "withdrawn", ...NOTHING }, answer: undefined }
      if (report !== "") return { change: { stage: "withdrawing" }, answer: undefined }
      if (stage !== "counted" && stage !== "expired while pending") return { answer: undefined }
      throw new StateError(
        "the report cannot be withdrawn, because this device did not keep it: report({ keepReport: true }) keeps it.",
      )
    })
  }

  /** Delete everything but a mark; or, if `keepReport`, all but a report that is not known to be safe. */
  async forget(fingerprint: string, keepReport: boolean): Promise<void> {
    await this.store.change(this.trial, (kept) => {
      if (kept !== undefined && kept !== "damaged" && "forgotten" in kept) return { answer: undefined }
      if (keepReport && kept !== undefined && kept !== "damaged") {
        const state = expired(kept)
        if (!("forgotten" in state) && state.report && state.stage !== "counted") {
          const stage = state.stage === "withdrawing" ? state.stage : "leaving"
          return { kept: { ...state, stage, identity: "", records: 0, sums: [] }, answer: undefined }
        }
      }
      return { kept: { forgotten: fingerprint }, answer: undefined }
    })
  }

  #held(kept: Kept | "damaged" | undefined): Kept {
    if (kept === undefined) throw new StateError("the storage was cleared, and with it all that this device knew: open it again.")
    if (kept === "damaged") throw new StateError("what this device kept cannot be read: forget() deletes it.")
    return expired(kept)
  }

  #gone(): Forgotten {
    return new Forgotten(`this device has forgotten the trial ${this.trial}, and cannot take part in it again.`)
  }
}

const NOTHING = { sums: [], report: "", invitation: "", until: 0 } as const

/** What is kept, without records that were kept for too long. */
export function expired(kept: Kept): Kept {
  if ("forgotten" in kept || kept.until === 0 || Date.now() / 1000 <= kept.until) return kept
  if (kept.stage === "counted") return { ...kept, ...NOTHING } // the report that it kept
  if (leaves(kept)) return { forgotten: kept.fingerprint }
  return { ...kept, stage: kept.report ? "expired while pending" : "expired", ...NOTHING }
}

/** Whether it has forgotten all but the message that it still has to send. */
function leaves({ stage, identity }: State): boolean {
  return stage === "leaving" || (stage === "withdrawing" && identity === "")
}

/** Delete the records of all trials that were kept for too long. */
export async function sweep(store: Store): Promise<void> {
  for (const trial of await store.trials()) {
    await store.change(trial, (kept): Step<undefined> => {
      if (kept === undefined || kept === "damaged") return { answer: undefined }
      const now = expired(kept)
      return { ...(now !== kept && { kept: now }), answer: undefined }
    })
  }
}

function statusOf(trial: string, state: Kept): Status {
  if ("forgotten" in state) return { trial, state: "forgotten", records: 0, settled: true }
  const { stage, records, enrolled } = state
  const standing = stage === "reporting" ? "pending" : stage === "collecting" ? (enrolled ? "enrolled" : "new") : stage
  return { trial, state: standing, records, settled: ENDED.includes(standing) }
}
