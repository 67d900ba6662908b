/** Devices and senders that do what they are told: one line of JSON in, one line out. Tests start this, and kill it. */
import { createInterface } from "node:readline"
import { Device, type DeviceOptions, FoldawayError, RecordError, Sender, type SenderOptions, ServerError } from "../src/index.js"

const devices = new Map<string, Device>()
const senders = new Map<string, Sender>()

type Words = readonly [name: string, what: string, ...rest: unknown[]]

async function done([name, what, ...rest]: Words): Promise<unknown> {
  if (what === "open") {
    const device = await Device.open(rest[0] as string, rest[1] as DeviceOptions)
    devices.set(name, device)
    try {
      return device.arm
    } catch {
      return null // it has forgotten
    }
  }
  if (what === "sender") {
    senders.set(name, new Sender(rest[0] as string, rest[1] as SenderOptions))
    return null
  }
  const sender = senders.get(name)
  if (sender !== undefined) return await sent(sender, what, rest)
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
      return await device.report(rest[0] as { wait?: number; keepReport?: boolean })
    case "withdraw":
      return await device.withdraw(rest[0] as { wait?: number })
    case "forget":
      return await device.forget(rest[0] as { keepReport?: boolean })
  }
  throw new Error(`nobody can ${what}`)
}

async function sent(sender: Sender, what: string, rest: unknown[]): Promise<unknown> {
  switch (what) {
    case "send":
      return await sender.send(rest[0] as Record<string, unknown>[])
    case "send-all": // at once, as an app that does not wait does
      return await Promise.all((rest[0] as Record<string, unknown>[][]).map((records) => sender.send(records)))
    case "deliver":
      return await sender.deliver()
    case "durable":
      return await sender.durable()
    case "held":
      return sender.held
  }
  throw new Error(`no sender can ${what}`)
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
