// The way to everything that is not daily.

import { el, icon, replace } from "../dom.js";
import { t } from "../i18n.js";
import { head } from "./parts.js";

export async function render(page, { hub }) {
  const rows = [
    ["people", "people", true], ["channels", "chat", hub.has("hearth.channels.list")], ["audit", "log", hub.may("admin")], ["settings", "gear", true],
  ].filter(([, , allowed]) => allowed);
  replace(page, head(t("tab.more")), el("ul", { class: "rows" }, rows.map(([view, sign]) => el(
    "li", {}, el("a", { class: "row link", href: `#/${view}` }, icon(sign), el("div", { class: "grow" }, el("p", { class: "row-title" }, t(`${view}.title`)), el("p", { class: "muted small" }, t(`${view}.text`))), icon("next")),
  ))));
}
