/** Mode shares: what mode sums sends, in two halves, each random by itself and sealed for a server of its own. */
import { type Bytes, base64, fromBase64, hex, hmacSha256, randomBytes, utf8 } from "../bytes.js"
import { PlanError } from "../errors.js"
import type { Bounds, Plan } from "../plan.js"
import type { Holding, Mode } from "./mode.js"
import { sums } from "./sums.js"

const ROLES = ["leader", "helper"] as const

export const shares: Mode = {
  name: "shares",
  takeIn: sums.takeIn,
  report: async (plan, holding) => await halves(plan, holding, await randomBytes(32)),
}

/** The report that a seed gives. */
export async function halves(plan: Plan, { number, arm, group, n, sums }: Holding, seed: Bytes): Promise<Record<string, unknown>> {
  const plain = { leader: await leadersHalf(fixed(plan, n, sums), seed), helper: seed }
  const report: Record<string, unknown> = { number, arm, group }
  for (const role of ROLES) {
    const info = infoOf(plan.fingerprint, role, fromBase64(number), arm, group)
    report[role] = base64(await seal(plain[role], plan.servers[role], info))
  }
  return report
}

/** n, and the sums at their scales, halves rounded up. */
export function fixed(plan: Plan, n: number, sums: readonly number[]): bigint[] {
  const bits = bitsOf(plan)
  return [BigInt(n), ...sums.map((sum, place) => BigInt(Math.round(sum * 2 ** (bits[place] ?? 0))))]
}

/** The words less those that the seed stands for, modulo 2^64, little-endian. */
export async function leadersHalf(words: readonly bigint[], seed: Bytes): Promise<Bytes> {
  const others = new DataView((await expanded(seed, words.length)).buffer)
  const view = new DataView(new ArrayBuffer(8 * words.length))
  words.forEach((word, place) => {
    view.setBigUint64(8 * place, BigInt.asUintN(64, word - others.getBigUint64(8 * place, true)), true)
  })
  return new Uint8Array(view.buffer)
}

/** The words that a seed stands for: HKDF-SHA256 without salt. */
export async function expanded(seed: Bytes, count: number): Promise<Bytes> {
  const key = await hmacSha256(new Uint8Array(32), seed)
  const data = new Uint8Array(32 * Math.ceil((8 * count) / 32))
  let block: Bytes = new Uint8Array(0)
  for (let place = 0; 32 * place < data.length; place++) {
    block = await hmacSha256(key, new Uint8Array([...block, ...utf8("foldaway shares"), place + 1]))
    data.set(block, 32 * place)
  }
  return data
}

/** What a half is of, without which it does not open. */
export function infoOf(fingerprint: string, role: string, number: Uint8Array, arm: string, group: number): Bytes {
  return utf8(["foldaway shares", role, fingerprint, hex(number), group, arm].join("\n"))
}

/** How many binary places of each sum are sent: as many as no sum of all devices can overflow with. */
function bitsOf(plan: Plan): number[] {
  const records = plan.deviceRecords * (plan.expectedUnits ?? 0)
  const { coefficients } = plan
  const y = plan.values.map((value) => Math.max(...value.within(plan.bounds.get(value.column) ?? [0, 0]).map(Math.abs)))
  const tilde = plan.values.map((value, place) =>
    plan.regressors.slice(1).reduce((most, name) => {
      const ends: Bounds = plan.bounds.get(name) ?? [0, 1] // of a level
      const slope = coefficients?.slopes.get(value.name)?.get(name) ?? 0
      return most + Math.max(...ends.map((end) => Math.abs(slope * (end - (coefficients?.center.get(name) ?? 0)))))
    }, y[place] ?? 0),
  )
  return [...y, ...(coefficients ? tilde : [])].map((most) => 62 - exponent(most * records))
}

/** The whole number e with 2^(e-1) <= x < 2^e. */
function exponent(x: number): number {
  let e = 0
  for (; x >= 1; x /= 2) e++
  for (; x > 0 && x < 0.5; x *= 2) e--
  return e
}

async function seal(plain: Bytes, key: string | undefined, info: Bytes): Promise<Uint8Array> {
  if (key === undefined) throw new PlanError("this plan does not name the two servers of its mode.")
  const { Aes128Gcm, CipherSuite, DhkemP256HkdfSha256, HkdfSha256 } = await import("@hpke/core") // for this mode alone
  const suite = new CipherSuite({ kem: new DhkemP256HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes128Gcm() })
  const recipientPublicKey = await suite.kem.deserializePublicKey(fromBase64(key))
  const { enc, ct } = await suite.seal({ recipientPublicKey, info }, plain)
  return new Uint8Array([...new Uint8Array(enc), ...new Uint8Array(ct)])
}
