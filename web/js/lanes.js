// SPDX-License-Identifier: Apache-2.0
// Each job's samples by what they cost, with the cut-off beyond which they go to the slow lane. The columns are the
// engine's buckets, all of one width; inside a bucket the cut-off stands at its logarithm. Their heights are
// logarithms, too: it is the few slow ones that matter here.

import {byId, draw, facts, keep, label, make, say, show} from "./dom.js";
import {lastPart, number, percent, seconds, short} from "./format.js";
import {colourOf, shown, store} from "./store.js";

const WIDE = 560,
  TALL = 120,
  BASE = 22,
  HEAD = 24;
const MOST = 6;

function position(bounds, value, width) {
  let i = bounds.findIndex((bound) => value <= bound);
  if (i < 0) i = bounds.length;
  const low = i > 0 ? bounds[i - 1] : bounds[0] / 2.5;
  const high = i < bounds.length ? bounds[i] : low * 10;
  const inside = value > 0 ? Math.log(value / low) / Math.log(high / low) : 0;
  return (i + Math.min(1, Math.max(0, inside))) * width;
}

function histogram(bounds) {
  const svg = draw("svg", {viewBox: `0 0 ${WIDE} ${HEAD + TALL + BASE}`, "aria-hidden": "true"});
  const width = WIDE / (bounds.length + 1);
  const bars = [...bounds, 0].map((_, i) =>
    svg.appendChild(draw("rect", {x: (i * width + 1).toFixed(1), width: (width - 2).toFixed(1)}))
  );
  svg.append(draw("line", {x1: 0, x2: WIDE, y1: HEAD + TALL, y2: HEAD + TALL, class: "axis"}));
  bounds.forEach((bound, i) => {
    if (Math.abs(Math.log10(bound) - Math.round(Math.log10(bound))) > 1e-6) return; // powers of ten only
    const t = svg.appendChild(
      draw("text", {x: ((i + 1) * width).toFixed(1), y: HEAD + TALL + 18, "text-anchor": "middle"})
    );
    t.textContent = seconds(bound).replace(/\.0+(?=\D)/, "");
    svg.append(
      draw("line", {x1: (i + 1) * width, x2: (i + 1) * width, y1: HEAD + TALL, y2: HEAD + TALL + 4, class: "axis"})
    );
  });
  const rest = svg.appendChild(draw("rect", {class: "slow"})); // of the bucket that the cut-off parts
  const cut = svg.appendChild(draw("g", {class: "cut"}));
  cut.append(draw("line", {y1: HEAD - 4, y2: HEAD + TALL}), draw("text", {y: 16}));
  return Object.assign(svg, {bars, cut, rest, step: width});
}

function lane(bounds) {
  const box = make("div", {class: "plot-box", role: "img"}, histogram(bounds));
  return make(
    "div",
    {class: "lane"},
    make("h3", {}, make("i", {class: "swatch line", "aria-hidden": "true"}), make("span")),
    box,
    make("dl", {class: "facts"})
  );
}

function fillLane(element, job, bounds) {
  const [head, box, list] = element.children;
  const lanes = job.lanes,
    svg = box.firstChild;
  const counts = svg.bars.map((_, i) => lanes.cost_buckets?.[i] ?? 0);
  const most = Math.max(10, ...counts),
    all = counts.reduce((sum, n) => sum + n, 0);
  head.firstChild.className = "swatch line c" + colourOf(job.id);
  say(head.children[1], `${lastPart(job.dataset)} · job ${job.id}`);
  const cutoff = lanes.cutoff_seconds || 0;
  const at = cutoff > 0 ? position(bounds, cutoff, svg.step) : Infinity;
  svg.bars.forEach((bar, i) => {
    const tall = counts[i] > 0 ? TALL * (0.04 + (0.96 * Math.log(counts[i])) / Math.log(most)) : 0;
    bar.setAttribute("y", (HEAD + TALL - tall).toFixed(1));
    bar.setAttribute("height", tall.toFixed(1));
    bar.setAttribute("class", i * svg.step >= at - 0.5 ? "slow" : "fast");
  });
  const parted = cutoff > 0 ? svg.bars[Math.floor(at / svg.step)] : null;
  const right = (Math.floor(at / svg.step) + 1) * svg.step - 1;
  svg.rest.setAttribute("x", parted ? at.toFixed(1) : 0);
  svg.rest.setAttribute("width", parted ? Math.max(0, right - at).toFixed(1) : 0);
  for (const side of ["y", "height"]) svg.rest.setAttribute(side, parted?.getAttribute(side) ?? 0);
  svg.cut.setAttribute("visibility", cutoff > 0 ? "visible" : "hidden");
  if (cutoff > 0) {
    const [line, words] = svg.cut.children;
    line.setAttribute("x1", at.toFixed(1));
    line.setAttribute("x2", at.toFixed(1));
    words.setAttribute("text-anchor", at > WIDE * 0.6 ? "end" : "start");
    words.setAttribute("x", (at + (at > WIDE * 0.6 ? -4 : 4)).toFixed(1));
    say(words, `cut-off ${seconds(cutoff)}`);
  }
  const filled = counts
    .map((n, i) => [n, i])
    .filter((one) => one[0] > 0)
    .map(
      ([n, i]) =>
        (i < bounds.length ? `up to ${seconds(bounds[i])}: ` : `more than ${seconds(bounds[bounds.length - 1])}: `) +
        number(n)
    );
  label(
    box,
    `Samples of job ${job.id} by cost. ${filled.join(", ")}. ` +
      (cutoff > 0 ? `Cut-off at ${seconds(cutoff)}.` : "No cut-off.")
  );
  facts(list, [
    ["samples", short(all)],
    ["slow lane", short(lanes.slow)],
    ["parked", short(lanes.parked)],
    ["started early", short(lanes.early)],
    ["stragglers", short(lanes.stragglers)],
    ["prediction error", lanes.prediction_error ? percent(lanes.prediction_error) : "–"],
  ]);
}

export function drawLanes() {
  const bounds = store.view.stage_bounds ?? [];
  const jobs = bounds.length ? shown().filter((job) => job.lanes?.cost_buckets?.some((n) => n > 0)) : [];
  keep(
    byId("lanes-list"),
    jobs.slice(0, MOST),
    (job) => job.id + " " + bounds.join(),
    () => lane(bounds),
    (element, job) => fillLane(element, job, bounds)
  );
  show(byId("lanes-empty"), jobs.length === 0);
  if (jobs.length === 0) say(byId("lanes-empty"), "Shown when a job has prepared its first samples.");
  else if (jobs.length > MOST) {
    show(byId("lanes-empty"), true);
    say(byId("lanes-empty"), `${jobs.length - MOST} more: choose a job above to see its own.`);
  }
}
