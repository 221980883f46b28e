// SPDX-License-Identifier: Apache-2.0
// Puts the panels together: a view comes, every panel draws what changed. Without a connection the last picture
// stays, greyed.

import {byId, say, show} from "./dom.js";
import {clock, duration} from "./format.js";
import {store, take} from "./store.js";
import {follow} from "./stream.js";
import {theme} from "./theme.js";
import {drawEngine, drawVerdict} from "./verdict.js";
import {drawJobs} from "./jobs.js";
import {drawTime} from "./time.js";
import {drawStages} from "./stages.js";
import {drawCache} from "./cache.js";
import {drawModel} from "./model.js";
import {drawLanes} from "./lanes.js";
import {drawBad, drawSources, drawTiers} from "./tiers.js";

let paused = false;
let since = 0; // when the connection was lost, in ms; 0: it was not
let why = "";

function drawAll(recolour = false) {
  if (!store.view) return;
  drawEngine();
  drawVerdict();
  drawJobs(() => drawAll());
  drawTime(recolour);
  drawStages();
  drawCache();
  drawModel();
  drawLanes();
  drawTiers();
  drawSources();
  drawBad();
}

function drawLink() {
  const state = since ? "lost" : paused ? "paused" : store.view ? "live" : "wait";
  document.body.dataset.link = state;
  say(byId("link"), {lost: "reconnecting…", paused: "paused", live: "live", wait: "connecting…"}[state]);
  show(byId("notice"), since > 0);
  if (!since) return;
  say(
    byId("notice").firstChild,
    why === "reconnecting…" ? "No connection to the daemon: reconnecting…" : `No connection: ${why}.`
  );
  say(
    byId("notice").lastChild,
    store.view
      ? ` Shown is what it last said, at ${clock(store.view.time)}, ${duration((Date.now() - since) / 1000)} ago.`
      : ""
  );
}

function onView(view) {
  since = 0;
  take(view);
  if (!paused) drawAll();
  drawLink();
}

function onLost(reason) {
  since ||= Date.now();
  why = reason;
  drawLink();
}

function start() {
  theme(() => drawAll(true));
  byId("pause").addEventListener("click", () => {
    paused = !paused;
    byId("pause").setAttribute("aria-pressed", String(paused));
    if (!paused) drawAll();
    drawLink();
  });
  for (const id of ["jobs-more", "triangle-more"]) byId(id).addEventListener("toggle", () => drawAll());
  setInterval(() => since && drawLink(), 1000);
  follow({view: onView, lost: onLost});
}

start();
