// SPDX-License-Identifier: Apache-2.0
// What the tests of the page stand on: a browser that notes every request and complaint, servers as child processes,
// and waiting that polls. Meson gives PENSTOCK (the command), PENSTOCK_PAGE (the folder of the bundled page) and
// PENSTOCK_WEB (the packages).

import {spawn, spawnSync} from "node:child_process";
import fs from "node:fs";
import {createRequire} from "node:module";
import os from "node:os";
import path from "node:path";

const HERE = path.dirname(new URL(import.meta.url).pathname);
const DEADLINE = Number(process.env.PENSTOCK_DEADLINE_MS ?? 60000);
const STEP = 1000; // what one look can use up of it: a machine that stood still is no failure
const SKIP = 77;

function skip(why) {
  console.log("skipped: " + why);
  process.exit(SKIP);
}

if (!process.env.PENSTOCK_PAGE) skip("this build is without the page: tools/web.sh page fetches what it needs");
const packages = process.env.PENSTOCK_WEB;
if (!packages || !fs.existsSync(packages)) skip("the npm packages are not there: tools/web.sh tests fetches them");
const browser = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find((p) => fs.existsSync(p));
if (!browser) skip("there is no chromium");
const require = createRequire(packages + "/");
const {chromium} = require("playwright-core");
const AXE = fs.readFileSync(path.join(packages, "axe-core", "axe.min.js"), "utf8");

export function check(yes, what) {
  if (!yes) throw new Error("not so: " + what);
}

// Waits until the function gives something true, and returns it.
export async function until(what, ask) {
  let left = DEADLINE;
  let last;
  while (left > 0) {
    const begun = Date.now();
    try {
      const got = await ask();
      if (got) return got;
      last = got;
    } catch (error) {
      if (error.final) throw error;
      last = error.message;
    }
    await new Promise((done) => setTimeout(done, 100));
    left -= Math.min(STEP, Date.now() - begun);
  }
  throw new Error(`waited in vain for ${what}: ${last}`);
}

const children = new Set();

// A child that ends with this process at the latest. `until` (optional): what its output must show before it counts
// as started.
export async function start(command, args, shows) {
  const child = spawn(command, args, {stdio: ["pipe", "pipe", "pipe"]});
  child.said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (data) => (child.said = (child.said + data).slice(-20000)));
  child.stdin.on("error", () => {}); // it ended first
  child.over = new Promise((done) =>
    child.on("exit", () => {
      children.delete(child);
      done();
    })
  );
  children.add(child);
  if (shows)
    await until(`${command} ${args.join(" ")} to start`, () => {
      alive(child);
      return shows.test(child.said);
    });
  return child;
}

// Said inside of until: it makes no sense to wait on.
export function alive(child) {
  if (child.exitCode !== null) throw Object.assign(new Error(child.said || "it ended"), {final: true});
}

export async function stop(child, signal = "SIGTERM") {
  child.kill(signal);
  await child.over;
}

export function run(command, args) {
  const done = spawnSync(command, args, {encoding: "utf8"});
  if (done.status !== 0)
    throw new Error(`${command} ${args.join(" ")}: ${done.stdout}${done.stderr}${done.error ?? ""}`);
}

export const folder = fs.mkdtempSync(path.join(os.tmpdir(), "penstock-page-"));

export async function standin(scene, port = 0, busy = 0) {
  const page = process.env.PENSTOCK_PAGE;
  const child = await start(
    "/usr/bin/python3",
    [
      path.join(HERE, "standin.py"),
      "--html",
      path.join(page, "page.html"),
      "--csp",
      path.join(page, "page.csp"),
      "--scene",
      scene,
      "--port",
      String(port),
      "--busy",
      String(busy),
    ],
    /^\d+\n/
  );
  child.port = Number(child.said.split("\n")[0]);
  child.url = `http://127.0.0.1:${child.port}/`;
  return child;
}

let running = null;

export function launch() {
  return chromium.launch({executablePath: browser, args: process.getuid() === 0 ? ["--no-sandbox"] : []});
}

// A page in a profile of its own.
export async function visit(url, options = {}) {
  running ??= await launch();
  return look(running, url, options);
}

// The same in a given browser. page.noted: what it asked for outside its origin, and what it complained about.
export async function look(where, url, {width = 1280, height = 900, colorScheme = "light", scale = 1} = {}) {
  const context = await where.newContext({
    viewport: {width, height},
    colorScheme,
    deviceScaleFactor: scale,
    reducedMotion: "reduce",
  });
  context.setDefaultTimeout(4 * DEADLINE);
  const page = await context.newPage();
  const origin = new URL(url).origin;
  page.noted = {foreign: [], complaints: [], requests: 0};
  context.on("request", (request) => {
    page.noted.requests++;
    if (!request.url().startsWith("data:") && new URL(request.url()).origin !== origin)
      page.noted.foreign.push(request.url());
  });
  page.on(
    "console",
    (message) => ["error", "warning"].includes(message.type()) && page.noted.complaints.push(message.text())
  );
  page.on("pageerror", (error) => page.noted.complaints.push(String(error.stack ?? error)));
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) =>
      window.violations.push(event.violatedDirective + " " + event.blockedURI)
    );
  });
  await page.goto(url);
  await until("the page to be live", async () => (await text(page, "#link")) === "live");
  return page;
}

// Nothing was asked of others, nothing was complained about, nothing was held back by the policy.
export async function clean(page) {
  check(page.noted.requests > 0, "requests were seen at all");
  check(page.noted.foreign.length === 0, "requests beyond the origin: " + page.noted.foreign.join(" "));
  check(page.noted.complaints.length === 0, "complaints in the console: " + page.noted.complaints.join("\n"));
  const violations = await page.evaluate(() => window.violations);
  check(violations.length === 0, "held back by the policy: " + violations.join(", "));
}

export function text(page, selector) {
  return page.locator(selector).first().innerText();
}

// No serious or critical finding of axe. Its script comes in by the debugger, which the page's policy does not
// concern.
export async function accessible(page, what) {
  await page.evaluate(AXE + "\n;undefined");
  const found = await page.evaluate(
    async () => (await window.axe.run(document, {resultTypes: ["violations"]})).violations
  );
  const serious = found.filter((one) => ["serious", "critical"].includes(one.impact));
  check(
    serious.length === 0,
    `axe on ${what}: ` +
      serious
        .map(
          (one) =>
            `${one.id} (${one.impact}): ` +
            one.nodes.map((node) => node.target.join(" ") + " " + node.failureSummary).join("; ")
        )
        .join("\n")
  );
}

// Runs the tests in turn, after what they all need. Names on the command line choose.
export async function all(tests, need = null) {
  const chosen = process.argv.slice(2);
  const wanted = tests.filter((one) => !chosen.length || chosen.includes(one.name));
  let failed = 0;
  for (const test of need ? [need, ...wanted] : wanted) {
    if (failed && need) break;
    const begun = Date.now();
    try {
      await test();
      console.log(`ok ${test.name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed++;
      console.log(`FAILED ${test.name}: ${error.stack}`);
    }
  }
  await running?.close();
  for (const child of [...children]) await stop(child, "SIGKILL");
  fs.rmSync(folder, {recursive: true, force: true});
  process.exit(failed ? 1 : 0);
}
