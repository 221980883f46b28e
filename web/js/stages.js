// SPDX-License-Identifier: Apache-2.0
// Where a sample's time goes: one bar for each job, all on one scale, so that their lengths can be compared. The
// legend of each bar has its numbers, and is its alternative as text.

import {byId, keep, label, legend, make, say, segmented, show, stack} from "./dom.js";
import {lastPart, percent, seconds, visible} from "./format.js";
import {colourOf, earlier, shown, store} from "./store.js";

const FIXED = {read: "c1", decode: "c2", finish: "c7"};
const CONSUMER = "wait"; // a stage of the consumer, not of the workers
const OTHERS = ["c3", "c4", "c5", "c6", "c8"];
const given = new Map();
let recent = true;

function colourFor(name) {
  if (name in FIXED) return FIXED[name];
  if (!given.has(name)) given.set(name, OTHERS[given.size % OTHERS.length]);
  return given.get(name);
}

// Seconds for each delivered sample by stage. What the workers did not spend themselves (reads they did not wait for)
// is apart.
function costs(job) {
  const old = recent ? earlier(job.id) : null;
  const before = old && job.samples > old.samples ? old : null;
  const samples = job.samples - (before?.samples ?? 0);
  if (!(samples > 0)) return null;
  const then = new Map((before?.stages ?? []).map((s) => [s.name, s]));
  let away = 0,
    waited = 0;
  const parts = (job.stages ?? []).map((stage) => {
    const was = then.get(stage.name);
    const gone = (stage.away_seconds ?? 0) - (was?.away_seconds ?? 0);
    away += gone;
    const took = Math.max(0, stage.seconds - (was?.seconds ?? 0) - gone) / samples;
    if (stage.name === CONSUMER) waited = took;
    return {name: stage.name, each: stage.name === CONSUMER ? 0 : took};
  });
  return {parts, total: parts.reduce((sum, part) => sum + part.each, 0), away: away / samples, waited};
}

function bar(job) {
  return make(
    "div",
    {class: "stage-row"},
    make(
      "p",
      {class: "row-head"},
      make("i", {class: "swatch line", "aria-hidden": "true"}),
      make("span", {class: "name"}),
      make("b", {class: "total"})
    ),
    make("div", {class: "bar thick", role: "img"}),
    make("ul", {class: "legend"}),
    make("p", {class: "note"})
  );
}

function fillBar(row, {job, cost}, longest) {
  const [head, line, list, note] = row.children;
  head.firstChild.className = "swatch line c" + colourOf(job.id);
  say(head.children[1], `${lastPart(job.dataset)} · job ${job.id}`);
  say(head.children[2], seconds(cost.total));
  const parts = cost.parts.filter((part) => part.each > 0);
  stack(
    line,
    parts.map((part) => ({key: part.name, colour: colourFor(part.name), share: part.each / longest}))
  );
  label(
    line,
    `Time per stage of job ${job.id}: ` +
      parts.map((part) => `${visible(part.name, 40)} ${seconds(part.each)}`).join(", ")
  );
  legend(
    list,
    parts.map((part) => ({
      key: part.name,
      colour: colourFor(part.name),
      name: visible(part.name, 40),
      value: `${seconds(part.each)} · ${percent(part.each / cost.total)}`,
    }))
  );
  say(
    note,
    `The consumer waited ${seconds(cost.waited)} for each.` +
      (cost.away > cost.total / 1000
        ? ` Reading took ${seconds(cost.away)} more, while the workers did something else.`
        : "")
  );
}

let ready = false;

export function drawStages() {
  if (!ready) {
    ready = true;
    segmented(
      byId("stages-span"),
      [
        ["recent", "last 30 s"],
        ["all", "since start"],
      ],
      "recent",
      (value) => {
        recent = value === "recent";
        if (store.view) drawStages();
      }
    );
  }
  const list = shown()
    .map((job) => ({job, cost: costs(job)}))
    .filter((one) => one.cost !== null);
  const longest = Math.max(1e-9, ...list.map((one) => one.cost.total));
  keep(
    byId("stages-bars"),
    list,
    (one) => one.job.id,
    (one) => bar(one.job),
    (row, one) => fillBar(row, one, longest)
  );
  show(byId("stages-empty"), list.length === 0);
}
