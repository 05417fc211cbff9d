// How the page looks and is read: small phones, dark, Chinese, screen readers, the first load.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { AxeBuilder } from "@axe-core/playwright";
import { TestHub, TestNode, cleanUp, enter, eventually, launch, show } from "./harness.js";

const VIEWS = ["chat", "requests", "nodes", "more", "people", "channels", "audit", "settings"];
const FIRST_LOAD = 150 * 1024;

let browser;
let hub;
let node;

before(async () => {
  browser = await launch();
  hub = await TestHub.start();
  // Fast values, so that there is a chart to look at.
  node = await TestNode.paired(hub, "garage", '[[board.camera]]\nid = "cam0"\nname = "Camera"\ndriver = "simulated"\n[[board.pin]]\nid = "pump"\nname = "Pump"\ndirection = "output"\ndriver = "simulated"\n[[board.sensor]]\nid = "greenhouse"\nname = "Greenhouse"\nquantity = "temperature"\nunit = "°C"\ndriver = "simulated"\nbase = 21.0\nswing = 3.0\ninterval_ms = 200\n');
});

after(cleanUp);

/** No violation of any rule of axe, nothing wider than the screen, and nothing in the console. */
async function sound(page, where) {
  const { violations } = await new AxeBuilder({ page }).analyze();
  assert.deepEqual(violations.map((v) => `${where}: ${v.id}: ${v.nodes.map((n) => n.target.join(" ")).join(", ")}`), []);
  const wide = await page.evaluate(() => [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("pre, .scroll, .unseen, .skip, svg")).map((e) => `${e.tagName}.${e.className}`));
  assert.deepEqual(wide, [], `${where}: wider than the screen`);
  assert.deepEqual(page.faults, [], where);
}

/** Every view with something in it: a waiting card, a picture, a node. */
async function tour(page, mark) {
  await page.locator("#say").fill("turn the pump on for 20 seconds");
  await page.keyboard.press("Enter");
  await page.locator(".card .answers").waitFor();
  for (const view of VIEWS) {
    await show(page, view);
    await page.waitForLoadState("networkidle");
    if (view === "requests" || view === "chat") await page.locator(".card .answers").waitFor();
    await sound(page, `${mark} ${view}`);
  }
  await show(page, "nodes");
  await page.locator(".tile").click();
  await page.locator(".chart .line").waitFor();
  await page.locator(".view.node .facts").waitFor();
  await sound(page, `${mark} node`);
  await show(page, "requests");
  await page.locator(".card .danger").click();
  await page.locator(".outcome").waitFor();
  await sound(page, `${mark} decided`);
}

test("light, at 360 pixels", async () => {
  const page = await enter(browser, hub, { colorScheme: "light" });
  await tour(page, "light");
  await page.context().close();
});

test("dark, at 360 pixels", async () => {
  const page = await enter(browser, hub, { colorScheme: "dark" });
  const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(background, "rgb(20, 17, 14)");
  await tour(page, "dark");
  await page.context().close();
});

test("Chinese, at a desktop's width", async () => {
  const page = await enter(browser, hub, { locale: "zh-CN", viewport: { width: 1280, height: 800 } });
  assert.equal(await page.evaluate(() => document.documentElement.lang), "zh-CN");
  await page.getByText("要我做什么").or(page.locator(".message")).first().waitFor();
  await tour(page, "zh");
  const english = await page.evaluate(() => [...document.querySelectorAll("nav .tab > span:not(.badge)")].map((e) => e.textContent));
  assert.deepEqual(english, ["聊天", "请求", "节点", "更多"]);
  await page.context().close();
});

test("language and colours are chosen in the settings and stay", async () => {
  const page = await enter(browser, hub, { at: "settings" });
  await page.locator("#language").selectOption("zh");
  await page.getByRole("heading", { name: "设置" }).waitFor();
  await page.locator("#theme").selectOption("dark");
  await page.reload();
  await page.getByRole("heading", { name: "设置" }).waitFor();
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(20, 17, 14)");
  await sound(page, "chosen");
  await page.context().close();
});

test("the way in is as sound as the rest", async () => {
  const context = await browser.newContext({ viewport: { width: 360, height: 740 } });
  const page = await context.newPage();
  page.faults = [];
  const url = await hub.link();
  await page.goto(url);
  await page.locator("#name").waitFor();
  await sound(page, "join");
  await page.locator("button[type=submit]").click();
  await page.locator("nav").waitFor();
  await context.close();
  const stranger = await browser.newContext({ viewport: { width: 360, height: 740 } });
  const door = await stranger.newPage();
  door.faults = [];
  await door.goto(url);
  await door.locator("button[type=submit]").click();
  await door.getByText("This browser is not let in").waitFor();
  await sound(door, "locked");
  await door.goto("about:blank");
  await hub.json("pair", "--no-wait");
  await door.goto(hub.origin);
  await door.getByText("Somebody has to let you in").waitFor();
  await sound(door, "waiting");
  await stranger.close();
});

test("with the keyboard alone: to a view, into the chat, through a card", async () => {
  const page = await enter(browser, hub);
  await page.locator("#say").focus();
  await page.keyboard.type("turn the pump on for 20 seconds");
  await page.keyboard.press("Enter");
  await page.locator(".card .answers").waitFor();
  const deny = page.getByRole("button", { name: "Deny" });
  await page.locator(".log").focus();
  await eventually("the button is reached", async () => {
    await page.keyboard.press("Tab");
    return deny.evaluate((e) => e === document.activeElement);
  });
  await page.keyboard.press("Space");
  await page.locator(".message.assistant").last().waitFor();
  await page.locator("nav a").nth(2).focus();
  await page.keyboard.press("Enter");
  await page.locator(".view.nodes").waitFor();
  await page.context().close();
});

test("both languages have the same texts, with the same places in them", async () => {
  const [en, zh] = await Promise.all(["en", "zh"].map(async (l) => (await import(`../../hub/web/lang/${l}.js`)).default));
  assert.deepEqual(Object.keys(zh), Object.keys(en));
  const places = (text) => (text.match(/\{\w+\}/g) ?? []).sort();
  for (const key of Object.keys(en)) assert.deepEqual(places(zh[key]), places(en[key]), key);
});

test("the page escapes the very characters that the hub and the command line escape", async () => {
  const { safe } = await import("../../hub/web/dom.js");
  const source = readFileSync(new URL("../../shared/src/identity.rs", import.meta.url), "utf8");
  const listed = /pub fn is_deceptive[\s\S]*?matches!\(c,([\s\S]*?)\)\n/.exec(source)[1];
  const ranges = [...listed.matchAll(/'\\u\{(\w+)\}'(?:\.\.='\\u\{(\w+)\}')?/g)].map(([, a, b]) => [parseInt(a, 16), parseInt(b ?? a, 16)]);
  assert.ok(ranges.length > 15, "the list was found");
  const deceptive = (c) => c < 0x20 || (c >= 0x7f && c < 0xa0) || ranges.some(([a, b]) => c >= a && c <= b);
  const differ = [];
  for (let c = 0; c <= 0x10ffff; c += 1) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    if ((safe(String.fromCodePoint(c)) !== String.fromCodePoint(c)) !== deceptive(c)) differ.push(c.toString(16));
  }
  assert.deepEqual(differ, []);
});

test("the first load is small, and comes with the policy", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  let total = 0;
  page.on("response", async (response) => {
    const { responseHeadersSize, responseBodySize } = await response.request().sizes();
    total += responseHeadersSize + responseBodySize;
  });
  const response = await page.goto(await hub.link());
  await page.locator("button[type=submit]").click();
  await page.locator(".view.chat").waitFor();
  await page.waitForLoadState("networkidle");
  assert.ok(total > 40 * 1024 && total <= FIRST_LOAD, `${total} bytes`);
  console.log(`first load: ${Math.round(total / 1024)} KB`);
  const policy = response.headers()["content-security-policy"];
  assert.match(policy, /^default-src 'none';/);
  assert.doesNotMatch(policy, /unsafe|\*|https?:|data:/);
  assert.match(policy, /require-trusted-types-for 'script'/);
  await context.close();
});

test("it can be installed, and opens when the hub is away", async () => {
  const page = await enter(browser, hub);
  const manifest = JSON.parse(readFileSync(new URL("../../hub/web/manifest.webmanifest", import.meta.url)));
  for (const icon of manifest.icons) assert.equal((await page.request.get(`${hub.origin}${icon.src}`)).status(), 200, icon.src);
  await page.evaluate(() => navigator.serviceWorker.ready);
  // The worker keeps what it has seen: one visit with it in charge.
  await page.reload();
  await page.locator("nav").waitFor();
  await page.evaluate(() => navigator.serviceWorker.controller !== null);
  await hub.end();
  await page.reload();
  await page.getByText("The hub cannot be reached").waitFor();
  await hub.restart();
  await page.locator("nav").waitFor({ timeout: 35_000 });
  await page.context().close();
});
