// What is safe to change from a phone, and what the hub is.

import { redraw, setTheme } from "../app.js";
import { button, el, replace, safe, toast } from "../dom.js";
import { LANGUAGES, bytes, language, setLanguage, span, stored, t } from "../i18n.js";
import { forgetAll, load, save } from "../keys.js";
import { isTold, pushLacks, tellMe, tellMeNoMore } from "../push.js";
import { confirm, copyable, facts, head, section } from "./parts.js";

export async function render(page, app, { signal }) {
  const { hub } = app;
  const [status, own] = await Promise.all([hub.call("status"), load("name")]);
  if (signal.aborted) return;
  const languages = el("select", { id: "language", on: { change: async () => {
    await setLanguage(languages.value);
    redraw();
  } } }, Object.entries(LANGUAGES).map(([code, label]) => el("option", { value: code, selected: code === language() }, label)));
  const theme = stored("hearth.theme") ?? "auto";
  const themes = el("select", { id: "theme", on: { change: () => setTheme(themes.value) } }, ["auto", "light", "dark"].map((v) => el("option", { value: v, selected: v === theme }, t(`theme.${v}`))));
  const label = el("input", { id: "device-name", type: "text", value: own ?? "", maxlength: "64", autocomplete: "off" });
  const rename = button(t("save"), "small primary", async () => {
    const wanted = label.value.trim();
    if (!wanted) return;
    await hub.call("device.pair.rename", { deviceId: hub.deviceId, label: wanted });
    await save("name", wanted);
    toast(t("saved"));
  });
  const out = button(t("signout"), "danger", async () => {
    if (!(await confirm(t("signout"), t("signout.text"), t("signout")))) return;
    // What the hub cannot be told now, its owner does on another page.
    if (!(await pushLacks(hub))) await tellMeNoMore(hub).catch(() => {});
    if (hub.may("pairing")) await hub.call("device.token.revoke", { deviceId: hub.deviceId, role: "operator" }).catch(() => {});
    await forgetAll();
    location.replace("/");
  });
  const told = el("div");
  const drawTold = async () => {
    const lack = await pushLacks(hub);
    if (lack) return replace(told, el("p", { class: "muted" }, t(lack)));
    const on = await isTold();
    const change = () => (on ? tellMeNoMore(hub) : tellMe(hub, t("push.refused"))).then(drawTold);
    return replace(told, el("p", {}, t(on ? "push.on" : "push.off")), button(t(on ? "push.stop" : "push.start"), on ? "plain" : "primary", change));
  };
  const secure = app.weakness ? el("p", { class: "notice" }, t(`weak.${app.weakness}`), " ", app.weakness === "insecure" ? t("weak.how") : "") : null;
  replace(
    page, head(t("settings.title"), "more"), secure,
    section(t("settings.look"), field(t("settings.language"), languages), field(t("settings.theme"), themes)),
    section(t("settings.push"), told),
    section(t("settings.trust"), el("p", {}, t("settings.trust.text")), el("p", {}, el("a", { href: "/trust" }, t("settings.trust.go")))),
    section(t("settings.device"), hub.may("pairing") ? field(t("name"), el("div", { class: "inline" }, label, rename)) : null, facts([[t("settings.id"), hub.deviceId.slice(0, 12)], [t("settings.rights"), hub.scopes.map((s) => t(`right.${s.replace("operator.", "")}`)).join(", ")]]), out),
    section(t("settings.hub"), facts([
      [t("settings.version"), safe(status.runtimeVersion, 40)],
      [t("name"), safe(status.name ?? "", 64)],
      [t("settings.up"), span(status.uptimeMs)],
      [t("settings.addresses"), status.addresses.map((a) => safe(a, 80)).join(", ")],
      [t("settings.memory"), status.processMemory.rssBytes ? bytes(status.processMemory.rssBytes) : null],
      [t("settings.model"), status.model ? safe(status.model, 80) : t("settings.model.none")],
    ]), el("p", { class: "muted small" }, t("settings.hubid")), copyable(status.hubId), el("p", { class: "muted small" }, t("settings.pin")), copyable(status.tlsPin)),
  );
  await drawTold();
}

function field(label, control) {
  const input = control.matches("input, select") ? control : control.querySelector("input");
  return el("div", { class: "field" }, el("label", { htmlFor: input.id }, label), control);
}
