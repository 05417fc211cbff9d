// The hub against `telegram-test-api`, an emulation of Telegram that others wrote: polling, text, buttons.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import telegramTestApi from "telegram-test-api";

const TelegramServer = telegramTestApi.default ?? telegramTestApi;
const BIN = process.env.HEARTH_BIN;
const TOKEN = "123456789:made_up_for_tests";
const OWNER = 4711;
const run = promisify(execFile);
const children = [];
const homes = [];
let telegram;
let owner;
let hub;

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function eventually(what, check) {
  for (const start = Date.now(); Date.now() - start < 30_000;) {
    const value = await check();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`still not: ${what}\n${homes.map((h) => readFileSync(join(h, "output.log"), "utf8")).join("\n")}`);
}

function home(file, config) {
  const folder = mkdtempSync(join(tmpdir(), "hearth-chat-"));
  writeFileSync(join(folder, file), config);
  writeFileSync(join(folder, "output.log"), "");
  homes.push(folder);
  return folder;
}

function start(program, folder) {
  const log = openSync(join(folder, "output.log"), "a");
  children.push(spawn(join(BIN, program), ["run", "--home", folder], { stdio: ["ignore", log, log] }));
}

const cli = async (program, folder, ...args) => (await run(join(BIN, program), [...args, "--home", folder])).stdout;

/** What the bot has said to a chat, as it stands now. */
async function said(client, chat) {
  const history = await client.getUpdatesHistory();
  return history.filter((u) => u.message?.chat_id !== undefined && String(u.message.chat_id) === String(chat));
}

const say = (client, text) => client.sendMessage(client.makeMessage(text));

before(async () => {
  telegram = new TelegramServer({ port: await freePort(), host: "127.0.0.1", storeTimeout: 600 });
  await telegram.start();
  owner = telegram.getClient(TOKEN, { userId: OWNER, chatId: OWNER, firstName: "Ann", timeout: 5_000 });
  const port = await freePort();
  hub = home("config.toml", `[gateway]\nport = ${port}\n[channels.telegram]\ntoken = "${TOKEN}"\n`
    + `api_base = "${telegram.config.apiURL}"\npoll_s = 1\n[channels.telegram.access]\napprovers = ["${OWNER}"]\n`);
  start("hearth", hub);
  await eventually("the hub answers", () => cli("hearth", hub, "status").then(() => true, () => false));
});

after(async () => {
  for (const child of children) child.kill("SIGKILL");
  await telegram.stop();
  for (const folder of homes) rmSync(folder, { recursive: true, force: true });
});

test("the owner is answered, once", async () => {
  await say(owner, "/help");
  await eventually("an answer", async () => (await said(owner, OWNER)).length === 1);
  await say(owner, "/status");
  const all = await eventually("the second answer", async () => {
    const messages = await said(owner, OWNER);
    return messages.length > 1 && messages;
  });
  assert.equal(all.length, 2);
});

test("somebody unknown gets a code, and is let in with it", async () => {
  const guest = telegram.getClient(TOKEN, { userId: 4712, chatId: 4712, firstName: "Ben", timeout: 5_000 });
  await say(guest, "hello");
  const [message] = await eventually("a code", async () => {
    const messages = await said(guest, 4712);
    return messages.length > 0 && messages;
  });
  const code = /\b[A-HJ-NP-Z2-9]{8}\b/.exec(message.message.text)[0];
  assert.match(await cli("hearth", hub, "channels", "allow", "telegram", code), /Ben \(4712\) may write now/);
  await eventually("a welcome", async () => (await said(guest, 4712)).length === 2);
});

test("a card's button lets the pump run, and the card says so", async () => {
  const node = home("node.toml", 'name = "garage"\n[board]\nsimulate = true\n');
  const { window } = JSON.parse(await cli("hearth", hub, "pair", "--no-wait", "--json"));
  await cli("hearth-node", node, "pair", window.code, "--yes");
  start("hearth-node", node);
  await eventually("the node is there", async () => /connected/.test(await cli("hearth", hub, "nodes", "list")));
  await say(owner, "turn the pump on for 20 seconds");
  const card = await eventually("a card", async () => (await said(owner, OWNER)).find((u) => u.message.reply_markup));
  const [allow] = card.message.reply_markup.inline_keyboard[0];
  assert.equal(allow.text, "Allow once");
  assert.ok(Buffer.byteLength(allow.callback_data) <= 64);
  const message = { message_id: card.messageId, text: card.message.text };
  await owner.sendCallback(owner.makeCallbackQuery(allow.callback_data, { message }));
  await eventually("the card says so", async () =>
    (await said(owner, OWNER)).some((u) => u.messageId === card.messageId && u.message.text.includes("Allowed once by telegram: Ann (4711)")));
  await eventually("the answer", async () => (await said(owner, OWNER)).some((u) => /is on/i.test(u.message.text) && u.messageId > card.messageId));
});
