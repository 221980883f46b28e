// SPDX-License-Identifier: Apache-2.0
// What the page knows: the last view, the last ten minutes, which job is chosen. Readings of the last half minute are
// kept for what is shown as "last 30 s", since the engine counts from the start.

const KEPT = 600;
const RECENT = 30;
const YOUNG = 5;

export const store = {view: null, history: [], chosen: "all", recent: []};

function reading(view) {
  const jobs = {};
  for (const job of view.jobs) jobs[job.id] = [job.rate_now, job.stall_now, job.ready];
  return {time: view.time, cpu_share: view.engine?.cpu_share_now, jobs};
}

// Takes a view in. One of another instance is of another daemon: nothing of the old picture is kept.
export function take(view) {
  view.jobs = [...(view.jobs ?? [])].sort((a, b) => a.id - b.id);
  if (store.view !== null && store.view.instance !== view.instance) {
    store.history = [];
    store.recent = [];
    store.chosen = "all";
  }
  if (Array.isArray(view.history) && view.history.length) {
    store.history = view.history.slice(-KEPT);
    store.recent = [];
  }
  const last = store.history[store.history.length - 1];
  if (!last || view.time > last.time + 0.25) store.history.push(reading(view));
  if (store.history.length > KEPT) store.history.splice(0, store.history.length - KEPT);
  store.recent.push(view);
  while (store.recent.length > 1 && view.time - store.recent[0].time > RECENT + 0.5) store.recent.shift();
  store.view = view;
  if (store.chosen !== "all" && !view.jobs.some((job) => String(job.id) === store.chosen)) store.chosen = "all";
}

// The jobs that the panels are about.
export function shown() {
  return store.view.jobs.filter((job) => store.chosen === "all" || String(job.id) === store.chosen);
}

// The same job in the oldest reading that is kept, or null where that is too young to tell anything.
export function earlier(id) {
  for (const view of store.recent) {
    if (store.view.time - view.time < YOUNG) return null;
    const job = view.jobs.find((j) => j.id === id);
    if (job) return job;
  }
  return null;
}

// A job keeps its colour for as long as it is there, whichever others come and go.
const colours = new Map();
const COLOURS = 8;

export function colourOf(job) {
  const id = String(job);
  if (!colours.has(id)) {
    const here = new Set((store.view?.jobs ?? []).map((job) => colours.get(String(job.id))));
    let free = 1;
    while (free <= COLOURS && here.has(free)) free++;
    colours.set(id, free <= COLOURS ? free : (colours.size % COLOURS) + 1);
  }
  return colours.get(id);
}

export function jobName(job) {
  return `job ${job.id}`;
}
