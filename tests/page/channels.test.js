// Letting a stranger on a chat platform in from the page: he gets a code, somebody types it here.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { TestHub, cleanUp, enter, eventually, launch } from "./harness.js";

const STRANGER = { id: 4711, is_bot: false, first_name: "<b>Eve</b>\u202e" };

let browser;
let hub;
let server;
const sent = [];

/** The least of a Bot API: one message from a stranger, then nothing more. */
function botApi() {
  let told = false;
  return createServer((request, response) => {
    const body = [];
    request.on("data", (piece) => body.push(piece));
    request.on("end", () => {
      const method = request.url.split("/").at(-1);
      const answer = (result) => response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ ok: true, result }));
      if (method === "getMe") return answer({ id: 1, is_bot: true, first_name: "Hearth", username: "hearth_test_bot" });
      if (method === "getUpdates") {
        if (told) return setTimeout(() => answer([]), 500);
        told = true;
        const chat = { id: STRANGER.id, type: "private", first_name: STRANGER.first_name };
        return answer([{ update_id: 10, message: { message_id: 5, date: Math.floor(Date.now() / 1000), from: STRANGER, chat, text: "hello" } }]);
      }
      if (method === "sendMessage") {
        const message = JSON.parse(Buffer.concat(body).toString());
        sent.push(message);
        return answer({ message_id: 100 + sent.length, date: 1, chat: { id: message.chat_id, type: "private" }, text: message.text });
      }
      return answer(true);
    });
  });
}

before(async () => {
  browser = await launch();
  server = botApi();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  hub = await TestHub.start(`[channels.telegram]\ntoken = "1:${"a".repeat(35)}"\napi_base = "http://127.0.0.1:${server.address().port}"\npoll_s = 1\n`);
});

after(async () => {
  await cleanUp();
  server?.close();
  server?.closeAllConnections();
});

test("the code that a stranger was given lets him in, and nothing else of his counts", async () => {
  const page = await enter(browser, hub, { at: "channels" });
  const code = await eventually("he was given a code", () => /\b[A-HJ-NP-Z2-9]{8}\b/.exec(sent.map((m) => m.text).join(" "))?.[0]);
  const card = page.locator(".card[data-channel=telegram]");
  await card.getByText("was given a code").waitFor();
  const text = await card.textContent();
  assert.ok(text.includes("<b>Eve</b>") && !text.includes("\u202e"), text);
  assert.ok(!text.includes(code), "the code itself is with the stranger only");
  await card.locator("input[type=text]").fill("AAAAAAAA");
  await card.getByRole("button", { name: "Let in" }).click();
  await page.locator(".toast.error").waitFor();
  await card.locator("input[type=text]").fill(code.toLowerCase());
  await card.getByRole("button", { name: "Let in" }).click();
  await card.getByText("may write").first().waitFor();
  await card.getByRole("button", { name: "Remove" }).click();
  await page.locator("dialog .danger").click();
  await card.getByText("Nobody may write there yet").waitFor();
  assert.equal(await page.locator("main b").count(), 0);
  assert.deepEqual(page.faults, []);
  await page.context().close();
});
