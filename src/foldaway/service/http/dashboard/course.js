// The course of an effect: a line with its anytime-valid band, over the records folded.

import { h, s, table } from "./dom.js";
import { between, compact, count, interval, number, places, reach, signed } from "./format.js";
import { decimalsOf, rangeOf, scale, ticks } from "./scale.js";

const HEIGHT = 320;
const MARGIN = { top: 14, right: 16, bottom: 44 };
// The first intervals are so wide that next to them all later ones would be a thin line: they may leave the picture,
// which reaches to so many times the present interval.
const REACH = 5;

export class Course {
  constructor() {
    this.points = [];
    this.chosen = null;
    this.readout = h("p", { class: "readout" });
    this.box = h("div", {
      class: "chart",
      tabindex: "0",
      role: "slider",
      "aria-label": "Step through the course of the effect with the arrow keys",
      "aria-valuemin": "0",
      onkeydown: (event) => this.#key(event),
      onpointermove: (event) => this.#point(event),
      onpointerleave: () => this.#choose(null),
      onblur: () => this.#choose(null),
    });
    this.rows = h("div", {});
    this.more = h("details", { ontoggle: () => this.#tabulate() }, h("summary", {}, "The same as a table"), this.rows);
    this.element = h("div", {}, this.readout, this.box, this.more);
    this.width = 0;
    this.resizing = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width !== this.width) {
        this.width = width;
        this.#draw();
      }
    });
    this.resizing.observe(this.box);
  }

  stop() {
    this.resizing.disconnect();
  }

  /** Show points ({records, estimate, lower, upper}, in order); the last is now, or the end. */
  show(points, final) {
    this.final = final;
    const at = this.chosen === null ? null : this.points[this.chosen]?.records;
    this.points = points.filter((point) => point.estimate !== null);
    const index = this.points.findIndex((point) => point.records === at);
    this.chosen = index < 0 ? null : index;
    this.#draw();
    this.#tabulate();
  }

  #draw() {
    if (!this.width || !this.points.length) {
      this.box.replaceChildren();
      this.#tell();
      return;
    }
    const now = this.points.at(-1);
    const range = rangeOf(within(this.points.flatMap((p) => [p.lower, p.upper, p.estimate]), now));
    const yTicks = ticks(range, 5);
    const yText = yTicks.map((value) => number(value, decimalsOf(yTicks)));
    const left = 14 + 7.4 * Math.max(...yText.map((text) => text.length));
    const [right, bottom] = [this.width - MARGIN.right, HEIGHT - MARGIN.bottom];
    const first = this.points.length > 1 ? this.points[0].records : 0;
    this.x = scale([first, now.records], [left, right - 6]);
    this.y = scale(range, [bottom, MARGIN.top]);
    const xTicks = ticks([first, now.records], Math.max(2, Math.min(7, Math.floor((right - left) / 75))));

    const drawing = s("svg", { width: this.width, height: HEIGHT, "aria-hidden": "true", focusable: "false" });
    drawing.append(
      s("clipPath", { id: "frame" },
        s("rect", { x: left - 8, y: MARGIN.top, width: right - left + 16, height: bottom - MARGIN.top })),
      ...yTicks.map((value, i) => s("g", {},
        s("line", { class: value === 0 ? "zero" : "rule", x1: left, x2: right, y1: this.y(value), y2: this.y(value) }),
        s("text", { class: "tick", x: left - 8, y: this.y(value), "text-anchor": "end", dy: "0.32em" }, yText[i]))),
      ...xTicks.map((value) => s("text", {
        class: "tick", x: this.x(value), y: bottom + 18, "text-anchor": this.x(value) > right - 24 ? "end" : "middle",
      }, compact(value))),
      s("text", { class: "axis", x: (left + right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, "records folded"),
      s("g", { "clip-path": "url(#frame)" },
        s("path", { class: "band", d: this.#band() }),
        s("path", { class: "line", d: path(this.points.map((p) => [this.x(p.records), this.y(p.estimate)])) })),
      ...this.#whisker(now),
    );
    this.marker = s("g", { class: "marker", visibility: "hidden" },
      s("line", { class: "cross", y1: MARGIN.top, y2: bottom }), s("circle", { r: 5 }));
    drawing.append(this.marker);
    this.box.replaceChildren(drawing);
    this.#tell();
  }

  #band() {
    // From the first point on, as the line is: an interval that could not be told yet has no end on either side.
    const known = this.points.some(bounded) ? this.points : [];
    const over = known.map((point) => [this.x(point.records), this.#end(point.upper, MARGIN.top)]);
    const under = known.map((point) => [this.x(point.records), this.#end(point.lower, HEIGHT - MARGIN.bottom)]).reverse();
    return known.length > 1 ? `${path([...over, ...under])}Z` : "";
  }

  /** Where an interval ends: at the edge of the picture, if it has no end on that side. */
  #end(value, edge) {
    return value === null ? edge : this.y(value);
  }

  /** Where the effect stands now, with its interval. */
  #whisker(now) {
    const x = this.x(now.records);
    const dot = s("circle", { class: "now", cx: x, cy: this.y(now.estimate), r: 5 });
    if (!bounded(now)) return [dot];
    const ends = { y1: this.#end(now.lower, HEIGHT - MARGIN.bottom), y2: this.#end(now.upper, MARGIN.top) };
    return [s("line", { class: "whisker", x1: x, x2: x, ...ends }), dot];
  }

  #key(event) {
    const last = this.points.length - 1;
    const at = this.chosen ?? last;
    const page = Math.max(1, Math.round(last / 10));
    const to = {
      ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
      PageDown: at - page, PageUp: at + page, Home: 0, End: last,
    }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.#choose(Math.max(0, Math.min(last, to)));
  }

  #point(event) {
    if (!this.x || !this.points.length) return;
    const records = this.x.back(event.clientX - this.box.getBoundingClientRect().left);
    const distance = (point) => Math.abs(point.records - records);
    const near = this.points.reduce((best, point, i) => (distance(point) < distance(this.points[best]) ? i : best), 0);
    this.#choose(near);
  }

  #choose(index) {
    this.chosen = index;
    this.#tell();
  }

  #tell() {
    const index = this.chosen ?? this.points.length - 1;
    const point = this.points[index];
    if (!point) return;
    const decimals = places(reach(point.estimate, point.lower, point.upper));
    const sure = !bounded(point) ? "" : `, ${between(point.lower, point.upper, decimals)}`;
    const text = `${signed(point.estimate, decimals)}${sure}`;
    const when = this.chosen === null ? (this.final ? "At the end" : "Now") : "Then";
    this.readout.textContent = `${when}, after ${count(point.records)} records: ${text}`;
    this.box.setAttribute("aria-valuemax", String(this.points.length - 1));
    this.box.setAttribute("aria-valuenow", String(index));
    this.box.setAttribute("aria-valuetext", `after ${count(point.records)} records, ${text}`);
    if (!this.marker) return;
    this.marker.setAttribute("visibility", this.chosen === null ? "hidden" : "visible");
    const [line, circle] = this.marker.children;
    line.setAttribute("x1", this.x(point.records));
    line.setAttribute("x2", this.x(point.records));
    circle.setAttribute("cx", this.x(point.records));
    circle.setAttribute("cy", this.y(point.estimate));
  }

  #tabulate() {
    if (!this.more.open) return;
    const last = this.points.at(-1);
    const decimals = places(reach(last?.estimate, last?.lower, last?.upper));
    const rows = this.points.map((point) => [
      count(point.records), signed(point.estimate, decimals), interval(point.lower, point.upper, decimals),
    ]).reverse();
    const held = this.rows.firstElementChild;
    const made = table("The course of the effect", ["Records", "Effect", "Interval, valid at any time"], rows);
    const top = held?.scrollTop ?? 0;
    const focused = held !== null && held === document.activeElement;
    this.rows.replaceChildren(made);
    made.scrollTop = top;
    if (focused) made.focus();
  }
}

/** Numbers, none farther from where the effect is now than the picture reaches. */
function within(values, now) {
  if (!bounded(now)) return values;
  const far = REACH * reach(now.estimate, now.lower, now.upper);
  return values.filter((value) => value !== null).map((value) => Math.max(now.estimate - far, Math.min(now.estimate + far, value)));
}

/** Whether there is an interval, if only on one side. */
const bounded = (point) => point.lower !== null || point.upper !== null;

const path = (places) => places.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

