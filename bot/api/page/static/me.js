// What is one's own: who one is, what Fawn remembers, schedules, background tasks, what was spent; to take it along, and to be forgotten.

import { call, get, post } from "/page/static/api.js";
import { bars } from "/page/static/chart.js";
import { confirmed } from "/page/static/dialog.js";
import { h, iconButton, money, say, t, tellsOutside, timeOf } from "/page/static/dom.js";

export class View {
  /** `command(words)` begins a thread with a command. */
  constructor({ me, command }) {
    this.me = me;
    this.command = command;
    this.parts = {};
    const place = (name, title) => {
      this.parts[name] = h("div", { class: "card-body" });
      return h("section", { class: "card", "aria-labelledby": `mine-${name}` }, h("div", { class: "card-head" }, h("h2", { id: `mine-${name}`, text: t(title) })), this.parts[name]);
    };
    this.element = h("main", { class: "operate", tabindex: "-1", hidden: true }, place("who", "you"), place("memory", "remembered"), place("schedules", "schedules"), place("tasks", "tasks"), place("spend", "spend"), place("data", "your_data"));
    this.parts.who.append(h("p", {}, h("b", { text: me.name }), ` · ${t("role")}: `, h("b", { text: me.role })), h("p", { class: "dim small", text: `${t("head_rights")}: ${me.rights.join(", ")}` }),
      h("div", { class: "buttons" }, this.does(t("what_may_i"), "/whoami"), this.does(t("zone_quiet"), "/notify"), this.outside()));
    this.parts.data.append(h("p", { text: t("your_data_text") }), h("div", { class: "buttons" }, this.does(t("export_me"), "/export me"), this.does(t("forget_me"), "/forget me", "danger")));
  }

  does(text, words, look = "") {
    return h("button", { type: "button", class: look, text, on: { click: () => this.command(words) } });
  }

  /** The button that has this browser tell of the end of long work. */
  outside() {
    const button = h("button", { type: "button", hidden: !globalThis.Notification, on: { click: async () => {
      const on = !tellsOutside(), allowed = on && (await Notification.requestPermission()) === "granted";
      localStorage.setItem("outside", allowed ? "on" : "off");
      if (on && !allowed) say(t("outside_blocked"), "bad");
      name();
    } } });
    const name = () => { button.textContent = t(tellsOutside() ? "tell_outside_off" : "tell_outside"); };
    name();
    return button;
  }

  open() {
    this.element.hidden = false;
    this.element.focus({ preventScroll: true });
    this.read();
  }

  close() { this.element.hidden = true; }

  async read() {
    await Promise.all([this.readMemory(), this.readSchedules(), this.readTasks(), this.readSpend()]);
  }

  /** Show what `read` returns, or why it is not there. */
  async show(name, read) {
    let found;
    try {
      found = (await read()).filter(Boolean);
    } catch (problem) {
      found = [h("p", { class: "dim small", text: problem.text ?? String(problem) })];
    }
    this.parts[name].replaceChildren(...(found.length ? found : [h("p", { class: "dim small", text: t("nothing_here") })]));
  }

  readMemory() {
    return this.show("memory", async () => {
      const { on, memories, next } = await get(`/v1/memory`), list = h("ul", { class: "rows" }, memories.map((each) => this.memory(each)));
      const more = async (cursor, button) => {
        const page = await get(`/v1/memory?cursor=${encodeURIComponent(cursor)}`);
        list.append(...page.memories.map((each) => this.memory(each)));
        button.replaceWith(...(page.next ? [behind(page.next)] : []));
      };
      const behind = (cursor) => h("button", { type: "button", class: "link more", text: t("more_threads"), on: { click: (event) => more(cursor, event.target).catch((problem) => say(problem.text, "bad")) } });
      return [h("p", { class: "small" }, t(on ? "memory_on" : "memory_off"), " ", h("button", { type: "button", class: "link", text: t(on ? "memory_stop" : "memory_go"), on: { click: () => this.command(on ? "/memory off" : "/memory on") } })), memories.length ? list : h("p", { class: "dim small", text: t("nothing_here") }), next ? behind(next) : null];
    });
  }

  memory(each) {
    return h("li", {}, h("div", {}, h("span", { text: each.text }), h("span", { class: "dim small" }, ` ${each.kind} · `, timeOf(each.said))),
      iconButton("bin", t("forget_this"), async (event) => {
        const line = event.target.closest("li");
        if (await this.act(() => call("DELETE", `/v1/memory/${each.id}`))) line.remove();
      }));
  }

  readSchedules() {
    return this.show("schedules", async () => (await get("/v1/schedules")).schedules.map((each) => {
      const path = `/v1/schedules/${each.id}`, change = (work) => async () => { if (await this.act(work)) this.readSchedules(); };
      const buttons = [each.state === "active" ? this.button(t("pause"), change(() => post(`${path}/pause`))) : each.state === "paused" ? this.button(t("resume"), change(() => post(`${path}/resume`))) : null,
        this.button(t("run_now"), change(() => post(`${path}/run`))), this.button(t("delete"), change(async () => (await confirmed(t("delete"), each.what, t("delete"))) && call("DELETE", path)), "danger")];
      const next = each.state === "active" && each.next ? [`${t("head_next")} `, timeOf(each.next)] : [t(`schedule_${each.state}`, {}, each.state)];
      const last = each.last ? [` · ${t("head_last")} `, timeOf(each.last.at), ` ${t(`fire_${each.last.result}`, {}, each.last.result)}`] : [];
      return h("div", { class: "row-line" }, h("div", {}, h("span", { text: each.what }), h("div", { class: "dim small" }, `${each.expression} ${each.zone} · `, next, last)), h("span", { class: "row-buttons" }, buttons));
    }));
  }

  readTasks() {
    return this.show("tasks", async () => (await get("/v1/tasks")).tasks.map((each) => {
      const open = ["queued", "running", "waiting"].includes(each.state), act = (verb) => async () => { if (await this.act(() => post(`/v1/tasks/${each.id}/${verb}`))) this.readTasks(); };
      return h("div", { class: "row-line" }, h("div", {}, h("span", { text: each.title }), h("div", { class: "dim small" }, `${t(`task_${each.state}`, {}, each.state)} · `, timeOf(each.ended ?? each.started ?? each.created))), h("span", { class: "row-buttons" }, open ? this.button(t("cancel_task"), act("cancel"), "danger") : this.button(t("retry"), act("retry"))));
    }));
  }

  readSpend() {
    return this.show("spend", async () => {
      const spent = await get("/v1/usage?by=model&days=30");
      if (!spent.total.calls) return [];
      const rows = spent.usage.map((each) => ({ name: each.key, value: each.cost || each.tokens, text: each.cost ? money(each.cost) : t("tokens", { n: each.tokens.toLocaleString() }) }));
      return [h("p", {}, h("b", { text: money(spent.total.cost) }), ` · ${t("tokens", { n: spent.total.tokens.toLocaleString() })} · ${t("days_30")}`), bars(rows)];
    });
  }

  button(text, click, look = "") {
    return h("button", { type: "button", class: `plain ${look}`, text, on: { click } });
  }

  async act(work) {
    try {
      return (await work()) !== false;
    } catch (problem) {
      say(problem.status === 0 ? t("no_connection") : problem.text ?? String(problem), "bad");
      return false;
    }
  }
}
