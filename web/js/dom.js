// SPDX-License-Identifier: Apache-2.0
// The few things the panels need of the document. Text goes in as text only; elements are kept between updates, so
// that focus, selection and open details stay where they are.

const SVG = "http://www.w3.org/2000/svg";

export function byId(id) {
  return document.getElementById(id);
}

export function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

export function draw(tag, attributes = {}) {
  const e = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, yes) {
  if (element.hidden === yes) element.hidden = !yes;
}

export function label(element, text) {
  if (element.getAttribute("aria-label") !== text) element.setAttribute("aria-label", text);
}

// One child for each item, in their order: made by create(item) the first time its key is seen, then given to update.
export function keep(parent, items, keyOf, create, update) {
  const known = (parent.kept ??= new Map());
  const seen = new Set();
  let before = null;
  for (const item of items) {
    const key = String(keyOf(item));
    if (seen.has(key)) continue;
    seen.add(key);
    let child = known.get(key);
    if (!child) known.set(key, (child = create(item)));
    const place = before ? before.nextSibling : parent.firstChild;
    if (child !== place) parent.insertBefore(child, place);
    update?.(child, item);
    before = child;
  }
  for (const [key, child] of known)
    if (!seen.has(key)) {
      known.delete(key);
      child.remove();
    }
}

// Rows of cells that are strings; the columns from `numbers` on are numbers, aligned to the right. The first can be a
// heading.
export function rows(body, lines, numbers, heading = false) {
  keep(
    body,
    lines,
    (line) => line.key,
    (line) => {
      const cells = line.cells.map((_, i) => (heading && i === 0 ? make("th", {scope: "row"}) : make("td")));
      cells.forEach((cell, i) => i >= numbers && cell.classList.add("n"));
      return make("tr", {}, ...cells);
    },
    (row, line) => line.cells.forEach((text, i) => say(row.children[i], text))
  );
}

// Terms and their values.
export function facts(list, pairs) {
  keep(
    list,
    pairs,
    (pair) => pair[0],
    (pair) => make("div", {}, make("dt", {}, pair[0]), make("dd")),
    (entry, pair) => say(entry.lastChild, pair[1])
  );
}

// A choice of one, as native radio buttons: arrow keys work by themselves.
export function segmented(fieldset, choices, chosen, changed) {
  for (const [value, text] of choices) {
    const input = make("input", {type: "radio", name: fieldset.id, value});
    input.checked = value === chosen;
    input.addEventListener("change", () => changed(value));
    fieldset.append(make("label", {}, input, make("span", {}, text)));
  }
}

// A stacked bar. Parts: {key, share, colour (a class)}.
export function stack(bar, parts) {
  keep(
    bar,
    parts.filter((part) => part.share > 0.0005), // less is not to be seen
    (part) => part.key,
    (part) => make("span", {class: "part " + part.colour}),
    (span, part) => {
      const width = (100 * Math.min(1, part.share)).toFixed(2) + "%";
      if (span.style.width !== width) span.style.width = width;
    }
  );
}

// Its legend. Items: {key, colour, name, value}.
export function legend(list, items) {
  keep(
    list,
    items,
    (item) => item.key,
    (item) =>
      make(
        "li",
        {},
        make("i", {class: "swatch " + item.colour, "aria-hidden": "true"}),
        make("span", {class: "who"}),
        make("b")
      ),
    (entry, item) => {
      say(entry.children[1], item.name);
      say(entry.children[2], item.value);
    }
  );
}
