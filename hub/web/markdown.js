// The small part of Markdown that assistants write, as DOM nodes. There is no way from text to markup here: no
// raw HTML, no pictures, links to http and https only, with their address shown.

import { el, safe, safeText } from "./dom.js";

/** Paragraphs, headings, lists, quotes, code, rules and tables of a text. */
export function markdown(text) {
  const lines = safeText(text).split("\n");
  const blocks = [];
  for (let at = 0; at < lines.length; ) {
    const [node, next] = block(lines, at);
    if (node) blocks.push(node);
    at = next;
  }
  return blocks;
}

const FENCE = /^\s{0,3}(```+|~~~+)\s*([\w+-]*)/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^\s{0,3}>\s?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const ROW = /^\s*\|.*\|\s*$/;
const DIVIDER = /^\s*\|(\s*:?-+:?\s*\|)+\s*$/;

const begins = (line) => [FENCE, HEADING, RULE, QUOTE, ITEM].some((form) => form.test(line));

function block(lines, at) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence[1]);
  const heading = HEADING.exec(line);
  // One level down: the page's own heading stands above.
  if (heading) return [el(`h${Math.min(6, heading[1].length + 1)}`, {}, inline(heading[2])), at + 1];
  if (RULE.test(line)) return [el("hr"), at + 1];
  if (QUOTE.test(line)) {
    let end = at;
    while (end < lines.length && QUOTE.test(lines[end])) end += 1;
    return [el("blockquote", {}, markdown(lines.slice(at, end).map((l) => l.replace(QUOTE, "")).join("\n"))), end];
  }
  if (ITEM.test(line)) return list(lines, at);
  if (ROW.test(line) && DIVIDER.test(lines[at + 1] ?? "")) return table(lines, at);
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !begins(lines[end])) end += 1;
  return [el("p", { dir: "auto" }, spread(lines.slice(at, end))), end];
}

/** Lines of one paragraph, broken where they were. */
const spread = (lines) => lines.flatMap((l, i) => (i ? [el("br"), inline(l.trim())] : [inline(l.trim())]));

function code(lines, at, mark) {
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(mark)) end += 1;
  return [el("pre", { tabindex: "0" }, el("code", {}, lines.slice(at + 1, end).join("\n"))), end + 1];
}

function list(lines, at) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (item && item[1].length <= indent.length && /\d/.test(item[2]) === ordered) {
      items.push([item[3]]);
    } else if (items.length && lines[end].trim() && (/^\s{2,}/.test(lines[end]) || (item && item[1].length > indent.length))) {
      items.at(-1).push(lines[end].slice(indent.length).replace(/^ {1,4}/, ""));
    } else {
      break;
    }
    end += 1;
  }
  const start = ordered ? Number.parseInt(mark, 10) : null;
  const node = el(ordered ? "ol" : "ul", { start: start && start !== 1 ? start : null });
  for (const [first, ...rest] of items) {
    node.append(el("li", { dir: "auto" }, inline(first), rest.length ? markdown(rest.join("\n")) : null));
  }
  return [node, end];
}

function table(lines, at) {
  const cells = (line) => line.trim().slice(1, -1).split("|").map((c) => c.trim());
  let end = at + 2;
  while (end < lines.length && ROW.test(lines[end])) end += 1;
  const head = el("tr", {}, cells(lines[at]).map((c) => el("th", { scope: "col" }, inline(c))));
  const body = lines.slice(at + 2, end).map((l) => el("tr", {}, cells(l).map((c) => el("td", {}, inline(c)))));
  return [el("div", { class: "scroll", tabindex: "0" }, el("table", {}, el("thead", {}, head), el("tbody", {}, body))), end];
}

const INLINE =
  /(`+)([^`][\s\S]*?)\1(?!`)|\[([^\][]{1,500})\]\(\s*<?(https?:\/\/[^\s<>()]+)>?\s*\)|<?(https?:\/\/[^\s<>()"'`]+[^\s<>()"'`.,;:!?])>?|\*\*([^*]+)\*\*|__([^_]+)__|\*([^*\s][^*]*)\*|(?<![\w_])_([^_\s][^_]*)_(?![\w_])|~~([^~]+)~~/;

/** Code, links, strong and emphasised words of a line. */
function inline(text) {
  const nodes = [];
  let rest = text;
  while (rest) {
    const found = INLINE.exec(rest);
    if (!found) break;
    if (found.index) nodes.push(rest.slice(0, found.index));
    const [whole, , coded, label, address, bare, strong1, strong2, emphasis1, emphasis2, struck] = found;
    if (coded !== undefined) nodes.push(el("code", {}, coded.trim()));
    else if (address) nodes.push(link(label, address));
    else if (bare) nodes.push(link(null, bare));
    else if (strong1 ?? strong2) nodes.push(el("strong", {}, inline(strong1 ?? strong2)));
    else if (emphasis1 ?? emphasis2) nodes.push(el("em", {}, inline(emphasis1 ?? emphasis2)));
    else if (struck) nodes.push(el("s", {}, inline(struck)));
    rest = rest.slice(found.index + whole.length);
  }
  if (rest) nodes.push(rest);
  return nodes;
}

function link(label, address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return label ? `${label} (${address})` : address;
  }
  // Where a label could name another place than the link leads to, the place itself is shown behind it.
  const shown = label && label !== address ? [label, el("span", { class: "host" }, ` (${safe(url.host, 80)})`)] : [safe(address, 200)];
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, shown);
}
