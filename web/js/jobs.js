// SPDX-License-Identifier: Apache-2.0
// The jobs as cards, of which one can be chosen, and everything that is counted of them as a table.

import {byId, keep, make, say, show} from "./dom.js";
import {bytes, duration, lastPart, number, percent, seconds, short, visible} from "./format.js";
import {colourOf, jobName, shown, store} from "./store.js";

let changed = null;

function card(id) {
  const input = make("input", {type: "radio", name: "job", value: id});
  input.addEventListener("change", () => {
    store.chosen = id;
    changed();
  });
  const meter = make("span", {class: "meter"}, make("span", {class: "fill"}));
  return make(
    "label",
    {class: "card"},
    input,
    make(
      "span",
      {class: "card-head"},
      make("i", {class: "swatch", "aria-hidden": "true"}),
      make("span", {class: "name"}),
      make("span", {class: "aside"})
    ),
    make("span", {class: "card-row"}, make("span", {class: "value"}), make("span", {class: "sub"})),
    meter,
    make("span", {class: "card-say"})
  );
}

function fillCard(element, what) {
  const [head, row, meter, sentence] = [...element.children].slice(1);
  element.firstChild.checked = store.chosen === what.id;
  head.children[0].className = "swatch " + what.swatch;
  say(head.children[1], what.name);
  say(head.children[2], what.aside);
  say(row.children[0], what.value);
  say(row.children[1], what.sub);
  meter.hidden = what.done === null;
  const width = (100 * Math.min(1, what.done ?? 0)).toFixed(1) + "%";
  if (meter.firstChild.style.width !== width) meter.firstChild.style.width = width;
  say(sentence, what.sentence);
}

function ofJob(job) {
  const state = job.state && job.state !== "running" ? visible(job.state, 20) + " · " : "";
  return {
    id: String(job.id),
    name: lastPart(job.dataset),
    aside: jobName(job) + (job.epoch_samples ? ` · epoch ${number(job.epoch)}` : ""),
    swatch: "line c" + colourOf(job.id),
    value: number(job.rate_now) + "/s",
    sub: `stall ${percent(job.stall_now)} · ${number(job.ready)} of ${number(job.ready_depth)} ready`,
    done: job.epoch_samples ? job.epoch_done / job.epoch_samples : null,
    sentence: state + visible(job.verdict?.text ?? "", 160),
  };
}

function ofAll(jobs) {
  const rate = jobs.reduce((sum, job) => sum + (job.rate_now || 0), 0);
  return {
    id: "all",
    name: "All jobs",
    aside: String(jobs.length),
    swatch: "none",
    value: number(rate) + "/s",
    sub: `${short(jobs.reduce((sum, job) => sum + (job.samples || 0), 0))} samples so far`,
    done: null,
    sentence: "the engine as a whole",
  };
}

const hits = (job, form) => job.hits?.[form];
const LINES = [
  ["dataset", (j) => visible(j.dataset, 200)],
  ["pipeline", (j) => visible(j.pipeline, 300)],
  ["process", (j) => `${visible(j.pid, 12)} of user ${visible(j.uid, 12)}`],
  ["rank", (j) => `${number(j.rank)} of ${number(j.world)}`],
  ["batch", (j) => number(j.batch)],
  ["order", (j) => visible([j.order, j.sampling].filter(Boolean).join(", "), 60)],
  ["group", (j) => visible(j.group || "–", 60)],
  ["epoch", (j) => `${number(j.epoch)}, ${short(j.epoch_done)} of ${short(j.epoch_samples)}`],
  ["running for", (j) => duration(j.seconds)],
  ["samples", (j) => number(j.samples)],
  ["batches", (j) => number(j.batches)],
  ["skipped", (j) => number(j.skipped)],
  ["warnings", (j) => number(j.warnings)],
  ["read", (j) => bytes(j.bytes_read)],
  ["delivered", (j) => bytes(j.bytes_delivered)],
  ["waits", (j) => `${number(j.waits)}, ${seconds(j.wait_seconds)} in all`],
  ["wait, median and 99 %", (j) => `${seconds(j.wait_p50_seconds)}, ${seconds(j.wait_p99_seconds)}`],
  ["prepared", (j) => number(j.preparations)],
  ["shared with other jobs", (j) => number(j.shared)],
  ["adopted from other jobs", (j) => number(j.adopted)],
  ["substituted", (j) => number(j.substitutions)],
  [
    "found encoded, decoded, augmented",
    (j) => ["encoded", "decoded", "augmented"].map((f) => number(hits(j, f))).join(", "),
  ],
  ["found on disk, remote", (j) => ["disk", "remote"].map((f) => number(hits(j, f))).join(", ")],
  ["not found", (j) => number(j.misses)],
];

function table(jobs) {
  const t = byId("jobs-table");
  keep(
    t.tHead,
    [jobs],
    () => jobs.map((j) => j.id).join(),
    () => make("tr", {}, make("td"), ...jobs.map((job) => make("th", {scope: "col"}, jobName(job))))
  );
  keep(
    t.tBodies[0],
    LINES,
    (line) => line[0] + jobs.map((j) => j.id).join(),
    (line) => make("tr", {}, make("th", {scope: "row"}, line[0]), ...jobs.map(() => make("td"))),
    (row, line) => jobs.forEach((job, i) => say(row.children[i + 1], line[1](job)))
  );
}

export function drawJobs(redraw) {
  changed = redraw;
  const jobs = store.view.jobs;
  const cards = jobs.map(ofJob);
  if (jobs.length > 1) cards.unshift(ofAll(jobs));
  else if (cards.length) cards[0].id = store.chosen === "all" ? "all" : cards[0].id;
  show(byId("jobs-empty"), jobs.length === 0);
  show(byId("jobs-list"), jobs.length > 0);
  show(byId("jobs-more"), jobs.length > 0);
  keep(
    byId("jobs-list"),
    cards,
    (what) => what.id,
    (what) => card(what.id),
    fillCard
  );
  if (byId("jobs-more").open) table(shown());
}
