// The WebSocket connection to the page's server: docs/page.md specifies its messages.

const RECONNECT_MS = 1000; // delay before a new connection attempt, in ms

export class Wire {
  constructor(heard) {
    this.address = new URL("live", location.origin + location.pathname);
    this.address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    this.heard = heard;
    this.number = 0;
    this.waiting = new Map();
    this.connect();
  }

  connect() {
    this.socket = new WebSocket(this.address);
    this.socket.onmessage = (event) => this.receive(JSON.parse(event.data));
    this.socket.onclose = () => {
      for (const { refuse } of this.waiting.values()) refuse(new Error("the connection was lost"));
      this.waiting.clear();
      this.heard({ is: "lost" });
      setTimeout(() => this.connect(), RECONNECT_MS);
    };
  }

  receive(message) {
    if (message.is !== "answer") {
      this.heard(message);
      return;
    }
    const waiting = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (!waiting) return;
    if (message.error) waiting.refuse(new Error(message.error));
    else waiting.accept(message.answer);
  }

  ask(verb, words) {
    if (this.socket.readyState !== WebSocket.OPEN) {
      return Promise.reject(new Error("the page has no connection: wait or reload it"));
    }
    const id = (this.number += 1);
    this.socket.send(JSON.stringify({ id, do: verb, words }));
    return new Promise((accept, refuse) => this.waiting.set(id, { accept, refuse }));
  }
}
