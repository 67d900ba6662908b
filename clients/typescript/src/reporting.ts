/** What a device tells its server: that it takes part, and its one report, which is sent until it is durable. */
import { sha256 } from "./bytes.js"
import { type Custody, type Status, nothing } from "./custody.js"
import type { Drawn } from "./draws.js"
import { PlanError, ServerError } from "./errors.js"
import { type Link, clock } from "./link.js"
import type { Mode } from "./modes/mode.js"
import type { Plan } from "./plan.js"

const UNKNOWN = 404
const ENDED = 410

export class Reporting {
  #agreed = false

  constructor(
    private readonly plan: Plan,
    private readonly mode: Mode,
    private readonly custody: Custody,
    private readonly link: Link,
  ) {}

  /** Tell the server the number of the report to come, if it does not know it. */
  async enrol(arm: string, until: number): Promise<void> {
    const { enrolled, number, invitation } = await this.custody.state()
    if (enrolled) return
    await this.#post("enrolments", JSON.stringify({ number, arm, ...(invitation && { invitation }) }), until)
    await this.#enrolled(true)
  }

  /** Send what there is to send, and say where the device stands.
   *
   * @param until When to try no longer, by `clock`.
   * @throws ServerError if the server cannot be reached, or refuses. The device keeps what it has.
   */
  async report(drawn: Drawn | undefined, until: number): Promise<Status> {
    const status = await this.custody.status()
    if (nothing(status)) return status
    const withdrawing = status.state === "withdrawing"
    try {
      if (withdrawing) return await this.#withdraw(until)
      if (drawn !== undefined && status.state !== "leaving") {
        try {
          await this.enrol(drawn.arm, until)
        } catch (refused) {
          if (!has(refused, ENDED)) throw refused // a kill may have come between an answer and the note of it here
        }
        await this.#make(drawn)
      }
      return await this.#deliver(until)
    } catch (refused) {
      if (!has(refused, ENDED)) throw refused
      return await this.custody.end(withdrawing ? "withdrawn too late" : "missed")
    }
  }

  async #withdraw(until: number): Promise<Status> {
    const { report } = await this.custody.state()
    const durable = report === "" || (await this.#send("withdrawals", report, until))
    return durable ? await this.custody.end("withdrawn") : await this.custody.status()
  }

  /** Make the report, which takes the records' place, unless it is made. */
  async #make({ arm, group }: Drawn): Promise<void> {
    for (;;) {
      const { stage, number, records, sums } = await this.custody.state()
      if (stage !== "collecting") return
      const report = JSON.stringify(await this.mode.report(this.plan, { number, arm, group, n: records, sums }))
      const made = await this.custody.change((state) => {
        if (state.stage !== "collecting") return { answer: true }
        if (state.records !== records) return { answer: false } // another record has come in between
        return { change: { report, sums: [], stage: "reporting" }, answer: true }
      })
      if (made) return
    }
  }

  async #deliver(until: number): Promise<Status> {
    const { report, stage } = await this.custody.state()
    const there = report !== "" && (stage === "reporting" || stage === "leaving") // another tab may have been faster
    const durable = there && (await this.#send("reports", report, until))
    return durable ? await this.custody.end("counted") : await this.custody.status()
  }

  async #send(kind: "reports" | "withdrawals", report: string, until: number): Promise<boolean> {
    try {
      return await this.#post(kind, report, until)
    } catch (refused) {
      if (!has(refused, UNKNOWN)) throw refused
    }
    // A server that crashed may have lost an enrolment that it had not made durable.
    await this.#enrolled(false)
    await this.enrol((JSON.parse(report) as { arm: string }).arm, until)
    return await this.#post(kind, report, until)
  }

  async #enrolled(enrolled: boolean): Promise<void> {
    await this.custody.change(() => ({ change: { enrolled }, answer: undefined }))
  }

  /** Send a message to a server that runs the trial under this plan, and to no other; whether it is durable. */
  async #post(kind: string, body: string, until: number): Promise<boolean> {
    const patience = () => Math.max(0, until - clock())
    if (!this.#agreed) {
      const served = await servedPlan(this.link, patience())
      if ((await sha256(served)) !== this.plan.fingerprint) {
        throw new ServerError("the server runs this trial under another plan than this device's, so nothing was sent.", 409)
      }
      this.link.expect(this.plan.fingerprint)
      this.#agreed = true
    }
    const headers = { "Content-Type": "application/json" }
    const { durable } = await this.link.askJson("POST", `/${kind}`, { body, headers, patience: patience() })
    if (typeof durable !== "boolean") throw new ServerError("the server's answer is not one that a device expects; is the address right?")
    return durable
  }
}

export function has(error: unknown, status: number): boolean {
  return error instanceof ServerError && error.status === status
}

/** The plan's bytes, as the server gives them out. */
export async function servedPlan(link: Link, patience: number): Promise<Uint8Array> {
  try {
    return await link.ask("GET", "/plan", { patience })
  } catch (refused) {
    if (!has(refused, 401) && !has(refused, 403)) throw refused
    throw new PlanError("the server rejects this token, or the trial's name is misspelt: give the trial's ingest token.")
  }
}
