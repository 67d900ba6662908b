// The same API that everybody uses, with the reader's token. The token stays in this tab: it is in no address, no
// cookie and no file, and the browser forgets it when the tab is closed.

const KEPT = "foldaway token";
const PATIENCE = 15_000;
const LONG_PATIENCE = 120_000; // for what changes something: an end reads all tallies

export const token = {
  get: () => sessionStorage.getItem(KEPT),
  keep: (text) => sessionStorage.setItem(KEPT, text),
  forget: () => sessionStorage.removeItem(KEPT),
};

/** The server's address: where this page is, which a proxy may have put below another path than the root. */
export const server = new URL(".", document.baseURI).href.replace(/\/$/, "");

/** An answer that is no answer: its status, 0 if there was none at all; and what the server says about it. */
export class Refused extends Error {
  constructor(status, detail, wait = 0) {
    super(detail);
    this.status = status;
    this.wait = wait;
  }

  get passes() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

async function ask(path, query = {}, { read = "json", sent = null, kind = "application/json" } = {}) {
  const address = new URL(server + path);
  for (const [name, value] of Object.entries(query)) address.searchParams.set(name, value);
  let answer;
  let body;
  try {
    answer = await fetch(address, {
      method: sent === null ? "GET" : "POST",
      body: sent,
      headers: { Authorization: `Bearer ${token.get()}`, ...(sent === null ? {} : { "Content-Type": kind }) },
      cache: "no-store",
      signal: AbortSignal.timeout(sent === null ? PATIENCE : LONG_PATIENCE),
    });
    body = await answer[answer.ok ? read : "json"]();
  } catch {
    throw new Refused(0, "The server does not answer.");
  }
  if (!answer.ok) throw new Refused(answer.status, body.detail ?? "", Number(answer.headers.get("Retry-After")) || 0);
  // The server's clock, to tell how long ago something was whatever the clock here says.
  return { body, now: Date.parse(answer.headers.get("Date")) / 1000 || Date.now() / 1000 };
}

const at = (name, part = "") => `/v1/trials/${encodeURIComponent(name)}${part}`;

export const trials = async () => (await ask("/v1/trials")).body;
export const plan = async (name) => (await ask(at(name, "/plan"))).body;
export const status = (name) => ask(at(name));
export const create = async (text, kind) => (await ask("/v1/trials", {}, { sent: text, kind })).body;
export const end = async (name, wanted) => (await ask(at(name, "/end"), {}, { sent: JSON.stringify(wanted) })).body;
export const certificate = async (name) => (await ask(at(name, "/certificate"), {}, { read: "blob" })).body;
export const report = async (name) => (await ask(at(name, "/report"), {}, { read: "blob" })).body;

export const history = async (name, query) => (await ask(at(name, "/history"), query)).body.points;

/** Whether the token may register and end trials. */
export const rules = async () => ["admin", "team"].includes((await ask("/v1/tokens/own")).body.scope);

/** What the trial can still find; nothing where that cannot be told. */
export async function outlook(name) {
  try {
    return (await ask(at(name, "/outlook"))).body;
  } catch (refused) {
    if ([410, 422, 425].includes(refused.status)) return null;
    throw refused;
  }
}

/** The effects, or what is missing for them. */
export async function effects(name) {
  try {
    const { body } = await ask(at(name, "/effects"));
    return { found: body.effects };
  } catch (refused) {
    if (refused.status === 425 || refused.status === 422) return { found: null };
    throw refused;
  }
}
