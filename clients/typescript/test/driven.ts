/** Devices and senders that do what they are told: one line of JSON in, one line out. Tests start this, and kill it. */
import { createInterface } from "node:readline"
import { Device, type DeviceOptions, FoldawayError, RecordError, ServerError } from "../src/index.js"

const devices = new Map<string, Device>()

type Words = readonly [name: string, what: string, ...rest: unknown[]]

async function done([name, what, ...rest]: Words): Promise<unknown> {
  if (what === "open") {
    const device = await Device.open(rest[0] as string, rest[1] as DeviceOptions)
    devices.set(name, device)
    return (await device.status()).state === "forgotten" ? null : device.arm
  }
  const device = devices.get(name)
  if (device === undefined) throw new Error("it is not open")
  switch (what) {
    case "arm":
      return device.arm
    case "status":
      return await device.status()
    case "record":
      for (const record of rest[0] as Record<string, unknown>[]) await device.record(record)
      return null
    case "report":
      return await device.report(rest[0] as { wait?: number })
    case "forget":
      return await device.forget(rest[0] as { keepReport?: boolean })
  }
  throw new Error(`nobody can ${what}`)
}

for await (const line of createInterface({ input: process.stdin })) {
  const began = performance.now()
  let answer: object
  try {
    answer = { answer: (await done(JSON.parse(line) as Words)) ?? null }
  } catch (error) {
    if (!(error instanceof FoldawayError)) throw error
    answer = {
      error: error.name,
      message: error.message,
      ...(error instanceof RecordError && { faults: error.faults }),
      ...(error instanceof ServerError && { status: error.status ?? null }),
    }
  }
  console.log(JSON.stringify({ ...answer, seconds: (performance.now() - began) / 1000 }))
}
