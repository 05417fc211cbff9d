// One node: health, values with history, pictures, what it can do, who may approve on it.

import { signApprovers, ownEntry } from "../card.js";
import { button, el, replace, safe, toast } from "../dom.js";
import { ago, bytes, dateTime, number, span, t } from "../i18n.js";
import { hex, sha256, unhex } from "../keys.js";
import { chart } from "../chart.js";
import { ask, confirm, copyable, facts, head, name, picture, presence, section } from "./parts.js";

const EVERY = 15_000;
const POINTS = 120;

export async function render(page, app, { rest: [id], signal }) {
  const { hub } = app;
  const top = el("div");
  const pending = el("div");
  const values = el("div", { class: "stack" });
  const health = el("div");
  const gallery = el("div", { class: "gallery" });
  const can = el("div");
  const people = el("div");
  replace(page, top, pending, section(t("node.values"), values), section(t("node.pictures"), gallery), section(t("node.health"), health), section(t("node.can"), can), section(t("node.approvers"), people));

  const draw = async () => {
    const n = await hub.call("node.describe", { nodeId: id });
    if (signal.aborted) return;
    const rename = hub.may("pairing") ? button(t("rename"), "small plain", async () => {
      const label = await ask(t("rename"), t("name"), n.displayName);
      if (label) await hub.call("node.rename", { nodeId: id, displayName: label }).then(draw);
    }) : null;
    replace(top, head(name(n.displayName), "nodes", rename), presence(n.connected, n.connected ? t("online") : n.lastSeenAtMs ? t("lastseen", { ago: ago(n.lastSeenAtMs) }) : t("neverseen")));
    replace(pending, n.pendingRequestId ? surface(n) : null);
    replace(can, abilities(n));
    await Promise.all([drawValues(n), drawPeople(n)]);
  };
  const surface = (n) => el(
    "div", { class: "card" }, el("h2", { class: "card-title" }, t("node.declares")),
    el("ul", { class: "chips" }, [...(n.pendingDeclaredCommands ?? []), ...(n.pendingDeclaredParts ?? [])].map((c) => el("li", {}, safe(c, 100)))),
    hub.may("pairing") ? el("div", { class: "answers" },
      button(t("reject"), "danger", () => hub.call("node.pair.reject", { requestId: n.pendingRequestId }).then(draw)),
      button(t("approve"), "primary", () => hub.call("node.pair.approve", { requestId: n.pendingRequestId }).then(draw))) : null,
  );

  const drawValues = async (n) => {
    const { sensors } = await hub.call("hearth.readings.sensors");
    const mine = sensors.filter((s) => s.nodeId === id);
    const drawn = await Promise.all(mine.map(async (s) => {
      const { points } = await hub.call("hearth.readings.series", { nodeId: id, sensor: s.sensor, limit: POINTS });
      const label = n.declaration?.sensors.find((d) => d.id === s.sensor)?.name ?? s.sensor;
      const unit = safe(s.unit ?? "", 12);
      return el("div", { class: "sensor" },
        el("div", { class: "sensor-head" }, el("h3", {}, safe(label, 64)), el("p", { class: "reading" }, `${number(s.value)} ${unit}`)),
        el("p", { class: "muted small" }, ago(s.atMs)), chart(points, unit, safe(label, 64)));
    }));
    if (!signal.aborted) replace(values, drawn.length ? drawn : el("p", { class: "muted" }, t("node.values.none")));
  };

  const drawPeople = async (n) => {
    if (!n.checkedOnNode) return replace(people, el("p", { class: "notice" }, t("card.foreign")));
    const [{ approvers: set, personReady }, { approvers: known }] = await Promise.all([
      hub.call("hearth.node.approvers.get", { nodeId: id }), hub.call("hearth.approvers.known"),
    ]);
    const { key, entry } = await ownEntry(set);
    const change = async (next) => {
      const signed = await signApprovers(key, id, { ...next, epoch: set.epoch + 1 });
      await hub.call("hearth.node.approvers.change", { nodeId: id, change: signed });
      toast(t("saved"));
      await drawPeople(n);
    };
    const rows = set.approvers.map(async (a) => {
      const fingerprint = hex(await sha256(unhex(a.key))).slice(0, 12);
      const own = entry?.key === a.key;
      const remove = (entry?.admin || own) && n.connected ? button(t("remove"), "small plain", async () => {
        if (!(await confirm(t("approver.remove"), t("approver.remove.text", { name: name(a.name), node: name(n.displayName) }), t("remove")))) return;
        await change({ ...set, approvers: set.approvers.filter((b) => b.key !== a.key) });
      }) : null;
      return el("li", { class: "row" }, el("div", { class: "grow" },
        el("p", { class: "row-title" }, name(a.name), own ? ` (${t("this.browser")})` : ""),
        el("p", { class: "muted small" }, `${t(`kind.${a.kind}`)} · ${fingerprint}${a.admin ? ` · ${t("approver.admin")}` : ""}`)), remove);
    });
    const missing = known.filter((k) => !set.approvers.some((a) => a.key === k.key));
    const offers = entry?.admin && n.connected ? missing.map((k) => el("li", { class: "row" }, el("div", { class: "grow" }, el("p", { class: "row-title" }, name(k.name)), el("p", { class: "muted small" }, t("approver.notyet"))),
      button(t("add"), "small primary", () => change({ ...set, approvers: [...set.approvers, k] })))) : [];
    const local = !entry && key ? el("div", { class: "notice" }, el("p", {}, t("approver.onnode", { node: name(n.displayName) })),
      copyable(`hearth-node approvers add ${hex(key.publicKey)} --kind page --name ${shellWord(known.find((k) => k.key === hex(key.publicKey))?.name ?? "me")} --admin`)) : null;
    const drawn = await Promise.all(rows);
    if (signal.aborted) return;
    replace(people, el("p", { class: "muted small" }, t(personReady ? "person.ready" : "person.notready")), el("ul", { class: "rows" }, drawn, offers), local);
  };

  const drawHealth = async (n) => {
    if (!n.connected || !n.commands.includes("system.info")) return replace(health, el("p", { class: "muted" }, t("node.health.none")));
    const answer = await hub.call("node.invoke", { nodeId: id, command: "system.info", idempotencyKey: `page-${Date.now()}-${Math.random()}`, timeoutMs: 10_000 });
    const i = answer.payload;
    if (signal.aborted) return;
    replace(health,
      (i.warnings ?? []).map((w) => el("p", { class: "notice error" }, safe(w, 300))),
      facts([
        [t("health.board"), safe(i.model ?? n.modelIdentifier ?? "", 100)],
        [t("health.system"), safe(`${i.kernel} ${i.arch}`, 120)],
        [t("health.up"), span(i.uptimeS * 1000)],
        [t("health.load"), i.load.map((l) => number(l)).join(" · ")],
        [t("health.memory"), t("health.free", { free: bytes(i.memoryAvailableBytes), of: bytes(i.memoryTotalBytes) })],
        [t("health.disk"), t("health.free", { free: bytes(i.diskAvailableBytes), of: bytes(i.diskTotalBytes) })],
        [t("health.temperature"), i.cpuTemperatureC === undefined || i.cpuTemperatureC === null ? null : `${number(i.cpuTemperatureC, 1)} °C`],
        [t("health.wifi"), i.wifiSignalDbm === undefined || i.wifiSignalDbm === null ? null : `${i.wifiSignalDbm} dBm`],
        [t("health.version"), safe(i.version, 40)],
      ]));
  };
  const drawPictures = async () => {
    const { pictures } = await hub.call("hearth.node.pictures", { nodeId: id, limit: 12 });
    const images = pictures.filter((p) => p.mime.startsWith("image/"));
    if (signal.aborted) return;
    replace(gallery, images.map((p) => el("figure", {}, picture(p.id, t("picture.of", { node: dateTime(p.createdAtMs) })), el("figcaption", { class: "muted small" }, dateTime(p.createdAtMs)))));
    if (!images.length) replace(gallery, el("p", { class: "muted" }, t("node.pictures.none")));
  };

  const again = () => !document.hidden && hub.state === "online" && draw().catch(() => {});
  for (const event of ["presence", "node.pair.requested", "node.pair.resolved"]) hub.addEventListener(event, again, { signal });
  const timer = setInterval(again, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
  await draw();
  await Promise.all([drawPictures(), hub.call("node.describe", { nodeId: id }).then(drawHealth).catch((error) => replace(health, el("p", { class: "muted" }, error.message)))]);
}

function abilities(n) {
  const declared = new Map((n.declaration?.commands ?? []).map((c) => [c.name, c]));
  if (!n.commands.length) return el("p", { class: "muted" }, t("node.can.none"));
  return el("ul", { class: "rows" }, n.commands.map((command) => {
    const c = declared.get(command);
    return el("li", { class: "row" }, el("code", { class: "grow" }, safe(command, 100)), c ? el("span", { class: `need ${c.need}` }, t(`need.${c.need}`)) : el("span", { class: "need" }, t("need.unchecked")));
  }));
}

const shellWord = (text) => (/^[\w.-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
