// The own threads: a list with search.

import { get } from "/page/static/api.js";
import { h, icon, iconButton, say, t } from "/page/static/dom.js";

const DAY = 86400;

export class Sidebar {
  constructor({ me, choose, begin, actions }) {
    this.choose = choose;
    this.threads = [];
    this.next = null;
    this.current = "";
    this.search = h("input", { type: "search", placeholder: t("search"), "aria-label": t("search_threads"), on: { input: () => this.typed() } });
    this.list = h("div", { class: "threads" });
    const who = h("div", { class: "who" }, h("span", { class: "name", text: me.name }), h("span", { class: "dim small", text: me.role }));
    this.element = h("nav", { class: "sidebar", id: "sidebar", tabindex: "-1", "aria-label": t("threads") },
      h("div", { class: "brand" }, h("img", { src: "/page/static/icon.svg", alt: "", width: "28", height: "28" }), h("b", { text: "Fawn" })),
      h("button", { type: "button", class: "begin", on: { click: begin } }, icon("plus"), h("span", { text: t("new_chat") })),
      h("label", { class: "search" }, icon("search"), this.search), this.list, h("div", { class: "side-foot" }, who, actions));
  }

  /** Take the keyboard. On a touch screen the search would bring a keyboard over half of the list. */
  enter() {
    (matchMedia("(pointer: fine)").matches ? this.search : this.element).focus();
  }

  async read() {
    if (this.reading) { this.again = true; return; }
    this.reading = true;
    try {
      const page = await get("/v1/threads");
      this.threads = merge(page.threads, this.threads);
      this.next ??= page.next;
      this.draw();
    } catch { /* the stream tells of the connection */ } finally {
      this.reading = false;
      if (this.again) { this.again = false; this.read(); }
    }
  }

  async readMore() {
    const page = await get(`/v1/threads?before=${encodeURIComponent(this.next)}`);
    this.threads = merge(this.threads, page.threads);
    this.next = page.next ?? "";
    this.draw();
  }

  /** Leave out a thread that was deleted. */
  forget(id) {
    this.threads = this.threads.filter((thread) => thread.id !== id);
    this.draw();
  }

  show(id) {
    this.current = id;
    this.draw();
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.find(), 200);
  }

  async find() {
    const words = this.search.value.trim();
    if (!words) { this.found = null; return this.draw(); }
    try {
      const { found } = await get(`/search?words=${encodeURIComponent(words)}`);
      if (words !== this.search.value.trim()) return;
      const named = this.threads.filter((thread) => words.toLowerCase().split(/\s+/).every((word) => thread.title.toLowerCase().includes(word)));
      this.found = [...named.map((thread) => ({ thread: thread.id, title: thread.title, text: "" })), ...found];
      this.draw();
    } catch (problem) {
      say(problem.text, "bad");
    }
  }

  draw() {
    const at = this.list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.drawNow();
    if (at) [...this.list.querySelectorAll("a")].find((each) => each.getAttribute("href") === at)?.focus({ preventScroll: true });
  }

  drawNow() {
    if (this.found) {
      const once = [...new Map(this.found.map((each) => [each.thread + each.text, each])).values()];
      this.list.replaceChildren(once.length ? h("ul", {}, once.map((each) => this.line(each.thread, each.title, snippet(each.text, this.search.value)))) : h("p", { class: "dim small", text: t("nothing_found") }));
      return;
    }
    const groups = new Map();
    for (const thread of this.threads) {
      const age = daysAgo(thread.used), name = age < 1 ? t("today") : age < 2 ? t("yesterday") : age < 7 ? t("this_week") : t("before");
      groups.set(name, [...(groups.get(name) ?? []), thread]);
    }
    const parts = [...groups].map(([name, threads]) => h("section", {}, h("h2", { text: name }), h("ul", {}, threads.map((thread) => this.line(thread.id, thread.title, "", thread.state)))));
    if (this.next) parts.push(h("button", { type: "button", class: "link more", text: t("more_threads"), on: { click: () => this.readMore() } }));
    this.list.replaceChildren(...parts);
  }

  line(id, title, text = "", state = "") {
    const link = h("a", { href: `#/t/${encodeURIComponent(id)}`, "aria-current": id === this.current ? "page" : false, title: title || t("untitled"), on: { click: () => this.choose() } },
      h("span", { class: "line" }, title || t("untitled")), text ? h("span", { class: "snippet", text }) : null);
    if (["running", "queued", "waiting"].includes(state)) link.append(h("span", { class: `dot ${state}`, title: t(`is_${state}`) }));
    return h("li", {}, link);
  }
}

function merge(first, rest) {
  const known = new Set(first.map((thread) => thread.id));
  return [...first, ...rest.filter((thread) => !known.has(thread.id))].sort((one, other) => other.used - one.used);
}

function daysAgo(seconds) {
  const midnight = new Date().setHours(0, 0, 0, 0) / 1000;
  return seconds >= midnight ? 0 : 1 + (midnight - seconds) / DAY;
}

function snippet(text, words) {
  const at = Math.max(0, text.toLowerCase().indexOf(words.trim().split(/\s+/)[0].toLowerCase()) - 30);
  return (at ? "…" : "") + text.slice(at, at + 120).replace(/\s+/g, " ");
}
