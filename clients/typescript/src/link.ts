/** Requests to a trial's server, tried again while the refusal may be temporary. */
import { PlanError, ServerError } from "./errors.js"

const FIRST_PAUSE = 0.05
const LONGEST_PAUSE = 2
/** Seconds that one try waits for an answer. */
const ANSWER = 30

export interface Asked {
  readonly body?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Seconds to go on trying while the server does not answer. */
  readonly patience: number
}

/** A trial's address without a slash at its end, and the trial's name.
 *
 * @throws PlanError if it is not the address of a trial.
 */
export function trialAddress(url: string): { url: string; name: string } {
  const [, address, name] = /^(https?:\/\/[^?#]+\/v1\/trials\/([A-Za-z0-9][\w.-]*))\/?$/.exec(url) ?? []
  if (address === undefined || name === undefined) {
    throw new PlanError("a trial's address has the form https://host/v1/trials/NAME.")
  }
  return { url: address, name }
}

/** Seconds to wait before each further try: twice as long each time, shortened at random so that not all come at once. */
export function* pauses(first = FIRST_PAUSE, longest = LONGEST_PAUSE): Generator<number, never> {
  for (let pause = first; ; pause = Math.min(2 * pause, longest)) yield pause * (0.5 + Math.random() / 2)
}

export function sleep(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1000 * seconds))
}

/** Seconds of a clock that nobody sets. */
export function clock(): number {
  return performance.now() / 1000
}

export class Link {
  readonly #url: string
  readonly #headers: Readonly<Record<string, string>>
  #fingerprint: string | undefined

  constructor(url: string, token: string) {
    if (!/^[\x21-\x7e]+$/.test(token)) throw new PlanError("the token is empty, or has a blank or a line break: give one token.")
    this.#url = url
    this.#headers = { Authorization: `Bearer ${token}` }
  }

  /** Hold every further answer against this fingerprint. */
  expect(fingerprint: string): void {
    this.#fingerprint = fingerprint
  }

  /** The body of the answer.
   *
   * @throws ServerError if the server refuses, or has not answered for as long as the patience.
   */
  async ask(method: string, path: string, asked: Asked): Promise<Uint8Array> {
    const until = clock() + asked.patience
    for (const pause of pauses()) {
      try {
        return await this.#once(method, path, asked)
      } catch (refused) {
        if (!(refused instanceof ServerError) || !refused.passes) throw refused
        const wait = Math.max(pause, refused.retryAfter)
        if (clock() + wait > until) throw refused
        await sleep(wait)
      }
    }
    throw new Error("unreachable")
  }

  async askJson(method: string, path: string, asked: Asked): Promise<Record<string, unknown>> {
    const answer = await this.ask(method, path, asked)
    try {
      return JSON.parse(new TextDecoder().decode(answer)) as Record<string, unknown>
    } catch {
      throw new ServerError("the server's answer is not JSON; is the address right, and does nobody answer in between?")
    }
  }

  async #once(method: string, path: string, { body, headers, patience }: Asked): Promise<Uint8Array> {
    let answer: Response, content: Uint8Array
    try {
      answer = await fetch(this.#url + path, {
        method,
        headers: { ...this.#headers, ...headers },
        body: body ?? null,
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
        signal: AbortSignal.timeout(Math.ceil(1000 * Math.max(1, Math.min(patience, ANSWER)))),
      })
      content = new Uint8Array(await answer.arrayBuffer())
    } catch {
      const server = new URL(this.#url).host
      throw new ServerError(`the server at ${server} cannot be reached, or does not let this page's origin in.`)
    }
    const answered = answer.headers.get("Foldaway-Fingerprint")
    if (this.#fingerprint !== undefined && answered !== null && answered !== this.#fingerprint) {
      throw new ServerError("the server runs this trial under another plan than this device's; a plan never changes.", 409)
    }
    if (!answer.ok) throw refusal(answer, content)
    return content
  }
}

function refusal(answer: Response, content: Uint8Array): ServerError {
  let problem: { detail?: string; expected?: number } = {}
  try {
    problem = JSON.parse(new TextDecoder().decode(content)) ?? {}
  } catch {
    // a proxy's page
  }
  const retryAfter = Number(answer.headers.get("Retry-After")) || 0 // a date is not understood, and not waited for
  const said = problem.detail ?? `the server answered ${answer.status}.`
  return new ServerError(said, answer.status, problem.expected, Math.max(0, retryAfter))
}
