// SPDX-License-Identifier: Apache-2.0
// What the model says: predicted beside measured, and the triangle of all splits of the cache among the three forms.
// A point's distance from the side opposite a corner is the share of that corner's form. The colours go from little
// to much of the accent.

import {byId, draw, facts, keep, label, make, rows, say, show} from "./dom.js";
import {number, percent, visible} from "./format.js";
import {store} from "./store.js";

const WIDE = 300,
  SIDE = 220,
  TALL = (SIDE * Math.sqrt(3)) / 2,
  LEFT = (WIDE - SIDE) / 2,
  TOP = 28;
const BINDING = {
  cpu: "the CPUs",
  source: "the source",
  memory: "the memory",
  consumer: "the consumer",
  disk: "the disk tier",
  remote: "the remote tier",
};

// Corners: encoded at the left, decoded on top, augmented at the right.
function place(e, d, a) {
  return [LEFT + SIDE * (a + d / 2), TOP + TALL * (1 - d)];
}

function points(list) {
  return list
    .map((p) =>
      place(...p)
        .map((x) => x.toFixed(1))
        .join(",")
    )
    .join(" ");
}

// Each small triangle of the lattice with the mean of its corners.
function cells(table) {
  const of = new Map(
    table.map((row) => [
      row
        .slice(0, 2)
        .map((x) => Math.round(x * 10))
        .join(),
      row[3],
    ])
  );
  const found = [];
  const add = (corners) => {
    const values = corners.map(([e, d]) => of.get(`${e},${d}`));
    if (values.some((v) => v === undefined)) return;
    found.push({
      corners: corners.map(([e, d]) => [e / 10, d / 10, (10 - e - d) / 10]),
      value: values.reduce((s, v) => s + v, 0) / 3,
    });
  };
  for (let e = 0; e < 10; e++)
    for (let d = 0; e + d < 10; d++) {
      add([
        [e, d],
        [e + 1, d],
        [e, d + 1],
      ]);
      if (e + d < 9)
        add([
          [e + 1, d],
          [e, d + 1],
          [e + 1, d + 1],
        ]);
    }
  return found;
}

function text(svg, x, y, anchor, words) {
  const t = draw("text", {x, y, "text-anchor": anchor});
  t.textContent = words;
  svg.append(t);
}

function picture(table, low, high) {
  const svg = draw("svg", {viewBox: `0 0 ${WIDE} ${Math.ceil(TALL + TOP + 24)}`, "aria-hidden": "true"});
  for (const cell of cells(table)) {
    const level = high > low ? (cell.value - low) / (high - low) : 1;
    const polygon = svg.appendChild(draw("polygon", {points: points(cell.corners), class: "cell"}));
    polygon.style.setProperty("--level", (100 * level).toFixed(1) + "%");
  }
  svg.append(
    draw("polygon", {
      points: points([
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
      ]),
      class: "edge",
    })
  );
  text(svg, LEFT, TOP + TALL + 17, "middle", "encoded");
  text(svg, LEFT + SIDE, TOP + TALL + 17, "middle", "augmented");
  text(svg, LEFT + SIDE / 2, TOP - 14, "middle", "decoded");
  const best = draw("path", {class: "best", d: ""});
  const now = draw("g", {class: "now"});
  now.append(draw("circle", {r: 8, class: "halo"}), draw("circle", {r: 6}), draw("circle", {r: 1.5, class: "dot"}));
  svg.append(best, now);
  return {svg, best, now};
}

// What the model says of the place under the pointer.
function hover(holder) {
  holder.addEventListener("pointermove", (event) => {
    const box = holder.firstChild?.getBoundingClientRect();
    if (!box || !drawn) return;
    const x = ((event.clientX - box.left) * WIDE) / box.width,
      y = ((event.clientY - box.top) * WIDE) / box.width;
    let near = null,
      distance = 15;
    for (const row of drawn.table) {
      const [px, py] = place(row[0], row[1], row[2]);
      const far = Math.hypot(px - x, py - y);
      if (far < distance) [near, distance] = [row, far];
    }
    say(byId("triangle-at"), near ? `${split(near)}: ${number(near[3])}/s` : "");
  });
  holder.addEventListener("pointerleave", () => say(byId("triangle-at"), ""));
}

function split(row) {
  return (
    ["encoded", "decoded", "augmented"]
      .map((form, i) => [form, row[i]])
      .filter((one) => one[1] > 0.0005)
      .map((one) => `${percent(one[1])} ${one[0]}`)
      .join(", ") || "nothing"
  );
}

// Of those that are as good as the best, the one nearest to what there is.
function bestOf(table, high, now) {
  const far = (row) => now.reduce((sum, x, i) => sum + (x - row[i]) ** 2, 0);
  return table.filter((row) => row[3] >= high * 0.999).reduce((a, b) => (far(b) < far(a) ? b : a));
}

let drawn = null;

function triangle(model) {
  const table = (model.triangle ?? []).filter((row) => Array.isArray(row) && row.length === 4);
  const some = table.length > 0;
  show(byId("triangle").parentElement, some);
  show(byId("triangle-more"), some);
  if (!some) return;
  const rates = table.map((row) => row[3]);
  const low = Math.min(...rates),
    high = Math.max(...rates);
  const key = JSON.stringify(table);
  if (!drawn) hover(byId("triangle"));
  if (drawn?.key !== key) {
    drawn = {key, table, ...picture(table, low, high)};
    byId("triangle").replaceChildren(drawn.svg);
  }
  const now = ["encoded", "decoded", "augmented"].map((form) => model.split?.[form] ?? 0);
  const total = now[0] + now[1] + now[2];
  const of = now.map((x) => (total > 0 ? x / total : 0));
  const best = bestOf(table, high, of);
  const [bx, by] = place(...best);
  const [nx, ny] = place(...of);
  drawn.best.setAttribute("d", `M${bx} ${by - 7}l7 7l-7 7l-7 -7z`);
  drawn.now.setAttribute("transform", `translate(${nx.toFixed(1)} ${ny.toFixed(1)})`);
  drawn.now.setAttribute("visibility", total > 0 ? "visible" : "hidden");
  facts(byId("triangle-facts"), [
    [
      "◎ present split",
      total > 0 ? split(now) + (total < 0.995 ? `, ${percent(1 - total)} unused` : "") : "nothing kept",
    ],
    ["◆ best split", `${split(best)}: ${number(best[3])}/s`],
  ]);
  say(byId("ramp-low"), number(low));
  say(byId("ramp-high"), number(high) + "/s");
  label(
    byId("triangle"),
    `Predicted samples per second by split: from ${number(low)} to ${number(high)}. ` +
      `Present split: ${split(now)}. Best: ${split(best)}.`
  );
  if (byId("triangle-more").open)
    rows(
      byId("triangle-table").tBodies[0],
      [...table]
        .sort((a, b) => b[3] - a[3])
        .map((row) => ({
          key: row.slice(0, 3).join(),
          cells: [percent(row[0]), percent(row[1]), percent(row[2]), number(row[3])],
        })),
      0
    );
}

function bullet(predicted, measured) {
  const most = Math.max(predicted, measured, 1e-9);
  keep(
    byId("model-bars"),
    [
      ["predicted", predicted, "soft"],
      ["measured", measured, "accent"],
    ],
    (one) => one[0],
    (one) =>
      make(
        "div",
        {class: "bullet-row"},
        make("span", {class: "name"}, one[0]),
        make("span", {class: "track"}, make("span", {class: "part " + one[2]})),
        make("b")
      ),
    (row, one) => {
      row.children[1].firstChild.style.width = ((100 * one[1]) / most).toFixed(1) + "%";
      say(row.children[2], number(one[1]) + "/s");
    }
  );
}

export function drawModel() {
  const model = store.view.model;
  show(byId("model-body"), Boolean(model));
  show(byId("model-empty"), !model);
  if (!model) return;
  bullet(model.predicted || 0, model.measured_now || 0);
  const binding = BINDING[model.binding] ?? visible(model.binding, 40);
  const off =
    model.predicted > 0 && model.measured_now > 0
      ? ` Measured is ${percent(model.measured_now / model.predicted)} of it.`
      : "";
  say(byId("model-binding"), `What limits it, by the model: ${binding}.${off}`);
  triangle(model);
}
