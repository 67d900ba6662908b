/** Sends records to the collecting service: numbers its batches, repeats what is not durable, forgets what is. */
import { hex, randomBytes } from "./bytes.js"
import { PlanError, RecordError, ServerError } from "./errors.js"
import { Link, trialAddress } from "./link.js"
import type { Columns } from "./rows.js"

const TOO_LARGE = 413
// How often in one call a server that has crashed is sent again what it has lost.
const MOST_AGAIN = 1_000

export interface SenderOptions {
  /** The trial's ingest token. */
  readonly token: string
  /** The name under which batches are numbered; a random one if left out. A sender that goes on under its name after a
   * restart must be the only one to use it, and begins again with the batch that had the number `await durable() + 1`. */
  readonly producer?: string
  /** Seconds to go on trying while the server does not answer; 60 by default. */
  readonly patience?: number
}

/** What the server says of a batch. */
export interface Receipt {
  /** How many of its records were folded. */
  readonly folded: number
  /** The last number that is safe whatever crashes. */
  readonly durable: number
  /** Whether this batch is not yet safe. */
  readonly pending: boolean
}

interface Batch {
  readonly number: number
  readonly body: string
}

export class Sender {
  readonly #link: Link
  readonly #patience: number
  readonly #given: string | undefined
  #producer: string | undefined
  #held: Batch[] = []
  #last: number | undefined // until the server has said what is durable
  #turn: Promise<unknown> = Promise.resolve()

  /** @throws PlanError if the address, the token or the producer's name cannot be used. */
  constructor(trialUrl: string, { token, producer, patience = 60 }: SenderOptions) {
    if (producer !== undefined && !/^[A-Za-z0-9][\w.:@+-]{0,199}$/.test(producer)) {
      throw new PlanError("a producer's name consists of letters, digits and . _ : @ + -, and begins with a letter or a digit.")
    }
    this.#link = new Link(trialAddress(trialUrl).url, token)
    this.#patience = patience
    this.#given = this.#producer = producer
  }

  /** How many batches are held here because they are not known to be durable. */
  get held(): number {
    return this.#held.length
  }

  /** Send a batch of records, after those that were sent before; what the server says of it.
   *
   * A batch that is larger than the server accepts is sent in parts, unless you have given the producer's name, or all
   * records of a unit must come together.
   *
   * @throws ServerError With a `status` and not `passes`, the batch is faulty or not allowed, and is forgotten. Otherwise the
   *   server could not be reached: the batch is held, and goes out before the next one, or with `deliver`; do not send it again.
   */
  async send(records: readonly Columns[]): Promise<Receipt> {
    const lines = written(records) // at once: what the app does with its objects later changes nothing
    return await this.#inTurn(() => this.#send(lines))
  }

  /** Make sure that the server has every batch. Those whose cohort is not full are then in its memory alone. */
  async deliver(): Promise<void> {
    await this.#inTurn(async () => {
      const [first] = this.#held
      if (first !== undefined) await this.#deliver(first.number)
    })
  }

  /** The last number of this producer that is safe. */
  async durable(): Promise<number> {
    return await this.#inTurn(() => this.#progress())
  }

  async #send(lines: readonly string[]): Promise<Receipt> {
    try {
      return await this.#sendWhole(`[${lines.join(",")}]`)
    } catch (refused) {
      if (!(refused instanceof ServerError) || refused.status !== TOO_LARGE || !(await this.#mayCut(lines))) throw refused
    }
    const middle = lines.length >> 1
    const first = await this.#send(lines.slice(0, middle))
    const second = await this.#send(lines.slice(middle))
    return { ...second, folded: first.folded + second.folded }
  }

  async #mayCut(lines: readonly string[]): Promise<boolean> {
    if (lines.length < 2 || this.#given !== undefined) return false
    const plan = await this.#link.askJson("GET", "/plan", { patience: this.#patience })
    return plan["unit"] === undefined || plan["records_per_unit"] !== "together"
  }

  async #sendWhole(body: string): Promise<Receipt> {
    const before = this.#last ?? (await this.#progress())
    const number = before + 1
    this.#last = number
    this.#held.push({ number, body })
    try {
      return await this.#deliver(number)
    } catch (refused) {
      if (refused instanceof ServerError && !refused.passes) {
        this.#held.pop() // for good: the number is free again
        this.#last = before
      }
      throw refused
    }
  }

  async #progress(): Promise<number> {
    const answer = await this.#link.askJson("GET", `/producers/${encodeURIComponent(await this.#name())}`, {
      patience: this.#patience,
    })
    const durable = whole(answer["durable"])
    this.#last ??= durable
    this.#forget(durable)
    return durable
  }

  /** Send what is held from a number on, and before it what the server turns out to have lost, in order. */
  async #deliver(number: number): Promise<Receipt> {
    let receipt: Receipt = { folded: 0, durable: 0, pending: false }
    for (let again = 0; ; ) {
      const batch = this.#held.find((held) => held.number >= number)
      if (batch === undefined) return receipt
      try {
        receipt = await this.#post(batch)
      } catch (refused) {
        const oldest = this.#held[0]?.number ?? Infinity
        if (!(refused instanceof ServerError) || refused.expected === undefined) throw refused
        if (refused.expected < oldest || refused.expected >= number) throw refused
        number = refused.expected // a crash has taken what was not durable; or another, while it was sent again
        if (++again > MOST_AGAIN) throw new ServerError("the server loses batches as fast as they are sent again.")
        continue
      }
      number = Math.max(batch.number, receipt.durable) + 1
      this.#forget(receipt.durable)
    }
  }

  async #post({ number, body }: Batch): Promise<Receipt> {
    const headers = {
      "Content-Type": "application/json",
      "Foldaway-Producer": await this.#name(),
      "Foldaway-Sequence": String(number),
    }
    const { folded, durable, pending } = await this.#link.askJson("POST", "/records", {
      body,
      headers,
      patience: this.#patience,
    })
    return { folded: whole(folded), durable: whole(durable), pending: pending === true }
  }

  async #name(): Promise<string> {
    return (this.#producer ??= `client-${hex(await randomBytes(16))}`)
  }

  #forget(durable: number): void {
    this.#held = this.#held.filter(({ number }) => number > durable)
  }

  /** One after the other, in the order of the calls. */
  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#turn
    const mine = before.then(work)
    this.#turn = mine.catch(() => undefined)
    return await mine
  }
}

function written(records: readonly Columns[]): string[] {
  if (Array.isArray(records) && records.every((record) => typeof record === "object" && record !== null)) {
    return records.map((record, place) => {
      try {
        return JSON.stringify(record, (_, value: unknown) => (typeof value === "number" ? finite(value) : value))
      } catch {
        throw new RecordError(`the records were not sent: JSON cannot say what is in the one at place ${place}, from 0.`)
      }
    })
  }
  throw new RecordError("the records were not sent: give a list of objects, from columns to values.")
}

/** JSON would write null for these, which is a missing value. */
function finite(number: number): number {
  if (Number.isFinite(number)) return number
  throw new RangeError("NaN or infinity")
}

function whole(number: unknown): number {
  if (typeof number === "number" && Number.isSafeInteger(number)) return number
  throw new ServerError("the server's answer is not one that a sender expects; is the address right?")
}
