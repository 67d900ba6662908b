// All trials that the token may see.

import * as api from "./api.js";
import { createForm } from "./create.js";
import { h, named, table } from "./dom.js";
import { count, day } from "./format.js";
import { tooEarly } from "./plan.js";
import { Poll } from "./poll.js";
import { badge, ratioState } from "./words.js";

const EVERY = 5_000;
const MANY = 8;
const ASKED = 50; // trials whose results are asked for
const NAMED = 3; // outcomes of one verdict

export function statusPill(status) {
  return h("span", { class: `pill ${status}` }, status === "open" ? "open" : "ended");
}

export function showList(view, refused) {
  const found = h("div", {}, h("p", { class: "soft", role: "status" }, "Asking for the trials …"));
  const field = h("input", { id: "search", type: "search", autocomplete: "off", oninput: () => draw() });
  const search = h("p", { class: "search", hidden: true }, h("label", { for: "search" }, "Find a trial"), field);
  const heading = h("div", { class: "heading" }, h("h1", {}, "Trials"), search);
  const create = h("div", {});
  view.append(heading, found, create);
  let trials = null;
  let drawn = "";
  const results = new Map();
  let admin = null;

  function draw() {
    const wanted = field.value.trim().toLowerCase();
    const rows = trials.filter((trial) => trial.name.toLowerCase().includes(wanted));
    const state = JSON.stringify([rows, rows.map((trial) => results.get(trial.name))]);
    if (state === drawn) return;
    drawn = state;
    search.hidden = trials.length <= MANY;
    const held = document.activeElement?.getAttribute("href");
    found.replaceChildren(trials.length === 0 ? none() : rows.length === 0 ? noMatch() : listing(rows, results));
    if (held?.startsWith("#/trials/")) [...found.querySelectorAll("a")].find((a) => a.getAttribute("href") === held)?.focus();
  }

  const poll = new Poll(async () => {
    trials = await api.trials();
    draw();
    if (admin === null) {
      admin = await api.rules();
      if (admin) create.replaceChildren(createForm(() => poll.soon(0)));
    }
    for (const trial of trials.slice(0, ASKED)) {
      const moved = `${trial.records} ${trial.status}`;
      if (results.get(trial.name)?.moved !== moved) results.set(trial.name, { moved, ...(await inShort(trial)) });
    }
    draw();
    return EVERY;
  }, refused).start();
  return () => poll.stop();
}

/** Which outcomes have which verdict, and whether the arms got their share. */
async function inShort(trial) {
  if (!trial.records || tooEarly(await api.plan(trial.name), trial)) return {};
  const { found } = await api.effects(trial.name);
  if (!found) return {};
  return { verdicts: found.verdicts, ratio: ratioState(found.sample_ratio) };
}

const RATIO = { passes: ["good", "fits"], look: ["", "look into it"], fails: ["bad", "does not fit"], open: ["soft", "unknown"] };

function resultsOf(short) {
  if (!short?.verdicts) return [h("span", { class: "soft" }, "none yet"), "–"];
  const several = new Set(short.verdicts.map((said) => said.arm)).size > 1;
  const alike = new Map();
  for (const said of short.verdicts) alike.set(said.words, [...(alike.get(said.words) ?? []), said]);
  const lines = [...alike.values()].map((those) => h("div", {}, badge(those[0]), ": ",
    those.slice(0, NAMED).flatMap((said, i) => [i ? ", " : "", named(said.label), several ? [" (", named(said.arm), ")"] : ""].flat()),
    those.length > NAMED ? ` and ${those.length - NAMED} more` : ""));
  const [kind, text] = RATIO[short.ratio];
  return [lines, h("span", { class: `verdict ${kind}` }, text)];
}

function listing(trials, results) {
  const rows = trials.map((trial) => [
    [h("a", { href: `#/trials/${encodeURIComponent(trial.name)}` }, named(trial.name)),
      h("div", { class: "narrow" }, statusPill(trial.status))],
    statusPill(trial.status),
    ...resultsOf(results.get(trial.name)),
    trial.records === null ? "–" : count(trial.records),
    day(trial.created),
  ]);
  return h("div", { class: "card flush" },
    table("Trials", ["Trial", "Status", "Results", "Sample ratio", "Records folded", "Registered"], rows, { class: "trials" }));
}

function none() {
  return h("div", { class: "card empty" },
    h("h2", {}, "No trials yet"),
    h("p", {}, "A trial begins with its plan, registered before the first record:"),
    h("pre", {}, "foldaway trial create plan.toml --server ", api.server),
    h("p", { class: "soft" }, "It appears here as soon as it is there."));
}

const noMatch = () => h("p", { class: "card empty" }, "No trial has this in its name.");
