// Building the page's nodes. Text stays text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Makes an element. `props`: `class`, `on` with listeners, `data`, properties of the element such as
 * `disabled` or `value`, and everything else as an attribute; `null`, `undefined` and `false` leave it out.
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (PROPERTIES.has(name)) node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  fill(node, children);
  return node;
}

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "htmlFor", "rows", "src", "selected"]);

function fill(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces what is inside. */
export function replace(node, ...children) {
  node.replaceChildren();
  fill(node, children);
  return node;
}

/** An SVG element with attributes. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  fill(node, children);
  return node;
}

const ICONS = {
  chat: "M4 5h16v11H9l-5 4z",
  ask: "M12 3 5 6v5c0 5 3 8 7 10 4-2 7-5 7-10V6zM9 11.5l2.2 2.2L15.5 9.5",
  home: "M4 11 12 4l8 7v9h-5v-6H9v6H4z",
  more: "M5 12.8a.8.8 0 1 0 0-1.6.8.8 0 0 0 0 1.6zM12 12.8a.8.8 0 1 0 0-1.6.8.8 0 0 0 0 1.6zM19 12.8a.8.8 0 1 0 0-1.6.8.8 0 0 0 0 1.6z",
  send: "M12 20V5M5.5 11.5 12 5l6.5 6.5",
  stop: "M7 7h10v10H7z",
  back: "M15 5l-7 7 7 7",
  next: "M9 5l7 7-7 7",
  camera: "M4 8h4l1.5-2h5L16 8h4v11H4zM12 16.5a3.2 3.2 0 1 0 0-6.4 3.2 3.2 0 0 0 0 6.4z",
  key: "M14.5 3.5a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM11 12l-7 7v2h3l1-1v-2h2v-2h1l1.5-1.5",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  people: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20a6.5 6.5 0 0 1 13 0M16 4.5a3.5 3.5 0 0 1 0 6.5M18 14.5c2 .8 3.5 2.8 3.5 5.5",
  log: "M6 3h9l4 4v14H6zM9 11h6M9 15h6",
  gear: "M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM12 3v3M12 18v3M3 12h3M18 12h3M5.6 5.6l2.2 2.2M16.2 16.2l2.2 2.2M5.6 18.4l2.2-2.2M16.2 7.8l2.2-2.2",
  warn: "M12 4 2.5 20h19zM12 10v4.5M12 17.5h.01",
  ok: "M5 12.5 10 17.5 19 7.5",
  no: "M6 6l12 12M18 6 6 18",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3.5 2",
};

/** A drawn sign beside a text; never the only name of anything. */
export function icon(name) {
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

// The same characters as the hub and the command line escape: controls, bidirectional marks, zero-width and
// other invisible ones.
const DECEPTIVE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;

const escaped = (c) => `\\u{${c.codePointAt(0).toString(16)}}`;

/** Text from outside in one line: what could hide or reorder it is shown escaped, and it is cut. */
export function safe(text, max = 4096) {
  const all = [...String(text ?? "")];
  const cut = all.length > max ? `${all.slice(0, max).join("")}…` : all.join("");
  return cut.replace(DECEPTIVE, escaped);
}

/** As [`safe`], keeping line breaks and tabs. */
export function safeText(text) {
  return String(text ?? "").replace(DECEPTIVE, (c) => (c === "\n" || c === "\t" ? c : escaped(c)));
}

/** Says something for a few seconds; also to screen readers. */
export function toast(text, kind = "info") {
  const note = el("p", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), kind === "error" ? 8000 : 4000);
}

/** A button; `run` may be slow: it is locked meanwhile, and a failure is told. */
export function button(label, kind, run, props = {}) {
  const node = el("button", { type: "button", class: `button ${kind}`, ...props }, label);
  node.addEventListener("click", async () => {
    if (node.getAttribute("aria-disabled") === "true") return;
    // Not `disabled`, which would throw the keyboard's focus away.
    node.setAttribute("aria-disabled", "true");
    try {
      await run();
    } catch (error) {
      toast(error.message, "error");
    } finally {
      node.removeAttribute("aria-disabled");
    }
  });
  return node;
}
