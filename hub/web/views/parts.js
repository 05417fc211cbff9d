// Pieces that several views share.

import { el, icon, safe, toast } from "../dom.js";
import { t } from "../i18n.js";
import { load } from "../keys.js";

/** Title of a view, with a way back where there is one. */
export function head(title, back = null, ...more) {
  return el(
    "header", { class: "head" },
    back ? el("a", { class: "back", href: `#/${back}`, "aria-label": t("back") }, icon("back")) : null,
    el("h1", {}, title), more,
  );
}

/** A group of rows under a heading. */
export function section(title, ...children) {
  return el("section", { class: "group" }, title ? el("h2", {}, title) : null, children);
}

/** Two columns: what, and its value. */
export function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

/** Something long that may be copied: a key, a command. */
export function copyable(text) {
  const copy = el("button", { type: "button", class: "button small plain", on: { click: async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast(t("copied"));
    } catch {
      toast(t("copy.failed"), "error");
    }
  } } }, t("copy"));
  return el("div", { class: "copyable" }, el("code", {}, text), copy);
}

/** Asks before something that cannot be taken back; gives whether to go on. */
export function confirm(title, text, go) {
  return new Promise((resolve) => {
    const dialog = el("dialog", { class: "sheet", "aria-labelledby": "ask-title" });
    const end = (answer) => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    dialog.append(
      el("h2", { id: "ask-title" }, title), el("p", {}, text),
      el("div", { class: "buttons" },
        el("button", { type: "button", class: "button plain", on: { click: () => end(false) } }, t("cancel")),
        el("button", { type: "button", class: "button danger", on: { click: () => end(true) } }, go)),
    );
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      end(false);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Asks for a line of text; `null` when it was left. */
export function ask(title, label, value, max = 64) {
  return new Promise((resolve) => {
    const dialog = el("dialog", { class: "sheet", "aria-labelledby": "ask-title" });
    const input = el("input", { id: "ask-input", type: "text", value, maxlength: String(max), autocomplete: "off" });
    const end = (answer) => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    dialog.append(el(
      "form", { on: { submit: (event) => { event.preventDefault(); end(input.value.trim() || null); } } },
      el("h2", { id: "ask-title" }, title), el("label", { htmlFor: "ask-input" }, label), input,
      el("div", { class: "buttons" },
        el("button", { type: "button", class: "button plain", on: { click: () => end(null) } }, t("cancel")),
        el("button", { type: "submit", class: "button primary" }, t("save"))),
    ));
    dialog.addEventListener("cancel", () => end(null));
    document.body.append(dialog);
    dialog.showModal();
  });
}

const RASTER = new Set(["image/jpeg", "image/png", "image/webp", "image/gif"]);
/** Pictures that were fetched already, newest last. */
const fetched = new Map();
const KEPT = 24;

/** A picture the hub keeps. It needs the token, so it is fetched and shown from memory. */
export function picture(id, alt) {
  const image = el("img", { alt, class: "picture" });
  const frame = el("div", { class: "picture-frame" }, image);
  draw(image, id).catch(() => frame.replaceChildren(el("p", { class: "muted small" }, t("picture.gone"))));
  return frame;
}

async function draw(image, id) {
  if (!fetched.has(id)) fetched.set(id, blobOf(id));
  if (fetched.size > KEPT) fetched.delete(fetched.keys().next().value);
  const blob = await fetched.get(id).catch((error) => {
    fetched.delete(id);
    throw error;
  });
  const url = URL.createObjectURL(blob);
  image.src = url;
  // Once decoded the image holds its pixels and the address may go.
  await image.decode().finally(() => URL.revokeObjectURL(url));
}

async function blobOf(id) {
  const [token, { app }] = await Promise.all([load("token"), import("../app.js")]);
  const response = await fetch(`/media/${encodeURIComponent(id)}`, {
    headers: { authorization: `Bearer ${app.hub.deviceId}:${token}` },
    cache: "no-store",
  });
  if (!response.ok) throw new Error(String(response.status));
  const blob = await response.blob();
  if (!RASTER.has(blob.type)) throw new Error("not a picture");
  return blob;
}

/** A node's or device's state in a dot and a word. */
export function presence(connected, word) {
  return el("span", { class: `presence ${connected ? "on" : "off"}` }, el("span", { class: "dot", "aria-hidden": "true" }), word);
}

export const name = (text) => safe(text, 64);
