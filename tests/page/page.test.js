// A person with the page: let in, talking, deciding, over everything that can happen in between.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { TestHub, TestNode, cleanUp, enter, eventually, launch, show, watchFaults } from "./harness.js";

let browser;
let hub;
let node;

before(async () => {
  browser = await launch();
  hub = await TestHub.start();
  node = await TestNode.paired(hub, "garage");
});

after(cleanUp);

const clean = (page) => assert.deepEqual(page.faults, []);
const card = (page) => page.locator(".card:has(.answers)");

async function say(page, text) {
  if (!(await page.locator("#say").isVisible())) await show(page, "chat");
  await page.locator("#say").fill(text);
  await page.keyboard.press("Enter");
}

/** Whether the pump runs, asked of the node itself. */
async function pump() {
  const { payload } = await hub.json("nodes", "invoke", "garage", "gpio.read", '{"pin":"pump"}');
  return payload.value;
}

async function pending() {
  return (await hub.json("approvals", "list")).approvals;
}

/** Ends what a test left running, so that the next begins with the pump off. */
async function settled() {
  await eventually("nothing waits", async () => (await pending()).length === 0);
}

test("a link lets one browser in, once, and leaves no trace in the address", async () => {
  const url = await hub.link();
  const context = await browser.newContext();
  const page = await context.newPage();
  const faults = watchFaults(page);
  const sent = [];
  page.on("request", (request) => sent.push(request.url()));
  await page.goto(url);
  await page.locator("#name").waitFor();
  assert.equal(page.url(), `${hub.origin}/`);
  await page.locator("#name").fill("Anna's phone");
  await page.locator("button[type=submit]").click();
  await page.locator("nav").waitFor();
  const secret = url.split("#join=")[1];
  assert.ok(sent.every((u) => !u.includes(secret)), "the secret never goes into a request's address");
  await page.reload();
  await page.locator("nav").waitFor();
  assert.deepEqual(await context.cookies(), []);
  assert.deepEqual(faults, []);

  const second = await (await browser.newContext()).newPage();
  await second.goto(url);
  await second.locator("button[type=submit]").click();
  await second.getByText("used already").waitFor();
  await eventually("the first browser's owner is alarmed", async () => (await page.locator(".toast.error").allTextContents()).some((t) => t.includes("second time")));
  await second.context().close();
  await context.close();
});

test("its keys cannot be read out, and the one for connections is not the one for decisions", async () => {
  const page = await enter(browser, hub, { at: "people" });
  await page.getByRole("button", { name: "Make a key for decisions" }).click();
  await page.locator("dialog input").fill("anna");
  await page.locator("dialog button[type=submit]").click();
  await page.getByText("New nodes learn this key").waitFor();
  const keys = await page.evaluate(async () => {
    const { load } = await import("/keys.js");
    const [device, approver] = [await load("device"), await load("approver")];
    const exported = await Promise.allSettled(["pkcs8", "jwk", "raw"].flatMap((form) => [device, approver].map((k) => crypto.subtle.exportKey(form, k.privateKey))));
    return { same: String(device.publicKey) === String(approver.publicKey), extractable: [device, approver].map((k) => k.privateKey.extractable), exported: exported.map((e) => e.status), fields: Object.keys(device) };
  });
  assert.deepEqual(keys, { same: false, extractable: [false, false], exported: Array(6).fill("rejected"), fields: ["privateKey", "publicKey"] });
  clean(page);
  await page.context().close();
});

test("a browser that knocks waits until another page lets it in", async () => {
  const owner = await enter(browser, hub, { at: "people" });
  await hub.json("pair", "--no-wait");
  const context = await browser.newContext();
  const knocker = await context.newPage();
  const faults = watchFaults(knocker);
  await knocker.goto(hub.origin);
  await knocker.getByText("Somebody has to let you in").waitFor();
  const number = await knocker.locator(".gate .code").textContent();
  const knock = owner.locator(".card[data-request]");
  await knock.waitFor();
  assert.ok((await knock.textContent()).includes(number), "both screens show one number");
  await knock.getByRole("button", { name: "Let in" }).click();
  await knocker.locator("nav").waitFor();
  assert.deepEqual(faults, []);
  clean(owner);
  await context.close();
  await owner.context().close();
});

test("put out by the owner it says so, and a new link with new keys brings it back", async () => {
  const page = await enter(browser, hub, { name: "Lost phone" });
  await hub.cli("devices", "revoke", "Lost phone");
  await page.getByText("This browser is not let in").waitFor();
  const old = await page.evaluate(async () => (await import("/app.js")).app.hub.deviceId);
  // The same tab, without a reload: only the fragment changes.
  await page.evaluate((to) => { location.href = to; }, await hub.link());
  await page.getByText("it was turned away or put out before").waitFor();
  assert.equal(page.url(), `${hub.origin}/`);
  await page.getByRole("button", { name: "Begin anew with new keys" }).click();
  await page.locator("nav").waitFor();
  assert.notEqual(await page.evaluate(async () => (await import("/app.js")).app.hub.deviceId), old);
  await page.context().close();
});

test("a picture: asked for, allowed on the card, shown in the chat and with its node", async () => {
  const page = await enter(browser, hub);
  await say(page, "take a picture in the garage");
  await card(page).waitFor();
  const text = await card(page).textContent();
  for (const part of ["garage", "camera.snap", "cam0", "maxWidth", "1600", "simulated", "Takes a picture", "What the assistant says", "Test phone"]) assert.ok(text.includes(part), part);
  await card(page).getByRole("button", { name: "Allow once" }).click();
  const image = page.locator(".message.assistant img");
  await image.waitFor();
  await eventually("the picture is drawn", () => image.evaluate((i) => i.naturalWidth > 100));
  assert.ok((await image.getAttribute("src")).startsWith("blob:"));
  await show(page, "nodes");
  await eventually("the node shows it", () => page.locator(".tile img").first().evaluate((i) => i.naturalWidth > 100));
  await page.locator(".tile").click();
  for (const part of ["Health", "Last pictures", "camera.snap", "needs a yes"]) await page.getByText(part).first().waitFor();
  clean(page);
  await page.context().close();
});

test("denied on the card nothing runs, and the chat says who said no", async () => {
  const page = await enter(browser, hub, { name: "Ben" });
  await say(page, "turn the pump on for 20 seconds");
  await card(page).getByRole("button", { name: "Deny" }).click();
  await page.locator(".message.assistant", { hasText: "Ben" }).waitFor();
  assert.equal(await pump(), false);
  clean(page);
  await page.context().close();
});

test("two pages decide at once: one wins, and both show who", async () => {
  const [anna, ben] = [await enter(browser, hub, { name: "Anna", at: "requests" }), await enter(browser, hub, { name: "Ben", at: "requests" })];
  const asker = await enter(browser, hub, { name: "Carol" });
  await say(asker, "turn the pump on for 20 seconds");
  await Promise.all([card(anna).waitFor(), card(ben).waitFor()]);
  await Promise.all([card(anna).getByRole("button", { name: "Deny" }).click(), card(ben).getByRole("button", { name: "Deny" }).click()]);
  const outcomes = await Promise.all([anna, ben].map((p) => p.locator(".outcome").first().textContent()));
  assert.equal(outcomes[0], outcomes[1]);
  assert.match(outcomes[0], /Denied · by .*(Anna|Ben)/);
  assert.equal(await pump(), false);
  await settled();
  for (const page of [anna, ben, asker]) {
    clean(page);
    await page.context().close();
  }
});

test("a request survives a hub that is killed, and the page comes back by itself", async () => {
  const page = await enter(browser, hub);
  const answer = (text) => page.locator(".message.assistant", { hasText: text });
  const before = await answer("of 1 nodes online").count();
  await say(page, "turn the pump on for 3 seconds");
  await card(page).waitFor();
  await hub.end("SIGKILL");
  await page.getByText("Not connected to the hub").waitFor();
  await say(page, "what is connected?");
  await page.getByText("Not sent yet").waitFor();
  await hub.restart();
  await page.locator("#banner").waitFor({ state: "hidden", timeout: 30_000 });
  await node.connected(hub);
  // Made from a fresh challenge of the node, not from the hub's word.
  await card(page).getByText("On this board that is").waitFor();
  // A card that was renewed under the finger wants another look.
  await eventually("the yes counts", async () => {
    await card(page).getByRole("button", { name: "Allow once" }).click({ timeout: 1_000 }).catch(() => {});
    return (await answer("is on for 3 s").count()) > 0;
  }, 40_000);
  await page.locator(".message.user", { hasText: "what is connected?" }).waitFor();
  await answer("of 1 nodes online").nth(before).waitFor();
  await settled();
  assert.equal(await answer("of 1 nodes online").count(), before + 1, "each answer stands there once");
  assert.equal(await answer("is on for 3 s").count(), 1);
  assert.equal(await page.getByText("Not sent yet").count(), 0, "what was said meanwhile went out");
  await settled();
  // The browser reports the lost connection itself; nothing else may be said.
  assert.deepEqual(page.faults.filter((f) => !/WebSocket|ERR_CONNECTION/.test(f)), []);
  await page.context().close();
});

test("nobody decides in time: the card says so and nothing runs", async () => {
  const short = await TestHub.start("[approvals]\nlifetime_s = 10\n");
  const board = await TestNode.paired(short, "shed");
  const page = await enter(browser, short);
  await say(page, "turn the pump on for 20 seconds");
  await card(page).waitFor();
  await page.locator(".message.assistant").waitFor({ timeout: 25_000 });
  await show(page, "requests");
  await page.getByText("Nobody decided in time").waitFor();
  assert.equal(await card(page).count(), 0);
  clean(page);
  await page.context().close();
  await board.remove();
  await short.remove();
});
