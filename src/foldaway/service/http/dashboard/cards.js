// What stands beside the effect: the arms, what is kept, how far a federated trial is.

import { h, named, say } from "./dom.js";
import { ago, count, moment, number, several, share } from "./format.js";
import { probabilities } from "./plan.js";
import { GROWTH, MODES } from "./vocabulary.js";
import { ratioState, ratioVerdict, reporters } from "./words.js";

const VERDICTS = { passes: "good", look: "", fails: "bad", open: "soft" };

/** The arms' shares beside those of the plan. */
export function arms(effects, plan) {
  const ratio = effects?.sample_ratio;
  const total = ratio ? Object.values(ratio.observed).reduce((a, b) => a + b, 0) : 0;
  // Where strata have probabilities of their own, shares are of records that are weighted by these.
  const weighted = ratio?.counted === "weighted records";
  const rows = Object.entries(probabilities(plan)).map(([arm, planned]) => {
    const seen = ratio ? ratio.observed[arm] : null;
    const shown = weighted ? effects.counts[arm] : seen;
    return h("li", {},
      h("div", { class: "between" },
        named(arm),
        h("span", { class: "figure" }, seen === null ? "–" : count(shown))),
      shareBar(total > 0 ? seen / total : 0, planned),
      h("div", { class: "between soft small" },
        h("span", {}, seen === null ? "not shown yet" : share(seen, total)),
        h("span", {}, `planned ${share(planned, 1)}`)));
  });
  const verdict = ratio
    ? h("p", { class: `verdict ${VERDICTS[ratioState(ratio)]}` }, ratioVerdict(ratio))
    : h("p", { class: "soft small" }, "Counts by arm are shown together with the first effects.");
  const notes = [
    weighted ? "Shares are weighted by the plan's probabilities within each stratum." : "",
    effects?.rounded ? "Each count is rounded by itself, so their sum may differ from the records folded." : "",
  ].filter(Boolean).map((note) => h("p", { class: "soft small" }, note));
  return [h("h2", {}, "Arms and sample ratio"), h("ul", { class: "arms" }, rows), verdict, ...notes];
}

function shareBar(part, planned) {
  const bar = h("div", { class: "share", "aria-hidden": "true" }, h("i", {}), h("b", {}));
  bar.children[0].style.width = `${(100 * part).toFixed(2)}%`;
  bar.children[1].style.left = `${(100 * planned).toFixed(2)}%`;
  return bar;
}

/** What exists of the records: how many were folded, that none is held, what waits for its cohort. */
export class Kept {
  constructor() {
    this.folded = h("dd", { class: "figure", id: "folded" });
    this.held = h("dd", { class: "figure", id: "held" });
    this.heldNote = h("p", { class: "soft small" });
    this.last = h("dd", { class: "figure", id: "forgotten" });
    this.waiting = h("p", { class: "soft small", id: "waiting" });
    this.leftOut = h("p", { class: "soft small" });
    this.element = h("section", { class: "card", "aria-labelledby": "kept-title" },
      h("h2", { id: "kept-title" }, "What is kept"),
      h("dl", { class: "facts" },
        h("div", {}, h("dt", {}, "Records folded"), this.folded),
        h("div", {}, h("dt", {}, "Records held"), this.held),
        h("div", {}, h("dt", {}, "Last ones forgotten"), this.last)),
      this.heldNote, this.waiting, this.leftOut);
    this.forgotten = null;
    this.ticking = setInterval(() => this.tick(), 60_000);
  }

  stop() {
    clearInterval(this.ticking);
  }

  show(status, now, counted, where) {
    const open = status.status === "open";
    const thing = status.federated ? "message" : "record";
    say(this.folded, status.records === null ? "–" : count(status.records));
    say(this.held, "0");
    say(this.heldNote, status.federated
      ? `Records stay ${where}, and none comes here.`
      : "A record is wiped from memory as soon as it is folded; none is stored.");
    this.waiting.hidden = !open || status.records === null;
    say(this.waiting, `New effects are shown once at least ${several(status.cohort, `more ${counted}`)} have come and the trial has grown by ${number(100 * GROWTH)} %.`);
    say(this.leftOut, status.left_out ? `${several(status.left_out, thing)} left out at the end: no cohort came together.` : "");
    // On this machine's own clock from here on, which needs not agree with the server's.
    this.forgotten = status.forgotten === null ? null : performance.now() / 1000 - Math.max(0, now - status.forgotten);
    this.tick();
  }

  tick() {
    say(this.last, this.forgotten === null ? "–" : ago(performance.now() / 1000 - this.forgotten));
  }
}

/** How far a trial is whose records never leave their site. */
export function federated(progress, plan) {
  const names = Object.keys(progress.enrolled ?? {});
  const rows = names.map((arm, i) => {
    const [reported, enrolled] = [progress.reported?.[arm] ?? 0, progress.enrolled[arm]];
    return h("li", {},
      h("div", { class: "between" },
        h("span", { id: `site-${i}` }, named(arm)),
        h("span", { class: "figure" }, `${count(reported)} of ${count(enrolled)}`)),
      h("progress", { max: Math.max(1, enrolled), value: Math.min(reported, enrolled), "aria-labelledby": `site-${i}` }));
  });
  const deadline = typeof progress.deadline === "number" ? moment(progress.deadline) : progress.deadline;
  return [
    h("h2", {}, "Federated progress"),
    h("p", {}, "Stage: ", h("strong", {}, String(progress.stage ?? "–"))),
    h("p", { class: "soft small" }, MODES[progress.mode]?.sentence ?? `Mode: ${progress.mode ?? "–"}`),
    h("p", { class: "label" }, `${reporters(plan)} that have reported, of those enrolled`),
    h("ul", { class: "arms" }, rows),
    deadline ? h("p", { class: "soft small" }, `Open until ${deadline}.`) : null,
  ];
}
