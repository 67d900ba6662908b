/** The vectors that the server's code makes: this client computes the same, and would notice if it did not. */
import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { test } from "node:test"
import { Aes128Gcm, CipherSuite, DhkemP256HkdfSha256, HkdfSha256 } from "@hpke/core"
import { base64, fromBase64, sha256, unpacked, utf8 } from "../src/bytes.js"
import { draw } from "../src/draws.js"
import { PlanError, RecordError } from "../src/errors.js"
import { modeOf } from "../src/modes/index.js"
import type { Holding } from "../src/modes/mode.js"
import { expanded, fixed, halves, infoOf, leadersHalf } from "../src/modes/shares.js"
import { type Plan, readPlan } from "../src/plan.js"
import { type Columns, type Row, rowOf } from "../src/rows.js"

interface Device {
  identity: string
  number: string
  records: Columns[]
  rows: string[]
  weights: string
  enrolment: { number: string; arm: string }
  report: Record<string, unknown>
  /** In mode shares. */
  words?: string
  seed?: string
  leaders_half?: string
  info?: Record<Role, string>
}

type Role = "leader" | "helper"

interface Case {
  private_keys?: Record<Role, string>
  case: string
  plan: string
  fingerprint: string
  reads: { mode: string; device_records: number; retention: number; columns: string[] }
  draws: { identity: string; arm: string; group?: number }[]
  faulty: { record: Columns; column: string; rule: string }[]
  devices: Device[]
}

const FILE = process.env["FOLDAWAY_VECTORS"] ?? new URL("../../../protocol/vectors.json", import.meta.url)
const cases = (JSON.parse(readFileSync(FILE, "utf8")) as { cases: Case[] }).cases

// Modes that this client does not have.
const OTHERS = ["scores"]

for (const each of cases) {
  test(each.case, () => check(each))
}

test("a changed vector fails", async () => {
  const changed = structuredClone(cases.find((each) => each.reads.mode === "sums"))
  assert.ok(changed)
  const [device, other] = changed.devices
  assert.ok(device && other)
  device.report["sums"] = other.report["sums"]
  await assert.rejects(check(changed), /sums/)
  for (const each of cases.filter((each) => !OTHERS.includes(each.reads.mode))) {
    const spoilt: ((copy: Case) => unknown)[] = [
      (copy) => (copy.fingerprint = copy.fingerprint.replace(/^./, (digit) => (digit === "0" ? "1" : "0"))),
      (copy) => (copy.reads.columns[1] += "x"),
      (copy) => (first(copy.draws).arm += "x"),
      (copy) => (first(copy.faulty).rule += "x"),
      (copy) => (first(copy.devices).rows[0] = "AAAAAAAA8D8="),
      (copy) => (first(copy.devices).report["n"] = 99),
    ]
    for (const spoil of spoilt) {
      const copy = structuredClone(each)
      spoil(copy)
      await assert.rejects(check(copy), `${each.case}: ${spoil}`)
    }
  }
})

function first<T>(list: T[]): T {
  const [found] = list
  assert.ok(found !== undefined)
  return found
}

async function check(each: Case): Promise<void> {
  assert.equal(await sha256(utf8(each.plan)), each.fingerprint)
  const plan = await readPlan(utf8(each.plan))
  assert.deepEqual(
    {
      mode: plan.mode,
      device_records: plan.deviceRecords,
      retention: plan.retention,
      columns: [...plan.regressors, ...plan.values.map((value) => value.name)],
    },
    each.reads,
  )
  for (const expected of each.draws) {
    const drawn = await draw(plan, fromBase64(expected.identity))
    assert.equal(drawn.arm, expected.arm)
    if (expected.group !== undefined) assert.equal(drawn.group, expected.group)
  }
  for (const { record, column, rule } of each.faulty) {
    assert.throws(
      () => rowOf(plan, record, first([...plan.arms.keys()])),
      (error) => {
        assert.ok(error instanceof RecordError)
        assert.deepEqual(error.faults, [{ column, rule }])
        return true
      },
    )
  }
  for (const device of each.devices) await checkDevice(plan, device, each.private_keys)
}

async function checkDevice(plan: Plan, device: Device, privateKeys?: Record<Role, string>): Promise<void> {
  const { arm, group } = await draw(plan, fromBase64(device.identity))
  assert.deepEqual({ number: device.number, arm }, device.enrolment)
  const rows = device.records.map((record) => rowOf(plan, record, arm))
  rows.forEach(({ x, y }, place) => close([1, ...x, ...y], unpacked(device.rows[place] ?? ""), "rows"))
  close(rows.map((row) => row.weight), unpacked(device.weights), "weights")
  if (OTHERS.includes(plan.mode)) {
    assert.throws(() => modeOf(plan.mode), PlanError)
    return
  }
  const mode = modeOf(plan.mode)
  const sums = rows.reduce((sums: number[], row: Row) => mode.takeIn(plan, sums, row), [])
  const found = await mode.report(plan, { number: device.number, arm, group, n: rows.length, sums })
  assert.deepEqual(Object.keys(found), Object.keys(device.report))
  if (device.seed !== undefined) {
    const holding = { number: device.number, arm, group, n: rows.length, sums }
    await checkHalves(plan, holding, device, privateKeys)
    return
  }
  for (const [name, value] of Object.entries(found)) {
    const expected = device.report[name]
    if (name === "sums") close(unpacked(value), unpacked(expected as string), name)
    else if (name === "factor") close(products(unpacked(value)), products(unpacked(expected as string)), name)
    else assert.equal(value, expected, name)
  }
}

/** The words, the halves, and that both servers open what is sealed for them: here, and in the vectors. */
async function checkHalves(plan: Plan, holding: Holding, device: Device, keys?: Record<Role, string>): Promise<void> {
  assert.ok(keys && device.info)
  const [seed, expected] = [fromBase64(device.seed ?? ""), words(fromBase64(device.words ?? ""))]
  close(fixed(plan, holding.n, holding.sums).map(Number), expected.map(Number), "words")
  assert.equal(base64(await leadersHalf(expected, seed)), device.leaders_half)
  assert.deepEqual([holding.number, holding.arm, holding.group], [device.report["number"], device.report["arm"], device.report["group"]])
  const others = words(await expanded(seed, expected.length))
  for (const sent of [await halves(plan, holding, seed), device.report]) {
    const opened: Uint8Array[] = []
    for (const role of ["leader", "helper"] as const) {
      const info = infoOf(plan.fingerprint, role, fromBase64(holding.number), holding.arm, holding.group)
      assert.equal(base64(info), device.info[role])
      opened.push(await open(fromBase64(sent[role] as string), fromBase64(keys[role]), info))
    }
    assert.equal(base64(opened[1] ?? seed), device.seed)
    const sums = words(opened[0] ?? seed).map((word, place) => Number(BigInt.asIntN(64, word + (others[place] ?? 0n))))
    close(sums, expected.map(Number), "words")
  }
  assert.equal(device.report["n"], undefined)
}

async function open(sealed: Uint8Array, key: Uint8Array, info: Uint8Array): Promise<Uint8Array> {
  const suite = new CipherSuite({ kem: new DhkemP256HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes128Gcm() })
  const recipientKey = await suite.kem.importKey("raw", key.slice().buffer, false)
  return new Uint8Array(await suite.open({ recipientKey, enc: sealed.slice(0, 65).buffer, info: info.slice().buffer }, sealed.slice(65).buffer))
}

function words(bytes: Uint8Array): bigint[] {
  const view = new DataView(bytes.slice().buffer)
  return Array.from({ length: Math.floor(view.byteLength / 8) }, (_, place) => view.getBigInt64(8 * place, true))
}

/** R'R of an upper triangle. */
function products(triangle: number[]): number[] {
  const columns = (Math.sqrt(8 * triangle.length + 1) - 1) / 2
  const rows = Array.from({ length: columns }, () => new Array<number>(columns).fill(0))
  let place = 0
  rows.forEach((row, i) => {
    for (let j = i; j < columns; j++) row[j] = triangle[place++] ?? NaN
  })
  return rows.flatMap((_, i) => rows.map((_, j) => rows.reduce((sum, row) => sum + (row[i] ?? 0) * (row[j] ?? 0), 0)))
}

function close(found: number[], expected: number[], name: string): void {
  assert.equal(found.length, expected.length, name)
  const largest = Math.max(...expected.map(Math.abs))
  found.forEach((value, place) => {
    const other = expected[place] ?? NaN
    assert.ok(Math.abs(value - other) <= 1e-9 * largest, `${name}: ${value} is not ${other}`)
  })
}
