// The events of all own threads: one stream for all tabs of a browser.
//
// HTTP/1.1 gives a browser six connections per host, so the sixth open stream would block every page. One tab holds the
// stream under a lock and tells the others; when it closes, another one takes over where it was.

import { personQuery } from "/page/static/api.js";

const NAMES = ["run", "snapshot", "text", "step", "plan", "question", "file", "notice", "failed", "entry", "end", "thread", "reset"];

export class Stream {
  /** `take(name, data, id)` gets each event once, `tell(state)` gets "connected", "lost" or "ended"; `gone()` is called when another tab signs out. */
  constructor(take, tell, gone) {
    this.gone = gone;
    this.take = take;
    this.tell = tell;
    this.last = "";
    this.tabs = globalThis.BroadcastChannel ? new BroadcastChannel("fawn") : null;
    if (this.tabs) this.tabs.onmessage = ({ data }) => this.hear(data);
  }

  start() {
    if (this.waits) return; // for the lock, or holds the stream
    this.waits = true;
    if (navigator.locks) navigator.locks.request("fawn-stream", () => this.hold());
    else this.hold();
    if (this.tabs) this.tabs.postMessage({ hello: true });
  }

  hear(data) {
    if (data.left) return this.gone();
    if (data.hello) return this.state && this.holds && this.tabs.postMessage({ state: this.state });
    if (data.state) return this.tell(data.state);
    if (data.id) this.last = data.id;
    this.take(data.name, data.data, data.id);
  }

  /** Tell the other tabs that the person has signed out. */
  leave() { this.tabs?.postMessage({ left: true }); }

  say(state) {
    this.state = state;
    this.tell(state);
    this.tabs?.postMessage({ state });
  }

  /** Hold the stream until this tab closes, or is signed out. */
  hold() {
    this.holds = true;
    return new Promise((gone) => {
      const source = new EventSource(`/page/v1/events?${personQuery()}${this.last ? `&after=${encodeURIComponent(this.last)}` : ""}`);
      this.source = source;
      source.onopen = () => this.say("connected");
      source.onerror = () => {
        if (source.readyState !== EventSource.CLOSED) return this.say("lost");
        this.holds = this.waits = false;
        this.say("ended");
        gone();
      };
      for (const name of NAMES) {
        source.addEventListener(name, (event) => {
          const told = { name, data: JSON.parse(event.data), id: event.lastEventId };
          this.last = told.id || this.last;
          this.take(told.name, told.data, told.id);
          this.tabs?.postMessage(told);
        });
      }
    });
  }
}
