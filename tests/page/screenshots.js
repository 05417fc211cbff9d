// Draws the pictures of the README: `HEARTH_BIN=target/debug node tests/page/screenshots.js tests/page/screenshots`.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { TestHub, TestNode, cleanUp, enter, eventually, launch, show, sleep } from "./harness.js";

const out = process.argv[2];
if (!out) throw new Error("name the folder to write to");
mkdirSync(out, { recursive: true });

const board = `
[[board.camera]]
id = "cam0"
name = "Garage door"
driver = "simulated"
[[board.pin]]
id = "pump"
name = "Water pump"
direction = "output"
driver = "simulated"
[[board.sensor]]
id = "temperature"
name = "Temperature"
quantity = "temperature"
unit = "°C"
driver = "simulated"
base = 21.0
swing = 3.0
interval_ms = 250
`;

try {
  const browser = await launch("--force-color-profile=srgb");
  const hub = await TestHub.start();
  const page = await enter(browser, hub, { name: "Anna's phone", viewport: { width: 390, height: 780 }, deviceScaleFactor: 1.5, colorScheme: "light" });
  await show(page, "people");
  await page.getByRole("button", { name: "Make a key for decisions" }).click();
  await page.locator("dialog input").fill("anna");
  await page.locator("dialog button[type=submit]").click();
  await page.getByText("New nodes learn this key").waitFor();
  await TestNode.paired(hub, "garage", board);
  await show(page, "chat");
  const shot = async (name, on = page) => {
    await on.evaluate(() => document.activeElement?.blur());
    await eventually("pictures are drawn", () => on.evaluate(() => [...document.images].every((i) => i.complete)));
    await eventually("nothing covers it", async () => (await on.locator(".toast").count()) === 0);
    await sleep(300);
    await on.screenshot({ path: join(out, `page-${name}.png`) });
  };
  const say = async (text) => {
    await page.locator("#say").fill(text);
    await page.keyboard.press("Enter");
  };
  await say("take a picture in the garage");
  await page.locator(".card .primary").click();
  await page.locator(".message img").waitFor();
  await say("how warm is it?");
  await page.locator(".message.assistant", { hasText: "°C" }).waitFor();
  await shot("chat");
  await say("turn the pump on for 20 seconds");
  await page.locator(".card .answers").waitFor();
  await show(page, "requests");
  await page.locator(".card .answers").waitFor();
  await page.emulateMedia({ colorScheme: "dark" });
  await shot("card");
  await page.locator(".card .danger").click();
  await page.locator(".outcome").waitFor();
  await page.emulateMedia({ colorScheme: "light" });
  await sleep(15_000);
  await show(page, "nodes");
  await page.locator(".tile").click();
  await page.locator(".chart .line").waitFor();
  await page.locator(".gallery img").waitFor();
  await shot("node");
} finally {
  await cleanUp();
}
