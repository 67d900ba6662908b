/** The contract of a store: what a device keeps of each trial, changed one transaction at a time. */

export type Last = "leaving" | "withdrawing" | Ended

/** The ways in which a device ends. */
export type Ended = "counted" | "missed" | "withdrawn" | "withdrawn too late" | "expired" | "expired while pending"

export interface State {
  /** The plan as it was served. */
  readonly plan: string
  readonly fingerprint: string
  /** What the arm is drawn from, in base64; it never leaves the device. */
  readonly identity: string
  /** The report number, in base64: the only thing that the server knows the device by. */
  readonly number: string
  /** What lets the device join, if it needs that, as long as it may have to join again. */
  readonly invitation?: string
  readonly enrolled: boolean
  readonly stage: "collecting" | "reporting" | Last
  /** How many records were taken. */
  readonly records: number
  /** What they came to, until there is a report. */
  readonly sums: readonly number[]
  /** The report as it is sent, until it is known to be durable; or for longer, to be withdrawn. */
  readonly report: string
  /** Whether it is kept for that. */
  readonly keep?: boolean
  /** When nothing of the records may be kept any longer, in seconds since 1970; 0 before the first. */
  readonly until: number
}

/** What is left of a trial that was forgotten. */
export interface Mark {
  readonly forgotten: string
}

export type Kept = State | Mark

/** What a step makes of what is kept, and what it answers; without `kept`, nothing changes. */
export interface Step<T> {
  readonly kept?: Kept
  readonly answer: T
}

export interface Store {
  /** The names of the trials of which something is kept. */
  trials(): Promise<string[]>
  /** Change what is kept of a trial, all of it or nothing, and one after the other for all who use the store.
   *
   * `step` is run at once and may be run again, if somebody else was faster; what it throws changes nothing.
   * What cannot be read is given to it as `"damaged"`.
   */
  change<T>(trial: string, step: (kept: Kept | "damaged" | undefined) => Step<T>): Promise<T>
}
