// SPDX-License-Identifier: Apache-2.0
// Several browsers, each a process tree of its own, for measuring what the page costs the daemon:
//
//   env $(what meson gives the tests) node tests/web/browsers.mjs URL COUNT
//
// Says `there` once they run. A line `open` on standard input opens the page in all of them, `close` closes it again;
// both are answered (`open`, `closed`). They end with standard input.

import readline from "node:readline";
import {launch, look} from "./rig.mjs";

const [url, count] = process.argv.splice(2);
const browsers = [];
for (let i = 0; i < Number(count); i++) browsers.push(await launch());
console.log("there");
for await (const word of readline.createInterface({input: process.stdin}))
  if (word === "open") {
    await Promise.all(browsers.map((one) => look(one, url)));
    console.log("open");
  } else {
    await Promise.all(browsers.map((one) => Promise.all(one.contexts().map((context) => context.close()))));
    console.log("closed");
  }
await Promise.all(browsers.map((one) => one.close()));
process.exit(0);
