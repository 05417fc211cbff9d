// Chat accounts: how each platform stands, who was let in there, and who waits with a code.

import { button, el, replace, safe, toast } from "../dom.js";
import { ago, t } from "../i18n.js";
import { confirm, head, name, presence, section } from "./parts.js";

/** Clients of the hub itself: the terminal and this page are no accounts anywhere. */
const OWN = new Set(["terminal", "webchat"]);
const EVERY = 10_000;

export async function render(page, { hub }, { signal }) {
  const list = el("div", { class: "stack" });
  replace(page, head(t("channels.title"), "more"), list);
  const draw = async () => {
    const { channels } = await hub.call("hearth.channels.list");
    if (signal.aborted) return;
    const accounts = channels.filter((c) => !OWN.has(c.name));
    replace(list, accounts.length ? accounts.map(channel) : el("p", { class: "empty muted" }, t("channels.none")));
  };
  const channel = (c) => section(
    null,
    el("div", { class: "card", data: { channel: c.name } },
      el("h2", { class: "card-title" }, safe(c.name, 40)),
      presence(c.state === "up", t(`channels.${c.state}`)),
      c.error ? el("p", { class: "notice error" }, safe(c.error, 400)) : null,
      c.waiting || c.failed ? el("p", { class: "muted small" }, t("channels.queue", { waiting: c.waiting, failed: c.failed })) : null,
      people(c), knocks(c)),
  );
  const people = (c) => {
    const byConfig = [...new Set([...c.allow, ...c.approvers])].map((id) => el("li", { class: "row" }, el("div", { class: "grow" },
      el("p", { class: "row-title" }, safe(id, 64)),
      el("p", { class: "muted small" }, t(c.approvers.includes(id) ? "channels.config.decides" : "channels.config")))));
    const letIn = c.people.map((p) => el("li", { class: "row" }, el("div", { class: "grow" },
      el("p", { class: "row-title" }, name(p.name)),
      el("p", { class: "muted small" }, `${safe(p.id, 64)} · ${p.mayDecide ? t("channels.decides") : t("channels.writes")} · ${ago(p.addedAtMs)}`)),
      hub.may("pairing") ? button(t("remove"), "small plain", async () => {
        if (!(await confirm(t("remove"), t("channels.remove.text", { name: name(p.name) }), t("remove")))) return;
        await hub.call("hearth.channels.remove", { channel: c.name, person: p.id });
        await draw();
      }) : null));
    return byConfig.length + letIn.length ? el("ul", { class: "rows" }, byConfig, letIn) : el("p", { class: "muted" }, t("channels.nobody"));
  };
  const knocks = (c) => {
    if (!c.knocks.length) return null;
    const waiting = c.knocks.map((k) => t("channels.knock", { name: name(k.name), id: safe(k.id, 64), ago: ago(k.createdAtMs) }));
    if (!hub.may("pairing")) return waiting.map((line) => el("p", {}, line));
    const code = el("input", { id: `code-${c.name}`, type: "text", maxlength: "16", autocomplete: "off", autocapitalize: "characters", spellcheck: "false" });
    const decides = el("input", { id: `decides-${c.name}`, type: "checkbox" });
    const allow = button(t("approve"), "primary", async () => {
      const { name: who } = await hub.call("hearth.channels.allow", { channel: c.name, code: code.value.trim().toUpperCase(), mayDecide: decides.checked });
      toast(t("channels.allowed", { name: name(who) }));
      await draw();
    });
    return el("div", { class: "said" }, waiting.map((line) => el("p", {}, line)),
      el("label", { htmlFor: code.id }, t("channels.code")), code,
      hub.may("admin") ? el("label", { class: "check", htmlFor: decides.id }, decides, t("channels.maydecide")) : null, allow);
  };
  // Not while somebody types a code.
  const again = () => !document.hidden && hub.state === "online" && !list.contains(document.activeElement) && draw().catch(() => {});
  const timer = setInterval(again, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
  await draw();
}
