// The audit log: what was asked, decided and done, and whether it still holds.

import { button, el, replace, safe } from "../dom.js";
import { dateTime, t } from "../i18n.js";
import { keptHead } from "../card.js";
import { head } from "./parts.js";

const PAGE = 50;

export async function render(page, { hub }, { signal }) {
  const report = el("div", { role: "status" });
  const list = el("ul", { class: "rows audit" });
  const older = el("button", { type: "button", class: "button plain", hidden: true }, t("audit.older"));
  replace(page, head(t("audit.title"), "more"), button(t("audit.verify"), "primary", () => verify()), report, list, older);

  let first = Infinity;
  const show = async (from, count) => {
    const { records } = await hub.call("hearth.audit.list", { after: from, limit: Math.max(1, count) });
    if (signal.aborted) return;
    first = from;
    list.append(...records.toReversed().map(row));
    older.hidden = from === 0;
  };
  const { head: newest } = await hub.call("hearth.audit.list", { limit: 1 });
  const start = Math.max(0, newest.seq - PAGE);
  await show(start, newest.seq - start);
  older.addEventListener("click", () => {
    const before = Math.max(0, first - PAGE);
    return show(before, first - before);
  });

  const verify = async () => {
    const [result, status] = await Promise.all([hub.call("hearth.audit.verify", {}, 120_000), hub.call("status")]);
    const kept = await keptHead(status.hubId);
    const compared = kept && hub.may("approvals") ? await hub.call("hearth.audit.compare", kept) : null;
    const faults = [...faultsOf(result), ...(compared?.fault ? [compared.fault] : [])];
    replace(report, faults.length
      ? el("div", { class: "notice error", role: "alert" }, el("p", {}, t("audit.bad")), el("ul", {}, faults.map((f) => el("li", {}, safe(f, 400)))))
      : el("p", { class: "notice good" }, t("audit.good", { records: result.records, nodes: result.nodes.length })),
    el("p", { class: "muted small" }, kept ? t("audit.kept", { seq: kept.seq }) : t("audit.kept.none")));
  };
}

/** What does not hold: in the chain itself, against the nodes' heads, against the heads that persons keep. */
function faultsOf(report) {
  return [report.fault, ...report.nodes.map((n) => n.fault), ...report.holders.map((h) => h.fault)].filter(Boolean);
}

function row(r) {
  return el("li", { class: "row" }, el("details", { class: "grow" },
    el("summary", {}, el("span", { class: "row-title" }, safe(r.kind, 80)), el("span", { class: "muted small" }, ` #${r.seq} · ${dateTime(r.atMs)}`)),
    el("pre", { tabindex: "0" }, safe(pretty(r.body), 8000)),
    el("p", { class: "muted small hash" }, safe(r.hash, 64))));
}

const pretty = (body) => (typeof body === "string" ? body : JSON.stringify(body));
