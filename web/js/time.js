// SPDX-License-Identifier: Apache-2.0
// Throughput and stall over time, a line for each job. The lines differ in colour and in dash; the legend below has
// the values under the pointer, or else the last ones. A chart is made anew only when its jobs or the colours are
// others.

import {byId, label, legend, segmented} from "./dom.js";
import {clock, lastPart, number, percent, short} from "./format.js";
import {colourOf, shown, store} from "./store.js";
import {colour} from "./theme.js";

const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [], [8, 4], [2, 3], [10, 3, 2, 3]];
const HEIGHT = 190;
const SILENCE = 5; // seconds
let span = 300;

function dataEnd() {
  return store.history[store.history.length - 1].time;
}

// Where nothing was heard for a while, a reading without jobs is put in: a line across would be made up.
function columns(ids, value) {
  const last = dataEnd();
  const from = [];
  for (const one of store.history) {
    if (one.time <= last - span) continue;
    const before = from[from.length - 1];
    if (before && one.time - before.time > SILENCE) from.push({time: before.time + 1, jobs: {}});
    from.push(one);
  }
  return [from.map((h) => h.time), ...ids.map((id) => from.map((h) => h.jobs[id]?.[value] ?? null))];
}

// Marks at whole minutes, or at parts of one where only one is shown.
function marks() {
  return span > 60 ? [60, 120, 300] : [10, 15, 30];
}

function axis(values, size) {
  return {
    stroke: colour("--muted"),
    grid: {stroke: colour("--line"), width: 1},
    ticks: {show: false},
    font: "12px " + colour("--sans"),
    values,
    size,
    gap: 6,
  };
}

class Chart {
  constructor(id, what, value, display, tick, top) {
    Object.assign(this, {
      place: byId(id + "-plot"),
      list: byId(id + "-legend"),
      what,
      value,
      display,
      tick,
      top,
      plot: null,
      key: "",
    });
    new ResizeObserver(() => this.fit()).observe(this.place);
  }

  fit() {
    const width = this.place.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({width, height: HEIGHT});
  }

  build(ids, data) {
    this.plot?.destroy();
    const series = ids.map((id) => {
      const c = colourOf(id);
      return {stroke: colour("--c" + c), width: 2, dash: DASHES[c - 1], points: {show: false}, spanGaps: false};
    });
    const whole = () => {
      const last = dataEnd();
      return [last - span, last];
    };
    this.plot = new uPlot(
      {
        width: Math.max(200, this.place.clientWidth),
        height: HEIGHT,
        legend: {show: false},
        cursor: {sync: {key: "time"}, drag: {x: false, y: false}, points: {size: 7}, y: false},
        scales: {
          x: {time: true, range: whole},
          y: {range: (u, low, high) => [0, this.top ?? Math.max(1, (high || 0) * 1.1)]},
        },
        axes: [
          {...axis((u, all) => all.map((t) => clock(t).slice(0, span > 60 ? 5 : 8)), 30), incrs: marks(), space: 64},
          axis((u, all) => all.map(this.tick), 52),
        ],
        series: [{}, ...series],
        hooks: {setCursor: [() => this.tell()]},
      },
      data,
      this.place
    );
  }

  // The legend, at the pointer or at the end.
  tell() {
    if (!this.plot) return;
    const at = this.plot.cursor.idx ?? this.plot.data[0].length - 1;
    const here = this.plot.cursor.idx !== null && this.plot.cursor.idx !== undefined && this.plot.cursor.left >= 0;
    legend(
      this.list,
      this.jobs
        .map((job, i) => ({
          key: job.id,
          colour: "line c" + colourOf(job.id),
          name: `${job.id} ${lastPart(job.dataset)}`,
          value: this.display(this.plot.data[i + 1]?.[at]),
        }))
        .concat(here ? [{key: "at", colour: "none", name: "at", value: clock(this.plot.data[0][at])}] : [])
    );
  }

  draw(jobs, recolour) {
    const ids = jobs.map((job) => String(job.id));
    const data = columns(ids, this.value);
    const key = ids.map((id) => id + ":" + colourOf(id)).join();
    this.jobs = jobs;
    if (recolour || key !== this.key || !this.plot) this.build(ids, data);
    else this.plot.setData(data);
    this.key = key;
    this.tell();
    label(
      this.place,
      `${this.what} over the last ${span / 60} minutes. Now: ` +
        (jobs.map((job, i) => `job ${job.id} ${this.display(data[i + 1][data[0].length - 1])}`).join(", ") || "no job")
    );
  }
}

let charts = null;

export function drawTime(recolour) {
  if (!charts) {
    charts = [
      new Chart("rate", "Throughput", 0, (x) => number(x) + "/s", short, null),
      new Chart("stall", "Stall", 1, percent, (x) => Math.round(x * 100) + " %", 1),
    ];
    segmented(
      byId("span"),
      [
        ["60", "1 min"],
        ["300", "5 min"],
        ["600", "10 min"],
      ],
      String(span),
      (value) => {
        span = Number(value);
        for (const chart of charts) chart.draw(shown(), true);
      }
    );
  }
  for (const chart of charts) chart.draw(shown(), recolour);
}
