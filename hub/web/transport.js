// One connection to the hub that carries JSON text frames, whatever it runs over.
//
//   const line = openTransport();
//   line.onopen = () => …;             frames may be sent from here on
//   line.onmessage = (text) => …;      one frame as text
//   line.onclose = ({ code, reason }) => …;   exactly once, also when it never opened (code 1006)
//   line.send(text);                   one frame; ignored after the end
//   line.close();                      ends it
//
// Set the handlers before giving control back to the browser. A transport is used once: to reconnect,
// open a new one. Close codes are those of WebSocket (RFC 6455, 7.4) and of the gateway.
//
// It is a WebSocket where the browser allows one. Some refuse `wss` to a hub whose certificate a person has
// clicked away; there the same frames run over HTTP: one answer that stays open, and a POST for what is sent.

/** Code of a connection that ended without a word. */
const ABNORMAL = 1006;
/** A normal end. */
const NORMAL = 1000;
/** A frame was larger than the hub takes. */
const TOO_BIG = 1009;
/** Frames of one request, in characters; the hub takes 64 KiB before the session is accepted. */
const BATCH = 16 * 1024;
/** A request that takes longer than this has failed. */
const SEND_LIMIT_MS = 60_000;

/** Set when a socket was refused and HTTP was not: the next connection begins with HTTP. */
let httpWorked = false;

/** Opens a connection to the hub that served this page. */
export function openTransport() {
  return new Transport(new URL("/", location.href), httpWorked ? [HttpCarrier] : [SocketCarrier, HttpCarrier]);
}

/** The first carrier that opens is the connection. */
class Transport {
  onopen = null;
  onmessage = null;
  onclose = null;
  #base;
  #carriers;
  #carrier = null;
  #opened = false;
  #ended = false;

  constructor(base, carriers) {
    this.#base = base;
    this.#carriers = carriers;
    this.#next();
  }

  send(text) {
    if (this.#opened && !this.#ended) this.#carrier.send(text);
  }

  close() {
    if (this.#ended) return;
    this.#carrier.close();
    this.#end({ code: NORMAL, reason: "" });
  }

  #next() {
    const Carrier = this.#carriers.shift();
    this.#carrier = new Carrier(this.#base, {
      opened: () => {
        if (this.#ended) return;
        httpWorked = Carrier === HttpCarrier;
        this.#opened = true;
        this.onopen?.();
      },
      message: (text) => {
        if (!this.#ended) this.onmessage?.(text);
      },
      closed: (end) => {
        if (this.#ended) return;
        if (!this.#opened && this.#carriers.length > 0) this.#next();
        else this.#end(end);
      },
    });
  }

  #end(end) {
    this.#ended = true;
    if (!this.#opened) httpWorked = false;
    this.onclose?.(end);
  }
}

class SocketCarrier {
  #socket;

  constructor(base, { opened, message, closed }) {
    const address = new URL("/", base);
    address.protocol = base.protocol === "https:" ? "wss:" : "ws:";
    this.#socket = new WebSocket(address);
    this.#socket.onopen = opened;
    // The gateway sends text only.
    this.#socket.onmessage = ({ data }) => typeof data === "string" && message(data);
    this.#socket.onclose = ({ code, reason }) => closed({ code: code || ABNORMAL, reason });
  }

  send(text) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(text);
  }

  close() {
    this.#socket.close();
  }
}

class HttpCarrier {
  #base;
  #handlers;
  #abort = new AbortController();
  #session = null;
  /** Frames that wait for their turn; an empty one is the answer to a ping. */
  #queue = [];
  #sending = false;
  #closed = false;

  constructor(base, handlers) {
    this.#base = base;
    this.#handlers = handlers;
    this.#receive().catch(() => this.#end({ code: ABNORMAL, reason: "" }));
  }

  send(text) {
    this.#queue.push(text);
    this.#flush();
  }

  close() {
    this.#closed = true;
    this.#abort.abort();
  }

  async #receive() {
    const answer = await fetch(new URL("/stream", this.#base), {
      method: "POST",
      cache: "no-store",
      credentials: "omit",
      signal: this.#abort.signal,
    });
    if (!answer.ok || !answer.body) throw new Error(`status ${answer.status}`);
    const reader = answer.body.getReader();
    const decoder = new TextDecoder();
    // Pieces of a line are kept apart until its end has come: a large frame is not searched again and again.
    let pieces = [];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new Error("the answer ended");
      const parts = decoder.decode(value, { stream: true }).split("\n");
      for (let i = 0; i < parts.length - 1; i++) {
        pieces.push(parts[i]);
        this.#line(pieces.join(""));
        pieces = [];
        if (this.#closed) return;
      }
      pieces.push(parts[parts.length - 1]);
    }
  }

  #line(text) {
    if (text === "") return this.send("");
    if (this.#session === null) {
      const { id, secret } = JSON.parse(text);
      this.#session = { address: new URL(`/stream/${encodeURIComponent(id)}`, this.#base), secret };
      return this.#handlers.opened();
    }
    // No frame of the gateway is of this type, and it writes `type` first.
    if (text.startsWith('{"type":"close"')) {
      const { code, reason } = JSON.parse(text);
      return this.#end({ code, reason });
    }
    this.#handlers.message(text);
  }

  /** Sends what waits, one request at a time, so that frames arrive in order. */
  async #flush() {
    if (this.#sending || this.#session === null) return;
    this.#sending = true;
    let timer;
    try {
      while (this.#queue.length > 0 && !this.#closed) {
        let body = this.#queue.shift();
        while (this.#queue.length > 0 && body.length + this.#queue[0].length < BATCH) {
          body += `\n${this.#queue.shift()}`;
        }
        timer = setTimeout(() => this.#end({ code: ABNORMAL, reason: "" }), SEND_LIMIT_MS);
        const answer = await fetch(this.#session.address, {
          method: "POST",
          cache: "no-store",
          credentials: "omit",
          headers: { authorization: `Bearer ${this.#session.secret}`, "content-type": "application/x-ndjson" },
          body,
          signal: this.#abort.signal,
        });
        clearTimeout(timer);
        if (!answer.ok) {
          this.#end({ code: answer.status === 413 ? TOO_BIG : ABNORMAL, reason: "" });
        }
      }
    } catch {
      this.#end({ code: ABNORMAL, reason: "" });
    } finally {
      clearTimeout(timer);
      this.#sending = false;
    }
  }

  #end(end) {
    if (this.#closed) return;
    this.close();
    this.#handlers.closed(end);
  }
}
