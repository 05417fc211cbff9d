// The real hub and node in directories of their own, and a real browser in front of them.

import { spawn, execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync, openSync, readFileSync } from "node:fs";
import { createConnection, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

const BIN = process.env.HEARTH_BIN;
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const exec = promisify(execFile);

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `check` gives something. */
export async function eventually(what, check, limit = 20_000) {
  const start = Date.now();
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() - start > limit) throw new Error(`still not after ${limit} ms: ${what}`);
    await sleep(50);
  }
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const listens = (port) => new Promise((resolve) => {
  const socket = createConnection(port, "127.0.0.1", () => { socket.end(); resolve(true); });
  socket.on("error", () => resolve(false));
});

/** Everything that was started and must not stay behind. */
const started = new Set();

/** Ends all of it; a test that failed half-way cleans up nothing itself. */
export async function cleanUp() {
  await Promise.all([...started].map((thing) => (thing instanceof Program ? thing.remove() : thing.close())));
  started.clear();
}

class Program {
  constructor(binary, file, config) {
    this.binary = join(BIN, binary);
    this.home = mkdtempSync(join(tmpdir(), "hearth-page-"));
    writeFileSync(join(this.home, file), config);
    started.add(this);
    this.environment = { PATH: process.env.PATH, HOME: this.home, NO_COLOR: "1" };
  }

  start() {
    const log = openSync(join(this.home, "output.log"), "a");
    this.child = spawn(this.binary, ["run", "--home", this.home], { stdio: ["ignore", log, log], env: this.environment });
  }

  log() {
    return readFileSync(join(this.home, "output.log"), "utf8");
  }

  /** Ends it; `SIGKILL` is a power cut. */
  async end(signal = "SIGTERM") {
    const { child } = this;
    if (!child || child.exitCode !== null) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await gone;
  }

  async remove() {
    started.delete(this);
    await this.end("SIGKILL");
    rmSync(this.home, { recursive: true, force: true });
  }

  async cli(...args) {
    const { stdout } = await exec(this.binary, [...args, "--home", this.home], { env: this.environment, timeout: 60_000 });
    return stdout;
  }

  async json(...args) {
    return JSON.parse(await this.cli(...args, "--json"));
  }
}

export class TestHub extends Program {
  static async start(config = "", gateway = "") {
    const port = await freePort();
    const hub = new TestHub("hearth", "config.toml", `[gateway]\nport = ${port}\n${gateway}\n${config}`);
    hub.port = port;
    hub.origin = `http://127.0.0.1:${port}`;
    await hub.restart();
    return hub;
  }

  async restart() {
    this.start();
    await eventually("the hub listens", () => {
      if (this.child.exitCode !== null) throw new Error(this.log());
      return listens(this.port);
    });
    await eventually("the hub answers", async () => (await fetch(`${this.origin}/readyz`).catch(() => null))?.ok);
  }

  /** A link for one browser. */
  async link(rights = "owner") {
    const { urls } = await this.json("page", "--rights", rights);
    return urls[0];
  }
}

export class TestNode extends Program {
  static async paired(hub, name, config = "") {
    const node = new TestNode("hearth-node", "node.toml", `name = "${name}"\n[board]\nsimulate = true\n${config}`);
    await node.pair(hub);
    return node;
  }

  async pair(hub) {
    const { window } = await hub.json("pair", "--no-wait");
    await this.cli("pair", window.code, "--yes");
    this.start();
    await this.connected(hub);
  }

  async connected(hub) {
    await eventually("the node is connected", async () => (await hub.json("nodes", "list")).nodes.some((n) => n.connected), 30_000);
  }
}

export async function launch(...args) {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu", ...args] });
  started.add(browser);
  return browser;
}

/** Everything a page must not do is collected here. */
export function watchFaults(page) {
  const faults = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  return faults;
}

/** A browser of its own that was let in by a link, standing at `at`. */
export async function enter(browser, hub, { name = "Test phone", rights = "owner", at = "chat", ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 360, height: 740 }, locale: "en-GB", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.faults = watchFaults(page);
  await page.goto(await hub.link(rights));
  await page.locator("#name").fill(name);
  await page.locator("button[type=submit]").click();
  await page.locator("nav").waitFor();
  if (at !== "chat") await show(page, at);
  return page;
}

export async function show(page, at) {
  await page.evaluate((to) => { location.hash = `#/${to}`; }, at);
  await page.locator(`.view.${at.split("/")[0]}`).waitFor();
}
