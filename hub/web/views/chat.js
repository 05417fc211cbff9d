// The conversation: what was said, what is being said, and what waits in between.

import { button, el, icon, replace, safe, toast } from "../dom.js";
import { Lost } from "../hub.js";
import { t, time } from "../i18n.js";
import { markdown } from "../markdown.js";
import { cardView } from "./card.js";
import { picture } from "./parts.js";

const SESSION = "main";
const KEY = "agent:main:main";
const PAGE = 50;
/** Longest message the hub takes, in bytes. */
const MAX_BYTES = 64 * 1024;

/** Messages that the hub has not confirmed yet; they outlive a change of view. */
const outbox = [];
let draft = "";

export async function render(page, app, { signal }) {
  const { hub } = app;
  const log = el("div", { class: "log", role: "log", "aria-live": "polite", "aria-label": t("chat.log"), tabindex: "0" });
  const cards = el("div", { class: "stack" });
  const older = el("button", { type: "button", class: "button plain small", hidden: true }, t("chat.older"));
  const status = el("p", { class: "typing muted small", role: "status" });
  const stream = el("div", { class: "scroller" }, older, log, cards, status);
  const runs = new Map();
  let offset = 0;

  // Whoever reads at the end stays there while it grows; whoever scrolled up is left alone.
  let follow = true;
  const toEnd = () => { stream.scrollTop = stream.scrollHeight; };
  stream.addEventListener("scroll", () => { follow = stream.scrollHeight - stream.scrollTop - stream.clientHeight < 80; }, { passive: true });
  const grown = new ResizeObserver(() => follow && toEnd());
  for (const part of [stream, log, cards, status]) grown.observe(part);
  signal.addEventListener("abort", () => grown.disconnect());

  const history = async () => {
    const answer = await hub.call("chat.history", { sessionKey: SESSION, limit: PAGE });
    if (signal.aborted) return;
    // A reply that is being written stays: the transcript has it only when it is whole.
    const open = [...runs.values()].filter((r) => r.node && !r.done).map((r) => r.node);
    const said = new Set(answer.messages.filter((m) => m.role === "user").map((m) => m.runId ?? m.__openclaw?.runId));
    for (let at = outbox.length - 1; at >= 0; at -= 1) if (said.has(outbox[at].id) && outbox[at].sent) outbox.splice(at, 1);
    replace(log, answer.messages.map((m) => message(m)), outbox.map((m) => m.node ?? own(m)), open);
    offset = answer.nextOffset ?? 0;
    older.hidden = !answer.hasMore;
    if (!log.children.length) replace(log, hello());
  };
  older.addEventListener("click", async () => {
    const answer = await hub.call("chat.history", { sessionKey: SESSION, limit: PAGE, offset });
    const height = stream.scrollHeight;
    log.prepend(...answer.messages.map((m) => message(m)).filter(Boolean));
    stream.scrollTop += stream.scrollHeight - height;
    offset = answer.nextOffset ?? 0;
    older.hidden = !answer.hasMore;
  });

  const shownCards = new Map();
  const waiting = () => {
    if (!hub.may("approvals")) return;
    for (const approval of app.pending.values()) {
      if (shownCards.has(approval.id)) continue;
      const card = cardView(app, approval, { open: shownCards.size < 3, signal });
      shownCards.set(approval.id, card);
      cards.append(card.node);
    }
  };

  const own = (m) => {
    m.node = el("div", { class: "message user" }, el("p", { dir: "auto" }, m.text), el("p", { class: "when" }, m.state ? t(`chat.${m.state}`) : ""));
    return m.node;
  };
  const flush = async () => {
    for (const m of [...outbox]) {
      if (m.sent) continue;
      try {
        await hub.call("chat.send", { sessionKey: SESSION, message: m.text, idempotencyKey: m.id });
        m.sent = true;
        m.state = null;
      } catch (error) {
        if (error instanceof Lost) m.state = "unsent";
        else {
          m.state = "refused";
          m.sent = true;
          toast(error.message, "error");
        }
      }
      if (m.node) replace(m.node.lastChild, m.state ? t(`chat.${m.state}`) : time(Date.now()));
      if (m.state === "unsent") return;
    }
  };

  const on = (event, run) => hub.addEventListener(event, ({ detail }) => run(detail), { signal });
  on("chat", (event) => {
    if (event.sessionKey !== KEY) return;
    let run = runs.get(event.runId);
    if (!run) {
      run = { node: null, done: false };
      runs.set(event.runId, run);
      // Somebody else wrote, from another device: what he said is in the transcript.
      if (!outbox.some((m) => m.id === event.runId)) history().catch(() => {});
    }
    progress(run, event);
    busy();
  });
  const progress = (run, event) => {
    if (event.state === "status") {
      run.status = event.text || (event.phase === "waiting_approval" ? t("chat.waiting") : "");
    } else if (event.state === "delta") {
      run.status = "";
      run.node ??= log.appendChild(el("div", { class: "message assistant", "aria-busy": "true" }));
      replace(run.node, markdown(textOf(event.message)));
    } else {
      run.done = true;
      run.status = "";
      const fresh = event.state === "final" ? message({ ...event.message, role: "assistant", runId: event.runId }) : null;
      // After the connection came back the transcript may have been quicker than this event.
      for (const twin of fresh ? log.querySelectorAll(".message.assistant") : [])
        if (twin.dataset.run === event.runId && twin.dataset.text === fresh.dataset.text) twin.remove();
      const node = fresh ?? el("p", { class: "notice" }, event.state === "aborted" ? t("chat.aborted") : safe(event.errorMessage, 500));
      if (run.node) run.node.replaceWith(node);
      else log.append(node);
      run.node = node;
      // The reply tells how it was decided.
      for (const [id, card] of shownCards) {
        if (!card.settled) continue;
        card.node.remove();
        shownCards.delete(id);
      }
    }
  };
  const busy = () => {
    const open = [...runs.values()].filter((r) => !r.done);
    replace(status, open.map((r) => r.status).find(Boolean) ?? (open.length ? t("chat.thinking") : ""));
    stop.hidden = open.length === 0;
  };
  // The list of what waits is renewed before views hear of it.
  on("exec.approval.requested", () => setTimeout(waiting, 250));
  hub.addEventListener("state", async () => {
    if (hub.state !== "online") return;
    runs.clear();
    busy();
    await flush();
    await history().catch(() => {});
    waiting();
  }, { signal });

  const input = el("textarea", { id: "say", rows: 1, value: draft, placeholder: t("chat.placeholder"), "aria-label": t("chat.placeholder"), enterkeyhint: "send" });
  const stop = button(icon("stop"), "round plain", () => hub.call("chat.abort", { sessionKey: SESSION }), { "aria-label": t("chat.stop"), hidden: true });
  const grow = () => {
    draft = input.value;
    input.style.height = "auto";
    input.style.height = `${Math.min(input.scrollHeight, 160)}px`;
  };
  input.addEventListener("input", grow);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  const send = el("button", { type: "submit", class: "button round primary", "aria-label": t("chat.send") }, icon("send"));
  const form = el("form", { class: "composer", on: { submit: (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (!text) return;
    if (new TextEncoder().encode(text).length > MAX_BYTES) return toast(t("chat.long"), "error");
    const m = { id: uuid(), text, state: "sending", sent: false };
    outbox.push(m);
    log.querySelector(".hello")?.remove();
    log.append(own(m));
    input.value = "";
    grow();
    follow = true;
    toEnd();
    flush();
  } } }, input, stop, send);

  replace(page, el("h1", { class: "unseen" }, t("tab.chat")), stream, hub.may("write") ? form : el("p", { class: "notice" }, t("chat.noright")));
  await history();
  waiting();
  toEnd();
  if (matchMedia("(hover: hover)").matches) input.focus();
}

function hello() {
  return el("div", { class: "hello" }, el("div", { class: "gate-sign" }, icon("home")), el("h2", {}, t("chat.hello")), el("p", { class: "muted" }, t("chat.hello.text")));
}

const textOf = (m) => (typeof m?.content === "string" ? m.content : (m?.content ?? []).filter((p) => p.type === "text").map((p) => p.text).join("\n"));

/** A line of the transcript; others than people's and the assistant's are not shown. */
function message(m) {
  if (m.role !== "user" && m.role !== "assistant") return null;
  const text = textOf(m);
  const pictures = Array.isArray(m.content) ? m.content.filter((p) => p.type === "image" && p.mediaId) : [];
  if (!text && !pictures.length) return null;
  const body = m.role === "user" ? el("p", { dir: "auto" }, text) : markdown(text);
  const when = m.timestamp ? el("p", { class: "when" }, time(m.timestamp)) : null;
  const data = m.role === "assistant" ? { run: m.runId ?? m.__openclaw?.runId ?? "", text } : {};
  return el("div", { class: `message ${m.role}`, data }, body, pictures.map((p) => picture(p.mediaId, t("picture.alt"))), when);
}

/** `crypto.randomUUID` needs a secure context; this does not. */
function uuid() {
  const b = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(b, (x) => x.toString(16).padStart(2, "0")).join("");
}
