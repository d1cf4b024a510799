// The page: who is signed in, which thread is shown, and what holds them together.

import { call, get, onSignedOut, post, setPerson } from "/page/static/api.js";
import { Chat } from "/page/static/chat.js";
import { confirmed, showDialog } from "/page/static/dialog.js";
import { h, icon, iconButton, randomId, setWords, t, tellsOutside } from "/page/static/dom.js";
import { forgetFiles, keepFilesOf } from "/page/static/kept_files.js";
import { loadMarkdown } from "/page/static/markdown.js";
import { menuButton } from "/page/static/menu.js";
import { Sidebar } from "/page/static/sidebar.js";
import { signIn, takeLink } from "/page/static/signin.js";
import { Stream } from "/page/static/stream.js";

const LOGIN = "/login", THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  localStorage.setItem("theme", theme);
  document.documentElement.style.colorScheme = theme === "auto" ? "" : theme;
  document.documentElement.dataset.theme = theme;
}

class App {
  constructor(me) {
    this.me = me;
    this.chat = new Chat({ me, changed: () => this.sidebar.read() });
    this.theme = iconButton("sun", t("theme"), () => this.nextTheme());
    this.views = {}; // those that were opened; each is a module that is loaded then
    this.viewNames = ["me", ...(me.may.operate ? ["operate"] : [])];
    const go = (name, picture) => h("a", { class: "icon-button", href: `#/${name}`, "aria-label": t(`view_${name}`), title: t(`view_${name}`), data: { view: name }, on: { click: () => this.closeDrawer() } }, icon(picture));
    const actions = h("div", { class: "side-actions" }, me.may.operate ? go("operate", "gauge") : null, go("me", "person"), this.theme, iconButton("leave", t("sign_out"), () => this.signOut()));
    this.viewTitle = h("h1", { class: "title", tabindex: "-1", hidden: true });
    const toText = () => { this.closeDrawer(); this.chat.composer.text.focus(); };
    this.sidebar = new Sidebar({ me, actions, leave: toText, choose: () => this.closeDrawer(), begin: () => this.begin() });
    this.menu = iconButton("menu", t("threads"), () => this.toggleDrawer(), { "aria-expanded": "false", "aria-controls": "sidebar", class: "icon-button menu" });
    this.state = h("span", { class: "state", role: "status" });
    this.rename = iconButton("edit", t("rename"), () => this.editTitle(), { class: "icon-button rename" });
    this.modelName = h("span", { class: "name" });
    this.model = menuButton([this.modelName, icon("chevron")], t("model"), () => this.modelChoices(), "pick");
    this.tools = menuButton(icon("more"), t("this_thread"), () => this.threadChoices());
    this.chat.onView = () => {
      this.modelName.textContent = this.modelHere();
      this.model.firstChild.setAttribute("aria-label", `${t("model")}: ${this.modelHere()}`);
    };
    this.header = h("header", {}, this.menu, this.chat.title, this.rename, this.viewTitle, h("span", { class: "space" }), this.state, this.model, this.tools);
    this.shade = h("div", { class: "shade", on: { click: () => this.closeDrawer() } });
    document.body.replaceChildren(h("a", { class: "skip", href: "#text", text: t("skip"), on: { click: (event) => { event.preventDefault(); this.chat.composer.text.focus(); } } }),
      this.sidebar.element, this.shade, this.content = h("div", { class: "content" }, this.header, this.chat.element), h("div", { id: "toast", role: "status", "aria-live": "polite" }));
    this.stream = new Stream((name, data, id) => this.hear(name, data, id), (state) => this.tell(state), leave);
    this.listen();
  }

  listen() {
    addEventListener("hashchange", () => this.route());
    addEventListener("keydown", (event) => this.key(event));
    for (const kind of ["dragenter", "dragover"]) {
      addEventListener(kind, (event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        document.body.classList.add("dropping");
      });
    }
    addEventListener("dragleave", (event) => event.relatedTarget || document.body.classList.remove("dropping"));
    addEventListener("drop", (event) => {
      event.preventDefault();
      document.body.classList.remove("dropping");
      if (event.dataTransfer?.files.length) this.chat.composer.add(event.dataTransfer.files);
    });
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.lost) { this.sidebar.read(); this.chat.read(); }
    });
  }

  hear(name, data, id) {
    this.chat.hear(name, data, id);
    if (name === "end") this.tellOutside(data);
  }

  /** Tell of the end of long work outside the page, where nobody looks at it. Each tab hears it: the tag makes it one. */
  tellOutside({ id, thread, state, started, finished }) {
    const after = this.me.notify_seconds, words = t(`outside_${state}`, {}, ""), title = this.sidebar.threads.find((each) => each.id === thread)?.title;
    if (!tellsOutside() || document.hasFocus() || !words || after === null || (state !== "waiting" && finished - started < after)) return;
    const note = new Notification(title || t("new_chat"), { body: words, tag: `run-${id}`, icon: "/page/static/icon.svg" });
    note.onclick = () => { focus(); location.hash = `#/t/${encodeURIComponent(thread)}`; note.close(); };
  }

  start() {
    this.stream.start();
    this.sidebar.read();
    this.route();
  }

  route() {
    const name = /^#\/(\w+)$/.exec(location.hash)?.[1] ?? "";
    const view = this.viewNames.includes(name) ? name : "";
    this.showView(view);
    if (view) return this.sidebar.show("");
    const [, place, at] = /^#\/t\/([\w%-]+)(?:\/([\d.]+))?$/.exec(location.hash) ?? ["", "", ""], id = decodeURIComponent(place);
    this.sidebar.show(id);
    if (!id) return this.begin("replaceState"); // Back from the first thread leaves the page
    if (at) history.replaceState(null, "", `#/t/${place}`); // the same may be chosen again
    const opened = id === this.chat.id ? null : this.chat.open(id, this.fresh === id);
    if (at) this.seek(id, Number(at), opened);
  }

  /** Show what a search found, once its thread is there. */
  async seek(id, at, opened) {
    const words = this.sidebar.words;
    await opened;
    if (id === this.chat.id) await this.chat.seek(at, words);
  }

  /** Show the operator's screen or what is one's own, or the chat (""). */
  async showView(name) {
    this.view = name;
    for (const [other, view] of Object.entries(this.views)) if (other !== name) view.close();
    this.chat.element.hidden = this.chat.title.hidden = this.rename.hidden = this.model.hidden = this.tools.hidden = Boolean(name);
    this.viewTitle.hidden = !name;
    for (const link of document.querySelectorAll("[data-view]")) link.toggleAttribute("aria-current", link.dataset.view === name);
    if (!name) return;
    this.viewTitle.textContent = t(`view_${name}`);
    document.title = `${t(`view_${name}`)} · Fawn`;
    if (!this.views[name]) {
      const { View } = await import(`/page/static/${name}.js`);
      this.views[name] ??= new View({ me: this.me, command: (words) => this.commandAnew(words) });
      this.content.append(this.views[name].element);
    }
    if (this.view === name) this.views[name].open();
  }

  /** Begin a thread with a command, whose answer is shown there. */
  commandAnew(words) {
    this.begin();
    this.chat.command(words);
  }

  begin(change = "pushState") {
    this.closeDrawer();
    if (change === "pushState" && !this.view && this.chat.isNew && this.chat.isEmpty) return this.chat.composer.focus(); // it is there
    this.fresh = randomId();
    history[change](null, "", `#/t/${this.fresh}`);
    this.route(); // at once: what is typed now belongs to the new thread
  }

  key(event) {
    if (event.key === "Escape") {
      if (document.body.classList.contains("drawer")) return this.closeDrawer();
      if (this.chat.isBusy && !event.defaultPrevented && !this.chat.element.hidden && !document.querySelector("dialog, :popover-open")) this.chat.stop();
    }
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      document.body.classList.add("drawer");
      this.sidebar.search.focus();
    }
    if ((event.ctrlKey || event.metaKey) && event.shiftKey && event.key.toLowerCase() === "o") {
      event.preventDefault();
      this.begin();
    }
  }

  toggleDrawer() {
    const open = document.body.classList.toggle("drawer");
    this.menu.setAttribute("aria-expanded", String(open));
    if (open) this.sidebar.enter();
  }

  closeDrawer() {
    const at = document.activeElement, open = document.body.classList.contains("drawer");
    if (open && (at === document.body || this.sidebar.element.contains(at))) this.menu.focus();
    document.body.classList.remove("drawer");
    this.menu.setAttribute("aria-expanded", "false");
  }

  modelHere() {
    const chosen = this.chat.chosen?.model?.split(" ")[0] ?? this.chat.model, found = this.me.models.find((each) => each.name === chosen);
    const agent = this.chat.chosen?.agent ?? this.chat.agent;
    return [agent && agent !== "default" ? agent : "", (found ?? this.me.models[0])?.name ?? ""].filter(Boolean).join(" · ");
  }

  /** The models with their efforts, and the agents. The one that the configuration says comes first. */
  modelChoices() {
    const model = this.chat.chosen?.model?.split(" ")[0] ?? this.chat.model, agent = this.chat.chosen?.agent ?? this.chat.agent;
    const [used, effort = ""] = (this.chat.chosen?.model ?? "").split(" "), name = used || model || this.me.models[0]?.name;
    const models = this.me.models.map((each) => ({ text: each.name, note: each.label === each.name ? "" : each.label, current: each.name === name, act: () => this.chat.choose({ model: each.name }) }));
    const efforts = (this.me.models.find((each) => each.name === name)?.efforts ?? []).map((each) => ({ text: each, current: each === (effort || (used ? "" : this.chat.effort)), act: () => this.chat.choose({ model: `${name} ${each}` }) }));
    const usual = this.me.may_use_default_agent ? [{ text: t("usual_agent"), current: !agent || agent === "default", act: () => this.chat.choose({ agent: "default" }) }] : [];
    const agents = this.me.agents.map(({ name, label }) => ({ text: name, note: label, current: name === agent, act: () => this.chat.choose({ agent: name }) }));
    return [t("model"), ...models, ...(efforts.length ? [t("effort"), ...efforts] : []), ...(agents.length ? [t("agent"), ...usual, ...agents] : [])];
  }

  threadChoices() {
    const stored = !this.chat.isNew, path = `/page/threads/${encodeURIComponent(this.chat.id)}/download`;
    return [
      { text: t("new_chat"), icon: "plus", act: () => this.begin() },
      ...(stored ? [{ text: t("rename"), icon: "edit", act: () => this.editTitle() }, { text: t("download_thread"), icon: "save", href: path, name: "" }, { text: t("delete"), icon: "bin", danger: true, act: () => this.deleteThread() }] : []),
    ];
  }

  async deleteThread() {
    const id = this.chat.id;
    if (!(await confirmed(t("delete_thread"), t("delete_thread_asks"), t("delete")))) return;
    if (!(await this.chat.try(() => call("DELETE", `/v1/threads/${encodeURIComponent(id)}`)))) return;
    this.sidebar.forget(id);
    this.begin();
  }

  nextTheme() {
    const theme = THEMES[(THEMES.indexOf(localStorage.getItem("theme") ?? "auto") + 1) % THEMES.length];
    setTheme(theme);
    this.theme.replaceChildren(icon(theme === "dark" ? "moon" : "sun"));
    this.state.textContent = t(`theme_${theme}`);
  }

  editTitle() {
    const before = this.chat.title.textContent;
    const field = h("input", { class: "title-field", value: before, maxlength: "120", "aria-label": t("title") });
    let closed = false;
    const close = async (keep) => {
      if (closed) return; // leaving the document blurs the field, which calls this again
      closed = true;
      field.replaceWith(this.chat.title);
      if (keep && field.value.trim() && field.value.trim() !== before) await this.chat.rename(field.value.trim());
      this.rename.focus();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") close(true);
      if (event.key === "Escape") { event.stopPropagation(); close(false); }
    });
    field.addEventListener("blur", () => close(true));
    this.chat.title.replaceWith(field);
    field.select();
  }

  tell(state) {
    this.state.classList.toggle("bad", state === "lost");
    if (state === "connected") {
      this.state.textContent = "";
      if (this.lost) { this.sidebar.read(); this.chat.read(); }
      this.lost = false;
    }
    if (state === "lost") {
      this.lost = true;
      this.state.textContent = t("reconnecting");
    }
    if (state === "ended") this.lookAgain();
  }

  /** Look until this tab, or another one, has signed in again. */
  async lookAgain() {
    if (this.looks) return;
    this.looks = true;
    for (let me = null; !me;) {
      me = await get("/me").catch(() => null);
      if (me) this.welcome();
      await new Promise((go) => setTimeout(go, 2000)); // a service that refuses the stream is not asked at once
    }
    this.looks = false;
    this.stream.start();
  }

  /** Ask to sign in again over what is shown, so that nothing written is lost. A proxy signs in by itself. */
  signedOut(code) {
    if (code !== "no_session") return location.reload(); // another person sees nothing of what was here
    if (this.asksIn) return;
    const done = () => get("/me").then((me) => this.welcome()).catch(() => {});
    this.asksIn = showDialog(t("not_signed_in"), signIn(null, done, t("still_here")));
    document.querySelector("dialog:has(.signin)").addEventListener("close", () => { this.asksIn = null; });
    this.lookAgain();
  }

  /** Go on as who is signed in again. */
  welcome() {
    if (!this.asksIn) return;
    this.asksIn();
    this.sidebar.read();
    this.chat.read();
    this.chat.flush();
    this.chat.composer.focus();
  }

  async signOut() {
    await post("/logout").catch(() => {});
    this.stream.leave();
    leave();
  }
}

/** Leave nothing of a person in this tab. */
async function leave() {
  sessionStorage.clear();
  await forgetFiles();
  location.reload();
}

/** Return who is signed in; first sign in whom a proxy names. */
async function whoAmI() {
  try {
    return await get("/me");
  } catch (refused) {
    if (refused.code !== "proxy_session") throw refused;
    await post("/login", { proxy: true });
    return get("/me");
  }
}

/** Read the words for those who are not signed in: the others get theirs with what they may do. */
async function readWords() {
  setWords(await get("/words").catch(() => ({})));
}

async function begin() {
  setTheme(localStorage.getItem("theme") ?? "auto");
  const isLink = location.pathname === LOGIN;
  if (isLink) await readWords();
  const problem = await takeLink();
  let me;
  try {
    me = await whoAmI();
  } catch (refused) {
    if (!isLink) await readWords();
    document.body.replaceChildren(signIn(problem ?? (refused.code === "no_session" ? null : refused)));
    return;
  }
  if ((sessionStorage.getItem("person") ?? me.person) !== me.person) sessionStorage.clear(); // what another person has not sent
  sessionStorage.setItem("person", me.person);
  await keepFilesOf(me.person);
  setPerson(me.person);
  setWords(me.words);
  document.documentElement.lang = me.language;
  const app = new App(me);
  onSignedOut((code) => app.signedOut(code));
  app.start();
  performance.mark("ready"); // one can write now
  loadMarkdown();
}

begin();
