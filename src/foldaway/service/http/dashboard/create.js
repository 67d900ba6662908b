// Registering a trial from its plan file, with an admin token.

import * as api from "./api.js";
import { h, named } from "./dom.js";

/** The form, closed until somebody wants it; `then` is called when a trial was registered. */
export function createForm(then) {
  const field = h("input", { id: "plan-file", type: "file", accept: ".toml,.json", required: true });
  const fault = h("p", { class: "fault", role: "alert" });
  const done = h("div", { role: "status" });
  const button = h("button", { type: "submit" }, "Register");

  async function submit(event) {
    event.preventDefault();
    const [file] = field.files;
    fault.textContent = "";
    if (!file) {
      fault.textContent = "Choose a plan file first.";
      return;
    }
    button.disabled = true;
    try {
      const kind = file.name.endsWith(".json") ? "application/json" : "application/toml";
      const made = await api.create(await file.text(), kind);
      done.replaceChildren(...tokens(made));
      field.value = "";
      then();
    } catch (refused) {
      fault.textContent = refused.message || "The server could not answer; try again.";
    } finally {
      button.disabled = false;
    }
  }

  return h("details", { class: "card create" },
    h("summary", {}, "Create a trial"),
    h("form", { onsubmit: submit, novalidate: true },
      h("label", { for: "plan-file" }, "Plan file (TOML or JSON)"),
      h("div", { class: "together" }, field, button),
      h("p", { class: "soft small" }, "A plan cannot be changed once it is registered. ",
        h("code", {}, "foldaway plan check"), " shows what it will do."),
      fault),
    done);
}

function tokens(made) {
  const secret = (term, text) => h("div", { class: "tall" }, h("dt", {}, term), h("dd", {}, h("code", {}, text)));
  return [
    h("p", {}, made.new ? "Registered " : "This plan is registered already: ", named(made.name),
      made.new ? ". Copy both tokens now; they are not shown again."
        : ". Here are two more tokens; copy them now, as they are not shown again."),
    h("dl", { class: "facts plain" },
      secret("Ingest token, for sending records", made.ingest_token), secret("Read token, for this page", made.read_token)),
  ];
}
