/** The modes that a device has; a new one is a file here, and its name in this list. */
import { PlanError } from "../errors.js"
import { delta } from "./delta.js"
import type { Mode } from "./mode.js"
import { oneMessage } from "./one_message.js"
import { shares } from "./shares.js"
import { sums } from "./sums.js"

const MODES: readonly Mode[] = [delta, oneMessage, sums, shares]

/** The mode of this name.
 *
 * @throws PlanError if this device has no such mode.
 */
export function modeOf(name: string): Mode {
  const found = MODES.find((mode) => mode.name === name)
  if (found) return found
  const known = MODES.map((mode) => mode.name).join(", ")
  throw new PlanError(`this device does not have the plan's mode ${JSON.stringify(name)}; it has ${known}.`)
}
