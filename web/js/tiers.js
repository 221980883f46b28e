// SPDX-License-Identifier: Apache-2.0
// Tiers, sources and bad samples: what comes from outside the process, and what went wrong with it.

import {byId, facts, keep, make, rows, say, show} from "./dom.js";
import {bytes, clock, number, percent, short, visible} from "./format.js";
import {store} from "./store.js";

function disk(tier) {
  if (!tier)
    return {
      state: "none",
      word: "not used",
      hint: "penstock serve --disk DIR:BYTES keeps samples on a local disk, too",
      facts: [],
    };
  return {
    state: tier.off ? "bad" : "good",
    word: tier.off ? "off after errors" : "in use",
    hint: "",
    facts: [
      ["holds", `${bytes(tier.bytes)} of ${bytes(tier.limit_bytes)}`],
      ["samples", short(tier.entries)],
      ["written", short(tier.written)],
      ["evicted", short(tier.evicted)],
      ["dropped", short(tier.dropped)],
      ["damaged", short(tier.damaged)],
      ["errors", short(tier.errors)],
    ],
  };
}

function remote(tier) {
  if (!tier)
    return {
      state: "none",
      word: "not used",
      hint: "penstock serve --remote URL shares samples between machines",
      facts: [],
    };
  const asked = (tier.hits || 0) + (tier.misses || 0);
  return {
    state: tier.open ? "bad" : "good",
    word: tier.open ? "not asked now: it failed" : "in use",
    hint: "",
    facts: [
      ["found there", asked ? `${short(tier.hits)} of ${short(asked)}, ${percent(tier.hits / asked)}` : "–"],
      ["errors", short(tier.errors)],
      ["speed", tier.bytes_per_second ? bytes(tier.bytes_per_second) + "/s" : "–"],
    ],
  };
}

function tier(name) {
  return make(
    "div",
    {class: "tier"},
    make("h3", {}, name, " ", make("span", {class: "state"})),
    make("p", {class: "empty"}),
    make("dl", {class: "facts"})
  );
}

export function drawTiers() {
  const tiers = store.view.tiers ?? {};
  keep(
    byId("tiers-body"),
    [
      ["Disk", disk(tiers.disk)],
      ["Remote", remote(tiers.remote)],
    ],
    (one) => one[0],
    (one) => tier(one[0]),
    (element, [, what]) => {
      const [head, hint, list] = element.children;
      head.lastChild.dataset.state = what.state;
      say(head.lastChild, what.word);
      say(hint, what.hint);
      show(hint, what.hint !== "");
      facts(list, what.facts);
    }
  );
}

export function drawSources() {
  const sources = store.view.sources ?? [];
  rows(
    byId("sources-table").tBodies[0],
    sources.map((s) => ({
      key: s.kind,
      cells: [
        visible(s.kind, 20),
        bytes(s.bytes_per_second_now) + "/s",
        bytes(s.bytes),
        short(s.requests),
        short(s.retries),
        short(s.errors),
      ],
    })),
    1,
    true
  );
  show(byId("sources-table"), sources.length > 0);
  show(byId("sources-empty"), sources.length === 0);
}

// The same sample comes round each epoch: once in the table, with the last time and how often.
function together(bad) {
  const found = new Map();
  for (const one of bad) {
    const key = JSON.stringify([one.job, one.stage, one.key, one.message]);
    if (found.has(key)) found.get(key).times++;
    else found.set(key, {...one, id: key, times: 1});
  }
  return [...found.values()];
}

export function drawBad() {
  const bad = (store.view.bad ?? []).filter((one) => store.chosen === "all" || String(one.job) === store.chosen);
  const lines = together(bad).map((one) => ({
    key: one.id,
    cells: [
      clock(one.time),
      visible(one.job, 20),
      visible(one.stage, 40),
      visible(one.key),
      visible(one.message),
      number(one.times),
    ],
  }));
  rows(byId("bad-table").tBodies[0], lines, 5);
  show(byId("bad-scroll"), bad.length > 0);
  show(byId("bad-empty"), bad.length === 0);
  say(byId("bad-unit"), bad.length === 0 ? "" : bad.length < 50 ? "newest first" : "of the last 50, newest first");
}
