// All trials that the token may see.

import * as api from "./api.js";
import { h, named, table } from "./dom.js";
import { count, moment } from "./format.js";
import { Poll } from "./poll.js";

const EVERY = 5_000;
const MANY = 8;

export function statusPill(status) {
  return h("span", { class: `pill ${status}` }, status === "open" ? "open" : "closed");
}

export function showList(view, refused) {
  const found = h("div", {}, h("p", { class: "soft", role: "status" }, "Asking for the trials …"));
  const field = h("input", { id: "search", type: "search", autocomplete: "off", oninput: () => draw() });
  const search = h("p", { class: "search", hidden: true }, h("label", { for: "search" }, "Find a trial"), field);
  const heading = h("div", { class: "heading" }, h("h1", {}, "Trials"), search);
  view.append(heading, found);
  let trials = null;
  let drawn = "";

  function draw() {
    const wanted = field.value.trim().toLowerCase();
    const rows = trials.filter((trial) => trial.name.toLowerCase().includes(wanted));
    const state = JSON.stringify(rows);
    if (state === drawn) return;
    drawn = state;
    search.hidden = trials.length <= MANY;
    const held = document.activeElement?.getAttribute("href");
    found.replaceChildren(trials.length === 0 ? none() : rows.length === 0 ? noMatch() : listing(rows));
    if (held?.startsWith("#/trials/")) [...found.querySelectorAll("a")].find((a) => a.getAttribute("href") === held)?.focus();
  }

  const poll = new Poll(async () => {
    trials = await api.trials();
    draw();
    return EVERY;
  }, refused).start();
  return () => poll.stop();
}

function listing(trials) {
  const rows = trials.map((trial) => [
    h("a", { href: `#/trials/${encodeURIComponent(trial.name)}` }, named(trial.name)),
    statusPill(trial.status),
    count(trial.records),
    trial.status !== "open" ? "–" : trial.pending ? `some, fewer than ${count(trial.cohort)}` : "none",
    moment(trial.created),
  ]);
  return h("div", { class: "card flush" },
    table("Trials", ["Trial", "Status", "Records folded", "Pending", "Registered"], rows, { class: "trials" }));
}

function none() {
  return h("div", { class: "card empty" },
    h("h2", {}, "No trials yet"),
    h("p", {}, "A trial begins with its plan, registered before the first record:"),
    h("pre", {}, "foldaway trial create plan.toml --server ", api.server),
    h("p", { class: "soft" }, "It appears here as soon as it is there."));
}

const noMatch = () => h("p", { class: "card empty" }, "No trial has this in its name.");
