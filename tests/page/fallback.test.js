// Behind a clicked-away certificate warning, with sockets refused: what the session over HTTP shows and survives.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { TestHub, cleanUp, eventually, launch } from "./harness.js";

let browser;
let hub;

before(async () => {
  browser = await launch();
  hub = await TestHub.start();
});

after(cleanUp);

test("the secret is in headers alone; a killed hub is found again; who leaves is gone", async () => {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  await context.addInitScript(() => {
    globalThis.WebSocket = class {
      constructor() {
        setTimeout(() => this.onclose?.({ code: 1006, reason: "" }));
      }

      close() {}
    };
  });
  const page = await context.newPage();
  const streams = [];
  page.on("request", (request) => {
    if (new URL(request.url()).pathname.startsWith("/stream")) streams.push(request);
  });
  await page.goto((await hub.link()).replace("http:", "https:"));
  await page.locator("button[type=submit]").click();
  await page.locator("nav").waitFor();
  const [first, ...sent] = streams;
  assert.equal(first.url(), `https://127.0.0.1:${hub.port}/stream`);
  assert.ok(sent.length > 1);
  for (const request of sent) {
    assert.match((await request.allHeaders()).authorization, /^Bearer [\w-]{43}$/);
    assert.match(request.url(), /\/stream\/[0-9a-f-]{36}$/);
  }
  assert.deepEqual(await context.cookies(), []);

  const clients = async () => (await hub.json("status")).hub.connections.clients;
  await hub.end("SIGKILL");
  await hub.restart();
  // The page, and the command line that asks.
  await eventually("the page is back", async () => (await clients()) === 2, 40_000);
  const replies = page.locator(".message.assistant");
  await page.locator("#say").fill("what is connected?");
  await page.keyboard.press("Enter");
  await replies.first().waitFor();

  await context.close();
  await eventually("who leaves is gone", async () => (await clients()) === 1);
});
