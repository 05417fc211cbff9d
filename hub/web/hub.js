// The page's end of protocol 4: one connection, requests, events, and coming back after a loss.

import { base64url, deviceKey, forget, forgetAll, load, save } from "./keys.js";
import { openTransport } from "./transport.js";

const PROTOCOL = 4;
const SCOPES = ["operator.admin", "operator.approvals", "operator.pairing", "operator.read", "operator.write"];
/** How long a request waits for its answer. */
const PATIENCE = 30_000;
/** From opening to being let in. */
const HANDSHAKE = 20_000;
const BACKOFF = { base: 1000, cap: 30_000 };
/** How often a page that waits for a person asks again. */
const KNOCK_AGAIN = 3000;

/** An error the hub answered with: `code`, `details` and the hub's own line. */
export class HubError extends Error {
  constructor(shape) {
    super(shape?.message ?? "the hub gave no reason");
    this.code = shape?.code;
    this.details = shape?.details ?? {};
    this.retryAfterMs = shape?.retryAfterMs;
  }
}

/** A connection that ended before the answer came. */
export class Lost extends Error {}

/**
 * States: `connecting`, `online`, `offline` (tries again), `locked` (needs a link; `reason` says why),
 * `waiting` (a person must let this browser in). Every change is an event `state`; what the hub tells is an
 * event of its name with the payload in `detail`.
 */
export class Hub extends EventTarget {
  state = "connecting";
  reason = null;
  hello = null;
  scopes = [];
  #key = null;
  #line = null;
  #open = new Map();
  #next = 0;
  #failures = 0;
  #timer = 0;
  #watch = 0;
  #heard = 0;
  #join = null;

  /** Connects, and stays connected. `join`: the secret of a link, and the name to be known by. */
  async start(join = null) {
    this.#join = join;
    this.#key ??= await deviceKey();
    addEventListener("online", () => this.#soon(0));
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.state === "offline") this.#soon(0);
    });
    await this.#connect();
  }

  /** This browser's id, as the hub lists it. */
  get deviceId() {
    return this.#key?.id ?? "";
  }

  /** Signed with a key that script could read: no person's key can live here. */
  get weak() {
    return this.#key?.weak ?? true;
  }

  may(scope) {
    const held = this.scopes;
    return held.includes(`operator.${scope}`) || held.includes("operator.admin") || (scope === "read" && held.includes("operator.write"));
  }

  has(method) {
    return this.hello?.features?.methods?.includes(method) ?? false;
  }

  /** Asks the hub; gives the payload or throws [`HubError`] or [`Lost`]. */
  call(method, params = {}, patience = PATIENCE) {
    if (this.state !== "online") return Promise.reject(new Lost("not connected to the hub"));
    return this.#request(method, params, patience);
  }

  /** Tries at once, whatever the state. */
  retry(join = null) {
    if (join) this.#join = join;
    this.#soon(0);
  }

  /** Throws this browser's keys away and tries with new ones; a link that was not used up still counts. */
  async renew() {
    await forgetAll();
    this.#key = await deviceKey();
    this.#soon(0);
  }

  #request(method, params, patience) {
    const id = `p${++this.#next}`;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#open.delete(id);
        reject(new Lost("the hub did not answer in time"));
      }, patience);
      this.#open.set(id, { resolve, reject, timer });
      this.#line.send(JSON.stringify({ type: "req", id, method, params }));
    });
  }

  #become(state, reason = null) {
    this.state = state;
    this.reason = reason;
    this.dispatchEvent(new Event("state"));
  }

  #soon(delay) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), delay);
  }

  async #connect() {
    clearTimeout(this.#timer);
    if (this.#line) return;
    if (this.state !== "waiting") this.#become("connecting");
    const line = openTransport();
    this.#line = line;
    const late = setTimeout(() => line.close(), HANDSHAKE);
    line.onmessage = (text) => this.#take(text, late);
    line.onclose = ({ code, reason }) => {
      clearTimeout(late);
      this.#closed(line, code, reason);
    };
  }

  async #take(text, late) {
    this.#heard = Date.now();
    let frame;
    try {
      frame = JSON.parse(text);
    } catch {
      return;
    }
    if (frame.type === "res") {
      const waiting = this.#open.get(frame.id);
      if (!waiting) return;
      this.#open.delete(frame.id);
      clearTimeout(waiting.timer);
      if (frame.ok) waiting.resolve(frame.payload);
      else waiting.reject(new HubError(frame.error));
    } else if (frame.type === "event" && frame.event === "connect.challenge") {
      await this.#introduce(frame.payload, late);
    } else if (frame.type === "event") {
      this.dispatchEvent(new CustomEvent(frame.event, { detail: frame.payload }));
    }
  }

  async #introduce(challenge, late) {
    const line = this.#line;
    const token = await load("token");
    const join = token ? null : this.#join;
    const client = {
      id: "webchat-ui",
      mode: "webchat",
      version: "1",
      platform: platform(),
      deviceFamily: "Browser",
      displayName: (await load("name")) || join?.name || browserName(),
      timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone?.slice(0, 64),
    };
    const secret = token ?? join?.secret ?? "";
    const auth = token ? { deviceToken: token } : join ? { bootstrapToken: join.secret } : {};
    const fields = [
      "v3", this.#key.id, client.id, client.mode, "operator", SCOPES.join(","), challenge.ts, secret, challenge.nonce,
      client.platform, client.deviceFamily.toLowerCase(),
    ];
    const signature = await this.#key.sign(new TextEncoder().encode(fields.join("|")));
    if (line !== this.#line) return;
    try {
      const hello = await this.#request("connect", {
        minProtocol: PROTOCOL,
        maxProtocol: PROTOCOL,
        client,
        role: "operator",
        scopes: SCOPES,
        caps: ["approvals"],
        locale: document.documentElement.lang,
        auth,
        device: {
          id: this.#key.id,
          publicKey: base64url(this.#key.publicKey),
          signature: base64url(signature),
          signedAt: challenge.ts,
          nonce: challenge.nonce,
        },
      }, HANDSHAKE);
      clearTimeout(late);
      await this.#welcome(hello, join);
    } catch (error) {
      if (error instanceof HubError) await this.#refused(error);
    }
  }

  async #welcome(hello, join) {
    if (hello.auth.deviceToken) await save("token", hello.auth.deviceToken);
    if (join?.name) await save("name", join.name);
    this.#join = null;
    this.#failures = 0;
    this.hello = hello;
    this.scopes = hello.auth.scopes ?? [];
    const silence = 2 * (hello.policy?.tickIntervalMs ?? 30_000) + 5000;
    clearInterval(this.#watch);
    this.#watch = setInterval(() => {
      if (Date.now() - this.#heard > silence) this.#line?.close();
    }, 5000);
    this.#become("online");
  }

  async #refused(error) {
    const code = error.details.code;
    const pending = code === "PAIRING_REQUIRED" && error.details.requestId;
    if (pending) return this.#end("waiting", error, KNOCK_AGAIN);
    if (code === "AUTH_RATE_LIMITED") return this.#end("offline", error, error.retryAfterMs ?? 10_000);
    if (code === "AUTH_DEVICE_TOKEN_MISMATCH") {
      // The hub gave it and does not know it any more: this browser was put out.
      await forget("token");
      if (this.#join) return this.#end("connecting", null, 1);
    }
    if (code === "AUTH_BOOTSTRAP_TOKEN_INVALID") this.#join = null;
    return this.#end("locked", error);
  }

  #end(state, reason, again) {
    const line = this.#line;
    this.#line = null;
    line?.close();
    this.#become(state, reason);
    if (again) this.#soon(again);
  }

  #closed(line, code, reason) {
    clearInterval(this.#watch);
    for (const { reject, timer } of this.#open.values()) {
      clearTimeout(timer);
      reject(new Lost("the connection to the hub was lost"));
    }
    this.#open.clear();
    if (line !== this.#line) return;
    this.#line = null;
    this.#become("offline", { code, message: reason });
    const delay = Math.min(BACKOFF.cap, BACKOFF.base * 2 ** Math.min(this.#failures++, 10));
    this.#soon(delay * (0.5 + Math.random() / 2));
  }
}

// What the signature covers may hold neither `|` nor capitals that two sides would lower differently.
const plainWord = (text) => text.replace(/[^\w .()-]/g, "").slice(0, 64).toLowerCase() || "web";

function platform() {
  return plainWord(navigator.userAgentData?.platform || navigator.platform || "web");
}

/** A first name for this browser, such as "Chrome on Android". */
export function browserName() {
  const agent = navigator.userAgent;
  const named = [["Edg/", "Edge"], ["Firefox/", "Firefox"], ["Chrome/", "Chrome"], ["Safari/", "Safari"]].find(([mark]) => agent.includes(mark));
  const system = [["iPhone", "iPhone"], ["iPad", "iPad"], ["Android", "Android"], ["Mac OS", "Mac"], ["Windows", "Windows"], ["Linux", "Linux"]].find(([mark]) => agent.includes(mark));
  return [named?.[1] ?? "Browser", system?.[1]].filter(Boolean).join(" on ");
}
