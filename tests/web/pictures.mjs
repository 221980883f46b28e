// SPDX-License-Identifier: Apache-2.0
// The pictures of docs/watching.md, taken from a real daemon with two jobs that have run for a while:
//
//   meson compile -C build && env $(what meson gives the tests) node tests/web/pictures.mjs FOLDER [SECONDS]
//
// Each becomes a WebP without loss; the phone's long page is cut into columns.

import path from "node:path";
import {Daemon, photos} from "./live.mjs";
import {all, folder, run, stop, until, visit} from "./rig.mjs";

const [place, seconds] = process.argv.splice(2);
const VIEWS = [
  ["light", {width: 1360, colorScheme: "light"}],
  ["dark", {width: 1360, colorScheme: "dark"}],
  ["phone", {width: 390, height: 844, colorScheme: "light"}],
];
const SHRINK = `
import sys
from PIL import Image
source, target, tall = sys.argv[1], sys.argv[2], int(sys.argv[3])
image = Image.open(source).convert("RGB")
if tall:
    count = -(-image.height // tall)
    columns = Image.new("RGB", (count * (image.width + 24) - 24, tall), image.getpixel((2, 2)))
    for i in range(count):
        part = image.crop((0, i * tall, image.width, min(image.height, (i + 1) * tall)))
        columns.paste(part, (i * (image.width + 24), 0))
    image = columns
image.save(target, lossless=True, quality=80, method=4)
`;

async function take(url, name, options) {
  const page = await visit(url, options);
  await until("the cut-off, or lanes", async () => (await page.locator("#lanes-list > *").count()) === 2);
  await page.screenshot({path: path.join(folder, name + ".png"), fullPage: true});
  await page.context().close();
}

async function pictures() {
  const data = photos(600, "photo_9.jpg");
  const daemon = new Daemon(["--cache", "96MiB", "--disk", path.join(folder, "disk") + ":64MiB"]);
  await daemon.serve();
  const jitter = "decode | random_resized_crop(224) | hflip | color_jitter(0.4, 0.4, 0.4)";
  const feeds = [
    await daemon.feed(data, jitter, "--order", "ready"),
    await daemon.feed(data, "decode | resize(256) | center_crop(224)", "--batch", "16", "--step-ms", "120"),
  ];
  await new Promise((done) => setTimeout(done, 1000 * Number(seconds ?? 120)));
  for (const [name, options] of VIEWS) await take(daemon.url, name, options);
  for (const one of [...feeds, daemon.child]) await stop(one);
  for (const [name] of VIEWS) {
    const tall = name === "phone" ? "1240" : "0";
    const files = [path.join(folder, name + ".png"), path.join(place, `page-${name}.webp`)];
    run("/usr/bin/python3", ["-c", SHRINK, ...files, tall]);
  }
}

await all([pictures]);
