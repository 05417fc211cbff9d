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

/** Code of a connection that ended without a word. */
const ABNORMAL = 1006;

/** Opens a connection to the hub that served this page. */
export function openTransport() {
  return new WebSocketTransport(new URL("/", location.href));
}

class WebSocketTransport {
  onopen = null;
  onmessage = null;
  onclose = null;
  #socket;

  constructor(base) {
    const address = new URL("/", base);
    address.protocol = base.protocol === "https:" ? "wss:" : "ws:";
    this.#socket = new WebSocket(address);
    this.#socket.onopen = () => this.onopen?.();
    this.#socket.onmessage = ({ data }) => {
      // The gateway sends text only.
      if (typeof data === "string") this.onmessage?.(data);
    };
    this.#socket.onclose = ({ code, reason }) => this.onclose?.({ code: code || ABNORMAL, reason });
  }

  send(text) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(text);
  }

  close() {
    this.#socket.close();
  }
}
