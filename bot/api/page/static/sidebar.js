// The own threads: a list with search.

import { get } from "/page/static/api.js";
import { h, icon, iconButton, markWords, say, t } from "/page/static/dom.js";

const DAY = 86400;

export class Sidebar {
  /** `choose` is told that a thread was chosen, `leave` that the keyboard wants to be elsewhere. */
  constructor({ me, choose, begin, leave, actions }) {
    this.choose = choose;
    this.leave = leave;
    this.threads = [];
    this.next = null;
    this.current = "";
    this.search = h("input", { type: "search", placeholder: t("search"), "aria-label": t("search_threads"), on: { input: () => this.typed(), keydown: (event) => this.searchKey(event) } });
    this.list = h("div", { class: "threads", on: { keydown: (event) => this.listKey(event) } });
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

  /** Read the next page; the keyboard goes on with its first thread. */
  async readMore() {
    const shown = this.list.querySelectorAll("a").length, atButton = this.list.contains(document.activeElement);
    try {
      const page = await get(`/v1/threads?before=${encodeURIComponent(this.next)}`);
      this.threads = merge(this.threads, page.threads);
      this.next = page.next ?? "";
      this.draw();
      if (atButton) this.list.querySelectorAll("a")[shown]?.focus();
    } catch (problem) {
      say(problem.status === 0 ? t("no_connection") : problem.text, "bad");
    }
  }

  /** Escape empties the search, then leaves it: it stops no work. Enter opens the first that was found. */
  searchKey(event) {
    const first = this.list.querySelector("a");
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      if (!this.search.value) return this.leave();
      this.search.value = "";
      this.find();
    } else if (event.key === "Enter" && this.found && first) {
      first.click();
      this.leave();
    } else if (event.key === "ArrowDown" && first) {
      event.preventDefault();
      first.focus();
    }
  }

  /** The arrows go through the list, and from its first line back to the search. */
  listKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], lines = [...this.list.querySelectorAll("a, button")];
    if (!step) return;
    event.preventDefault();
    const next = lines.indexOf(document.activeElement) + step;
    if (next < 0) this.search.focus();
    else lines[next]?.focus();
  }

  /** Leave out a thread that was deleted. */
  forget(id) {
    this.threads = this.threads.filter((thread) => thread.id !== id);
    this.draw();
  }

  show(id) {
    this.current = id;
    this.draw();
    this.list.querySelector("a[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  /** The words that are looked for. */
  get words() { return wordsOf(this.search.value); }

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
      const said = new Map(found.filter((each) => each.text).reverse().map((each) => [each.thread, each])); // the latest of each thread
      this.found = found.map((each) => (each.text ? each : said.get(each.thread) ?? each));
      this.draw();
    } catch (problem) {
      say(problem.status === 0 ? t("no_connection") : problem.text, "bad");
    }
  }

  draw() {
    const shown = JSON.stringify([this.current, this.next, this.found ?? this.threads.map(({ id, title, state, used }) => [id, title, state, Math.floor(daysAgo(used))])]);
    if (shown === this.shown) return; // most events change nothing of it
    this.shown = shown;
    const at = this.list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.drawNow();
    if (at) [...this.list.querySelectorAll("a")].find((each) => each.getAttribute("href") === at)?.focus({ preventScroll: true });
  }

  drawNow() {
    if (this.found) {
      const once = [...new Map(this.found.map((each) => [each.thread + each.at + each.text, each])).values()], words = this.words;
      this.list.replaceChildren(once.length ? h("ul", {}, once.map((each) => this.line(each.thread, each.title, snippet(each.text, words, each.title), "", each.text ? each.at : ""))) : h("p", { class: "dim small", text: t("nothing_found") }));
      return markWords("listed", this.list, words);
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

  /** `at` is the time of what was found there, which the thread then shows. */
  line(id, title, text = "", state = "", at = "") {
    const link = h("a", { href: `#/t/${encodeURIComponent(id)}${at && `/${at}`}`, "aria-current": id === this.current ? "page" : false, title: title || t("new_chat"), on: { click: () => this.choose() } },
      h("span", { class: "line" }, title || t("new_chat")), text ? h("span", { class: "snippet", text }) : null);
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

function wordsOf(text) { return text.trim().toLowerCase().split(/\s+/).filter(Boolean); }

/** Return what stands around all words together, or else around the longest. */
function snippet(text, words, title) {
  if (text.trim() === title.trim()) return "";
  const low = text.toLowerCase(), longest = words.toSorted((one, other) => other.length - one.length)[0] ?? "";
  const place = [words.join(" "), longest].map((each) => low.indexOf(each)).find((each) => each >= 0) ?? 0, at = Math.max(0, place - 20);
  return (at ? "…" : "") + text.slice(at, at + 120).replace(/\s+/g, " ");
}
