// What waits for a yes or no, and what was decided.

import { el, replace, safe } from "../dom.js";
import { t, time } from "../i18n.js";
import { cardView } from "./card.js";
import { head } from "./parts.js";

/** Cards that are opened by themselves; the rest at a touch: a node keeps only a few challenges open. */
const OPENED = 3;

export async function render(page, app, { signal }) {
  const { hub } = app;
  const waiting = el("div", { class: "stack", "aria-live": "polite" });
  const past = el("ul", { class: "rows" });
  replace(
    page, head(t("tab.requests")), app.weakness ? el("p", { class: "notice" }, t(`weak.${app.weakness}`)) : null, waiting,
    el("h2", {}, t("requests.past")), past,
  );
  if (!hub.may("approvals")) {
    replace(page, head(t("tab.requests")), el("p", { class: "notice" }, t("requests.noright")));
    return;
  }
  const cards = new Map();
  const list = async () => {
    const { approvals } = await hub.call("approval.list", { all: true });
    if (signal.aborted) return;
    const open = approvals.filter((a) => a.status === "pending");
    const ids = new Set(open.map((a) => a.id));
    for (const [id, card] of cards) if (!ids.has(id) && !card.settled) card.refresh();
    for (const approval of open) {
      if (cards.has(approval.id)) continue;
      const card = cardView(app, approval, { open: cards.size < OPENED, signal });
      cards.set(approval.id, card);
      waiting.prepend(card.node);
    }
    waiting.querySelector(".empty")?.remove();
    if (!waiting.children.length) waiting.append(el("p", { class: "empty muted" }, t("requests.none")));
    const done = approvals.filter((a) => a.status !== "pending").toSorted((a, b) => (b.decidedAtMs ?? 0) - (a.decidedAtMs ?? 0));
    replace(past, done.slice(0, 30).map(row), done.length ? null : el("li", { class: "muted" }, t("requests.past.none")));
  };
  const again = () => list().catch(() => {});
  for (const event of ["exec.approval.requested", "exec.approval.resolved"]) hub.addEventListener(event, again, { signal });
  hub.addEventListener("state", () => hub.state === "online" && again(), { signal });
  await list();
}

function row(a) {
  const by = a.decidedBy ? ` · ${safe(a.decidedBy, 60)}` : "";
  return el(
    "li", { class: "row" },
    el("div", { class: "grow" }, el("p", { class: "row-title" }, `${safe(a.nodeName, 64)}: ${safe(a.sentence, 200)}`), el("p", { class: "muted small" }, `${t(`status.${a.status}`)}${by} · ${time(a.decidedAtMs ?? a.createdAtMs)}`)),
  );
}
