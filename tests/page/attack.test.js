// What an attacker may write, send or press, and what must not come of it.

import assert from "node:assert/strict";
import { request } from "node:http";
import { after, before, test } from "node:test";
import { TestHub, TestNode, cleanUp, enter, eventually, launch, show, sleep, watchFaults } from "./harness.js";
import { startModel } from "./model.js";

const SCRIPT = '<img src=x onerror="globalThis.pwned=1"><script>globalThis.pwned=1</script>';
// Right-to-left override, zero-width space, and a tag character.
const HIDING = "\u202e\u200b\u{e0041}";
const MARKDOWN = [
  "# Head\n\n",
  `${SCRIPT}\n\n`,
  "[run](javascript:globalThis.pwned=1) [data](data:text/html,<script>globalThis.pwned=1</script>)\n\n",
  "![spy](https://spy.example/pixel.png)\n\n",
  "[bank.example](https://evil.example/login)\n\n",
  "<a href=\"javascript:globalThis.pwned=1\">x</a> <svg/onload=globalThis.pwned=1>\n\n",
  "- one\n- **two** `three`\n\n```html\n<iframe srcdoc=\"<script>parent.pwned=1</script>\">\n```\n",
];

let browser;
let hub;
let node;
let model;

before(async () => {
  browser = await launch();
  model = await startModel([MARKDOWN, { call: "sensor_read", arguments: { node: "garage", sensor: "t" } }, ["The sensor says <i>t</i>: ", SCRIPT]]);
  hub = await TestHub.start(model.config);
  const name = (text) => JSON.stringify(text);
  node = await TestNode.paired(hub, "garage", `[[board.camera]]\nid = "cam0"\nname = ${name(`${SCRIPT.slice(0, 40)}`)}\ndriver = "simulated"\n[[board.pin]]\nid = "pump"\nname = "<b>pump</b>"\ndirection = "output"\ndriver = "simulated"\n[[board.sensor]]\nid = "t"\nname = "<i>t</i>"\nquantity = "temperature"\nunit = "<u>"\ndriver = "simulated"\nbase = 1.0\nswing = 1.0\ninterval_ms = 200\n`);
});

after(async () => {
  model?.close();
  await cleanUp();
});

/** Nothing ran, nothing was fetched from elsewhere, and nothing that was text became markup. */
async function harmless(page) {
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  assert.equal(await page.locator("main script, main iframe, main object, main form[action], main [onerror], main svg[onload]").count(), 0);
  assert.deepEqual(page.faults, []);
}

const foreign = (page) => {
  const seen = [];
  page.on("request", (r) => { if (!r.url().startsWith(hub.origin) && !r.url().startsWith("blob:")) seen.push(r.url()); });
  return seen;
};

test("script in Markdown from a model stays text, and nothing is fetched from elsewhere", async () => {
  const page = await enter(browser, hub);
  const elsewhere = foreign(page);
  await page.locator("#say").fill("tell me a story about markup");
  await page.keyboard.press("Enter");
  const streaming = page.locator(".message.assistant[aria-busy]");
  await streaming.waitFor();
  await page.locator(".message.assistant pre").waitFor();
  await eventually("it is whole", async () => (await streaming.count()) === 0);
  const reply = page.locator(".message.assistant");
  assert.ok((await reply.textContent()).includes("<script>globalThis.pwned=1</script>"), "shown as the text it is");
  const links = await reply.locator("a").evaluateAll((all) => all.map((a) => [a.href, a.textContent, a.rel, a.target]));
  assert.ok(links.every(([href]) => /^https?:\/\//.test(href)), JSON.stringify(links));
  const evil = links.find(([href]) => href.startsWith("https://evil.example"));
  assert.ok(evil[1].includes("evil.example"), "a label does not hide where a link leads");
  assert.ok(evil[2].includes("noopener") && evil[3] === "_blank");
  assert.equal(await reply.locator("img").count(), 0);
  assert.deepEqual(elsewhere, []);
  await harmless(page);
  await page.reload();
  await page.locator(".message.assistant pre").waitFor();
  await harmless(page);
  await page.context().close();
});

test("script in a tool's result, told on by the model, stays text", async () => {
  const page = await enter(browser, hub);
  await page.locator("#say").fill("tell me what you make of that sensor");
  await page.keyboard.press("Enter");
  const reply = page.locator(".message.assistant", { hasText: "The sensor says" });
  await reply.waitFor();
  await eventually("it is whole", async () => (await reply.textContent()).includes("<script>globalThis.pwned=1</script>"));
  assert.ok(model.requests.at(-1).includes('"role":"tool"'), "the tool ran");
  await harmless(page);
  await page.context().close();
});

test("script in what a person writes, and in a browser's name, stays text", async () => {
  const page = await enter(browser, hub, { name: SCRIPT.slice(0, 60), at: "people" });
  await page.getByText("<img src=x").first().waitFor();
  await harmless(page);
  await show(page, "chat");
  await page.locator("#say").fill(`/status ${SCRIPT}`);
  await page.keyboard.press("Enter");
  await page.locator(".message.user", { hasText: "<script>" }).waitFor();
  await harmless(page);
  await page.context().close();
});

test("names of nodes and their parts are text, and what could hide or turn them is shown", async () => {
  const page = await enter(browser, hub, { at: "people" });
  await page.evaluate(async (label) => {
    const { app } = await import("/app.js");
    const { nodes } = await app.hub.call("node.list");
    await app.hub.call("node.rename", { nodeId: nodes[0].nodeId, displayName: label });
  }, `<b>x${HIDING}`);
  await show(page, "nodes");
  await page.locator(".tile").waitFor();
  const text = await page.locator(".tile h2").textContent();
  assert.ok(text.includes("<b>x"), text);
  assert.ok(!/[\u202e\u200b]/u.test(await page.locator("main").textContent()));
  await page.locator(".tile").click();
  await page.getByText("<i>t</i>").first().waitFor();
  await harmless(page);
  await page.evaluate(async () => {
    const { app } = await import("/app.js");
    const { nodes } = await app.hub.call("node.list");
    await app.hub.call("node.rename", { nodeId: nodes[0].nodeId, displayName: "garage" });
  });
  await page.context().close();
});

/** Asks for something in a page's own name, without waiting for the answer. */
const ask = (page, command, params, reason) => page.evaluate(async ([command, params, reason]) => {
  const { app } = await import("/app.js");
  const { nodes } = await app.hub.call("node.list");
  const key = String(Math.random());
  app.hub.call("node.invoke", { nodeId: nodes[0].nodeId, command, params, reason, idempotencyKey: key }, 60_000).catch(() => {});
}, [command, params, reason]);

test("a reason cannot pass for the card, and hidden characters in parameters are seen by the approver", async () => {
  const [asker, decider] = [await enter(browser, hub, { name: "Asker" }), await enter(browser, hub, { name: "Decider", at: "requests" })];
  const lie = `${SCRIPT} harmless${HIDING} ${"long ".repeat(60)}`.slice(0, 200);
  await ask(asker, "system.run", { command: ["/bin/echo", `rm -rf ${HIDING}txt.exe`, SCRIPT] }, lie);
  const card = decider.locator(".card:has(.answers), .card:has(.said)").first();
  await card.locator(".said").waitFor();
  const [text, said] = [await card.textContent(), await card.locator(".said").textContent()];
  assert.ok(text.includes("\\u{202e}\\u{200b}\\u{e0041}"), text);
  assert.ok(!/[\u202e\u200b]/u.test(text), "no such character is on the screen");
  assert.ok(text.includes("/bin/echo") || text.includes("/usr/bin/echo"));
  assert.ok(said.includes("not checked") && said.includes("harmless"));
  assert.ok(!(await card.locator(".card-title, .facts").first().textContent()).includes("harmless"), "the reason is below, never above");
  await harmless(decider);
  await card.getByRole("button", { name: "Deny" }).click();
  await decider.locator(".outcome").waitFor();
  for (const page of [asker, decider]) await page.context().close();
});

test("a card that no node signed, or that is about something else, is never shown as one", async () => {
  const page = await enter(browser, hub, { at: "more" });
  await ask(page, "gpio.pulse", { pin: "pump", value: true, durationMs: 1000 }, null);
  const found = await page.evaluate(async () => {
    const { app } = await import("/app.js");
    const { openCard, sameMatter } = await import("/card.js");
    const started = Date.now();
    let list = [];
    while (!list.length && Date.now() - started < 10_000) ({ approvals: list } = await app.hub.call("approval.list"));
    const good = await app.hub.call("approval.get", { id: list[0].id });
    const opened = await openCard(good);
    const changed = (change) => {
      const copy = structuredClone(good);
      change(copy);
      return openCard(copy).then(() => "shown", (error) => error.message);
    };
    const other = await crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"]);
    const raw = new Uint8Array(await crypto.subtle.exportKey("raw", other.publicKey));
    const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
    const forged = structuredClone(good);
    forged.card.challenge.text = good.card.challenge.text.replace("1000", "9000");
    const message = new TextEncoder().encode(`hearth-challenge-v1\0${forged.card.challenge.text}`);
    const signature = new Uint8Array(await crypto.subtle.sign({ name: "Ed25519" }, other.privateKey, message));
    forged.card.challenge.signature = btoa(String.fromCharCode(...signature)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
    forged.card.nodeKey = hex(raw);
    const fresh = (text) => ({ ...opened, text, challenge: JSON.parse(text) });
    const t = opened.text;
    return {
      whole: opened.exact,
      text: await changed((c) => { c.card.challenge.text = t.replace("1000", "9000"); }),
      key: await changed((c) => { c.card.nodeKey = hex(raw); }),
      none: await changed((c) => { c.card.nodeKey = null; }),
      request: await changed((c) => { c.approval.id = "0".repeat(32); }),
      forged: await openCard(forged).then(() => "shown", (error) => error.message),
      same: sameMatter(opened, fresh(t.replace(/"nonce":"[0-9a-f]{64}"/, `"nonce":"${"0".repeat(64)}"`))),
      params: sameMatter(opened, fresh(t.replace("1000", "9000"))),
      policy: sameMatter(opened, fresh(t.replace(/"policy":"[0-9a-f]{64}"/, `"policy":"${"0".repeat(64)}"`))),
      need: sameMatter(opened, fresh(t.replace('"need":"hub"', '"need":"none"'))),
    };
  });
  assert.deepEqual(found, {
    whole: true, text: "the node did not sign it", key: "the node did not sign it", none: "the hub did not give the node's key",
    request: "it is about another request", forged: "it names another node", same: true, params: false, policy: false, need: false,
  });
  await show(page, "requests");
  await page.locator(".card .danger").first().click();
  await page.locator(".outcome").waitFor();
  await page.context().close();
});

/** A raw request, with headers that a browser would not let a page set. */
const raw = (path, headers, method = "GET") => new Promise((resolve, reject) => {
  const sent = request({ host: "127.0.0.1", port: hub.port, path, method, headers }, (response) => {
    response.resume();
    response.on("end", () => resolve({ status: response.statusCode, headers: response.headers }));
  });
  sent.on("upgrade", (response, socket) => {
    socket.destroy();
    resolve({ status: response.statusCode, headers: response.headers });
  });
  sent.on("error", reject);
  sent.end();
});

test("a wrong Host or Origin gets nothing", async () => {
  const upgrade = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==" };
  assert.equal((await raw("/", { host: "evil.example" })).status, 421);
  assert.equal((await raw("/app.js", { host: "evil.example" })).status, 421);
  for (const origin of ["https://evil.example", "null", `http://localhost:${hub.port + 1}`, `https://127.0.0.1:${hub.port}`]) {
    assert.equal((await raw("/", { ...upgrade, origin })).status, 403, origin);
  }
  assert.equal((await raw("/", { ...upgrade, origin: hub.origin })).status, 101);
  assert.equal((await raw("/", { ...upgrade, "x-forwarded-for": "1.2.3.4" })).status, 403);
  assert.equal((await raw("/index.html", {}, "POST")).status, 405);
  for (const path of ["/../config.toml", "/%2e%2e/token", "/views/../../token", "/token", "/hub.db"]) assert.equal((await raw(path, {})).status, 404, path);
  const media = await raw(`/media/${"0".repeat(32)}`, {});
  assert.equal(media.status, 401);
  const page = await raw("/", {});
  assert.equal(page.headers["set-cookie"], undefined);
  assert.equal(page.headers["x-content-type-options"], "nosniff");
});

test("a page of another origin can neither frame the hub nor read from it", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.route("http://evil.example/", (route) => route.fulfill({ contentType: "text/html", body: `<iframe src="${hub.origin}/"></iframe>` }));
  await page.goto("http://evil.example/");
  const outcome = await page.evaluate(async (origin) => {
    const read = await fetch(`${origin}/app.js`).then(() => "read", () => "refused");
    const socket = new WebSocket(origin.replace("http", "ws"));
    const joined = await new Promise((resolve) => {
      socket.onopen = () => resolve("joined");
      socket.onerror = () => resolve("refused");
    });
    return { read, joined };
  }, hub.origin);
  assert.deepEqual(outcome, { read: "refused", joined: "refused" });
  await sleep(200);
  const frame = page.frames().find((f) => f !== page.mainFrame());
  assert.equal(await frame.locator("#app").count().catch(() => 0), 0, "the frame stayed empty");
  await context.close();
});

test("strings never become markup or script: the browser itself refuses", async () => {
  const page = await enter(browser, hub);
  const outcome = await page.evaluate(() => {
    const attempt = (run) => {
      try {
        run();
        return "ran";
      } catch (error) {
        return error.name;
      }
    };
    return {
      html: attempt(() => { document.body.innerHTML = "<b>x</b>"; }),
      source: attempt(() => { document.createElement("script").src = "/app.js"; }),
      policy: attempt(() => globalThis.trustedTypes.createPolicy("mine", { createHTML: (s) => s })),
      again: attempt(() => globalThis.trustedTypes.createPolicy("hearth", { createScriptURL: (s) => s })),
    };
  });
  assert.deepEqual(outcome, { html: "TypeError", source: "TypeError", policy: "TypeError", again: "TypeError" });
  await page.context().close();
});

test("a guest's browser may chat; deciding, letting in and changing approvers are refused by the hub", async () => {
  const page = await enter(browser, hub, { rights: "guest", at: "requests" });
  await page.getByText("This browser may not decide").waitFor();
  const refused = await page.evaluate(async () => {
    const { app } = await import("/app.js");
    const calls = [
      ["approval.list", {}], ["approval.resolve", { id: "0000", decision: "allow-once" }], ["device.pair.list", {}],
      ["hearth.approvers.add", { approver: { key: "0".repeat(64), kind: "page", admin: true, name: "me" } }],
      ["hearth.page.link", {}], ["hearth.audit.list", {}], ["chat.inject", { sessionKey: "main", message: "x" }],
    ];
    return Promise.all(calls.map(([method, params]) => app.hub.call(method, params).then(() => `${method} worked`, (e) => e.code)));
  });
  assert.deepEqual(refused, Array(7).fill("FORBIDDEN"));
  await page.context().close();
});

test("without a secure context the page looks and chats, and says what it cannot do", async () => {
  const insecure = await TestHub.start("", 'hosts = ["hearth.test"]');
  const board = await TestNode.paired(insecure, "shed");
  const other = await launch("--host-resolver-rules=MAP hearth.test 127.0.0.1");
  const page = await (await other.newContext()).newPage();
  const faults = watchFaults(page);
  const url = (await insecure.link()).replace("127.0.0.1", "hearth.test");
  await page.goto(url);
  assert.equal(await page.evaluate(() => isSecureContext), false);
  await page.locator("button[type=submit]").click();
  await page.locator("#say").fill("what is connected?");
  await page.keyboard.press("Enter");
  await page.locator(".message.assistant", { hasText: "shed" }).waitFor();
  await show(page, "people");
  await page.getByText("a person's key cannot live here").first().waitFor();
  assert.equal(await page.getByRole("button", { name: "Make a key for decisions" }).count(), 0);
  await show(page, "settings");
  await page.getByText("Open the hub by https").waitFor();
  assert.deepEqual(faults, []);
  await other.close();
  await board.remove();
  await insecure.remove();
});
