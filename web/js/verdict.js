// SPDX-License-Identifier: Apache-2.0
// The sentence on top, of the engine or of the chosen job, and what it rests on.

import {byId, facts, keep, make, rows, say, show} from "./dom.js";
import {bytes, duration, named, number, percent, visible} from "./format.js";
import {shown, store} from "./store.js";

const CALM = ["gpu", "idle", "starting"];

function amount(help) {
  if (help.unit === "bytes") return `${bytes(help.amount)} of ${visible(help.what, 40)}`;
  if (help.unit === "times") return `${visible(help.what, 40)} ${number(help.amount)} times as fast`;
  return `${number(help.amount)} ${visible(help.what, 40)}`;
}

function big(pairs) {
  keep(
    byId("verdict-big"),
    pairs,
    (pair) => pair[0],
    (pair) => make("div", {}, make("dd"), make("dt", {}, pair[0])),
    (entry, pair) => say(entry.firstChild, pair[1])
  );
}

// What is said in large letters, and the reasons and conditions behind it.
export function halves(text) {
  const at = text.search(/ \(|; /);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at).replace(/^;? /, "")];
}

// Its numbers change each second and with them its lines: what is below it stays where it is.
const held = {};
function hold(element, of) {
  if (held.of !== of || held.wide !== innerWidth) {
    Object.assign(held, {of, wide: innerWidth, most: 0});
    element.style.minHeight = "";
  }
  held.most = Math.max(held.most, element.offsetHeight);
  element.style.minHeight = held.most + "px";
}

let announced = "";

export function drawVerdict() {
  const view = store.view;
  const jobs = shown();
  const one = store.chosen !== "all" ? jobs[0] : null;
  const verdict = (one ? one.verdict : view.verdict) ?? {kind: "starting", text: "", stall: 0};
  const text = visible(verdict.text || "starting: nothing was measured yet", 600);
  say(byId("verdict-h"), one ? `Verdict on job ${one.id}` : "Verdict");
  const [first, rest] = halves(text.replaceAll(" %", "\u202f%"));
  say(byId("verdict-text"), first);
  say(byId("verdict-rest"), rest);
  show(byId("verdict-rest"), rest !== "");
  byId("verdict").dataset.mood = CALM.includes(verdict.kind) ? "calm" : "warn";
  if (announced !== verdict.kind) {
    // once for each change of kind: its numbers change every second
    announced = verdict.kind;
    say(byId("verdict-live"), text);
  }
  const rate = jobs.reduce((sum, job) => sum + (job.rate_now || 0), 0);
  // Before there is a verdict, the mean of what the jobs say themselves.
  const mean = jobs.length ? jobs.reduce((sum, job) => sum + (job.stall_now || 0), 0) / jobs.length : 0;
  const stall = verdict.text ? verdict.stall : mean;
  const epoch =
    one && one.epoch_samples ? [["of epoch " + one.epoch, percent(one.epoch_done / one.epoch_samples)]] : [];
  big([
    ["samples/s", number(rate)],
    ["stall", percent(stall)],
    ...epoch,
    ...(one ? [] : [["of " + number(view.engine.cpus) + " CPUs busy", percent(view.engine.cpu_share_now)]]),
  ]);
  hold(byId("verdict-text").parentElement, store.chosen); // the figures beside it take of its width
  facts(
    byId("verdict-numbers"),
    Object.entries(verdict.numbers ?? {}).map(([name, value]) => named(name, value))
  );
  const help = verdict.help ?? [];
  rows(
    byId("verdict-help").tBodies[0],
    help.map((h, i) => ({key: i, cells: [amount(h), number(h.rate), percent(h.stall)]})),
    1,
    true
  );
  show(byId("verdict-help"), help.length > 0);
  show(byId("verdict-nohelp"), help.length === 0);
  document.title = `${visible(text.split(":")[0], 40)} · ${number(rate)}/s · Penstock`;
}

export function drawEngine() {
  const {engine, version, instance} = store.view;
  const workers =
    engine.active_workers === engine.workers || engine.active_workers === undefined
      ? number(engine.workers)
      : `${number(engine.active_workers)} of ${number(engine.workers)}`;
  say(
    byId("engine"),
    `up ${duration(engine.seconds)} · ${workers} workers · ${bytes(engine.used_bytes)} of ${bytes(engine.memory_bytes)}`
  );
  say(byId("build"), `penstock ${visible(version, 40)} · instance ${visible(instance, 40)}`);
}
