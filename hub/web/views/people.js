// Who may connect, who knocks, and whose yes counts.

import { button, el, replace, safe, toast } from "../dom.js";
import { ago, span, t } from "../i18n.js";
import { approverKey, hex, load, makeApproverKey } from "../keys.js";
import { ask, confirm, copyable, head, name, presence, section } from "./parts.js";

export async function render(page, app, { signal }) {
  const { hub } = app;
  const pending = el("div", { class: "stack", "aria-live": "polite" });
  const mine = el("div");
  const known = el("div");
  const devices = el("div");
  replace(page, head(t("people.title"), "more"), pending, section(t("approver.mine"), mine), section(t("approver.known"), known), hub.may("pairing") ? section(t("devices"), devices) : null);

  const drawDevices = async () => {
    if (!hub.may("pairing")) return;
    const [list, window] = await Promise.all([hub.call("device.pair.list"), hub.call("hearth.pair.status")]);
    if (signal.aborted) return;
    const door = window.open
      ? el("div", { class: "notice row" }, el("span", { class: "grow" }, t("door.open", { span: span(window.expiresAtMs - Date.now()) })), button(t("door.close"), "small plain", () => hub.call("hearth.pair.close").then(drawDevices)))
      : el("p", { class: "muted small" }, t("door.closed"), " ", el("code", {}, "hearth pair"), " · ", el("code", {}, "hearth page"));
    replace(pending, door, list.pending.map(knock));
    replace(devices, el("ul", { class: "rows" }, list.paired.map(device)));
  };
  const knock = (p) => el(
    "article", { class: "card", data: { request: p.requestId } },
    el("h2", { class: "card-title" }, t("knock", { name: name(p.displayName) })),
    el("p", { class: "muted small" }, `${t(`role.${p.role}`)} · ${safe(p.platform, 40)} · ${safe(p.remoteIp, 60)} · ${p.deviceId.slice(0, 12)}`),
    p.words ? [el("p", {}, t("knock.words")), el("p", { class: "words" }, safe(p.words, 120))] : el("p", {}, t("knock.id")),
    p.commands.length ? el("ul", { class: "chips" }, p.commands.map((c) => el("li", {}, safe(c, 100)))) : null,
    p.scopes.length ? el("p", { class: "muted small" }, t("knock.rights", { rights: p.scopes.map((s) => t(`right.${s.replace("operator.", "")}`)).join(", ") })) : null,
    el("div", { class: "answers" },
      button(t("reject"), "danger", () => hub.call("device.pair.reject", { requestId: p.requestId }).then(drawDevices)),
      button(t("approve"), "primary", async () => {
        await hub.call("device.pair.approve", { requestId: p.requestId });
        if (p.words) toast(t("knock.words.confirm"));
        await drawDevices();
      })),
  );
  const device = (d) => {
    const own = d.deviceId === hub.deviceId;
    const state = d.connected ? t("online") : d.lastSeenAtMs ? t("lastseen", { ago: ago(d.lastSeenAtMs) }) : t("neverseen");
    const act = own || !hub.may("admin") ? null : el("div", { class: "row-actions" },
      button(t("rename"), "small plain", async () => {
        const label = await ask(t("rename"), t("name"), d.displayName);
        if (label) await hub.call("device.pair.rename", { deviceId: d.deviceId, label }).then(drawDevices);
      }),
      d.state === "accepted" ? button(t("revoke"), "small danger", async () => {
        if (await confirm(t("revoke"), t("revoke.text", { name: name(d.displayName) }), t("revoke"))) await hub.call("hearth.device.revoke", { deviceId: d.deviceId }).then(drawDevices);
      }) : button(t("forget"), "small plain", () => hub.call("device.pair.remove", { deviceId: d.deviceId }).then(drawDevices)));
    return el("li", { class: "row" }, el("div", { class: "grow" },
      el("p", { class: "row-title" }, name(d.displayName), own ? ` (${t("this.browser")})` : ""),
      d.state === "accepted" ? presence(d.connected, state) : el("span", { class: "tag" }, t(`device.${d.state}`)),
      el("p", { class: "muted small" }, `${d.roles.map((r) => t(`role.${r}`)).join(", ")} · ${d.deviceId.slice(0, 12)}`)), act);
  };

  const drawKeys = async () => {
    const [key, { approvers }, own] = await Promise.all([approverKey(), hub.call("hearth.approvers.known"), load("name")]);
    if (signal.aborted) return;
    const id = key && hex(key.publicKey);
    const entry = approvers.find((a) => a.key === id);
    const text = app.weakness ? t(`weak.${app.weakness}`) : entry ? t("approver.mine.known") : key ? t("approver.mine.made") : t("approver.mine.none");
    const admin = el("input", { type: "checkbox", id: "admin", checked: !approvers.some((a) => a.admin) });
    const enrol = async () => {
      const label = await ask(t("approver.make"), t("approver.name"), own || "me");
      if (!label) return;
      const made = await makeApproverKey();
      await hub.call("hearth.approvers.add", { approver: { key: hex(made.publicKey), kind: "page", admin: admin.checked, name: label } });
      toast(t("approver.made"));
      await drawKeys();
    };
    const may = !app.weakness && !entry && hub.may("admin");
    replace(mine, el("p", {}, text), !app.weakness && !entry && !hub.may("admin") ? el("p", { class: "notice" }, t("approver.noright")) : null,
      may ? el("label", { class: "check", htmlFor: "admin" }, admin, t("approver.admin.text")) : null,
      may ? button(t("approver.make"), "primary", enrol) : null,
      key ? [el("p", { class: "muted small" }, t("approver.key")), copyable(id)] : null);
    replace(known, approvers.length ? el("ul", { class: "rows" }, approvers.map((a) => el("li", { class: "row" }, el("div", { class: "grow" },
      el("p", { class: "row-title" }, name(a.name), a.key === id ? ` (${t("this.browser")})` : ""),
      el("p", { class: "muted small" }, `${t(`kind.${a.kind}`)}${a.admin ? ` · ${t("approver.admin")}` : ""}`)),
      hub.may("admin") ? button(t("remove"), "small plain", async () => {
        if (await confirm(t("remove"), t("approver.forget.text", { name: name(a.name) }), t("remove"))) await hub.call("hearth.approvers.remove", { approver: a.name }).then(drawKeys);
      }) : null))) : el("p", { class: "muted" }, t("approver.known.none")), el("p", { class: "muted small" }, t("approver.known.text")));
  };

  const again = () => hub.state === "online" && drawDevices().catch(() => {});
  for (const event of ["device.pair.requested", "device.pair.resolved", "presence"]) hub.addEventListener(event, again, { signal });
  await Promise.all([drawDevices(), drawKeys()]);
}
