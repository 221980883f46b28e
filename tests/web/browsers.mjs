// SPDX-License-Identifier: Apache-2.0
// Several browsers, each a process tree of its own with the page open, until standard input ends:
//
//   env $(what meson gives the tests) node tests/web/browsers.mjs URL COUNT
//
// Says `open` once all of them are live. For measuring what that costs the daemon.

import {launch, look} from "./rig.mjs";

const [url, count] = process.argv.splice(2);
const browsers = [];
for (let i = 0; i < Number(count); i++) {
  const browser = await launch();
  browsers.push(browser);
  await look(browser, url);
}
console.log("open");
process.stdin.resume();
process.stdin.on("end", async () => {
  await Promise.all(browsers.map((one) => one.close()));
  process.exit(0);
});
