// One thread. What the service says of it is shown; events of the stream change what is shown at once, or have it read anew.

import { Problem, get, post } from "/page/static/api.js";
import { Composer } from "/page/static/composer.js";
import { h, icon, iconButton, markWords, randomId, say, t } from "/page/static/dom.js";
import { keepFiles, keptFiles } from "/page/static/kept_files.js";
import { HEARD, fold, newTurn, restore, turnOf } from "/page/static/fold.js";
import { TurnView } from "/page/static/turn.js";

const MOST_PAGES = 40; // that are read back for what a search found
const NEAR = 80; // pixels from the end that count as the end
const RETRIES = [500, 1000, 2000, 4000, 8000]; // milliseconds between two tries to send

export class Chat {
  constructor({ me, changed }) {
    this.me = me;
    this.changed = changed; // called when the list of threads may differ
    this.unsent = new Map(); // key → what the service has not stored yet, of all threads
    this.composer = new Composer({ send: (text, files) => this.send(text, files), stop: () => this.stop(), me, onFiles: (files) => this.id && keepFiles(`draft:${this.id}`, files) });
    this.composer.onDraft = (text) => this.id && sessionStorage.setItem(`draft:${this.id}`, text);
    this.log = h("div", { class: "log", role: "log", "aria-label": t("conversation"), tabindex: "0", on: { scroll: () => this.scrolled() } });
    this.log.addEventListener("load", () => requestAnimationFrame(() => this.follow()), true); // a picture makes it longer, once it is shown
    new ResizeObserver(() => { this.size = sizeOf(this.log); this.follow(); }).observe(this.log); // a keyboard, a turned telephone, or a longer message
    this.toEnd = iconButton("down_arrow", t("to_end"), () => this.follow(true), { class: "icon-button to-end", hidden: true });
    this.title = h("h1", { class: "title", tabindex: "-1" });
    this.element = h("main", { class: "chat", id: "main" }, h("div", { class: "log-place" }, this.log, this.toEnd), this.composer.place);
    this.views = new Map();
    this.act = { answer: (ask, option) => this.answer(ask, option), thumb: (turn, value) => this.thumb(turn, value), retry: () => this.command("/retry"), edit: (text) => this.edit(text) };
    this.reset("");
  }

  reset(id) {
    this.id = id;
    this.turns = [];
    this.waiting = [];
    this.sending = [...this.unsent.values()].filter((each) => each.thread === id);
    this.places = new Map(); // run → {began, number} up to which its blocks are shown
    this.before = null;
    this.views.clear();
    this.log.replaceChildren();
    this.following = true;
    this.version = 0;
  }

  /** Show a thread, or an empty one that its first message begins. */
  async open(id, isNew = false) {
    this.reset(id);
    this.isNew = isNew;
    this.name = this.model = this.agent = this.effort = "";
    this.chosen = {};
    this.composer.value = sessionStorage.getItem(`draft:${id}`) ?? "";
    this.composer.show([]);
    keptFiles(`draft:${id}`).then((files) => id === this.id && files.length && this.composer.show([...files, ...this.composer.files]));
    this.draw();
    if (!isNew) await this.read();
    this.flush();
    this.composer.focus();
  }

  // ---------------------------------------------------------- what the service has

  /** Read the thread; a call during another one has it read once more. */
  async read() {
    if (this.reading) { this.again = true; return this.reading; }
    this.reading = this.readOnce().finally(() => {
      this.reading = null;
      if (this.again) { this.again = false; this.read(); }
    });
    return this.reading;
  }

  async readOnce() {
    const id = this.id, sent = this.sending.filter((each) => each.stored);
    let view;
    try {
      view = await get(`/threads/${encodeURIComponent(id)}`);
    } catch (problem) {
      if (id === this.id && problem.status === 404 && !this.sending.length) { this.isNew = true; this.draw(); }
      else if (problem.status !== 404) setTimeout(() => id === this.id && this.read(), 2000);
      return;
    }
    if (id !== this.id) return;
    this.isNew = false;
    this.take(view);
    this.sending = this.sending.filter((each) => !sent.includes(each));
    this.draw();
  }

  take(view) {
    const live = new Map(this.turns.filter((turn) => turn.run && turn.state === "running").map((turn) => [turn.run, turn]));
    const over = new Map(this.turns.filter((turn) => turn.source).map((turn) => [turn.source, turn])); // what is as it was stays the same object
    const read = view.turns.map((raw) => {
      const known = live.get(raw.run), place = this.places.get(raw.run);
      if (known && raw.at_block && place?.began === raw.at_block.began && place.number > raw.at_block.number) {
        return { ...known, said: raw.said, stored: true }; // events have told more meanwhile
      }
      if (raw.at_block) this.places.set(raw.run, raw.at_block);
      const source = JSON.stringify(raw);
      return over.get(source) ?? { ...turnOf(raw), source, stored: true };
    });
    const again = new Set(read.map(keyOf)), first = read[0]?.at ?? 0; // the page moves on: what stood before it stays shown
    this.turns = [...this.turns.filter((turn) => turn.stored && turn.at < first && !again.has(keyOf(turn))), ...read];
    this.waiting = view.waiting;
    this.before ??= view.before;
    this.name = view.title;
    this.model = view.model;
    this.agent = view.agent;
    this.effort = view.effort;
    this.conversation = view.conversation;
  }

  async readOlder() {
    if (!this.before || this.readingOlder) return;
    this.readingOlder = true;
    try {
      const id = this.id, view = await get(`/threads/${encodeURIComponent(id)}?before=${this.before}`);
      if (id !== this.id) return;
      const height = this.log.scrollHeight, atButton = this.more?.contains(document.activeElement), first = this.views.values().next().value;
      this.turns = [...view.turns.map((raw) => ({ ...turnOf(raw), stored: true })), ...this.turns];
      this.before = view.before ?? 0;
      this.following = false;
      this.drawNow();
      this.log.scrollTop += this.log.scrollHeight - height; // what was read stays where it was
      if (atButton && !this.before) focusOn(first.element);
    } catch (problem) {
      say(problem.status === 0 ? t("no_connection") : problem.text, "bad");
    } finally {
      this.readingOlder = false;
    }
  }

  /** Show what was said at a time, with its words marked: read back until it is there. */
  async seek(at, words) {
    const id = this.id;
    for (let page = 0; page < MOST_PAGES && this.before && !(this.turns[0]?.at <= at) && id === this.id; page += 1) await this.readOlder();
    if (id !== this.id) return;
    this.following = false;
    this.drawNow();
    const until = this.turns.filter((turn) => turn.at <= at).map((turn) => this.views.get(keyOf(turn))?.element).filter(Boolean);
    const has = (element) => words.every((word) => element.textContent.toLowerCase().includes(word));
    const element = until.findLast(has) ?? until.at(-1) ?? this.log.querySelector(".turn");
    if (!element) return;
    const first = markWords("found", element, words);
    (first?.startContainer.parentElement ?? element).scrollIntoView({ block: "center" });
    focusOn(element);
  }

  // ---------------------------------------------------------- events

  hear(name, data, id) {
    if (name === "reset") return this.read();
    const thread = data.thread ?? data.id;
    if (["end", "thread", "run"].includes(name)) this.changed();
    if (thread !== this.id || !this.id) return;
    if (["end", "thread", "entry"].includes(name)) return this.read();
    if (name === "run") {
      if (!this.turns.some((turn) => turn.run === data.id)) this.turns.push(newTurn(data.id, data.started));
      this.read(); // with what the person said
      return this.draw();
    }
    const place = /^\d+-\d+\.(\d+)\.(\d+)$/.exec(id), began = Number(place?.[1]), number = Number(place?.[2]);
    const known = this.places.get(data.run);
    if (place && known?.began === began && number <= known.number) return; // it is shown already
    if (place) this.places.set(data.run, { began, number });
    let turn = this.turns.find((each) => each.run === data.run);
    if (!turn) this.turns.push(turn = newTurn(data.run, Date.now() / 1000));
    turn.source = null; // it is no more what was read
    this.views.get(keyOf(turn))?.stale();
    if (name === "snapshot") restore(turn, data);
    else fold(turn, { ...data, type: name });
    if (name === "question" || (name === "step" && data.id.startsWith(HEARD))) this.read();
    this.draw();
  }

  // ---------------------------------------------------------- what is shown

  draw() {
    if (this.planned) return;
    this.planned = true;
    const now = () => { this.planned = false; this.drawNow(); };
    if (document.hidden) setTimeout(now, 100); // a hidden tab has no frames
    else requestAnimationFrame(now);
  }

  drawNow() {
    const queued = this.queued(), fresh = (turn) => turn.run && !turn.said.length && turn.state === "running" && queued.length; // what began it is not read yet
    const seen = new Set(), shown = [...this.turns.filter((turn) => !fresh(turn)), ...queued];
    const lastRun = shown.findLast((turn) => turn.run)?.run;
    let before = this.drawBefore(), conversation = shown[0]?.conversation;
    for (const turn of shown) {
      const key = keyOf(turn);
      seen.add(key);
      let view = this.views.get(key);
      if (!view) this.views.set(key, view = new TurnView(this.act));
      view.update(turn, { isLast: turn.run === lastRun, isMine: true });
      view.element.classList.toggle("begins", Boolean(turn.conversation && conversation && turn.conversation !== conversation));
      if (turn.conversation) conversation = turn.conversation;
      if (view.element.previousElementSibling !== before || view.element.parentNode !== this.log) {
        if (before) before.after(view.element);
        else this.log.prepend(view.element);
      }
      before = view.element;
    }
    for (const [key, view] of this.views) {
      if (!seen.has(key)) { view.element.remove(); this.views.delete(key); }
    }
    this.drawEmpty(shown);
    const title = this.name || t("new_chat"), window = this.name ? `${this.name} · Fawn` : "Fawn";
    if (this.title.textContent !== title) this.title.textContent = title;
    if (document.title !== window) document.title = window;
    this.composer.setBusy(this.isBusy);
    this.onView?.();
    this.follow();
  }

  get isEmpty() { return !this.turns.length && !this.waiting.length && !this.sending.length; }

  get isBusy() { return this.turns.some((turn) => turn.run && ["running", "queued"].includes(turn.state)); }

  /** What no turn has taken yet. */
  queued() {
    const stored = this.waiting.map((said) => ({ run: 0, at: said.at, key: said.key, state: "waiting for a turn", said: [said], items: [], inner: [], plan: [], notice: "", feedback: 0 }));
    return [...stored, ...this.sending.map((each) => each.turn)];
  }

  drawBefore() {
    if (!this.before) { this.more?.remove(); this.more = null; return null; }
    this.more ??= h("button", { type: "button", class: "link more", text: t("earlier"), on: { click: () => this.readOlder() } });
    if (this.log.firstChild !== this.more) this.log.prepend(this.more);
    return this.more;
  }

  drawEmpty(shown) {
    this.element.classList.toggle("empty", !shown.length);
    if (shown.length || !this.isNew) { this.hello?.remove(); this.hello = null; return; }
    if (this.hello?.parentNode) return;
    const ideas = ["idea_1", "idea_2", "idea_3", "idea_4"].map((name) => h("button", { type: "button", class: "idea", text: t(name), on: { click: () => { this.composer.value = t(name); this.composer.text.focus(); } } }));
    this.hello = h("div", { class: "hello" }, h("img", { src: "/page/static/icon.svg", alt: "", width: "56", height: "56" }), h("h2", { text: t("hello", { name: this.me.name }) }), h("p", { class: "dim", text: t("hello_text") }), h("div", { class: "ideas" }, ideas));
    this.log.append(this.hello);
  }

  scrolled() {
    const rest = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight;
    if (!this.settling && this.size === sizeOf(this.log)) this.following = rest < NEAR; // else it was no person who scrolled
    this.toEnd.hidden = rest < NEAR * 3;
  }

  /** Keep the end in view if it was. */
  follow(wanted = false) {
    if (wanted) this.following = true;
    if (!this.following) return this.scrolled();
    this.settling = true;
    this.log.scrollTop = this.log.scrollHeight;
    requestAnimationFrame(() => { this.settling = false; });
  }

  // ---------------------------------------------------------- what the person does

  edit(text) {
    this.composer.value = text;
    this.composer.text.focus();
  }

  async send(text, files) {
    this.follow(true);
    const word = /^[/!]([\w-]+)/.exec(text)?.[1]?.toLowerCase();
    if (!files.length && word && this.me.commands.some((each) => each.name === word)) return this.command(text);
    const sending = this.addUnsent({ key: randomId(), thread: this.id, text, files });
    keepFiles(`sending:${sending.key}`, files);
    this.keep();
    this.isNew = false;
    this.draw();
    if (Object.keys(this.chosen).length && !(await this.try(() => this.applyChoice()))) return this.takeBack(sending);
    return this.deliver(sending);
  }

  addUnsent({ key, thread, text, files }) {
    const said = { key, text, files: files.map((file) => file.name), at: Date.now() / 1000, kind: "message", by: "" };
    const turn = { run: 0, at: said.at, key, state: "sending", said: [said], items: [], inner: [], plan: [], notice: "", feedback: 0 };
    const sending = { key, thread, text, files, stored: false, turn };
    this.unsent.set(key, sending);
    if (thread === this.id) this.sending.push(sending);
    return sending;
  }

  /** Send until the service has stored it: its key makes a repeated one the same message. */
  async deliver(sending) {
    for (let tried = 0; ; tried += 1) {
      try {
        await post(`/v1/threads/${encodeURIComponent(sending.thread)}/messages`, bodyOf(sending), { "Idempotency-Key": sending.key });
        break;
      } catch (problem) {
        const passing = problem.status === 0 || problem.status === 503;
        if (!(problem instanceof Problem) || !passing) {
          this.takeBack(sending);
          say(problem.text ?? String(problem), "bad");
          return false;
        }
        sending.turn.notice = t("trying_again");
        this.draw();
        await new Promise((go) => setTimeout(go, RETRIES[tried] ?? RETRIES.at(-1)));
      }
    }
    sending.stored = true;
    this.settle(sending);
    this.changed();
    if (sending.thread === this.id) await this.read();
    return true;
  }

  takeBack(sending) {
    this.sending = this.sending.filter((each) => each !== sending);
    this.settle(sending);
    this.draw();
    return false;
  }

  /** Keep what is not stored yet over a reload of this tab. */
  keep() {
    const rest = [...this.unsent.values()].map(({ key, thread, text, files }) => ({ key, thread, text, count: files.length }));
    sessionStorage.setItem("sending", JSON.stringify(rest));
  }

  /** Keep no longer what was stored, or what its person has back. */
  settle(sending) {
    this.unsent.delete(sending.key);
    this.keep();
    keepFiles(`sending:${sending.key}`, []);
  }

  /** Send what an earlier document of this tab could not send any more. */
  async flush() {
    for (const { key, thread, text, count } of JSON.parse(sessionStorage.getItem("sending") ?? "[]")) {
      const files = count ? await keptFiles(`sending:${key}`) : [];
      if (this.unsent.has(key)) continue;
      if (files.length === count) this.deliver(this.addUnsent({ key, thread, text, files }));
      else sessionStorage.setItem(`draft:${thread}`, text); // the browser keeps no files: its person chooses them again
    }
    if (this.sending.length) this.draw();
  }

  async command(text) {
    return this.try(async () => {
      await post(`/v1/threads/${encodeURIComponent(this.id)}/commands`, { command: text }, { "Idempotency-Key": randomId() });
      this.isNew = false;
      await this.read();
    });
  }

  async stop() {
    const runs = this.turns.filter((turn) => turn.run && ["running", "queued"].includes(turn.state));
    await this.try(() => Promise.all(runs.map((turn) => post(`/v1/runs/${turn.run}/stop`))));
  }

  async answer(ask, option) {
    return this.try(async () => {
      if (ask.posted) await post(`/threads/${encodeURIComponent(this.id)}/press`, { ask: ask.id, option });
      else await this.answerStored(ask, option);
      await this.read();
    });
  }

  /** Answer a question; one that was shown a moment ago may not be stored yet. */
  async answerStored(ask, option) {
    for (const wait of ask.state ? [0] : [...RETRIES, 0]) {
      try {
        return await post(`/v1/questions/${encodeURIComponent(ask.id)}/answer`, { answer: option });
      } catch (problem) {
        if (problem.status !== 404 || !wait) throw problem;
        await new Promise((go) => setTimeout(go, wait));
      }
    }
  }

  async thumb(turn, value) {
    const name = value > 0 ? "up" : "down", thumb = turn.feedback === value ? `no ${name}` : name;
    await this.try(async () => {
      await post(`/runs/${turn.run}/thumb`, { thumb });
      await this.read();
    });
  }

  /** Choose what answers here; an empty thread keeps the choice for its first message. */
  async choose(choice) {
    this.chosen = { ...this.chosen, ...choice };
    if (this.isNew) return this.onView?.();
    return this.try(async () => {
      await this.applyChoice();
      await this.read();
    });
  }

  async applyChoice() {
    const chosen = this.chosen;
    this.chosen = {};
    for (const [name, value] of Object.entries(chosen)) await post(`/threads/${encodeURIComponent(this.id)}/choose`, { [name]: value });
  }

  async rename(title) {
    return this.try(async () => {
      await post(`/threads/${encodeURIComponent(this.id)}/title`, { title });
      this.changed();
      await this.read();
    });
  }

  /** Do something; say why it was refused. Returns whether it was done. */
  async try(work) {
    try {
      await work();
      return true;
    } catch (problem) {
      say(problem.status === 0 ? t("no_connection") : problem.text ?? String(problem), "bad");
      return false;
    }
  }
}

function sizeOf(element) { return `${element.clientWidth} ${element.clientHeight}`; }

function focusOn(element) {
  element.tabIndex = -1;
  element.focus({ preventScroll: true });
}

function keyOf(turn) {
  return turn.run ? `run:${turn.run}` : turn.key ? `key:${turn.key}` : `said:${turn.said[0]?.key ?? turn.at}`;
}

function bodyOf({ text, files }) {
  if (!files.length) return { text };
  const form = new FormData();
  form.append("text", text);
  for (const file of files) form.append("file", file, file.name);
  return form;
}
