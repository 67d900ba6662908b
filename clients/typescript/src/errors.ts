/** What the package throws: one sentence that says what to do next, and no record's value in it. */
export class FoldawayError extends Error {
  constructor(message: string) {
    super(message)
    this.name = new.target.name
  }
}

/** The address, the plan, or what the app says about them cannot be used. */
export class PlanError extends FoldawayError {}

/** The device has reported, or has forgotten the trial, or its storage cannot be used. */
export class StateError extends FoldawayError {}

/** A fault of a record: which rule it breaks, and in which column. */
export interface Fault {
  readonly column: string
  readonly rule: string
}

/** The record was not taken. */
export class RecordError extends FoldawayError {
  constructor(
    message: string,
    /** What is wrong with it. */
    readonly faults: readonly Fault[] = [],
  ) {
    super(message)
  }
}

/** The server cannot be reached, or refuses. */
export class ServerError extends FoldawayError {
  constructor(
    message: string,
    /** The HTTP status; none if the server could not be reached. */
    readonly status?: number,
    /** The number with which a sender must go on, if the server says so. */
    readonly expected?: number,
    /** How many seconds the server asks to wait. */
    readonly retryAfter = 0,
  ) {
    super(message)
  }

  /** Whether the same request may succeed later. */
  get passes(): boolean {
    return this.status === undefined || this.status === 408 || this.status === 429 || this.status >= 500
  }
}
