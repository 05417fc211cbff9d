// All nodes at a glance.

import { el, icon, replace, safe } from "../dom.js";
import { ago, number, t } from "../i18n.js";
import { head, name, picture, presence } from "./parts.js";

const EVERY = 10_000;

export async function render(page, app, { signal }) {
  const { hub } = app;
  const list = el("div", { class: "grid" });
  replace(page, head(t("tab.nodes")), list);
  const pictures = new Map();
  const draw = async () => {
    const [{ nodes }, { sensors }] = await Promise.all([hub.call("node.list"), hub.call("hearth.readings.sensors")]);
    for (const node of nodes) {
      if (pictures.has(node.nodeId)) continue;
      const found = await hub.call("hearth.node.pictures", { nodeId: node.nodeId, limit: 1 });
      const last = found.pictures.find((p) => p.mime.startsWith("image/"));
      pictures.set(node.nodeId, last ? picture(last.id, t("picture.of", { node: name(node.displayName) })) : null);
    }
    if (signal.aborted) return;
    replace(list, nodes.map((n) => tile(n, sensors.filter((s) => s.nodeId === n.nodeId), pictures.get(n.nodeId))));
    if (!nodes.length) replace(list, el("p", { class: "empty muted" }, t("nodes.none"), " ", el("code", {}, "hearth pair")));
  };
  const again = () => !document.hidden && hub.state === "online" && draw().catch(() => {});
  for (const event of ["presence", "node.pair.requested", "node.pair.resolved"]) hub.addEventListener(event, again, { signal });
  hub.addEventListener("state", again, { signal });
  const timer = setInterval(again, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
  await draw();
}

function tile(n, sensors, image) {
  const word = n.connected ? t("online") : n.lastSeenAtMs ? t("lastseen", { ago: ago(n.lastSeenAtMs) }) : t("neverseen");
  return el(
    "a", { class: "tile", href: `#/node/${n.nodeId}` },
    image,
    el("div", { class: "tile-text" },
      el("h2", {}, name(n.displayName)),
      presence(n.connected, word),
      n.pendingRequestId ? el("p", { class: "tag" }, icon("warn"), t("nodes.pending")) : null,
      el("ul", { class: "values" }, sensors.slice(0, 4).map((s) => el("li", {}, el("span", { class: "muted" }, safe(s.sensor, 40)), el("strong", {}, `${number(s.value)} ${safe(s.unit ?? "", 12)}`))))),
  );
}
