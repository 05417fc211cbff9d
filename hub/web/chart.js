// A small history chart: the mean as a line, minimum and maximum as a band.

import { el, svg } from "./dom.js";
import { number, time, t } from "./i18n.js";

const WIDTH = 320;
const HEIGHT = 96;
const PAD = 6;

/** `points`: oldest first, `{at, value, min, max}`. A text says the same for those who cannot see it. */
export function chart(points, unit, name) {
  if (points.length < 2) return el("p", { class: "muted small" }, t("chart.none"));
  const [from, to] = [points[0].at, points.at(-1).at];
  const low = Math.min(...points.map((p) => p.min));
  const high = Math.max(...points.map((p) => p.max));
  const spread = high - low || Math.abs(high) * 0.1 || 1;
  const x = (at) => round(PAD + ((at - from) / (to - from || 1)) * (WIDTH - 2 * PAD));
  const y = (value) => round(HEIGHT - PAD - ((value - low) / spread) * (HEIGHT - 2 * PAD));
  const line = points.map((p, i) => `${i ? "L" : "M"}${x(p.at)} ${y(p.value)}`).join("");
  const upper = points.map((p, i) => `${i ? "L" : "M"}${x(p.at)} ${y(p.max)}`).join("");
  const lower = points.toReversed().map((p) => `L${x(p.at)} ${y(p.min)}`).join("");
  const last = points.at(-1);
  const values = { name, from: time(from), to: time(to), low: `${number(low)} ${unit}`, high: `${number(high)} ${unit}`, last: `${number(last.value)} ${unit}` };
  return el(
    "figure", { class: "chart" },
    svg(
      "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": t("chart.says", values) },
      svg("path", { class: "band", d: `${upper}${lower}Z` }),
      svg("path", { class: "line", d: line, "vector-effect": "non-scaling-stroke" }),
    ),
    el("figcaption", {}, el("span", {}, time(from)), el("span", {}, `${number(low)} – ${number(high)} ${unit}`), el("span", {}, time(to))),
  );
}

const round = (value) => Math.round(value * 10) / 10;
