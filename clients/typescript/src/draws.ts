/** What a device draws by a hash: its arm, and its group. */
import { sha256, utf8 } from "./bytes.js"
import type { Plan } from "./plan.js"

export interface Drawn {
  readonly arm: string
  readonly group: number
}

export async function draw(plan: Plan, identity: Uint8Array): Promise<Drawn> {
  const digits = (what: string) => sha256(utf8(`foldaway ${what}\n${plan.fingerprint}\n`), identity)
  const uniform = Number.parseInt((await digits("arm")).slice(0, 13), 16) / 2 ** 52
  const group = Number.parseInt((await digits("group")).slice(0, 3), 16) % plan.groups
  let upper = 0
  let last = ""
  for (const [arm, probability] of plan.arms) {
    upper += probability
    last = arm
    if (uniform < upper) break
  }
  return { arm: last, group }
}
