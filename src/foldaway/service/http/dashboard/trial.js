// One trial, live.

import * as api from "./api.js";
import { arms, federated, Kept } from "./cards.js";
import { Choice, headline } from "./choice.js";
import { Course } from "./course.js";
import { h, named, say, table } from "./dom.js";
import { chance, ends, interval, moment, places, reach, several, signed } from "./format.js";
import { forest, legend } from "./forest.js";
import { decisions, glance } from "./glance.js";
import { statusPill } from "./list.js";
import { Manage } from "./manage.js";
import { inPercent, percentOf } from "./percent.js";
import { atEnd, planCard, smallestCell, tooEarly } from "./plan.js";
import { Poll } from "./poll.js";
import { Segments } from "./segments.js";
import { ERRORS, ESTIMATORS } from "./vocabulary.js";
import { ahead, cohortThing, explained, figures, heard, keptWhere, ratioState, reasons, relative, verdict } from "./words.js";

const EVERY = 1_500;
const ENDED = 30_000;
const HEARD_EVERY = 30_000;
const ALARMS = {
  fails: "The arms are not in the plan’s proportions.",
  look: "The arms’ records are not in the plan’s proportions.",
};
const NONE_YET = { found: null };

class TrialPage {
  constructor(view, name) {
    this.name = name;
    this.courses = new Map();
    this.choice = new Choice(() => this.choose());
    this.course = new Course();
    this.kept = new Kept();
    this.pill = h("span", {});
    this.title = h("div", { class: "heading" }, h("h1", {}, named(name)), this.pill);
    this.decided = h("div", { class: "decided" });
    this.alarms = h("div", { class: "alarms" });
    this.headline = h("h2", { class: "headline", id: "verdict" }, "Asking for the trial …");
    this.explained = h("p", { class: "explained" });
    this.figures = h("dl", { class: "figures" });
    this.outlook = h("p", { class: "soft small", id: "outlook" });
    this.how = h("p", { class: "soft small how" });
    this.band = h("p", { class: "soft small legend" });
    this.picture = h("div", { class: "picture" },
      h("h3", { id: "course-title" }, "The effect as records arrive"), this.course.element,
      this.band);
    this.noCourse = h("p", { class: "soft small", id: "no-course", hidden: true });
    this.now = h("section", { class: "card wide", "aria-labelledby": "verdict" },
      this.choice.element, this.headline, this.explained, this.figures, this.outlook, this.how, this.picture,
      this.noCourse);
    this.glance = h("section", { class: "card", "aria-label": "At a glance" });
    this.arms = h("section", { class: "card", "aria-label": "Arms and sample ratio" });
    this.federated = h("section", { class: "card", "aria-label": "Federated progress", hidden: true });
    this.forest = h("section", { class: "card", "aria-label": "Every arm and estimator" });
    this.segments = new Segments();
    this.rest = h("section", { class: "card", "aria-label": "All numbers" });
    this.about = h("section", { class: "card", "aria-label": "About this trial" });
    this.planned = h("section", { class: "card", "aria-label": "The plan" });
    this.manage = new Manage(name, () => this.poll.soon(0));
    view.append(
      h("nav", { "aria-label": "Back" }, h("a", { href: "#/", class: "back" }, "← All trials")),
      this.title, this.decided, this.alarms,
      h("div", { class: "columns" },
        h("div", { class: "main" }, this.glance, this.now, this.forest, this.segments.element, this.rest),
        h("div", { class: "side" }, this.kept.element, this.arms, this.federated, this.about, this.planned, this.manage.element)));
    this.whenThere = [this.glance, this.choice.element, this.figures, this.outlook, this.how, this.picture, this.forest, this.rest];
    for (const part of this.whenThere) part.hidden = true;
  }

  stop() {
    this.course.stop();
    this.kept.stop();
  }

  /** Ask for what may have changed, and show it; the milliseconds until the next time. */
  async look() {
    if (!this.plan) {
      this.plan = await api.plan(this.name);
      this.planned.replaceChildren(...planCard(this.plan));
    }
    const { body: status, now } = await api.status(this.name);
    if (!this.answer || status.records !== this.status?.records || status.status !== this.status?.status) {
      const { found } = tooEarly(this.plan, status) ? NONE_YET : await api.effects(this.name);
      this.answer = found ? { found: inPercent(found) } : NONE_YET;
      this.percent = found ? percentOf(found) : null;
      this.ahead = found && status.status === "open" ? await api.outlook(this.name) : null;
      if (this.ahead) this.ahead.rows = this.ahead.rows.map(this.percent);
      this.changed = true;
    }
    this.status = status;
    this.kept.show(status, now, cohortThing(this.plan), keptWhere(this.plan));
    if (this.answer.found) await this.followCourse();
    if (this.changed) this.draw();
    this.changed = false;
    this.drawFederated();
    await this.manage.show({ open: status.status === "open", effects: Boolean(this.answer.found) });
    return status.status === "open" ? EVERY : ENDED;
  }

  /** Points of the chosen effect since the last that is here: the first time, all. */
  async followCourse() {
    this.rows = headline(this.answer.found.effects);
    this.choice.offer(this.rows, Object.fromEntries(this.answer.found.verdicts.map((said) => [said.outcome, said.label])));
    if (!this.rows.length || this.plan.federated) return;
    const key = JSON.stringify(this.choice.wanted);
    const course = this.courses.get(key) ?? [];
    const last = course.at(-1)?.records ?? 0;
    if (last < this.status.records && !(this.asked === key && this.status.status === "ended")) {
      const points = await api.history(this.name, { ...this.choice.wanted, after: last });
      const more = points.filter((point) => point.effects.length).map((point) => {
        const row = this.percent(point.effects[0]);
        return { records: point.records, estimate: row.estimate, lower: row.anytime_ci_lower, upper: row.anytime_ci_upper };
      });
      this.courses.set(key, [...course, ...more]);
      this.changed ||= more.length > 0;
      this.asked = key;
    }
  }

  async choose() {
    this.changed = true;
    this.draw();
    this.poll.soon(0);
  }

  draw() {
    const { found } = this.answer;
    this.pill.replaceChildren(statusPill(this.status.status));
    this.drawAlarms(found);
    this.drawAbout();
    this.arms.replaceChildren(...arms(found, this.plan));
    const row = found && this.choice.among(this.rows);
    this.decided.replaceChildren(...(row ? decisions(found) : []));
    for (const part of this.whenThere) part.hidden = !row;
    this.noCourse.hidden = !(row && this.plan.federated);
    say(this.noCourse, `No course is kept of a trial whose records stay ${keptWhere(this.plan)}: this is the effect as it stands now.`);
    if (!row) {
      this.drawNothingYet();
      return;
    }
    const said = found.verdicts.find((each) => each.outcome === row.outcome && each.arm === row.arm);
    this.now.classList.toggle("doubtful", Boolean(found.alarm) && said.verdict === "no verdict");
    this.drawGlance(found);
    this.headline.replaceChildren(...verdict(row, said), ".");
    this.explained.replaceChildren(...explained(row, said, found.confidence));
    this.figures.replaceChildren(...figures(row));
    this.outlook.replaceChildren(...(this.ahead ? ahead(this.ahead, row, said) : []));
    this.how.replaceChildren(named(row.arm), " against ", named(row.control), " on ", named(said.label),
      said.measure ? ` (${said.measure})` : "",
      `: ${ESTIMATORS[row.estimator].phrase} (${row.estimator}). `,
      `The standard error is ${row.se_kind}. ${ERRORS[row.se_kind].sentence}`);
    const { anyTime } = ends(row);
    say(this.band, `The line is the estimate${anyTime ? "; the band its interval, which stays valid however often you look" : ""}. It moves a cohort of records at a time.`);
    this.drawCourse(row);
    this.forest.replaceChildren(
      h("h2", {}, "Effects on ", named(said.label)), forest(this.alike(row), row, `Effects on ${said.label}`),
      h("p", { class: "soft small legend" },
        anyTime
          ? "Thin: the interval that stays valid however often you look. Thick: the narrower one for a single look at the end."
          : "The interval is for a single look at the end."),
      ...legend(this.alike(row)));
    this.segments.show(found.segments, row, said);
    this.drawRest(found);
    this.tell(row);
  }

  /** One line for each outcome; drawn anew only if it says something else, so that no focus is lost. */
  drawGlance(found) {
    const state = JSON.stringify(found.verdicts);
    if (state === this.glanced) return;
    this.glanced = state;
    const held = this.glance.contains(document.activeElement) ? document.activeElement.textContent : null;
    this.glance.replaceChildren(
      h("h2", {}, "At a glance"),
      glance(found, (outcome, arm) => {
        this.choice.choose(outcome, arm);
        this.choose();
      }),
      found.explained.length ? h("ul", { class: "notes soft small" }, found.explained.map((note) => h("li", {}, note))) : "");
    if (held) [...this.glance.querySelectorAll("button")].find((button) => button.textContent === held)?.focus();
  }

  drawCourse(row) {
    if (this.plan.federated) {
      this.picture.hidden = true;
      return;
    }
    const course = this.courses.get(JSON.stringify(this.choice.wanted)) ?? [];
    const now = {
      records: row.n, estimate: row.estimate, lower: row.anytime_ci_lower, upper: row.anytime_ci_upper,
    };
    this.course.show([...course.filter((point) => point.records < row.n), now], this.status.status === "ended");
  }

  /** What the chosen effect is to be seen beside: the other arms; or, if there is none, the other estimators. */
  alike(row) {
    const same = this.rows.filter((other) => other.outcome === row.outcome);
    return same.some((other) => other.arm !== row.arm) ? same.filter((other) => other.estimator === row.estimator) : same;
  }

  drawNothingYet() {
    const ended = this.status.status === "ended";
    const thing = this.plan.federated ? "report" : cohortThing(this.plan);
    const [cohort, least] = [several(this.status.cohort, thing), several(smallestCell(this.plan), thing)];
    say(this.headline, ended ? "Ended before there was an effect to show" : "No effects yet");
    const first = `foldaway send ${this.name} data.parquet --server ${api.server}`;
    this.explained.replaceChildren(ended
      ? `Fewer than ${cohort} came, or fewer than ${least} of an arm.`
      : atEnd(this.plan)
      ? this.plan.release
        ? "The effects are published once, with noise, when the trial ends; no counts are shown before."
        : "Devices send their scores when the trial ends; there are no effects before."
      : `Effects need ${cohort}, and ${least} in every arm, so that no answer gives one away.`);
    if (!ended && !this.status.records && !this.plan.federated && !this.plan.release) {
      this.explained.append(" To send the first, with the trial’s ingest token:", h("code", { class: "command" }, first));
    }
  }

  drawAlarms(found) {
    const alarms = [];
    if (found?.alarm) {
      alarms.push(h("div", { class: "alarm", role: "alert" },
        h("strong", {}, ALARMS[ratioState(found.sample_ratio)] ?? "Read this before any effect."),
        h("p", {}, found.alarm)));
    }
    if (this.status.status === "ended") {
      alarms.push(h("div", { class: "has-ended", role: "status" },
        h("strong", {}, "This trial has ended."),
        h("p", {}, `It took its last record before ${moment(this.status.ended)}. These effects are final, under the plan `,
          h("code", {}, this.status.fingerprint), ".")));
    }
    const text = alarms.map((alarm) => alarm.textContent).join();
    if (text === this.alarmed) return;
    this.alarmed = text;
    this.alarms.replaceChildren(...alarms);
  }

  drawRest(found) {
    const open = this.rest.querySelector("details")?.open;
    const focused = this.rest.contains(document.activeElement);
    const decimals = (row) => places(reach(row.estimate, row.ci_lower, row.ci_upper));
    const adjusted = this.rows.some((row) => row.p_adjusted !== null);
    const rows = this.rows.map((row) => [
      named(row.outcome), named(row.arm), `${row.estimator}, ${row.se_kind}`,
      signed(row.estimate, decimals(row)), interval(row.anytime_ci_lower, row.anytime_ci_upper, decimals(row)),
      relative(row), interval(row.ci_lower, row.ci_upper, decimals(row)), chance(row.p_value),
      ...(adjusted ? [chance(row.p_adjusted)] : []),
    ]);
    const header = ["Outcome", "Arm", "Estimator", "Effect", "Interval, any time", "Relative", "Interval, one look", "p", ...(adjusted ? ["Adjusted p"] : [])];
    const notes = [...reasons(this.rows), ...found.notes];
    const summary = h("summary", {}, `All numbers: ${several(rows.length, "effect")}`);
    this.rest.replaceChildren(
      h("details", { open: open === true }, summary, table("All effects", header, rows, { class: "texts" })),
      notes.length ? h("ul", { class: "notes soft small" }, notes.map((note) => h("li", {}, note))) : "");
    if (focused) summary.focus();
  }

  drawAbout() {
    const fact = (term, ...text) => h("div", {}, h("dt", {}, term), h("dd", {}, ...text));
    this.about.replaceChildren(
      h("h2", {}, "About this trial"),
      h("dl", { class: "facts plain" },
        fact("Registered", moment(this.status.created)),
        this.status.ended === null ? null : fact("Ended", moment(this.status.ended)),
        fact("Cohort", several(this.status.cohort, cohortThing(this.plan))),
        h("div", { class: "tall" }, h("dt", {}, "Plan’s fingerprint"), h("dd", {}, h("code", {}, this.status.fingerprint)))));
  }

  drawFederated() {
    const progress = this.status.federated;
    this.federated.hidden = !progress;
    const state = JSON.stringify(progress);
    if (progress && state !== this.federatedShown) this.federated.replaceChildren(...federated(progress, this.plan).filter(Boolean));
    this.federatedShown = state;
  }

  /** For who hears the page: the effect, but not at every step of it. */
  tell(row) {
    const now = performance.now();
    if (this.told && now - this.told < HEARD_EVERY) return;
    this.told = now;
    say(document.getElementById("said"), heard(row, row.n));
  }
}

export function showTrial(view, name, refused) {
  const page = new TrialPage(view, name);
  const poll = new Poll(() => page.look(), refused);
  page.poll = poll.start();
  return () => {
    poll.stop();
    page.stop();
  };
}
