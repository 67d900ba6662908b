/** What only Node has. Bundlers leave this file out for browsers, which never ask for it. */
import { webcrypto as own } from "node:crypto"

export const webcrypto = own as unknown as Crypto
