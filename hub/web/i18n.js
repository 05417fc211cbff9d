// Words in the person's language, and numbers and times as they are written there.

import { save } from "./keys.js";
import en from "./lang/en.js";

const KEY = "hearth.lang";
export const LANGUAGES = { en: "English", zh: "中文" };

let words = en;
let lang = "en";

/** The language in use: `en` or `zh`. */
export const language = () => lang;

/** Takes up the language that was chosen, else the browser's. */
export async function loadLanguage() {
  const wanted = stored(KEY) ?? (navigator.languages ?? [navigator.language]).find((l) => LANGUAGES[l.slice(0, 2)]);
  await setLanguage((wanted ?? "en").slice(0, 2), false);
}

/** Changes the language, for good when `keep`. */
export async function setLanguage(next, keep = true) {
  lang = LANGUAGES[next] ? next : "en";
  words = lang === "zh" ? (await import("./lang/zh.js")).default : en;
  document.documentElement.lang = lang === "zh" ? "zh-CN" : "en";
  if (keep) store(KEY, lang);
  // For the service worker, which speaks when no page is open.
  await save("lang", lang).catch(() => {});
}

/** A text by its key; `{name}` in it becomes `values.name`. */
export function t(key, values = {}) {
  const text = words[key] ?? en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** How numbers and times are written: as the browser says, where that is the same language. */
const locale = () => (navigator.languages ?? []).find((l) => l.startsWith(lang)) ?? document.documentElement.lang;

/** Whether there is a text for a key. */
export const has = (key) => key in en;

export function number(value, digits = 2) {
  return new Intl.NumberFormat(locale(), { maximumFractionDigits: digits }).format(value);
}

export function bytes(count) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const power = count > 0 ? Math.min(units.length - 1, Math.floor(Math.log(count) / Math.log(1000))) : 0;
  return `${number(count / 1000 ** power, power ? 1 : 0)} ${units[power]}`;
}

/** Time of day today, else the day with it. */
export function time(ms) {
  const at = new Date(ms);
  const clock = { hour: "2-digit", minute: "2-digit" };
  const today = at.toDateString() === new Date().toDateString();
  const form = today ? clock : { month: "short", day: "numeric", ...clock };
  return new Intl.DateTimeFormat(locale(), form).format(at);
}

/** A whole date and time. */
export function dateTime(ms) {
  const form = { dateStyle: "medium", timeStyle: "medium" };
  return new Intl.DateTimeFormat(locale(), form).format(new Date(ms));
}

/** A length of time, roughly. */
export function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  const [value, unit] =
    s < 120 ? [s, "second"] : s < 7200 ? [Math.floor(s / 60), "minute"] : s < 172800 ? [Math.floor(s / 3600), "hour"] : [Math.floor(s / 86400), "day"];
  const form = { style: "unit", unit, unitDisplay: "long" };
  return new Intl.NumberFormat(locale(), form).format(value);
}

export const ago = (ms) => t("ago", { span: span(Date.now() - ms) });

/** A setting of this browser. Storage may be refused; then it lasts as long as the page. */
export function stored(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function store(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // As above.
  }
}
