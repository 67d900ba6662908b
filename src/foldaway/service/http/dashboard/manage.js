// What can be done with a trial: download its report and certificate; with an admin token, end it.

import * as api from "./api.js";
import { h } from "./dom.js";

/** The card; `then` is called when the trial has ended. */
export class Manage {
  constructor(name, then) {
    this.name = name;
    this.then = then;
    this.fault = h("p", { class: "fault", role: "alert" });
    const button = (words, work) => h("button", { type: "button", class: "quiet", onclick: work }, words);
    this.report = button("Download the report", () => this.download(this.report, api.report, ".html"));
    this.certificate = button("Download the certificate", () => this.download(this.certificate, api.certificate, ".certificate.json"));
    this.sure = h("input", { type: "checkbox", id: "sure", onchange: () => { this.end.disabled = !this.sure.checked; } });
    this.end = h("button", { type: "button", class: "danger", disabled: true, onclick: () => this.finish() }, "End the trial");
    this.ending = h("details", { hidden: true },
      h("summary", {}, "End this trial"),
      h("p", { class: "small" }, "The trial it accepts no more records, its key is destroyed and its effects are final."),
      h("p", { class: "small check" }, this.sure, h("label", { for: "sure" }, "I understand that this cannot be undone.")),
      this.end);
    this.element = h("section", { class: "card", "aria-label": "Report and end" },
      h("div", { class: "together wraps" }, this.report, this.certificate), this.ending, this.fault);
    this.element.hidden = true;
  }

  async show(state) {
    this.rules ??= await api.rules();
    this.state = state;
    this.report.hidden = !state.effects;
    this.certificate.hidden = state.open || !state.effects;
    this.ending.hidden = !(this.rules && state.open);
    this.element.hidden = this.report.hidden && this.ending.hidden;
  }

  async download(button, ask, ending) {
    await this.attempt(button, async () => {
      const address = URL.createObjectURL(await ask(this.name));
      h("a", { href: address, download: `${this.name}${ending}` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
    });
  }

  async finish() {
    await this.attempt(this.end, async () => {
      await api.end(this.name, { without_effects: !this.state.effects });
      this.sure.checked = false;
      this.then();
    });
  }

  async attempt(button, work) {
    this.fault.textContent = "";
    button.disabled = true;
    try {
      await work();
    } catch (refused) {
      if (!(refused instanceof api.Refused)) throw refused;
      this.fault.textContent = refused.message || "The server could not answer; try again.";
    } finally {
      button.disabled = button === this.end && !this.sure.checked;
    }
  }
}
