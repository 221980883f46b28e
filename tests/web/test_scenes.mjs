// SPDX-License-Identifier: Apache-2.0
// The page beside a stand-in for the daemon: what it looks like to whoever uses a keyboard, a phone or a reader, and
// what hostile, empty and crowded views do to it.

import {accessible, all, check, clean, standin, stop, text, until, visit} from "./rig.mjs";

const PANELS = ["verdict", "jobs", "rate", "stall", "stages", "cache", "model", "lanes", "tiers", "sources", "bad"];

async function with_scene(scene, options, body) {
  const server = await standin(scene);
  const page = await visit(server.url, options);
  try {
    await body(page, server);
  } finally {
    await page.context().close();
    await stop(server);
  }
}

async function fits(page) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  check(wide <= 0, `the page is ${wide} px wider than the window`);
}

async function panels_and_themes() {
  await with_scene("two", {}, async (page) => {
    for (const id of PANELS) check(await page.locator("#" + id).isVisible(), `panel ${id} is shown`);
    check((await text(page, "#verdict-text")).includes("3 more cores or 4 GiB"), "the verdict's sentence");
    check(!(await text(page, "#verdict-text")).includes("("), "its reasons are apart from it");
    check((await text(page, "#verdict-rest")).includes("waits 42\u202f%"), "and there");
    for (const id of ["verdict-more", "jobs-more", "triangle-more"]) await page.locator(`#${id} > summary`).click();
    await until("the numbers behind the verdict", async () =>
      (await text(page, "#verdict-numbers")).includes("wanted rate")
    );
    check((await text(page, "#verdict-help")).includes("4.00\u202fGiB of cache"), "what would help");
    check((await page.locator("#triangle-table tbody tr").count()) === 66, "the triangle as a table");
    check((await page.locator("#triangle .cell").count()) === 100, "the triangle as a picture");
    check((await text(page, "#lanes")).includes("cut-off 12.3\u202fms"), "the cut-off");
    check((await text(page, "#tiers")).includes("not asked now"), "a tier that failed");
    check((await page.locator(".uplot canvas").count()) === 2, "two charts");
    await accessible(page, "light");
    await page.locator("#theme").click();
    await page.locator("#theme").click();
    check(
      (await page.evaluate(() => document.documentElement.dataset.theme)) === "dark",
      "the dark theme by its button"
    );
    await accessible(page, "dark");
    await page.reload();
    await until("the theme to be remembered", async () => (await text(page, "#theme")) === "Theme: dark");
    await fits(page);
    await clean(page);
  });
}

async function phone() {
  await with_scene("two", {width: 390, height: 844, colorScheme: "dark"}, async (page) => {
    await fits(page);
    const lefts = await page
      .locator(".panel:visible")
      .evaluateAll((all) => new Set(all.map((e) => Math.round(e.getBoundingClientRect().left))).size);
    check(lefts === 1, "one column");
    const cut = await page
      .locator("button, summary, .card, h2")
      .evaluateAll((all) => all.filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0).length);
    check(cut === 0, "no label is cut off");
    await accessible(page, "phone");
    await clean(page);
  });
}

async function keyboard() {
  await with_scene("two", {}, async (page) => {
    const focused = () =>
      page.evaluate(() => document.activeElement.id || document.activeElement.value || document.activeElement.tagName);
    await page.keyboard.press("Tab");
    check((await page.evaluate(() => document.activeElement.className)) === "skip", "the skip link is first");
    check(await page.evaluate(() => document.activeElement.getBoundingClientRect().top >= 0), "and is then seen");
    await page.keyboard.press("Enter");
    check((await focused()) === "main", "it leads to the verdict");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter"); // the numbers behind it
    check(await page.locator("#verdict-more").evaluate((e) => e.open), "details open by key");
    await page.keyboard.press("Tab");
    check((await focused()) === "all", "then the jobs");
    await page.keyboard.press("ArrowDown");
    check((await focused()) === "1", "arrows choose a job");
    check((await text(page, "#verdict-h")).includes("job 1"), "the verdict is the job's");
    check((await page.locator("#lanes-list > *").count()) === 1, "the panels are the job's");
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement.closest(".card")).outlineStyle);
    check(outline !== "none", "the focus is seen");
    const before = await text(page, "#verdict-big");
    await until("numbers to change", async () => (await text(page, "#verdict-big")) !== before);
    check((await focused()) === "1", "the focus stays when numbers come");
    await page.locator("#pause").focus();
    await page.keyboard.press("Space");
    check((await text(page, "#link")) === "paused", "pause");
    const seen = new Set();
    for (let i = 0; i < 40; i++) {
      await page.keyboard.press("Tab");
      seen.add(
        await page.evaluate(
          () =>
            document.activeElement.closest("section")?.id ?? document.activeElement.closest("footer, header")?.tagName
        )
      );
    }
    for (const id of ["HEADER", "verdict", "jobs", "rate", "stages", "cache", "model", "sources", "bad", "FOOTER"])
      check(seen.has(id), `tab reaches ${id}`);
    await clean(page);
  });
}

async function hostile_text() {
  await with_scene("hostile", {}, async (page) => {
    const shown = await text(page, "#bad");
    check(shown.includes('<img src=x onerror="window.hacked=1">.jpg'), "markup in a key is shown as text");
    check(shown.includes("</script><script>"), "so is the end of a script");
    check(shown.includes("a\\u202egpj.exe") && !shown.includes("\u202e"), "what turns the direction is spelled out");
    check(shown.includes("\\u001b[31m"), "so are control characters");
    check((await text(page, "#jobs-list")).includes("<img"), "datasets too");
    check((await page.locator("#bad img, #jobs img, main script").count()) === 0, "no element came of it");
    check((await page.evaluate(() => window.hacked)) === undefined, "nothing ran");
    await fits(page);
    await clean(page);
  });
}

async function nobody_there() {
  await with_scene("none", {}, async (page) => {
    check((await text(page, "#jobs-empty")).includes("penstock feed DATA"), "what to do is said");
    for (const id of ["stages", "lanes", "model", "sources", "bad", "from"])
      check(await page.locator(`#${id}-empty`).isVisible(), `${id} says that it is empty`);
    await accessible(page, "empty");
    await clean(page);
  });
}

async function many_jobs() {
  await with_scene("many", {width: 1000}, async (page) => {
    check((await page.locator("#jobs-list > .card").count()) === 13, "a card for each of 12 and one for all");
    check((await page.locator("#lanes-list > *").count()) === 6, "lanes of the first ones");
    check((await text(page, "#lanes-empty")).startsWith("6 more"), "and how many more there are");
    await fits(page);
    await clean(page);
  });
}

async function what_is_below_stays() {
  await with_scene("wordy", {}, async (page) => {
    const length = async () => (await text(page, "#verdict-text")).length;
    const below = () => page.evaluate(() => document.getElementById("jobs").offsetTop);
    await until("a verdict of many words", async () => (await length()) > 200);
    const first = await below();
    await until("one of few", async () => (await length()) < 100);
    const there = async () => Math.abs((await below()) - first) <= 1; // heights are held as whole pixels
    check(await there(), `the jobs moved from ${first} to ${await below()} px`);
    const {width, height} = page.viewportSize();
    await page.setViewportSize({width: 320, height});
    await until("few words in a narrow window", async () => (await length()) < 100);
    await until("more lines of it there", async () => (await length()) > 200 && (await below()) > first);
    await page.setViewportSize({width, height});
    await until("its old place in the old one", there);
    await clean(page);
  });
}

async function daemon_comes_back() {
  const first = await standin("two");
  const page = await visit(first.url);
  await page.evaluate(() => (window.marker = 1));
  const instance = await text(page, "#build");
  await page.locator("#jobs-list input").nth(1).check({force: true});
  await stop(first);
  await until("the page to say so", async () => (await text(page, "#notice")).includes("reconnecting…"));
  check((await text(page, "#link")) === "reconnecting…", "the state on top");
  check((await text(page, "#notice")).includes("Shown is what it last said"), "how old the picture is");
  check(
    (await page.evaluate(() => getComputedStyle(document.querySelector("main")).filter)) !== "none",
    "the picture is grey"
  );
  check((await page.locator(".uplot canvas").count()) === 2, "but there");
  const second = await standin("two", first.port);
  await until("the page to be live again", async () => (await text(page, "#link")) === "live");
  check((await page.evaluate(() => window.marker)) === 1, "without a reload");
  check((await text(page, "#build")) !== instance, "with another instance");
  check(await page.locator("#jobs-list input").first().isChecked(), "with all jobs chosen: these are others");
  check(!(await page.locator("#notice").isVisible()), "the notice is gone");
  check(page.noted.foreign.length === 0, "nothing was asked of others");
  await page.context().close();
  await stop(second);
}

async function full_house() {
  const server = await standin("two", 0, 2);
  const page = await visit(server.url); // comes to life although it was refused twice
  check(
    page.noted.complaints.length > 0 && page.noted.complaints.every((line) => line.includes("503")),
    "it was refused: " + page.noted.complaints.join(" ")
  );
  await page.context().close();
  await stop(server);
}

await all([
  panels_and_themes,
  phone,
  keyboard,
  hostile_text,
  nobody_there,
  many_jobs,
  what_is_below_stays,
  daemon_comes_back,
  full_house,
]);
