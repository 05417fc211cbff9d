// A request on the screen: what runs, where, with what, and the three answers.

import { BadChallenge, decide, openCard, ownEntry } from "../card.js";
import { button, el, icon, replace, safe, safeText, toast } from "../dom.js";
import { has, span, t } from "../i18n.js";
import { facts } from "./parts.js";

/** Reasons are the requester's word and cut as everywhere. */
const MAX_REASON = 200;

/** A card that keeps itself up to date. `open`: show it at once, not at a touch. */
export function cardView(app, approval, { open = true, signal }) {
  const node = el("article", { class: "card", data: { approval: approval.id } });
  const view = { node, settled: false, refresh: () => load() };
  const { hub } = app;
  let card = null;
  let tried = false;

  const settle = (entry) => {
    view.settled = true;
    app.pending.delete(approval.id);
    replace(node, outcome(entry));
  };
  const load = async () => {
    if (view.settled) return;
    tried = true;
    try {
      const opened = await hub.call("approval.get", { id: approval.id });
      card = await openCard(opened);
      // This browser keeps the head of the audit log that came with the card: records up to there are anchored.
      if (card.challenge) hub.call("hearth.audit.held", opened.card.head).catch(() => {});
      if (card.approval.status !== "pending") return settle(card.approval);
      draw();
    } catch (error) {
      if (error.details?.reason === "APPROVAL_NOT_FOUND") return settle({ ...approval, status: "expired" });
      const said = error instanceof BadChallenge ? t("card.bad", { why: error.message }) : error.message;
      replace(node, summary(approval), el("p", { class: "notice error", role: "alert" }, said), button(t("again"), "plain", load));
    }
  };
  const draw = async () => {
    const rights = await standing(hub, card);
    replace(node, face(card), said(card.approval), rights.note ? el("p", { class: "notice" }, rights.note) : null, rights.signs ? el("p", { class: "muted small" }, t(rights.signs)) : null, buttons(rights));
  };
  const answer = async (decision) => {
    const result = await decide(hub, card, decision).catch((error) => {
      // Somebody else was faster: the card says who.
      if (["APPROVAL_ALREADY_RESOLVED", "APPROVAL_NOT_FOUND"].includes(error.details?.reason)) return load();
      throw error;
    });
    if (!result) return;
    if (result.state === "changed") {
      card = result.card;
      toast(t("card.changed"), "error");
      return draw();
    }
    settle(result.approval);
  };
  const buttons = ({ allow, always }) => el(
    "div", { class: "answers" },
    button(t("card.deny"), "danger", () => answer("deny")),
    always ? button(t("card.always"), "plain", () => answer("allow-always")) : null,
    allow ? button(t("card.once"), "primary", () => answer("allow-once")) : null,
  );

  hub.addEventListener("exec.approval.resolved", ({ detail }) => detail.id === approval.id && load(), { signal });
  hub.addEventListener("state", () => hub.state === "online" && tried && load(), { signal });
  // The node may be back: only it can say what would run.
  hub.addEventListener("presence", () => tried && !card?.challenge && load(), { signal });
  const left = setInterval(() => {
    const mark = node.querySelector("[data-expires]");
    if (!mark) return;
    const ms = Number(mark.dataset.expires) - Date.now();
    replace(mark, t("card.left", { span: span(ms) }));
    if (ms <= 0) load();
  }, 1000);
  signal.addEventListener("abort", () => clearInterval(left));
  if (open) {
    replace(node, summary(approval), el("p", { class: "muted" }, t("card.opening")));
    load();
  } else {
    replace(node, summary(approval), button(t("card.open"), "plain", load));
  }
  return view;
}

const summary = (a) => el("h2", { class: "card-title" }, `${safe(a.nodeName, 64)}: ${safe(a.sentence, 200)}`);

/** What this page may answer, and what to say when it may not. */
async function standing(hub, card) {
  const { challenge, approval } = card;
  const need = challenge?.need ?? approval.need;
  if (!challenge) {
    const note = approval.checkedOnNode ? t("card.away") : t("card.foreign");
    return need === "person" ? { note: t("card.away.person") } : { allow: true, note };
  }
  const { approvers } = await hub.call("hearth.node.approvers.get", { nodeId: challenge.node });
  const { entry } = await ownEntry(approvers);
  if (entry) return { allow: true, always: Boolean(challenge.always), signs: "card.signs.self" };
  if (need === "person") return { note: t("card.person") };
  return { allow: true, always: Boolean(challenge.always) && challenge.class === "capture", signs: "card.signs.hub" };
}

/** The part that comes from the node's challenge alone. */
function face({ challenge, approval, text, exact }) {
  if (!challenge) {
    return [
      summary(approval),
      facts([[t("card.node"), `${safe(approval.nodeName, 64)} (${safe(approval.nodeId, 12).slice(0, 12)})`], [t("card.command"), el("code", {}, safe(approval.command, 100))], ...table(approval.params)]),
    ];
  }
  const c = challenge;
  return [
    el("h2", { class: "card-title" }, `${safe(c.name, 64)}: ${sentence(c.command, c.params)}`),
    facts([
      [t("card.node"), `${safe(c.name, 64)} (${c.node.slice(0, 12)})`],
      [t("card.command"), el("code", {}, safe(c.command, 100))],
      [t("card.class"), `${t(`class.${c.class}`)} · ${t(`need.${c.need}`)}`],
    ]),
    el("h3", {}, t("card.with")), facts(table(c.params)),
    el("h3", {}, t("card.means")), facts(table(c.facts)),
    el("details", {}, el("summary", {}, t("card.rule")), c.always
      ? [el("p", {}, t("card.rule.text", { command: safe(c.always.command, 100) })), facts(table(c.always.params)), facts(table(c.always.facts))]
      : el("p", {}, t("card.rule.none"))),
    exact ? null : [el("p", { class: "notice" }, t("card.inexact")), el("pre", { tabindex: "0" }, safeText(text))],
  ];
}

/** The part that is the hub's word. */
function said(a) {
  return el(
    "div", { class: "said" },
    el("p", { class: "said-title" }, t("card.said")),
    facts([[t("card.asked"), safe(a.requester, 100)], [t("card.because"), a.reason ? safe(a.reason, MAX_REASON) : null]]),
    el("p", { class: "muted small", data: { expires: a.expiresAtMs } }, t("card.left", { span: span(a.expiresAtMs - Date.now()) })),
  );
}

function outcome(a) {
  const good = a.status === "allowed";
  const by = a.decidedBy ? t("card.by", { who: safe(a.decidedBy, 80) }) : "";
  return el(
    "div", { class: `outcome ${good ? "good" : ""}` }, icon(good ? "ok" : "no"),
    el("div", {}, el("p", { class: "row-title" }, `${safe(a.nodeName, 64)}: ${safe(a.sentence, 200)}`), el("p", { class: "muted small" }, `${t(`status.${a.status}`)}${by}`)),
  );
}

/** Every key of a JSON object as a pair; nothing is left out. */
function table(value) {
  const pairs = value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : [["", value]];
  return pairs.map(([key, v]) => [safe(key, 200), el("code", { class: "value" }, plain(v))]);
}

const plain = (v) => (typeof v === "string" ? safe(v, 20_000) || "“”" : safe(JSON.stringify(v), 20_000));

/** One plain sentence from command and parameters, in the person's language; never taken from the hub. */
function sentence(command, params) {
  const key = `do.${command}`;
  const p = params ?? {};
  if (!has(key)) return safe(command, 100);
  const seconds = (ms) => (typeof ms === "number" ? span(ms) : "?");
  return t(key, {
    pin: safe(p.pin, 64),
    state: p.value === true ? t("on") : p.value === false ? t("off") : "?",
    time: seconds(p.durationMs),
    percent: safe(p.duty ?? "?", 20),
    argv: safe(Array.isArray(p.command) ? p.command.join(" ") : p.command, 200),
    title: safe(p.title, 100),
    camera: p.deviceId ? ` (${safe(p.deviceId, 64)})` : "",
  });
}
