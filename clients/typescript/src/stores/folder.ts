/** A store in a folder, for Node: one file for each trial, replaced whole.
 *
 * A file has its version in its name. Whoever changes it links a new file under the next version's name, which only one
 * can do; the others begin again. So there is no lock that a killed process could leave behind. Each file lists the marks
 * of the last changes, by which a process that was held up in between knows whether its own was among them.
 */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"
import { StateError } from "../errors.js"
import type { Kept, Step, Store } from "./store.js"

const ENDING = ".foldaway-kept"
const FILE = /^([A-Za-z0-9][\w.-]*)\.(\d+)\.foldaway-kept$/
const DRAFT = /^\.[0-9a-f]{16}\.foldaway-kept$/
/** How many of the last changes a file lists. */
const LISTED = 64
/** Milliseconds after which a draft was left by a process that is no more. */
const LEFT = 60_000

interface Version {
  readonly version: number
  readonly marks: readonly string[]
  readonly kept: Kept | "damaged" | undefined
}

export class FolderStore implements Store {
  readonly #folder: string

  constructor(folder = join(homedir(), ".foldaway")) {
    this.#folder = folder
    inOurWords(folder, () => {
      fs.mkdirSync(folder, { mode: 0o700, recursive: true })
      requirePrivate(folder)
      for (const name of fs.readdirSync(folder).filter((name) => DRAFT.test(name))) this.#removeDraft(name)
    })
  }

  async trials(): Promise<string[]> {
    return inOurWords(this.#folder, () => [...new Set(this.#files().map(({ trial }) => trial))])
  }

  async change<T>(trial: string, step: (kept: Kept | "damaged" | undefined) => Step<T>): Promise<T> {
    for (;;) {
      const before = inOurWords(this.#folder, () => this.#latest(trial))
      const { kept, answer } = step(before.kept)
      if (kept === undefined || JSON.stringify(kept) === JSON.stringify(before.kept)) return answer
      if (inOurWords(this.#folder, () => this.#replace(trial, before, kept))) return answer
    }
  }

  #files(): { trial: string; version: number }[] {
    return fs.readdirSync(this.#folder).flatMap((name) => {
      const [, trial, version] = FILE.exec(name) ?? []
      return trial === undefined ? [] : [{ trial, version: Number(version) }]
    })
  }

  #versions(trial: string): number[] {
    const own = this.#files().filter((file) => file.trial === trial)
    return own.map(({ version }) => version).sort((a, b) => a - b)
  }

  #path(trial: string, version: number): string {
    return join(this.#folder, `${trial}.${version}${ENDING}`)
  }

  /** The last version. A file that goes while it is read was replaced. */
  #latest(trial: string): Version {
    for (let damaged = -1; ; ) {
      const version = this.#versions(trial).at(-1)
      if (version === undefined) return { version: 0, marks: [], kept: undefined }
      try {
        const { marks, kept } = JSON.parse(fs.readFileSync(this.#path(trial, version), "utf8")) as Version
        return { version, marks, kept }
      } catch (error) {
        if (!(error instanceof SyntaxError) && (error as NodeJS.ErrnoException).code !== "ENOENT") throw error
        if (version === damaged) return { version, marks: [], kept: "damaged" }
        damaged = version
      }
    }
  }

  /** Write the next version; false if another process was faster. */
  #replace(trial: string, before: Version, kept: Kept): boolean {
    const version = before.version + 1
    const mark = randomBytes(8).toString("hex")
    const draft = join(this.#folder, `.${mark}${ENDING}`)
    try {
      write(draft, JSON.stringify({ marks: [...before.marks, mark].slice(-LISTED), kept }))
      try {
        fs.linkSync(draft, this.#path(trial, version))
      } catch (error) {
        if (["EEXIST", "ENOENT"].includes((error as NodeJS.ErrnoException).code ?? "")) return false
        throw error
      }
      synced(this.#folder)
    } finally {
      destroy(draft)
    }
    const last = this.#latest(trial)
    if (last.version - version >= LISTED) {
      throw new StateError("the device was held up for so long that it cannot say whether this change was made.")
    }
    const own = last.version === version || last.marks.includes(mark)
    for (const old of this.#versions(trial)) if (old < last.version) destroy(this.#path(trial, old))
    return own
  }

  #removeDraft(name: string): void {
    const path = join(this.#folder, name)
    const found = fs.statSync(path, { throwIfNoEntry: false })
    if (found && Date.now() - found.mtimeMs > LEFT) destroy(path)
  }
}

function write(path: string, text: string): void {
  const file = fs.openSync(path, "wx", 0o600)
  try {
    fs.writeFileSync(file, text)
    fs.fsyncSync(file)
  } finally {
    fs.closeSync(file)
  }
}

function synced(folder: string): void {
  if (process.platform === "win32") return // which cannot sync a folder
  const file = fs.openSync(folder, "r")
  try {
    fs.fsyncSync(file)
  } finally {
    fs.closeSync(file)
  }
}

/** Remove a file, and overwrite it unless it has another name still; another process may do the same. */
function destroy(path: string): void {
  try {
    const file = fs.openSync(path, "r+")
    try {
      fs.rmSync(path, { force: true })
      const { nlink, size } = fs.fstatSync(file)
      if (nlink > 0) return
      fs.writeSync(file, new Uint8Array(size), 0, undefined, 0)
      fs.fsyncSync(file)
    } finally {
      fs.closeSync(file)
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error
  }
}

function requirePrivate(folder: string): void {
  if (process.platform === "win32") return
  const found = fs.statSync(folder)
  if (found.mode & 0o077) throw new StateError(`others may look into ${folder}: say chmod 700 ${folder}, or choose another folder.`)
  if (found.uid !== process.geteuid?.()) {
    throw new StateError(`${folder} belongs to another user: run this as that user, or choose a folder of your own.`)
  }
}

function inOurWords<T>(folder: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (error instanceof StateError) throw error
    const why = (error as NodeJS.ErrnoException).code ?? (error as Error).name
    throw new StateError(`the device's folder ${folder} cannot be used (${why}).`)
  }
}
