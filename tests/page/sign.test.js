// A person's own signature, made in the browser: enrolled, used, handed on, refused.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { TestHub, TestNode, cleanUp, enter, eventually, launch, show } from "./harness.js";

let browser;
let hub;
let node;
let anna;
let ben;

const clean = (page) => assert.deepEqual(page.faults, []);
const card = (page) => page.locator(".card:has(.said)");

async function makeKey(page, name, admin) {
  await show(page, "people");
  const box = page.locator("#admin");
  await box.waitFor();
  if ((await box.isChecked()) !== admin) await box.click();
  await page.getByRole("button", { name: "Make a key for decisions" }).click();
  await page.locator("dialog input").fill(name);
  await page.locator("dialog button[type=submit]").click();
  await page.getByText("New nodes learn this key").waitFor();
}

/** Asks for a program to run, without waiting for the answer. */
const run = (page, command) => page.evaluate(async (command) => {
  const { app } = await import("/app.js");
  const { nodes } = await app.hub.call("node.list");
  const key = String(Math.random());
  globalThis.ran = app.hub.call("node.invoke", { nodeId: nodes[0].nodeId, command: "system.run", params: { command }, idempotencyKey: key }, 60_000).catch((e) => ({ error: e.message }));
}, command);

const ran = (page) => page.evaluate(() => globalThis.ran);

const approvers = async () => (await hub.json("nodes", "show", "garage")).approvers;

/** Decisions in the audit log, oldest first. */
const decided = () => anna.evaluate(async () => {
  const { app } = await import("/app.js");
  const { records } = await app.hub.call("hearth.audit.list", { limit: 500 });
  return records.filter((r) => r.kind === "approval.decided").map((r) => JSON.parse(r.body));
});

before(async () => {
  browser = await launch();
  hub = await TestHub.start();
  anna = await enter(browser, hub, { name: "Anna's phone" });
  await makeKey(anna, "anna", true);
  // Paired after that, so its setup code carried her key.
  node = await TestNode.paired(hub, "garage");
});

after(cleanUp);

test("a node paired afterwards knows the page's key, and takes its signature", async () => {
  const set = await approvers();
  assert.deepEqual(set.approvers.map((a) => [a.name, a.kind, a.admin]), [["hub", "hub", false], ["anna", "page", true]]);
  await run(anna, ["/bin/echo", "by anna"]);
  await show(anna, "requests");
  await card(anna).getByRole("button", { name: "Allow once" }).click();
  const answer = await ran(anna);
  assert.equal(answer.payload.stdout, "by anna\n", JSON.stringify(answer));
  const [last] = (await decided()).slice(-1);
  assert.match(last.by, /^approver: anna/);
  assert.match(last.signed, /^[\w-]{80,}$/, "the signature itself is in the audit log");
  clean(anna);
});

test("an admin's page hands the list on, by a signature that the node checks", async () => {
  ben = await enter(browser, hub, { name: "Ben's phone" });
  await makeKey(ben, "ben", false);
  const { nodes } = await hub.json("nodes", "list");
  await show(anna, `node/${nodes[0].nodeId}`);
  await anna.locator("li", { hasText: "ben" }).getByRole("button", { name: "Add" }).click();
  await eventually("the node has it", async () => (await approvers()).approvers.some((a) => a.name === "ben"));
  // Ben's own page may not change it: the node would refuse, and the page does not offer it.
  await show(ben, `node/${nodes[0].nodeId}`);
  await ben.locator("li", { hasText: "anna" }).waitFor();
  assert.equal(await ben.locator("li", { hasText: "anna" }).getByRole("button").count(), 0);
  const refused = await ben.evaluate(async (nodeId) => {
    const { app } = await import("/app.js");
    const { signApprovers } = await import("/card.js");
    const { approverKey } = await import("/keys.js");
    const { approvers: set } = await app.hub.call("hearth.node.approvers.get", { nodeId });
    const next = { ...set, epoch: set.epoch + 1, approvers: set.approvers.filter((a) => a.name !== "anna") };
    const change = await signApprovers(await approverKey(), nodeId, next);
    return app.hub.call("hearth.node.approvers.change", { nodeId, change }).then(() => "changed", (e) => e.message);
  }, nodes[0].nodeId);
  assert.match(refused, /no admin/);
  clean(ben);
});

test("with two persons on the list a program needs a signature: the hub's yes is not enough", async () => {
  const guest = await enter(browser, hub, { name: "Keyless", at: "requests" });
  await run(ben, ["/bin/echo", "by ben"]);
  await card(guest).getByText("needs a person's own key").waitFor();
  assert.equal(await card(guest).getByRole("button", { name: "Allow once" }).count(), 0);
  const forced = await guest.evaluate(async () => {
    const { app } = await import("/app.js");
    const { approvals } = await app.hub.call("approval.list");
    return app.hub.call("approval.resolve", { id: approvals[0].id, decision: "allow-once" }).then(() => "allowed", (e) => e.details.code);
  });
  assert.equal(forced, "APPROVER_NOT_ENOUGH");
  // A signature of somebody else's request, another decision, or a stranger's key.
  const forged = await ben.evaluate(async () => {
    const { app } = await import("/app.js");
    const { openCard, signGrant } = await import("/card.js");
    const { approverKey, deviceKey } = await import("/keys.js");
    const { approvals } = await app.hub.call("approval.list");
    const { id } = approvals[0];
    const shown = await openCard(await app.hub.call("approval.get", { id }));
    const [mine, device] = [await approverKey(), await deviceKey()];
    const attempt = (grant, decision = "allow-once") => app.hub.call("approval.resolve", { id, decision, grant }).then(() => "allowed", (e) => e.details.code ?? e.code);
    const good = await signGrant(mine, shown, "allow-once");
    return [
      await attempt({ ...good, decision: "allow-always" }, "allow-always"),
      await attempt(await signGrant(mine, { ...shown, digest: new Uint8Array(32) }, "allow-once")),
      await attempt(await signGrant(device, shown, "allow-once")),
      await attempt({ ...good, signedAtMs: good.signedAtMs + 1 }),
    ];
  });
  assert.ok(forged.every((outcome) => outcome !== "allowed"), JSON.stringify(forged));
  await show(ben, "requests");
  await card(ben).getByRole("button", { name: "Allow once" }).click();
  assert.equal((await ran(ben)).payload.stdout, "by ben\n");
  assert.match((await decided()).at(-1).by, /^approver: ben/);
  await guest.locator(".outcome", { hasText: "ben" }).waitFor();
  clean(ben);
  await guest.context().close();
});

test("\"always\" stores exactly the rule on the card, signed by the person", async () => {
  await run(ben, ["/bin/echo", "again"]);
  await show(ben, "requests");
  await card(ben).getByText("What “allow always” would store").click();
  await card(ben).getByText("would run again without asking").waitFor();
  await card(ben).getByRole("button", { name: "Allow always" }).click();
  assert.equal((await ran(ben)).payload.stdout, "again\n");
  await run(ben, ["/bin/echo", "again"]);
  assert.equal((await ran(ben)).payload.stdout, "again\n", "the same again is not asked");
  await run(ben, ["/bin/echo", "again!"]);
  await card(ben).getByRole("button", { name: "Deny" }).click();
  assert.match((await ran(ben)).error, /no/);
  clean(ben);
});

test("the log holds, and the browser compares the head it remembers", async () => {
  await show(anna, "audit");
  await anna.getByRole("button", { name: "Check that nothing was changed" }).click();
  await anna.getByText(/The chain holds: \d+ records/).waitFor();
  await anna.getByText(/This browser remembers record \d+/).waitFor();
  clean(anna);
});
