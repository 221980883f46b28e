// SPDX-License-Identifier: Apache-2.0
// A real daemon with two real jobs: data with one bad file among them, whose name is markup.

import fs from "node:fs";
import path from "node:path";
import {alive, folder, run, start, stop, until} from "./rig.mjs";

export const EVIL = '<img src=x onerror="window.hacked=1">.jpg';
const PENSTOCK = process.env.PENSTOCK;

export function photos(count, bad = EVIL) {
  const data = path.join(folder, "photos");
  run(PENSTOCK, ["synth", "images", data, "--count", String(count), "--classes", "4"]);
  const some = fs.readdirSync(data, {withFileTypes: true}).find((entry) => entry.isDirectory()).name;
  fs.writeFileSync(
    path.join(data, some, bad),
    Buffer.concat([Buffer.from([0xff, 0xd8, 0xff, 0xe0]), Buffer.alloc(2000, 7)])
  );
  return data;
}

export class Daemon {
  constructor(options = [], headers = {}) {
    this.dir = fs.mkdtempSync(path.join(folder, "engine-"));
    this.options = options;
    this.headers = headers; // what it wants of whoever asks
  }

  // On the same port as before, if it was there before.
  async serve() {
    const where = ["--socket", this.dir, "--http", `127.0.0.1:${this.port ?? 0}`];
    const size = ["--memory", "512MiB", "--workers", "2"];
    this.child = await start(PENSTOCK, ["serve", ...where, ...size, ...this.options], /port \d+ of/);
    this.port = Number(/port (\d+) of/.exec(this.child.said)[1]);
    this.url = `http://127.0.0.1:${this.port}/`;
    await until("the daemon to serve", async () => {
      alive(this.child);
      return (await fetch(this.url + "v1/watch", {headers: this.headers})).ok;
    });
  }

  end() {
    return stop(this.child);
  }

  // A job that would run for hours.
  feed(data, pipeline, ...more) {
    return start(PENSTOCK, [
      "feed",
      data,
      "--pipeline",
      pipeline,
      "--epochs",
      "1000000",
      "--on-error",
      "skip:100000000",
      "--engine",
      "unix:" + this.dir,
      "--quiet",
      ...more,
    ]);
  }
}
