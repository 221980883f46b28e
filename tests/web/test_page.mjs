// SPDX-License-Identifier: Apache-2.0
// The page as a daemon serves it, with two jobs that run: it loads, it lives, it survives the daemon.

import fs from "node:fs";
import path from "node:path";
import {accessible, all, check, clean, folder, text, until, visit} from "./rig.mjs";
import {Daemon, EVIL, photos} from "./live.mjs";

const LIMIT = 150000;
const daemon = new Daemon();

async function answer() {
  const got = await fetch(daemon.url);
  check(got.status === 200 && got.headers.get("content-type").startsWith("text/html"), "a page is served");
  const policy = got.headers.get("content-security-policy") ?? "";
  check(
    policy.includes("default-src 'none'") && policy.includes("script-src 'sha256-") && !policy.includes("unsafe"),
    "its policy: " + policy
  );
  check(Number(got.headers.get("content-length")) < LIMIT, "it is small: " + got.headers.get("content-length"));
  check((await got.text()).includes("Leon Sorokin"), "the chart library's licence is in it");
}

async function shows_and_moves() {
  const page = await visit(daemon.url);
  await until("two jobs", async () => (await page.locator("#jobs-list > .card").count()) === 3);
  for (const id of ["verdict", "jobs", "rate", "stall", "stages", "cache", "model", "lanes", "tiers", "sources", "bad"])
    check(await page.locator("#" + id).isVisible(), `panel ${id} is shown`);
  check((await page.locator(".uplot canvas").count()) === 2, "two charts");
  await page.locator("#jobs-more > summary").click();
  const samples = () =>
    page
      .locator("#jobs-table tr", {has: page.locator("th", {hasText: /^samples$/})})
      .locator("td")
      .allInnerTexts();
  const before = await until("samples of both jobs", async () =>
    (await samples()).filter((s) => s !== "0").length === 2 ? samples() : null
  );
  await until("both jobs' numbers to change", async () => (await samples()).every((s, i) => s !== before[i]));
  await until("stages", async () => (await text(page, "#stages-bars")).includes("decode"));
  check((await page.locator("#stages-bars > *").count()) === 2, "a bar for each job");
  await until("lanes", async () => (await page.locator("#lanes-list > *").count()) === 2);
  check((await text(page, "#sources")).includes("files"), "the source");
  await until("the model", async () => (await page.locator("#triangle .cell").count()) === 100);
  await until("the verdict's sentence", async () => (await text(page, "#verdict-text")).length > 5);
  await until("the bad sample", async () => (await text(page, "#bad")).includes(EVIL));
  check((await page.evaluate(() => window.hacked)) === undefined, "its name is text");
  await accessible(page, "light");
  await page.emulateMedia({colorScheme: "dark"});
  await accessible(page, "dark");
  await page.setViewportSize({width: 390, height: 844});
  await accessible(page, "phone");
  await clean(page);
  await page.context().close();
}

async function survives_a_restart() {
  const page = await visit(daemon.url);
  await page.evaluate(() => (window.marker = 1));
  const build = await text(page, "#build");
  await daemon.end();
  await until("the page to say that it is alone", async () => (await text(page, "#link")) === "reconnecting…");
  check((await page.locator("#jobs-list > .card").count()) === 3, "the last picture stays");
  await daemon.serve();
  await until(
    "the page to be live again",
    async () => (await text(page, "#link")) === "live" && (await text(page, "#build")) !== build
  );
  await until("the jobs to be back", async () => (await page.locator("#jobs-list > .card").count()) === 3);
  check((await page.evaluate(() => window.marker)) === 1, "without a reload");
  check(page.noted.foreign.length === 0, "nothing was asked of others: " + page.noted.foreign.join(" "));
  const other = page.noted.complaints.filter((line) => !/net::ERR_|Failed to load resource/.test(line));
  check(other.length === 0, "complaints beyond the lost connection: " + other.join("\n"));
  await page.context().close();
}

async function with_a_token() {
  const token = "0123456789abcdef0123456789abcdef";
  const file = path.join(folder, "token");
  fs.writeFileSync(file, token + "\n", {mode: 0o600});
  const guarded = new Daemon(["--http-token", file], {Authorization: "Bearer " + token});
  await guarded.serve();
  check((await fetch(guarded.url)).status === 401, "without it there is no page");
  const page = await visit(guarded.url + "?token=" + token);
  check(page.url() === guarded.url, "the token is not left in the address: " + page.url());
  await until("the empty state", () => page.locator("#jobs-empty").isVisible());
  await clean(page);
  await page.context().clearCookies();
  await page.reload();
  check((await page.locator("body").innerText()).length < 300, "and none when the cookie is gone");
  await page.context().close();
  await guarded.end();
}

async function two_jobs_run() {
  const data = photos(60);
  await daemon.serve();
  await daemon.feed(data, "decode | random_resized_crop(224) | hflip", "--order", "ready", "--step-ms", "50");
  await daemon.feed(data, "decode | resize(256) | center_crop(224)", "--batch", "8", "--step-ms", "20");
}

await all([answer, shows_and_moves, survives_a_restart, with_a_token], two_jobs_run);
