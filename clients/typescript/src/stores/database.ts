/** A store in the browser's IndexedDB, which all tabs of an origin share. */
import { StateError } from "../errors.js"
import type { Kept, Step, Store } from "./store.js"

const TABLE = "trials"

export class DatabaseStore implements Store {
  constructor(readonly name = "foldaway") {}

  async trials(): Promise<string[]> {
    return await this.#run("readonly", (table) => table.getAllKeys(), (names) => names.map(String))
  }

  async change<T>(trial: string, step: (kept: Kept | undefined) => Step<T>): Promise<T> {
    return await this.#run(
      "readwrite",
      (table) => table.get(trial) as IDBRequest<Kept | undefined>,
      (found, table) => {
        const { kept, answer } = step(found)
        if (kept !== undefined) table.put(kept, trial)
        return answer
      },
    )
  }

  /** One transaction: what is asked, and what is done with the answer before the transaction ends.
   *
   * The connection is made anew each time, so that whoever clears the storage does not wait for it.
   */
  async #run<F, T>(
    mode: IDBTransactionMode,
    ask: (table: IDBObjectStore) => IDBRequest<F>,
    use: (found: F, table: IDBObjectStore) => T,
  ): Promise<T> {
    const database = await this.#open()
    try {
      return await new Promise<T>((resolve, reject) => {
        const transaction = database.transaction(TABLE, mode, { durability: "strict" })
        const table = transaction.objectStore(TABLE)
        const asked = ask(table)
        asked.onsuccess = () => {
          try {
            const answer = use(asked.result, table)
            transaction.oncomplete = () => resolve(answer)
          } catch (thrown) {
            reject(thrown as Error) // the first of the two counts
            transaction.abort()
          }
        }
        transaction.onabort = () => reject(unusable(transaction.error))
      })
    } finally {
      database.close()
    }
  }

  #open(): Promise<IDBDatabase> {
    return new Promise((resolve, reject) => {
      const asked = indexedDB.open(this.name, 1)
      asked.onupgradeneeded = () => asked.result.createObjectStore(TABLE)
      asked.onsuccess = () => resolve(asked.result)
      asked.onerror = () => reject(unusable(asked.error))
    })
  }
}

function unusable(error: DOMException | null): StateError {
  const why = error?.name ?? "no reason given"
  return new StateError(`the browser's storage cannot be used (${why}): it is full, or this window may not store anything.`)
}
