/** Devices and senders of foldaway trials. */
export type { Standing, Status } from "./custody.js"
export { Device, type DeviceOptions } from "./device.js"
export { type Fault, FoldawayError, PlanError, RecordError, ServerError, StateError } from "./errors.js"
export type { Columns } from "./rows.js"
export { type Receipt, Sender, type SenderOptions } from "./sender.js"
export { DatabaseStore } from "./stores/database.js"
export type { Kept, Mark, State, Step, Store } from "./stores/store.js"
