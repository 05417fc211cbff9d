// Where the page starts: language and look, the way in, and which view is shown.

import { el, icon, replace, toast } from "./dom.js";
import { Hub, browserName } from "./hub.js";
import { has, loadLanguage, store, stored, t } from "./i18n.js";
import { lacks, load } from "./keys.js";

const VIEWS = {
  chat: () => import("./views/chat.js"),
  requests: () => import("./views/requests.js"),
  nodes: () => import("./views/nodes.js"),
  node: () => import("./views/node.js"),
  more: () => import("./views/more.js"),
  people: () => import("./views/people.js"),
  channels: () => import("./views/channels.js"),
  audit: () => import("./views/audit.js"),
  settings: () => import("./views/settings.js"),
};
const TABS = [["chat", "chat"], ["requests", "ask"], ["nodes", "home"], ["more", "more"]];
/** Which tab a view without one belongs to. */
const PARENT = { node: "nodes", people: "more", channels: "more", audit: "more", settings: "more" };

/** What every view is given. */
export const app = { hub: new Hub(), pending: new Map(), weakness: "", navigate, refresh: show };

const root = document.getElementById("app");
const main = el("main", { id: "main", tabindex: "-1" });
let leave = null;
let shown = 0;
/** The view could not be drawn; a new connection draws it again. */
let failed = null;

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { name: name in VIEWS ? name : "chat", rest: rest.map(decodeURIComponent) };
}

function navigate(to) {
  location.hash = `#/${to}`;
}

export function setTheme(theme, keep = true) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  if (keep) store("hearth.theme", theme === "auto" ? null : theme);
}

/** The secret of a link, taken out of the address bar and the history at once. */
function takeLink() {
  const found = /^#join=([\w-]{43})$/.exec(location.hash);
  if (location.hash.startsWith("#join=")) history.replaceState(null, "", location.pathname);
  return found?.[1] ?? null;
}

async function start() {
  const secret = takeLink();
  setTheme(stored("hearth.theme"), false);
  await loadLanguage();
  app.weakness = await lacks();
  registerWorker();
  const known = await load("token");
  watch();
  if (secret && !known) return welcome(secret);
  await app.hub.start(await invitation(secret));
}

/** What a browser that was here before does with a new link: it needs it only when the hub put it out. */
const invitation = async (secret) => secret && { secret, name: (await load("name")) || browserName() };

function registerWorker() {
  // A worker needs a context that the browser holds for secure, and a certificate it trusts.
  if (!("serviceWorker" in navigator) || !isSecureContext) return;
  const only = "/sw.js";
  const policy = globalThis.trustedTypes?.createPolicy("hearth", { createScriptURL: (url) => (url === only ? url : "") });
  navigator.serviceWorker.register(policy ? policy.createScriptURL(only) : only).catch(() => {});
}

/** The first screen of a browser that came by a link. */
function welcome(secret) {
  const name = el("input", { id: "name", type: "text", value: browserName(), maxlength: "64", autocomplete: "off", required: true });
  const go = el("button", { type: "submit", class: "button primary wide" }, t("join.go"));
  const form = el(
    "form", { class: "entry", on: { submit: async (event) => {
      event.preventDefault();
      go.disabled = true;
      await app.hub.start({ secret, name: name.value.trim() || browserName() });
    } } },
    el("label", { htmlFor: "name" }, t("join.name")), name, go,
  );
  gate("home", t("join.title"), t("join.text"), form);
}

/** A screen that stands in front of everything else. */
function gate(sign, title, text, ...more) {
  leaveView();
  replace(root, el("main", { class: "gate", id: "main", tabindex: "-1" }, el("div", { class: "gate-sign" }, icon(sign)), el("h1", {}, title), el("p", {}, text), more));
}

function watch() {
  const { hub } = app;
  hub.addEventListener("state", async () => {
    if (hub.state === "online") {
      await listPending();
      return root.querySelector("nav") ? onState() : frame();
    }
    if (hub.state === "locked") return locked();
    if (hub.state === "waiting") return waiting();
    if (!root.querySelector("nav")) {
      const title = hub.state === "connecting" ? "gate.connecting" : "gate.offline";
      return gate("home", t(title), hub.state === "connecting" ? "" : t("gate.offline.text"));
    }
    return onState();
  });
  hub.addEventListener("exec.approval.requested", async () => {
    await listPending();
    if (route().name !== "requests" && route().name !== "chat") toast(t("requests.new"));
  });
  hub.addEventListener("exec.approval.resolved", ({ detail }) => {
    app.pending.delete(detail.id);
    badge();
  });
  hub.addEventListener("hearth.alarm", ({ detail }) => toast(detail.message, "error"));
  addEventListener("hashchange", async () => {
    const secret = takeLink();
    if (secret && hub.state !== "online") return hub.retry(await invitation(secret));
    if (root.querySelector("nav")) show();
  });
}

async function listPending() {
  if (!app.hub.may("approvals")) return;
  try {
    const { approvals } = await app.hub.call("approval.list");
    app.pending = new Map(approvals.map((a) => [a.id, a]));
    badge();
  } catch {
    // The connection went again; its return asks anew.
  }
}

function badge() {
  const mark = root.querySelector("#badge");
  if (!mark) return;
  const count = app.pending.size;
  mark.hidden = count === 0;
  replace(mark, String(count), el("span", { class: "unseen" }, ` ${t("requests.waiting")}`));
}

function waiting() {
  const id = app.hub.deviceId;
  gate("clock", t("wait.title"), t("wait.text"), el("p", { class: "code" }, id.slice(0, 12)), el("p", { class: "muted" }, t("wait.how")));
}

function locked() {
  const { reason } = app.hub;
  const code = reason?.details?.code ?? "";
  const said = has(`locked.${code}`) ? t(`locked.${code}`) : reason?.message ?? "";
  const again = el("button", { type: "button", class: "button primary wide", on: { click: () => app.hub.retry() } }, t("again"));
  const fresh = el("button", { type: "button", class: "button plain wide", on: { click: () => app.hub.renew() } }, t("locked.fresh"));
  const how = el("ol", { class: "steps" }, el("li", {}, t("locked.step1"), el("code", {}, "hearth page")), el("li", {}, t("locked.step2")));
  gate("lock", t("locked.title"), said, how, again, el("p", { class: "muted small" }, t("locked.fresh.text")), fresh);
}

function frame() {
  const tab = ([name, sign]) => el(
    "a", { href: `#/${name}`, class: "tab", data: { view: name } }, icon(sign), el("span", {}, t(`tab.${name}`)),
    name === "requests" ? el("span", { id: "badge", class: "badge", hidden: true }) : null,
  );
  replace(
    root,
    el("a", { class: "skip", href: "#main", on: { click: (event) => { event.preventDefault(); main.focus(); } } }, t("skip")),
    el("div", { class: "banner", id: "banner", role: "status", hidden: true }),
    main,
    el("nav", { "aria-label": t("nav") }, el("p", { class: "brand", "aria-hidden": "true" }, "Hearth"), TABS.map(tab)),
  );
  badge();
  onState();
  show();
}

/** Draws the frame anew: the language changed. */
export function redraw() {
  leaveView();
  frame();
}

function onState() {
  const banner = root.querySelector("#banner");
  const lost = app.hub.state !== "online";
  banner.hidden = !lost;
  replace(banner, lost ? t("banner.offline") : "");
  if (lost || !failed) return;
  // A module that could not be fetched is not asked for again by every browser.
  if (failed === "module") location.reload();
  else show();
}

function leaveView() {
  leave?.();
  leave = null;
}

async function show() {
  const { name, rest } = route();
  const mine = ++shown;
  leaveView();
  for (const tab of root.querySelectorAll(".tab")) {
    if (tab.dataset.view === (PARENT[name] ?? name)) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  let view;
  try {
    view = await VIEWS[name]();
  } catch (error) {
    if (mine !== shown) return;
    // The hub went away while the page was being put together.
    failed = "module";
    replace(main, el("p", { class: "notice error", role: "alert" }, error.message));
    if (app.hub.state === "online") setTimeout(onState, 1000);
    return;
  }
  if (mine !== shown) return;
  const scope = new AbortController();
  const page = el("div", { class: `view ${name}` });
  leave = () => scope.abort();
  replace(main, page);
  document.title = `${t(`tab.${PARENT[name] ?? name}`)} · Hearth`;
  main.scrollTop = 0;
  failed = null;
  try {
    await view.render(page, app, { rest, signal: scope.signal });
  } catch (error) {
    if (scope.signal.aborted) return;
    failed = "view";
    replace(page, el("p", { class: "notice error", role: "alert" }, error.message));
  }
}

start();
