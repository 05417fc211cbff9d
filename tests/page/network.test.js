// Over TLS, over HTTP alone, with the page closed.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { TestHub, TestNode, cleanUp, enter, eventually, launch, show, watchFaults } from "./harness.js";

let browser;
let hub;

before(async () => {
  browser = await launch();
  hub = await TestHub.start();
  await TestNode.paired(hub, "garage");
});

after(cleanUp);

const answered = async (page) => {
  const replies = page.locator(".message.assistant", { hasText: "garage" });
  const before = await replies.count();
  await page.locator("#say").fill("what is connected?");
  await page.keyboard.press("Enter");
  await replies.nth(before).waitFor();
};

test("over https with a certificate that a person clicked through", async () => {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const page = await context.newPage();
  await page.goto((await hub.link()).replace("http:", "https:"));
  await page.locator("button[type=submit]").click();
  await page.locator("nav").waitFor();
  assert.equal(await page.evaluate(() => isSecureContext), true);
  await answered(page);
  await show(page, "settings");
  await page.getByRole("link", { name: "Let this device trust the hub" }).click();
  await page.getByRole("heading", { name: "Let this device trust your hub" }).waitFor();
  await context.close();
});

test("where the browser refuses sockets everything goes over HTTP: streaming, approval, coming back", async () => {
  const context = await browser.newContext();
  await context.addInitScript(() => {
    globalThis.WebSocket = class {
      constructor() {
        setTimeout(() => this.onclose?.({ code: 1006, reason: "" }));
      }

      close() {}
    };
  });
  const page = await context.newPage();
  const faults = watchFaults(page);
  const posts = [];
  page.on("request", (r) => r.method() === "POST" && posts.push(new URL(r.url()).pathname));
  await page.goto(await hub.link());
  await page.locator("button[type=submit]").click();
  await page.locator("nav").waitFor();
  await answered(page);
  await page.locator("#say").fill("turn the pump on for 20 seconds");
  await page.keyboard.press("Enter");
  await page.locator(".card .danger").click();
  await page.locator(".message.assistant", { hasText: "said no" }).waitFor();
  assert.ok(posts.length > 3, JSON.stringify(posts));
  assert.deepEqual(faults, []);
  await context.close();
});

test("a push is shown in the person's words, and leads to what it is about", async () => {
  const page = await enter(browser, hub, { permissions: ["notifications"], at: "settings" });
  await page.locator("#language").selectOption("zh");
  await page.getByRole("heading", { name: "设置" }).waitFor();
  await page.evaluate(() => navigator.serviceWorker.ready);
  const devtools = await page.context().newCDPSession(page);
  const registered = new Promise((resolve) => {
    devtools.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => registrations[0] && resolve(registrations[0]));
  });
  await devtools.send("ServiceWorker.enable");
  const { registrationId } = await registered;
  const push = (data) => devtools.send("ServiceWorker.deliverPushMessage", { origin: hub.origin, registrationId, data });
  await push(JSON.stringify({ kind: "approval", id: "abc" }));
  const told = () => page.evaluate(async () => {
    const registration = await navigator.serviceWorker.ready;
    return (await registration.getNotifications()).map((n) => [n.title, n.body, n.tag, n.data]);
  });
  const first = await eventually("it is shown", async () => ((await told()).length ? told() : null));
  assert.deepEqual(first, [["Hearth", "有一个请求在等您批准或拒绝", "approval:abc", "/#/requests"]]);
  // What is no notice of the hub's is shown too, as a plain alarm: never its text.
  await push("<script>alert(1)</script>");
  await eventually("both are there", async () => (await told()).length === 2);
  assert.ok(!JSON.stringify(await told()).includes("script"));
  await page.context().close();
});
