// The operator's screen: what is broken, what goes on, what waits, what it costs. One request every two seconds tells what
// changed, and only while somebody looks.

import { call, get, post } from "/page/static/api.js";
import { bars, columns } from "/page/static/chart.js";
import { confirmed, showDialog } from "/page/static/dialog.js";
import { duration, h, icon, iconButton, money, say, t, timeOf } from "/page/static/dom.js";
import { Markdown } from "/page/static/markdown.js";
import { showSignIn } from "/page/static/sign_in_code.js";

const POLL = 2000, SPEND_POLL = 60000; // milliseconds
const PAGE = 50; // who has read further keeps what they see

export class View {
  constructor({ me }) {
    this.me = me;
    this.shown = new Map(); // section → what it shows, as JSON
    this.more = {}; // list → what lies behind its first page
    this.sections = new Map();
    const place = (name, title, tools = []) => {
      const body = h("div", { class: "card-body" });
      const card = h("section", { class: "card", "aria-labelledby": `card-${name}` }, h("div", { class: "card-head" }, h("h2", { id: `card-${name}`, text: t(title) }), h("span", { class: "count" }), h("span", { class: "space" }), tools), body);
      this.sections.set(name, { card, body, count: card.querySelector(".count") });
      return card;
    };
    const run = h("input", { type: "text", inputmode: "numeric", size: "8", placeholder: t("turn_number"), "aria-label": t("turn_number") });
    const logs = h("form", { class: "mini", on: { submit: (event) => { event.preventDefault(); if (/^\d+$/.test(run.value.trim())) showLog(run.value.trim()); } } }, run, h("button", { class: "plain", text: t("show_log") }));
    const verify = h("button", { type: "button", class: "plain", text: t("verify"), on: { click: () => this.verify(verify) } });
    this.kind = h("input", { type: "text", size: "12", placeholder: t("audit_kind"), "aria-label": t("audit_kind"), on: { change: () => this.readAudit() } });
    this.health = h("section", { class: "card health", "aria-label": t("health"), "aria-live": "polite" });
    const may = me.may;
    this.element = h("main", { class: "operate", tabindex: "-1", hidden: true }, this.health,
      place("waiting", "waits_for_you"), place("turns", "turns_now", logs), may.usage ? place("spend", "spend") : null, place("queue", "queue"), place("asked", "asked_others"), place("dead", "dead_letters"),
      place("schedules", "schedules"), place("tasks", "tasks"), place("threads", "shared_threads"), may.audit ? place("audit", "audit", [this.kind, verify]) : null, place("skills", "skills"), place("team", "roles_budgets"));
    document.addEventListener("visibilitychange", () => this.look());
  }

  open() {
    this.element.hidden = false;
    this.look();
    this.element.focus({ preventScroll: true });
  }

  close() {
    this.element.hidden = true;
    clearTimeout(this.timer);
  }

  /** Ask now and every two seconds, while the screen is in view. */
  look() {
    clearTimeout(this.timer);
    if (this.element.hidden || document.hidden || this.asking) return;
    this.asking = true;
    this.poll().finally(() => {
      this.asking = false;
      if (!this.element.hidden && !document.hidden) this.timer = setTimeout(() => this.look(), POLL);
    });
  }

  async poll() {
    let others = false; // whether there are other skills now: one that is accepted is installed a moment later
    try {
      const seen = await get("/operate");
      this.may = seen.may;
      others = this.skillsRead !== seen.skills_read;
      this.skillsRead = seen.skills_read;
      this.draw(seen);
    } catch (problem) {
      this.draw_(this.health, "health", [problem.text], () => [h("div", { class: "trouble" }, icon("cross"), h("span", { text: problem.status === 0 ? t("no_connection") : problem.text }))]);
    }
    if (performance.now() - (this.summed ?? -SPEND_POLL) > SPEND_POLL) {
      this.summed = performance.now();
      await Promise.all([this.may?.usage && this.readSpend(), this.may?.audit && !(this.events?.length > PAGE) && this.readAudit(), this.readTeam(), !(this.threads?.length > PAGE) && this.readThreads()]);
    } else if (others) await this.readTeam();
  }

  // ---------------------------------------------------------- drawing

  /** Draw a part if what it shows has changed; the keyboard and what was written stay where they were. */
  draw_(place, name, value, make) {
    const key = JSON.stringify(value);
    if (this.shown.get(name) === key) return;
    this.shown.set(name, key);
    const at = place.contains(document.activeElement) ? document.activeElement.dataset.key : "";
    const written = new Map([...place.querySelectorAll("input[data-key]")].map((field) => [field.dataset.key, field]));
    place.replaceChildren(...make(value).filter(Boolean));
    for (const field of place.querySelectorAll("input[data-key]")) if (written.has(field.dataset.key)) field.replaceWith(written.get(field.dataset.key));
    if (at) [...place.querySelectorAll("[data-key]")].find((each) => each.dataset.key === at)?.focus();
  }

  section(name, value, make, count) {
    const found = this.sections.get(name);
    if (!found) return;
    found.count.textContent = count ? String(count) : "";
    found.card.classList.toggle("none", !count && count !== undefined);
    this.draw_(found.body, name, [value, this.may], () => (count === 0 ? [h("p", { class: "dim small", text: t("nothing_here") })] : make(value)));
  }

  draw(seen) {
    const { status } = seen;
    this.draw_(this.health, "health", [status.healthy, status.troubles, status.channels, seen.sign_ins, this.may, seen.servers, status.sandbox, seen.sandboxes, seen.turns.length, status.queued, status.oldest > 5, status.jobs, status.model_error, status.feedback], () => this.healthParts(seen));
    this.section("waiting", seen.waiting, (items) => items.map((item) => this.waitingItem(item)), seen.waiting.length);
    this.section("turns", seen.turns.map(({ tokens, ...turn }) => turn), (turns) => [table(t("turns_now"), ["who", "where", "doing", "since", ...(turns.some((turn) => turn.host) ? ["host"] : []), ""], turns.map((turn) => this.turnRow(turn, turns.some((other) => other.host))))], seen.turns.length);
    this.section("queue", seen.queue, (rows) => [table(t("queue"), ["who", "where", "since", "why"], rows.map((row) => [row.name || row.person, where(row), timeOf(row.since), t(`why_${row.why}`)])), seen.queue_more ? h("p", { class: "dim small", text: t("and_more") }) : null], seen.queue.length);
    this.section("asked", seen.asked, (rows) => [table(t("asked_others"), ["who", "where", "what", "since", "until"], rows.map((row) => [row.approvers.length ? row.approvers.map((role) => (role === "*" ? t("any_approver") : role)).join(", ") : row.who, where(row), t(row.kind === "approve" ? "an_approval" : "a_question"), timeOf(row.asked), row.until ? timeOf(row.until) : "–"]))], seen.asked.length);
    this.list("dead", seen.dead, "/v1/operate/dead", "dead", (rows) => table(t("dead_letters"), ["what", "where", "since", "why", ""], rows.map((row) => this.deadRow(row))));
    this.list("schedules", seen.schedules, "/v1/operate/schedules", "schedules", (rows) => table(t("schedules"), ["what", "who", "next", "last", "cost", ""], rows.map((row) => [...scheduleRow(row), this.scheduleButtons(row)])));
    this.list("tasks", seen.tasks, "/v1/operate/tasks", "tasks", (rows) => table(t("tasks"), ["what", "who", "where", "state", "since", ""], rows.map((row) => [row.title || t("private"), row.name || row.person, where(row), t(`task_${row.state}`, {}, row.state), timeOf(row.ended ?? row.started ?? row.created), this.taskButtons(row)])));
  }

  /** Draw a list of pages of 50, of which the first one is told; the others are read when asked for. */
  list(name, page, path, field, make) {
    const rest = this.more[name] ?? { rows: [], next: undefined };
    const rows = [...page[field], ...rest.rows], next = rest.next === undefined ? page.next : rest.next;
    this.section(name, [rows, next], () => [make(rows), next ? h("button", { type: "button", class: "link more", text: t("more_threads"), data: { key: `more-${name}` }, on: { click: async () => {
      const more = await this.do(() => get(`${path}?cursor=${encodeURIComponent(next)}`));
      if (!more) return;
      this.more[name] = { rows: [...rest.rows, ...more[field]], next: more.next };
      this.list(name, page, path, field, make);
    } } }) : null], rows.length);
  }

  healthParts(seen) {
    const { status } = seen, parts = [];
    const word = status.troubles.length ? t("is_broken", { n: status.troubles.length }) : t("is_well");
    parts.push(h("div", { class: `verdict ${status.troubles.length ? "bad" : "good"}` }, icon(status.troubles.length ? "cross" : "check"), h("b", { text: word }), h("span", { class: "dim small", text: `Fawn ${status.version}` })));
    for (const each of status.troubles) parts.push(h("div", { class: "trouble" }, h("b", { text: each.part }), h("span", { text: each.why }), h("span", { class: "dim small" }, `${t("since_when")} `, timeOf(Date.parse(each.since) / 1000))));
    const servers = seen.servers.map((server) => light(server.down ? "bad" : server.paused ? "warn" : "good", server.models.join(", "), server.down ? t("server_down", { n: server.failures, seconds: server.retry_in }) : server.paused ? t("server_paused", { seconds: server.paused }) : t("answers")));
    const channels = status.channels.map((channel) => light({ ready: "good", starting: "warn" }[channel.health] ?? "bad", channel.name, channel.detail || t(`health_${channel.health}`, {}, channel.health), channel.health === "ready" ? 0 : channel.since, this.signInButton(seen.sign_ins[channel.name], channel.name)));
    const disk = status.troubles.some((each) => each.part === "disk"), late = status.oldest > 30;
    parts.push(h("ul", { class: "lights" }, channels, servers.length ? servers : light("good", status.model, ""), light(disk ? "bad" : "good", t("disk"), disk ? "" : t("has_room")), light("good", t("sandboxes"), `${t("in_use", { n: seen.sandboxes })} · ${status.sandbox}`),
      light(late ? "bad" : "good", t("queue"), status.queued ? t("queue_waits", { n: status.queued, time: duration(status.oldest) }) : t("queue_empty")), light(status.jobs.given_up ? "warn" : "good", t("jobs"), t("jobs_are", { waiting: status.jobs.waiting, running: status.jobs.running, given_up: status.jobs.given_up }))));
    if (status.model_error) parts.push(h("p", { class: "small" }, h("b", { text: `${status.model_error.model}: ` }), status.model_error.text, " ", timeOf(status.model_error.at)));
    if (status.feedback.up + status.feedback.down) parts.push(h("p", { class: "dim small", text: t("thumbs_30", { up: status.feedback.up, down: status.feedback.down }) }));
    return parts;
  }

  /** A button that signs the bot in to a platform where nobody is signed in, or goes on with that. */
  signInButton(state, name) {
    if (!state?.out || !this.may?.sign_in) return null;
    return h("button", { type: "button", class: "plain sign-in", text: t("sign_in"), "aria-label": t("sign_in_to", { name }), data: { key: `sign-in-${name}` }, on: { click: async () => { await showSignIn(name, (work) => this.do(work)); this.look(); } } });
  }

  waitingItem(item) {
    const words = new Markdown();
    words.update(item.text, true);
    const box = h("article", { class: `question open ${item.call ? "approval" : ""}` }, words.element);
    if (item.call) box.append(h("pre", { class: "call", tabindex: "0", "aria-label": t("exact_call") }, h("code", { text: item.call })));
    const weighed = item.call || ["pair", "skill"].includes(item.kind); // yes and no; the answers of a question are alike
    const buttons = item.options.map((option, index) => h("button", { type: "button", class: (weighed && ["primary", "danger"][index]) || "", text: option, data: { key: `${item.number}-${option}` }, on: { click: (event) => this.answer(event.target.closest("article"), item, option) } }));
    if (item.kind === "skill" && this.may?.skills) buttons.push(h("button", { type: "button", text: t("show_change"), on: { click: () => this.showChange(item.target.replace(/^skill:/, "")) } }));
    if (buttons.length) box.append(h("div", { class: "buttons" }, buttons));
    if (item.free_text && !item.options.length) box.append(this.answerField(item));
    const facts = [item.who, item.title, ["pair", "skill"].includes(item.kind) ? "" : placeOf(item.thread)].filter(Boolean).join(" · ");
    box.append(h("p", { class: "dim small" }, facts, facts && item.since ? " · " : "", item.since ? timeOf(item.since) : null));
    return box;
  }

  answerField(item) {
    const field = h("input", { type: "text", "aria-label": t("write_answer"), placeholder: t("write_answer"), data: { key: `answer-${item.number}` } });
    return h("form", { class: "mini", on: { submit: (event) => { event.preventDefault(); const words = event.target.elements[0].value.trim(); if (words) this.answer(event.target.closest("article"), item, words); } } }, field, h("button", { class: "plain", text: t("send") }));
  }

  async answer(box, item, answer) {
    for (const button of box.querySelectorAll("button")) button.disabled = true;
    await this.do(() => post(`/v1/operate/waiting/${item.number}/answer`, { answer }));
    this.shown.delete("waiting");
    this.look();
  }

  /** `hosts`: several services share the database, and each row says which one works on it. Its log is only there. */
  turnRow(turn, hosts) {
    const stop = this.may?.end ? h("button", { type: "button", class: "plain danger", text: t("stop"), data: { key: `stop-${turn.run}` }, on: { click: async (event) => { event.target.disabled = true; await this.do(() => post(`/v1/operate/runs/${turn.run}/stop`)); this.look(); } } }) : null;
    const log = h("button", { type: "button", class: "plain", text: t("show_log"), data: { key: `log-${turn.run}` }, on: { click: () => showLog(turn.run) } });
    const host = h("span", { title: turn.replica }, turn.host || "–", turn.here ? h("span", { class: "dim small", text: ` ${t("this_service")}` }) : null);
    return [turn.name || turn.person || "–", where(turn), h("span", {}, turn.doing || t(turn.steps ? "is_running" : "thinking"), turn.calls ? h("span", { class: "dim small", text: ` · ${t("model_calls", { n: turn.calls })}` }) : null), since(turn.started), ...(hosts ? [host] : []), h("span", { class: "row-buttons" }, turn.here ? log : null, stop)];
  }

  /** A button of a row of one of the lists, whose first page is read again then. */
  rowButton(list, row, name, word, work, look = "") {
    return h("button", { type: "button", class: `plain ${look}`, text: t(word), data: { key: `${list}-${name}-${row.id}` }, on: { click: async (event) => {
      event.target.disabled = true;
      if (await this.do(work)) this.more[list] = undefined;
      event.target.disabled = false;
      this.look();
    } } });
  }

  scheduleButtons(row) {
    if (!this.may?.end) return null;
    const path = `/v1/operate/schedules/${row.id}`, other = { active: ["pause", "pause"], paused: ["resume", "resume"] }[row.state];
    return h("span", { class: "row-buttons" }, other ? this.rowButton("schedules", row, other[0], other[1], () => post(`${path}/${other[0]}`)) : null,
      this.rowButton("schedules", row, "delete", "delete", async () => (await confirmed(t("delete"), row.what || t("private"), t("delete"))) && call("DELETE", path), "danger"));
  }

  taskButtons(row) {
    if (!this.may?.end || !["queued", "running", "waiting"].includes(row.state)) return null;
    return h("span", { class: "row-buttons" }, this.rowButton("tasks", row, "cancel", "cancel_task", () => post(`/v1/operate/tasks/${row.id}/cancel`), "danger"));
  }

  deadRow(row) {
    const path = `/v1/operate/dead/${encodeURIComponent(row.id)}`, again = row.kind !== "event";
    const act = (work) => async () => { if (await this.do(work)) { this.more.dead = undefined; this.look(); } };
    const buttons = this.may?.end ? h("span", { class: "row-buttons" }, again ? h("button", { type: "button", class: "plain", text: t("send_again"), data: { key: `again-${row.id}` }, on: { click: act(() => post(`${path}/requeue`)) } }) : null,
      h("button", { type: "button", class: "plain danger", text: t("drop"), data: { key: `drop-${row.id}` }, on: { click: act(async () => (await confirmed(t("drop"), t("drop_asks"), t("drop"))) && call("DELETE", path)) } })) : null;
    return [t(`dead_${row.kind}`, {}, row.kind), row.thread ? placeOf(row.thread) : "–", timeOf(row.created), row.error, buttons];
  }

  // ---------------------------------------------------------- read when it is looked at

  async readSpend() {
    const spent = await this.quiet(() => get("/operate/usage"));
    if (spent) this.section("spend", spent, () => spendParts(spent), 1);
    const found = this.sections.get("spend");
    if (found) found.count.textContent = "";
  }

  async readAudit(cursor = "") {
    const kind = this.kind.value.trim(), query = new URLSearchParams({ ...(kind ? { kind } : {}), ...(cursor ? { cursor } : {}) });
    const page = await this.quiet(() => get(`/v1/operate/audit?${query}`));
    if (!page) return;
    this.events = cursor ? [...this.events, ...page.events] : page.events;
    this.section("audit", [this.events, page.next], () => [table(t("audit"), ["when", "kind", "who", "where", "what", "result"], this.events.map((event) => [timeOf(event.at), event.kind, event.name || event.who || "–", event.where ? placeOf(event.where) : "–", details(event), event.result])),
      page.next ? h("button", { type: "button", class: "link more", text: t("more_threads"), on: { click: () => this.readAudit(page.next) } }) : null], this.events.length);
    this.sections.get("audit").count.textContent = "";
  }

  async readThreads(cursor = "") {
    const page = await this.quiet(() => get(`/operate/threads${cursor ? `?cursor=${encodeURIComponent(cursor)}` : ""}`));
    if (!page) return;
    this.threads = cursor ? [...this.threads, ...page.threads] : page.threads;
    const save = (row) => h("a", { class: "icon-button", href: `/page/operate/threads/download?key=${encodeURIComponent(row.key)}`, download: "", "aria-label": t("download_thread"), title: t("download_thread"), data: { key: `save-${row.key}` } }, icon("save"));
    this.section("threads", [this.threads, page.next], () => [this.threads.length ? table(t("shared_threads"), ["where", "when", ""], this.threads.map((row) => [where(row), timeOf(row.used), save(row)])) : h("p", { class: "dim small", text: t("nothing_here") }),
      page.next ? h("button", { type: "button", class: "link more", text: t("more_threads"), on: { click: () => this.readThreads(page.next) } }) : null]);
  }

  async verify(button) {
    button.disabled = true;
    const seen = await this.do(() => get("/v1/operate/audit/verify"));
    button.disabled = false;
    if (seen) say(seen.valid ? t("audit_whole", { n: seen.rows.toLocaleString() }) : t("audit_broken", { why: seen.fault }), seen.valid ? "" : "bad");
  }

  async readTeam() {
    const team = await this.quiet(() => get("/operate/team"));
    if (!team) return;
    this.section("skills", [team.skills, team.staged, team.faults], () => [
      ...team.staged.map((each) => h("p", {}, h("b", { text: each.name }), ` ${t(each.is_new ? "new_skill" : "changed_skill")} `, this.may?.skills ? h("button", { type: "button", class: "plain", text: t("show_change"), data: { key: `change-${each.hash}` }, on: { click: () => this.showChange(each.hash) } }) : null)),
      ...team.faults.map((each) => h("p", { class: "bad" }, h("b", { text: each.name }), ` ${each.why}`)),
      table(t("skills"), ["name", "state", "what"], team.skills.map((each) => [each.name, t(`skill_${each.state}`, {}, each.state), [each.text, ...each.warnings].join(" ⚠ ")])),
    ], team.skills.length + team.staged.length + team.faults.length);
    this.section("team", [team.roles, team.people, team.budgets, team.counters], () => [
      table(t("role"), ["role", "rights"], team.roles.map((role) => [role.name, role.rights.join(", ") || "–"])),
      team.people.length ? table(t("people"), ["who", "role", "given_by"], team.people.map((each) => [`${each.channel}/${each.who}`, each.role, each.by || t("by_configuration")])) : null,
      h("h3", { text: t("budgets") }), ...(team.budgets.length ? team.budgets.map((text) => h("p", { class: "small", text })) : [h("p", { class: "dim small", text: t("no_budgets") })]),
      team.counters.length ? table(t("budgets"), ["whose", "period", "spent", "held", "until"], team.counters.map((each) => [each.scope, each.period, `${money(each.money ?? 0)} · ${t("tokens", { n: (each.tokens ?? 0).toLocaleString() })}`, money(each.held_money), timeOf(each.until)])) : null,
    ]);
  }

  async showChange(hash) {
    const change = await this.do(() => get(`/operate/skills/${encodeURIComponent(hash)}`));
    if (!change) return;
    const lines = change.diff.split("\n").map((line) => h("span", { class: { "+": "hljs-addition", "-": "hljs-deletion", "@": "hljs-meta" }[line[0]] ?? "", text: `${line}\n` }));
    showDialog(change.name, h("pre", { class: "log-lines", tabindex: "0", "aria-label": t("show_change") }, h("code", {}, lines)), { wide: true });
  }

  /** Do something and say why it was refused. Returns its answer, or false. */
  async do(work) {
    try {
      return (await work()) || true;
    } catch (problem) {
      say(problem.status === 0 ? t("no_connection") : problem.text ?? String(problem), "bad");
      return false;
    }
  }

  async quiet(work) {
    try { return await work(); } catch { return null; } // the next look tells of it
  }
}

function light(state, name, text, at = 0, button = null) {
  return h("li", { class: `light ${state}` }, h("i", { "aria-hidden": "true" }), h("b", { text: name }), h("span", { class: "hidden", text: ` (${t(`light_${state}`)})` }), h("span", { class: "dim small" }, text, at ? " · " : "", at ? timeOf(at) : null, button));
}

/** A table that scrolls in its own place. A head "" has only buttons below it. */
function table(label, heads, rows) {
  return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": label }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head ? t(`head_${head}`) : h("span", { class: "hidden", text: t("head_act") }))))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell ?? "")))))));
}

/** Where something is: the title, and the platform with its chat; a thread of this page has no more to say. */
function where(row) {
  const place = placeOf(row.thread);
  return h("span", {}, row.title || place, row.title ? h("span", { class: "dim small", text: ` ${place}` }) : null);
}

function placeOf(address) {
  const [channel, workspace = "", chat = ""] = address.split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return channel === "web" ? t("on_page") : [channel, workspace, chat].filter(Boolean).join("/");
}

/** How long something has gone on; it counts by itself. */
function since(at) {
  const element = h("span", { class: "counts" }), tell = () => { element.textContent = duration(Math.max(0, Math.round(Date.now() / 1000 - at))); };
  tell();
  const timer = setInterval(() => (element.isConnected ? tell() : clearInterval(timer)), 1000);
  return element;
}

function scheduleRow(row) {
  const last = row.last ? h("span", {}, timeOf(row.last.at), ` ${t(`fire_${row.last.result}`, {}, row.last.result)}`) : "–";
  return [h("span", { title: placeOf(row.thread) }, row.what || t("private"), h("span", { class: "dim small", text: ` ${row.expression} ${row.zone}` })), row.name || row.person, row.state === "active" && row.next ? timeOf(row.next) : t(`schedule_${row.state}`, {}, row.state), last, row.last?.cost ? money(row.last.cost) : "–"];
}

function details(event) {
  const parts = Object.entries(event.what).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : String(value).replace(/^([\da-f]{12})[\da-f]{52}$/, "$1…")}`);
  if (event.subject) parts.unshift(event.subject);
  if (event.run) parts.push(`${t("turn")} ${event.run}`);
  return h("span", { class: "small wrap", text: parts.join(" · ") });
}

function spendParts({ today, month }) {
  const fact = (name, sum) => h("div", { class: "fact" }, h("span", { class: "dim small", text: t(name) }), h("b", { text: money(sum.cost) }), h("span", { class: "dim small", text: `${t("tokens", { n: sum.tokens.toLocaleString() })}${sum.unpriced ? ` · ${t("unpriced", { n: sum.unpriced })}` : ""}` }));
  const charts = ["person", "chat", "model"].flatMap((by) => [["today", today], ["month", month]].map(([name, sums]) => ((sums.total.cost || sums.total.tokens) && sums[by].length ? h("figure", {}, h("figcaption", { text: t("spend_of", { by: t(`head_by_${by}`), when: t(name === "today" ? "today" : "days_31") }) }), bars(sums[by].slice(0, 8).map((each) => ({ name: each.name || (by === "chat" ? placeOf(each.key) : each.key) || "–", value: each.cost || each.tokens, text: each.cost ? money(each.cost) : t("tokens", { n: each.tokens.toLocaleString() }) })))) : null)));
  return [h("div", { class: "facts-row" }, fact("today", today.total), fact("days_31", month.total)), (month.total.cost || month.total.tokens) && month.day.length ? h("figure", { class: "wide" }, h("figcaption", { text: t("spend_days") }), columns(everyDay(month))) : null, h("div", { class: "charts" }, charts)];
}

/** The days of a month, also those on which nothing was spent. */
function everyDay(month) {
  const spent = new Map(month.day.map((each) => [each.key, each])), last = new Date(`${month.day.at(-1).key}T12:00:00Z`);
  return Array.from({ length: 31 }, (_, index) => {
    const name = new Date(last.getTime() - (30 - index) * 86400000).toISOString().slice(0, 10), each = spent.get(name) ?? { cost: 0, tokens: 0 };
    return { name, value: month.total.cost ? each.cost : each.tokens, text: each.cost ? money(each.cost) : t("tokens", { n: each.tokens.toLocaleString() }) };
  });
}

async function showLog(run) {
  const lines = h("code"), place = h("pre", { class: "log-lines", tabindex: "0", "aria-label": t("log_of", { run }) }, lines);
  const close = showDialog(t("log_of", { run }), place, { wide: true });
  let after = 0, first = true;
  while (place.isConnected) {
    let seen;
    try { seen = await get(`/operate/runs/${run}/log?after=${after}`); } catch (problem) { say(problem.text, "bad"); close(); return; }
    after = seen.after;
    if (first && !seen.lines.length) lines.append(t(seen.known ? "log_gone" : "log_unknown"));
    first = false;
    const atEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 40;
    lines.append(...seen.lines.map((line) => `${line}\n`));
    if (atEnd) place.scrollTop = place.scrollHeight;
    if (!seen.open) return;
    await new Promise((go) => setTimeout(go, POLL));
  }
}
