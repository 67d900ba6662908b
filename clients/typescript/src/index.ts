/** Devices and senders of foldaway trials. */
export { type Fault, FoldawayError, PlanError, RecordError, ServerError, StateError } from "./errors.js"
export type { Columns } from "./rows.js"
