// Elements are made here and nowhere else. What is put into them is text, never markup: the names of trials, arms and
// columns are whatever people have chosen.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element: `h("p", {class: "note"}, "text", element)`. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An element of a drawing. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A name that somebody chose, kept from turning the text around it when it is written from right to left. */
export function named(text, attributes = {}) {
  return h("bdi", { class: "name", ...attributes }, text);
}

/** Change what an element says, only if it says something else: readers of the screen are not told twice. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A table inside a box that scrolls by itself, also by keyboard. */
export function table(caption, header, rows, attributes = {}) {
  const head = h("thead", {}, h("tr", {}, header.map((cell) => h("th", { scope: "col" }, cell))));
  const body = rows.map((row) =>
    h("tr", {}, row.map((cell, i) => (i === 0 ? h("th", { scope: "row" }, cell) : h("td", {}, cell)))),
  );
  const whole = h("table", attributes, h("caption", { class: "unseen" }, caption), head, h("tbody", {}, body));
  return h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": caption }, whole);
}
