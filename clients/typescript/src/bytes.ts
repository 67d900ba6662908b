/** Bytes as text, numbers as bytes, and what WebCrypto makes of them. */
import { StateError } from "./errors.js"

export type Bytes = Uint8Array<ArrayBuffer>

export function utf8(text: string): Bytes {
  return new TextEncoder().encode(text) as Bytes
}

export function base64(bytes: Uint8Array): string {
  let binary = ""
  for (const byte of bytes) binary += String.fromCharCode(byte)
  return btoa(binary)
}

export function fromBase64(text: string): Bytes {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")
}

/** Numbers as 64-bit floating-point numbers, little-endian, in base64. */
export function packed(values: readonly number[]): string {
  const view = new DataView(new ArrayBuffer(8 * values.length))
  values.forEach((value, place) => view.setFloat64(8 * place, value, true))
  return base64(new Uint8Array(view.buffer))
}

export function unpacked(text: string): number[] {
  const view = new DataView(fromBase64(text).buffer)
  return Array.from({ length: view.byteLength / 8 }, (_, place) => view.getFloat64(8 * place, true))
}

/** SHA-256 of the parts, one after the other, in lower-case hexadecimal digits. */
export async function sha256(...parts: Uint8Array[]): Promise<string> {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0))
  let place = 0
  for (const part of parts) {
    whole.set(part, place)
    place += part.length
  }
  return hex(new Uint8Array(await (await webCrypto()).subtle.digest("SHA-256", whole)))
}

export async function hmacSha256(key: Bytes, data: Bytes): Promise<Bytes> {
  const { subtle } = await webCrypto()
  const imported = await subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"])
  return new Uint8Array(await subtle.sign("HMAC", imported, data))
}

export async function randomBytes(length: number): Promise<Bytes> {
  return (await webCrypto()).getRandomValues(new Uint8Array(length))
}

async function webCrypto(): Promise<Crypto> {
  const found = globalThis.crypto ?? (await import("./node.js")).webcrypto // which Node 18 has no global name for
  if (!found.subtle) throw new StateError("browsers give cryptography only to pages that come by https: serve this page so.")
  return found
}
