// The token, entered once.

import * as api from "./api.js";
import { h } from "./dom.js";

export const NOT_VALID = "This token is not valid, or it was revoked. Check that all of it was copied.";
const NOT_TO_READ = "This token sends records and reads nothing. Use the read token that came with it.";
const CANNOT = "This text cannot be a token: one begins with fa_ and has no spaces.";

/** Show the form; `words` say why it is shown again, `then` is called when there is a token that works. */
export function showSignIn(view, words, then) {
  const field = h("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "none",
    placeholder: "fa_…",
    required: true,
    "aria-describedby": "token-help token-fault",
  });
  const fault = h("p", { id: "token-fault", class: "fault", role: "alert" }, words);
  const button = h("button", { type: "submit" }, "Sign in");
  const refuse = (text) => {
    fault.textContent = text;
    field.setAttribute("aria-invalid", "true");
    button.disabled = false;
    field.focus();
    field.select();
  };

  async function submit(event) {
    event.preventDefault();
    const text = field.value.trim();
    if (!/^[\x21-\x7e]+$/.test(text)) return refuse(CANNOT);
    button.disabled = true;
    fault.textContent = "";
    api.token.keep(text);
    try {
      const trials = await api.trials();
      if (trials.length === 1 && location.hash.length < 3 && !(await api.rules())) {
        history.replaceState(null, "", `#/trials/${encodeURIComponent(trials[0].name)}`);
      }
      then();
    } catch (refused) {
      api.token.forget();
      if (refused.status === 401) refuse(NOT_VALID);
      else if (refused.status === 403) refuse(NOT_TO_READ);
      else refuse(refused.message || "The server could not answer; try again.");
    }
  }

  view.append(
    h("section", { class: "sign-in card" },
      h("h1", {}, "Sign in"),
      h("p", { class: "soft" },
        "Every trial has a read token, shown when the trial was created. A team’s token shows its trials, and an admin token all of them."),
      h("form", { onsubmit: submit, novalidate: true },
        h("label", { for: "token" }, "Access token"),
        h("div", { class: "together" }, field, button),
        fault,
        h("p", { id: "token-help", class: "soft small" },
          "It stays in this browser tab, goes to this server alone, and is forgotten when you close the tab.")),
    ),
  );
  if (words) field.setAttribute("aria-invalid", "true");
  field.focus();
  return () => {};
}
