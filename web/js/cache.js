// SPDX-License-Identifier: Apache-2.0
// What the cache holds by form, and where the shown jobs' samples came from.

import {byId, label, legend, rows, say, show, stack} from "./dom.js";
import {bytes, percent, short} from "./format.js";
import {shown, store} from "./store.js";

const FORMS = [
  ["encoded", "c1"],
  ["decoded", "c2"],
  ["augmented", "c3"],
];
const FROM = [
  ["augmented", "c3"],
  ["decoded", "c2"],
  ["encoded", "c1"],
  ["disk", "c5"],
  ["remote", "c4"],
];

function drawFrom() {
  const jobs = shown();
  const sum = (value) => jobs.reduce((total, job) => total + (value(job) || 0), 0);
  const counts = FROM.map(([name, colour]) => ({name, colour, count: sum((job) => job.hits?.[name])}));
  counts.push({name: "source", colour: "hatch", count: sum((job) => job.misses)});
  const all = counts.reduce((total, one) => total + one.count, 0);
  const some = counts.filter((one) => one.count > 0);
  stack(
    byId("from-bar"),
    some.map((one) => ({key: one.name, colour: one.colour, share: one.count / all}))
  );
  label(
    byId("from-bar"),
    "Where samples came from: " + some.map((one) => `${one.name} ${percent(one.count / all)}`).join(", ")
  );
  legend(
    byId("from-legend"),
    some.map((one) => ({
      key: one.name,
      colour: one.colour,
      name: one.name,
      value: `${percent(one.count / all)} · ${short(one.count)}`,
    }))
  );
  show(byId("from-bar"), all > 0);
  show(byId("from-empty"), all === 0);
}

export function drawCache() {
  const cache = store.view.cache ?? {forms: {}};
  const limit = cache.limit_bytes || cache.bytes || 1;
  say(
    byId("cache-unit"),
    cache.limit_bytes ? `${bytes(cache.bytes)} of ${bytes(cache.limit_bytes)}` : "off: penstock serve --cache BYTES"
  );
  const forms = FORMS.map(([name, colour]) => ({name, colour, ...(cache.forms?.[name] ?? {})}));
  stack(
    byId("cache-bar"),
    forms.map((form) => ({key: form.name, colour: form.colour, share: (form.bytes || 0) / limit}))
  );
  label(byId("cache-bar"), "Bytes by form: " + forms.map((form) => `${form.name} ${bytes(form.bytes)}`).join(", "));
  rows(
    byId("cache-table").tBodies[0],
    forms.map((form) => ({
      key: form.name,
      cells: [
        form.name,
        short(form.entries),
        bytes(form.bytes),
        short(form.hits),
        short(form.inserts),
        short(form.evictions),
      ],
    })),
    1,
    true
  );
  [...byId("cache-table").tBodies[0].rows].forEach((row, i) => (row.cells[0].className = "keyed k-" + forms[i].colour));
  drawFrom();
}
