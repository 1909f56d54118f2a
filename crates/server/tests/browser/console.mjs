// The console in a real browser, as a person uses it, with real servers: node console.mjs UMBEL [FOLDER FOR PICTURES]
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { end, redis, replicate, resp, serve, until } from "./servers.mjs";

const [binary, pictures] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const profile = mkdtempSync(join(tmpdir(), "umbel-browser-"));
const hostile = `"><img src=x onerror="document.title='taken'"><b>\u202e/..?#%00 {{7*7}} '`;
if (pictures) mkdirSync(pictures, { recursive: true });

let passed = 0;
const check = async (what, body) => {
  await body();
  passed += 1;
  console.log(`ok: ${what}`);
};

const CATALOG = `domain = "north"\n[catalogs.records]\nfilter = "urls"\n`;
const main = await serve(binary, "main", ["--slowlog-threshold-us", "0", "--memory", "256MiB"], CATALOG);
const address = main.address;
const call = async (method, path, body, at = address) => {
  const answer = await fetch(at + path, { method, headers: { "content-type": "application/json" }, body: body && JSON.stringify(body) });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${answer.ok ? "" : await answer.text()}`);
  return answer.status === 204 ? null : answer.json();
};
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  viewport: { width: 1180, height: 900 },
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

try {
  const page = await browser.newPage();
  page.setDefaultTimeout(15000);
  const troubles = [];
  const elsewhere = [];
  page.on("console", (message) => message.type() === "error" && !/status of (401|403|404|409)/.test(message.text()) && troubles.push(message.text()));
  page.on("pageerror", (error) => troubles.push(String(error)));
  page.on("request", (request) => request.url().startsWith(address) || /^(data|blob):/.test(request.url()) || elsewhere.push(request.url()));
  const go = async (hash, heading, at = address) => {
    await page.goto(`${at}/#/`);
    await page.goto(`${at}/${hash}`);
    await page.waitForFunction((heading) => document.querySelector("h1")?.textContent === heading, heading);
  };
  const text = (selector) => page.locator(selector).first().textContent();
  const comesTo = (selector, wanted) => page.waitForFunction(([selector, wanted]) => document.querySelector(selector)?.textContent.includes(wanted), [selector, wanted]);
  const figure = (name) => page.locator(".figure", { hasText: name }).locator(".value").first();
  const number = async (name) => Number((await figure(name).textContent()).replaceAll(/[^\d.]/g, ""));
  /** Says yes in the dialog that is open; the button that does nothing has the focus. */
  const yes = async () => {
    await page.waitForSelector("dialog[open]");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Cancel");
    await page.click("dialog button[value=yes]");
  };
  const accessible = async (what) => {
    await page.evaluate(axe);
    const found = await page.evaluate(() => axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }));
    const bad = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
    assert.deepEqual(bad.map((one) => `${what}: ${one.id}: ${one.nodes.map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ""}`).join(" | ")}`), []);
  };
  const picture = async (name, { width = 1180, height = 900, dark = false, whole = true } = {}) => {
    if (!pictures) return;
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: dark ? "dark" : "light" });
    await page.waitForFunction(() => document.getElementById("said").textContent === "");
    await page.evaluate(() => scrollTo(0, 0));
    await page.waitForTimeout(300);
    await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: whole });
    await page.setViewportSize({ width: 1180, height: 900 });
    await page.emulateMedia({ colorScheme: "light" });
  };

  await check("the page comes with a policy, and nothing from elsewhere", async () => {
    const answer = await page.goto(address);
    assert.match(answer.headers()["content-security-policy"], /default-src 'none'/);
    await comesTo("h1", "Overview");
    await comesTo("#link", "live");
  });

  await check("a filter is created", async () => {
    await go("#/filters", "Filters");
    await page.fill("#new-filter input >> nth=0", "urls");
    await page.fill("#new-filter input >> nth=1", "5000");
    await page.click("#new-filter button");
    await page.waitForSelector("dialog[open]");
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { state: "detached" });
    assert.equal(await page.locator("tbody tr").count(), 0, "it was not wanted");
    await page.click("#new-filter button");
    await yes();
    await page.waitForSelector("tbody tr");
    assert.equal((await call("GET", "/v1/filters/urls")).capacity, 5000);
  });

  await check("numbers move while a Redis client adds and asks", async () => {
    await go("#/filters/urls", "urls");
    assert.equal(await number("Keys"), 0);
    let last = 0;
    for (let round = 0; round < 4; round += 1) {
      await resp(main.port, Array.from({ length: 500 }, (_, index) => ["BF.ADD", "urls", `https://example.org/${round}/${index}`]));
      await resp(main.port, Array.from({ length: 300 }, (_, index) => ["BF.EXISTS", "urls", `https://example.org/0/${index}`]));
      const before = last;
      last = await until("the page shows more keys", async () => { const now = await number("Keys"); return now > before && now; }, 10);
    }
    await until("all of them", async () => (await number("Keys")) >= 1995, 10);
    await go("#/", "Overview");
    assert.ok((await number("Keys held")) >= 1995);
  });

  await check("a key is tried, and its cells are drawn", async () => {
    await go("#/filters/urls", "urls");
    await page.fill("input.key", "https://example.org/0/1");
    await page.keyboard.press("Enter");
    await comesTo("#tried .verdict", "Maybe");
    assert.equal(await page.locator("#tried .cell.own").count(), 8);
    assert.equal(await page.locator("#tried .cell.own.missing").count(), 0);
    await page.fill("input.key", "https://example.org/nobody");
    await page.keyboard.press("Enter");
    await comesTo("#tried .verdict", "Absent");
    assert.ok((await page.locator("#tried .cell.own.missing").count()) >= 1);
    await page.click("text=Add…");
    await yes();
    await comesTo("#tried .verdict", "Maybe");
    await page.evaluate(() => scrollTo(0, 0));
    await until("a point of the past is drawn", () => page.evaluate(() => document.querySelectorAll(".plot path.line").length > 1), 25);
    await accessible("filter");
    await picture("filter");
  });

  await check("a filter is resized, and its sizes are listed", async () => {
    await page.fill("#resize input >> nth=0", "20000");
    await page.click("#resize button");
    await yes();
    await until("the size is there", async () => (await call("GET", "/v1/filters/urls")).capacity === 20000);
    await comesTo(".card table", "asked for");
  });

  await check("filters are merged, exported and dropped", async () => {
    await call("POST", "/v1/filters", { name: "more", capacity: 5000, error: 0.01 });
    await call("POST", "/v1/filters/more/add", { keys: ["one more", "another"] });
    await go("#/filters/urls", "urls");
    await page.selectOption("#merge select", "more");
    await page.click("#merge button");
    await yes();
    await comesTo("#said", "keys were new");
    assert.deepEqual((await call("POST", "/v1/filters/urls/check", { keys: ["one more", "another"] })).answers, ["maybe", "maybe"]);
    await page.click("#export button");
    const [saved] = await Promise.all([page.waitForEvent("download"), yes()]);
    assert.equal(saved.suggestedFilename(), "urls.native");
    assert.ok(readFileSync(await saved.path()).length > 1000);
    await go("#/filters/more", "more");
    await page.click("#drop button");
    await yes();
    await comesTo("h1", "Filters");
    assert.equal(await page.locator("tbody tr").count(), 1);
  });

  await check("a rollout is published to live copies, paused, and rolled back", async () => {
    for (const region of ["eu", "us", "ap"]) replicate(binary, address, "urls", `region=${region}`, "notify");
    await go("#/sync/urls", "Copies");
    await until("three copies are listed", async () => (await page.locator(".card").first().locator("tbody tr").count()) === 3, 30);
    await page.click("#publish button");
    await yes();
    await comesTo("#said", "is published");
    const { current } = await call("GET", "/v1/filters/urls/versions");
    // While copies listen, changes are published by themselves: this one stays what they have until a rollout brings another.
    await call("PUT", "/v1/filters/urls/current", { version: current });
    await resp(main.port, Array.from({ length: 100 }, (_, index) => ["BF.ADD", "urls", `new ${index}`]));
    await page.fill("#rollout input >> nth=0", "40,100");
    await page.fill("#rollout input >> nth=1", "3600");
    await page.fill("#rollout input >> nth=2", "https://example.org/0/1");
    await page.click("#rollout button");
    await yes();
    await comesTo("#rollout-state", "under way");
    await page.click("text=Pause…");
    await yes();
    await comesTo("#rollout-state", "paused");
    const { target } = await call("GET", "/v1/filters/urls/rollout");
    assert.ok(target > current);
    await accessible("sync");
    await picture("copies");
    await page.click("text=Roll back… >> visible=true");
    await yes();
    await comesTo("#rollout-state", "rolled back");
    const have = async () => (await call("GET", "/v1/filters/urls/replicas")).replicas.map((replica) => replica.version);
    await until("all copies are back", async () => (await have()).every((version) => version === current), 30);
    // And once more, to its end.
    await page.fill("#rollout input >> nth=0", "100");
    await page.fill("#rollout input >> nth=1", "0");
    await page.click("#rollout button");
    await yes();
    await comesTo("#rollout-state", "done");
    await until("all copies have it", async () => (await have()).every((version) => version > current), 30);
    await page.locator("button", { hasText: "Roll back…" }).last().click();
    await yes();
    await comesTo("#said", "is current");
  });

  await check("hostile names and keys stay text", async () => {
    await call("POST", "/v1/filters", { name: hostile, capacity: 100, error: 0.01, growth: 1 });
    // More than it takes.
    await fetch(`${address}/v1/filters/${encodeURIComponent(hostile)}/add`, { method: "POST", headers: { "content-type": "text/plain" }, body: Array.from({ length: 150 }, (_, index) => `${hostile}${index}`).join("\n") });
    await go("#/filters", "Filters");
    await page.waitForSelector("tbody tr:nth-child(2)");
    await page.locator("tbody a", { hasText: "onerror" }).click();
    await comesTo("h1", "onerror");
    assert.ok((await text("h1")).includes("\\u{202e}"), "letters that turn others round are written out");
    await page.fill("input.key", hostile);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#tried .verdict");
    await page.click("text=Add…");
    await page.waitForSelector("dialog[open]");
    await page.keyboard.press("Escape");
    await go(`#/sync/${encodeURIComponent(hostile)}`, "Copies");
    await go("#/", "Overview");
    await until("it is said to be full", async () => page.locator(".alerts a", { hasText: "onerror" }).count().then((count) => count > 0), 30);
    await go("#/slowlog", "Slow log");
    await comesTo("tbody", "BF.ADD");
    assert.equal(await page.locator("main img").count(), 0);
    assert.ok(!(await page.title()).includes("taken"));
    await page.goto(`${address}/#/filters/%E0%A4%A`);
    await page.waitForSelector(".problem");
  });

  await check("every page is accessible, in light, dark and on a phone", async () => {
    await call("POST", "/v1/lookup/records", { key: "https://example.org/0/1" });
    for (const [hash, heading] of [["#/", "Overview"], ["#/filters", "Filters"], ["#/filters/urls", "urls"], ["#/sync/urls", "Copies"], ["#/cluster", "Cluster"], ["#/lookups", "Lookups"], ["#/slowlog", "Slow log"], ["#/settings", "Settings"], ["#/explain", "How it works"]]) {
      await page.emulateMedia({ colorScheme: "light" });
      await go(hash, heading);
      await accessible(heading);
      await page.emulateMedia({ colorScheme: "dark" });
      await accessible(`${heading}, dark`);
      await page.setViewportSize({ width: 380, height: 800 });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= 380, `${heading} is ${wide} wide on a phone`);
      await page.setViewportSize({ width: 1180, height: 900 });
    }
    await page.emulateMedia({ colorScheme: "light" });
  });

  await check("domains, settings and a server by itself are told plainly", async () => {
    await go("#/cluster", "Cluster");
    await comesTo("main", "This server is not a cluster");
    await go("#/lookups", "Lookups");
    await page.fill("input.key", "https://example.org/0/1");
    await page.keyboard.press("Enter");
    await comesTo(".verdict", "Maybe");
    await comesTo("main", "https://example.org/0/1");
    await go("#/settings", "Settings");
    await page.fill("input[type=search]", "memory for the arrays");
    assert.equal(await page.locator("tbody tr").count(), 1);
    await comesTo("tbody", "256MiB");
  });

  await check("the keyboard is enough", async () => {
    await go("#/", "Overview");
    await page.reload();
    await comesTo("h1", "Overview");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the page");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    await page.focus("nav a[data-page=filters]");
    await page.keyboard.press("Enter");
    await comesTo("h1", "Filters");
    assert.equal(await page.getAttribute("nav a[data-page=filters]", "aria-current"), "page");
  });

  await check("the explainer shows where false positives come from, and what a filter takes", async () => {
    await go("#/explain", "How it works");
    for (let time = 0; time < 3; time += 1) await page.click("text=Add the next number");
    assert.equal(await page.locator(".eleven .cell.set").count(), 5, "25, 159 and 585 set bits 0, 2, 5, 7 and 9");
    await page.locator("input[type=number]").first().fill("118");
    await page.keyboard.press("Enter");
    await comesTo("#eleven-told", "never added, for certain");
    const wrong = await page.evaluate(() => [...document.querySelectorAll(".answer.wrong title")].map((title) => title.textContent.split(":")[0])[5]);
    await page.locator("input[type=number]").first().fill(wrong);
    await page.keyboard.press("Enter");
    await comesTo("#eleven-told", "false positive");
    for (let time = 0; time < 16; time += 1) await page.click("text=Add the next word");
    await comesTo("#blocks-told", "16 keys");
    await comesTo("#planned", "Bits a key");
    const plan = await call("GET", "/v1/plan?capacity=1000000000&error=0.001&copies=2&node_memory_bytes=17179869184");
    assert.ok((await text("#planned")).includes(plan.bits_per_key.toFixed(2)));
    await picture("explainer");
  });

  await check("another website can neither read nor write", async () => {
    const before = (await call("GET", "/v1/filters/urls")).items;
    const evil = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<title>evil</title>")).listen(0, "127.0.0.1");
    await new Promise((done) => evil.once("listening", done));
    const other = await browser.newPage();
    await other.goto(`http://localhost:${evil.address().port}/`);
    const statuses = await other.evaluate(async (target) => {
      const tried = [];
      for (const options of [{ mode: "cors" }, { mode: "no-cors" }]) tried.push(await fetch(`${target}/v1/filters/urls/add`, { method: "POST", body: "taken", headers: { "content-type": "text/plain" }, ...options }).then((answer) => answer.type, () => "refused"));
      return tried;
    }, address);
    assert.deepEqual(statuses, ["refused", "opaque"]);
    assert.equal((await call("GET", "/v1/filters/urls")).items, before);
    assert.deepEqual((await call("POST", "/v1/filters/urls/check", { keys: ["taken"] })).answers, ["absent"]);
    await other.close();
    evil.close();
  });

  await check("a server with a password asks for a token, and its scope counts", async () => {
    const guarded = await serve(binary, "guarded", ["--password", "a long password"]);
    const root = { authorization: `Basic ${Buffer.from("default:a long password").toString("base64")}`, "content-type": "application/json" };
    const make = (path, body) => fetch(guarded.address + path, { method: "POST", headers: root, body: JSON.stringify(body) }).then((answer) => answer.json());
    await make("/v1/filters", { name: "mails", capacity: 1000, error: 0.01 });
    const { token } = await make("/v1/tokens", { scope: "read" });
    const other = await browser.newPage();
    await other.goto(guarded.address);
    await other.waitForSelector("dialog[open]");
    await other.fill("dialog input", token);
    await other.click("dialog button[value=yes]");
    await other.waitForFunction(() => document.querySelector("h1")?.textContent === "Overview" && document.querySelector("#link").textContent === "live");
    await other.goto(`${guarded.address}/#/settings`);
    await other.waitForSelector(".problem");
    assert.match(await other.locator(".problem").textContent(), /no permissions|may not|permission/i);
    assert.equal(await other.evaluate(() => localStorage.length + document.cookie.length), 0);
    await other.close();
  });

  await check("a cluster has its ring drawn", async () => {
    const port = await redis();
    const words = (node) => ["--cluster", "local", "--node", node, "--cluster-secret", "known to all who are here", "--log", `redis://127.0.0.1:${port}/c?partitions=8`, "--blobs", `redis://127.0.0.1:${port}/c`, "--registry", `redis://127.0.0.1:${port}/c`];
    const nodes = await Promise.all(["one", "two", "three"].map((node) => serve(binary, node, words(node))));
    await page.goto(`${nodes[0].address}/#/cluster`);
    await comesTo("h1", "Cluster");
    await until("all nodes are listed", async () => (await page.locator(".legend li").count()) === 3, 30);
    assert.ok((await page.locator(".piece").count()) >= 2 * 256);
    await until("nothing moves", async () => (await number("Moves in progress")) === 0, 30);
    await accessible("cluster");
    await picture("cluster");
    await call("POST", "/v1/filters", { name: "shared", capacity: 1000, error: 0.01 }, nodes[0].address);
    await page.goto(`${nodes[1].address}/#/filters/shared`);
    await comesTo("h1", "shared");
    await page.fill("input.key", "a key");
    await page.keyboard.press("Enter");
    await comesTo("#tried .verdict", "Absent");
    elsewhere.length = 0;
  });

  if (pictures) {
    let stop = false;
    const work = (async () => {
      for (let round = 0; !stop; round += 1) {
        await resp(main.port, Array.from({ length: 40 + (round % 7) * 10 }, (_, index) => ["BF.ADD", "urls", `https://example.org/later/${round}/${index}`]));
        await resp(main.port, Array.from({ length: 200 + (round % 5) * 60 }, (_, index) => ["BF.EXISTS", "urls", `https://example.org/${index}`]));
        await new Promise((done) => setTimeout(done, 700));
      }
    })();
    await call("DELETE", `/v1/filters/${encodeURIComponent(hostile)}`);
    await call("POST", "/v1/filters", { name: "sessions", capacity: 2000000, error: 0.001, kind: "counting" });
    await call("POST", "/v1/filters", { name: "mails", capacity: 1000, error: 0.01, growth: 1 });
    await go("#/", "Overview");
    for (let point = 0; point < 5; point += 1) {
      await call("POST", "/v1/filters/mails/add", { keys: Array.from({ length: 20 }, (_, index) => `mail ${point} ${index}`) });
      await new Promise((done) => setTimeout(done, 11000));
    }
    await picture("overview");
    await picture("overview-dark", { dark: true });
    await picture("overview-phone", { width: 380, height: 800, whole: false });
    await go("#/filters", "Filters");
    await picture("filters");
    await go("#/filters/urls", "urls");
    await page.fill("input.key", "https://example.org/0/1");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#tried .verdict");
    await page.waitForTimeout(1500);
    await picture("filter");
    await picture("filter-phone", { width: 380, height: 800, dark: true, whole: false });
    await go("#/settings", "Settings");
    await page.fill("input[type=search]", "slowlog");
    await picture("settings", { height: 620, whole: false });
    for (let asked = 0; asked < 12; asked += 1) {
      await call("POST", "/v1/lookup/records", { key: `https://example.org/0/${Math.trunc(asked / 4) + 1}` });
    }
    await go("#/lookups", "Lookups");
    await page.fill("input.key", "https://example.org/0/1");
    await page.keyboard.press("Enter");
    await comesTo(".verdict", "Maybe");
    await picture("lookups");
    await go("#/slowlog", "Slow log");
    await comesTo("tbody", "BF.ADD");
    await picture("slowlog", { whole: false });
    stop = true;
    await work;
  }
  assert.deepEqual(troubles, []);
  assert.deepEqual(elsewhere, []);
  console.log(`${passed} checks of the console passed`);
} finally {
  await browser.close();
  rmSync(profile, { recursive: true, force: true });
  await end();
}
