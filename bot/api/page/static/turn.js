// One turn: what the person said, and what the agent does and answers. `update` changes only what differs.

import { copy, duration, h, icon, iconButton, t, timeOf, timeText } from "/page/static/dom.js";
import { fileChip } from "/page/static/files.js";
import { answerOf } from "/page/static/fold.js";
import { Markdown } from "/page/static/markdown.js";

const MARKS = { running: "running", done: "done", failed: "failed", denied: "denied", stopped: "stopped" };
const OVER = ["done", "failed", "stopped"]; // of turns that change no more: a long thread has many
const LONG_SAID = 1200; // characters, after which a message is folded

export class TurnView {
  /** `act` has what its buttons do: answer, thumb, retry, edit. */
  constructor(act) {
    this.act = act;
    this.said = h("div", { class: "said" });
    this.plan = h("div", { class: "plan-place" });
    this.body = h("div", { class: "body" });
    this.notice = h("p", { class: "passing", role: "status" });
    this.foot = h("div", { class: "foot" });
    this.agent = h("div", { class: "agent" }, this.plan, this.body, this.notice, this.foot);
    this.element = h("article", { class: "turn" }, this.said, this.agent);
    this.parts = new Map(); // key → {element, update, kind}
    this.opened = new Map(); // what the person opened or closed
    this.drawn = "";
  }

  /** Draw a turn anew though it is over: an event has told more of it. */
  stale() { this.over = null; }

  update(turn, { isLast, isMine }) {
    if (turn === this.over && isLast === this.wasLast) return;
    this.turn = turn;
    this.over = OVER.includes(turn.state) ? turn : null;
    this.wasLast = isLast;
    const running = turn.state === "running" || turn.state === "queued";
    this.element.classList.toggle("running", running);
    this.element.setAttribute("aria-busy", String(running));
    this.drawSaid(turn);
    this.drawPlan(turn, running);
    this.drawItems(turn, running);
    const waits = running && !turn.items.length && !turn.plan.length;
    this.notice.replaceChildren(...(waits || turn.notice ? [h("span", { class: "dots", "aria-hidden": "true" }, h("i"), h("i"), h("i")), turn.notice || t("working")] : []));
    this.drawFoot(turn, running, isLast, isMine);
    this.element.classList.toggle("unsent", turn.state === "sending");
    const silent = !turn.items.length && !turn.plan.length && !running && !turn.notice && !this.foot.childNodes.length;
    this.agent.hidden = silent;
  }

  drawSaid(turn) {
    const key = JSON.stringify(turn.said);
    if (key === this.saidKey) return;
    this.saidKey = key;
    this.said.replaceChildren(...turn.said.map((said) => this.bubble(said)));
  }

  bubble(said) {
    const text = h("div", { class: "bubble-text", dir: "auto", text: said.text });
    const files = said.files.map((file) => fileChip(file, { mine: true }));
    const bubble = h("div", { class: `bubble ${said.kind} ${said.by === "agent" ? "made-up" : ""}` },
      h("span", { class: "hidden", text: t(said.by === "agent" ? "asked_itself" : "you_said") }),
      files.length ? h("div", { class: "chips" }, files) : null, said.text ? text : null);
    if (said.text.length > LONG_SAID) {
      bubble.classList.add("long");
      const more = h("button", { type: "button", class: "link", text: t("show_all"), on: { click: () => { bubble.classList.remove("long"); more.remove(); } } });
      bubble.append(more);
    }
    const tools = h("div", { class: "bubble-tools" }, timeOf(said.at));
    if (said.text) tools.append(iconButton("copy", t("copy_message"), () => copy(said.text)));
    if (said.kind === "message" && said.by !== "agent") tools.append(iconButton("edit", t("edit"), () => this.act.edit(said.text)));
    return h("div", { class: "bubble-row" }, bubble, tools);
  }

  drawPlan(turn, running) {
    const key = JSON.stringify([turn.plan, running]);
    if (key === this.planKey) return;
    this.planKey = key;
    if (!turn.plan.length) return this.plan.replaceChildren();
    const done = turn.plan.filter((item) => item.state === "done").length;
    const items = turn.plan.map((item) => h("li", { class: item.state }, mark(item.state), h("span", { text: item.title }), h("span", { class: "hidden", text: t(`plan_${item.state}`) })));
    this.plan.replaceChildren(this.fold("plan", running, "plan", [icon("list"), h("span", { text: t("plan_of", { done, all: turn.plan.length }) })], h("ol", {}, items)));
  }

  /** Return a part that opens; what the person opened stays open. */
  fold(key, open, className, summary, content) {
    const element = h("details", { class: `fold ${className}`, open: this.opened.get(key) ?? open }, h("summary", {}, summary, icon("chevron")), content);
    element.querySelector("summary").addEventListener("click", () => this.opened.set(key, !element.open));
    return element;
  }

  drawItems(turn, running) {
    const wanted = groups(turn.items), inner = Map.groupBy(turn.inner, (step) => step.parent);
    const seen = new Set();
    let before = null;
    for (const [index, item] of wanted.entries()) {
      const key = `${item.type}:${item.key}`;
      seen.add(key);
      let part = this.parts.get(key);
      if (!part) this.parts.set(key, part = this.makePart(item));
      const later = wanted.slice(index + 1).some((each) => each.type !== "files");
      part.update(item, { running, later, inner });
      if (part.element.previousElementSibling !== before || part.element.parentNode !== this.body) {
        if (before) before.after(part.element);
        else this.body.prepend(part.element);
      }
      before = part.element;
    }
    for (const [key, part] of this.parts) {
      if (!seen.has(key)) {
        part.element.remove();
        this.parts.delete(key);
      }
    }
  }

  makePart(item) {
    switch (item.type) {
      case "text": {
        const view = new Markdown();
        return { element: view.element, update: ({ text }, { running, later }) => {
          view.update(text, !running || later);
          view.element.classList.toggle("grows", running && !later);
          view.element.hidden = !text.trim();
        } };
      }
      case "steps": return this.stepsPart(item.key);
      case "question": return this.questionPart();
      case "files": {
        const element = h("div", { class: "chips" });
        let shown = "";
        return { element, update: ({ files }) => {
          const key = JSON.stringify(files);
          if (key !== shown) element.replaceChildren(...files.map((file) => fileChip(file, { run: this.turn.run })));
          shown = key;
        } };
      }
      case "said": {
        const element = h("div", { class: "said between" });
        let shown = "";
        return { element, update: (said) => {
          if (said.text !== shown) element.replaceChildren(this.bubble({ kind: "message", by: "", files: [], ...said }));
          shown = said.text;
        } };
      }
      default: {
        const view = new Markdown(item.type === "failed" ? "markdown failure" : "markdown kept");
        if (item.type === "failed") view.element.setAttribute("role", "alert");
        return { element: view.element, update: ({ text }) => view.update(text, true) };
      }
    }
  }

  stepsPart(key) {
    const line = h("span", { class: "now" }), list = h("ul", {});
    const element = this.fold(key, false, "steps", line, list);
    const tree = new StepTree(list, (id, inside, className) => this.fold(`step:${id}`, false, className, inside.head, inside.list));
    let shown = "";
    return { element, update: ({ steps }, { running, later, inner }) => {
      tree.update(steps, inner, running);
      const at = JSON.stringify([steps, running, later]);
      if (at === shown) return;
      shown = at;
      const current = steps.findLast((step) => step.state === "running"), failed = steps.filter((step) => step.state === "failed").length;
      const works = running && !later && current;
      const last = works ? current : steps.at(-1);
      const text = works || steps.length === 1 ? last.title : t("steps_done", { n: steps.length, last: last.title });
      const progress = works && current.progress ? h("span", { class: "dim", text: ` · ${current.progress}` }) : null;
      const count = failed && steps.length > 1 ? h("span", { class: "dim", text: ` · ${t("steps_failed", { n: failed })}` }) : null;
      line.replaceChildren(...[mark(works ? "running" : last.state === "running" ? (this.turn.state === "waiting" ? "pending" : "stopped") : last.state), h("span", { class: "title", text }), progress, count].filter(Boolean));
    } };
  }

  questionPart() {
    const element = h("section", { class: "question" });
    let shown = "";
    return { element, update: (ask) => {
      const open = !ask.state || ask.state === "open"; // once it is stored, it looks the same: a press on it goes on
      const key = JSON.stringify([ask.kind, ask.text, ask.detail, ask.call, ask.options, ask.free_text, ask.until, open, ask.answer]);
      if (key === shown) return;
      shown = key;
      this.drawQuestion(element, ask);
    } };
  }

  drawQuestion(element, ask) {
    const approval = ask.kind === "approve", open = !ask.state || ask.state === "open";
    element.classList.toggle("approval", approval);
    element.classList.toggle("open", open);
    const words = new Markdown();
    words.update([ask.text, ask.detail].filter(Boolean).join("\n\n"), true);
    element.replaceChildren(h("div", { class: "question-head" }, icon(approval ? "shield" : "question"), h("span", { text: t(approval ? "needs_approval" : "has_question") })), words.element);
    element.setAttribute("aria-label", t(approval ? "needs_approval" : "has_question"));
    if (ask.call) element.append(h("pre", { class: "call", tabindex: "0", "aria-label": t("exact_call") }, h("code", { text: ask.call })));
    if (!open) {
      element.append(h("p", { class: "outcome" }, icon(ask.answer ? "check" : "cross"), h("span", { text: ask.answer || t("closed_unanswered") })));
      return;
    }
    const buttons = ask.options.map((option, index) => {
      const look = approval ? ["primary", "danger"][index] ?? "" : "";
      return h("button", { type: "button", class: look, text: option, on: { click: () => this.press(element, ask, option) } });
    });
    if (buttons.length) element.append(h("div", { class: "buttons" }, buttons));
    const hints = [ask.free_text ? t(buttons.length ? "or_write" : "write_answer") : "", ask.until ? t("until", { time: timeText(ask.until * 1000, "moment") }) : ""].filter(Boolean);
    if (hints.length) element.append(h("p", { class: "dim small", text: hints.join(" ") }));
  }

  async press(element, ask, option) {
    for (const button of element.querySelectorAll("button")) button.disabled = true;
    if (!(await this.act.answer(ask, option))) for (const button of element.querySelectorAll("button")) button.disabled = false;
  }

  drawFoot(turn, running, isLast, isMine) {
    const key = JSON.stringify([turn.run, turn.state, turn.seconds, turn.tokens, turn.feedback, running, isLast, answerOf(turn).length]);
    if (key === this.footKey) return;
    this.footKey = key;
    this.foot.replaceChildren();
    if (running || !turn.run || turn.state === "waiting") return;
    const answer = answerOf(turn), thumb = (value, name) => iconButton(name, t(`thumb_${name}`), () => this.act.thumb(turn, value), { "aria-pressed": String(turn.feedback === value), class: `icon-button ${turn.feedback === value ? "pressed" : ""}` });
    if (answer) this.foot.append(iconButton("copy", t("copy_answer"), () => copy(answer)), thumb(1, "up"), thumb(-1, "down"));
    if (isLast) this.foot.append(iconButton("retry", t("retry"), () => this.act.retry(turn)));
    const facts = [turn.state === "stopped" ? t("was_stopped") : "", turn.seconds ? duration(turn.seconds) : "", turn.tokens ? t("tokens", { n: turn.tokens.toLocaleString() }) : ""].filter(Boolean);
    if (facts.length) this.foot.append(h("span", { class: "facts", text: facts.join(" · ") }));
  }
}

function mark(state) {
  return h("span", { class: `mark ${state}`, "aria-hidden": "true" }, ...{ done: [icon("check")], failed: [icon("cross")], denied: [icon("cross")], stopped: [icon("stop")] }[state] ?? []);
}

/** Steps as a tree: what a sub-agent does stands below the step of its task, folded. Lines stay while they change. */
class StepTree {
  /** `fold(id, {head, list}, className)` makes a part that opens: of a task, or what a step returned. */
  constructor(list, fold) {
    this.list = list;
    this.fold = fold;
    this.lines = new Map(); // id → {element, text, key, inside}
  }

  update(steps, inner, running) {
    for (const [index, step] of steps.entries()) {
      let line = this.lines.get(step.id);
      if (!line) this.lines.set(step.id, line = this.makeLine());
      const below = inner.get(step.id) ?? [], state = step.state === "running" && !running ? "stopped" : MARKS[step.state] ?? "done";
      const key = JSON.stringify([step.title, step.seconds, step.detail, step.progress, step.output, state, below.length]);
      if (key !== line.key) {
        line.key = key;
        line.element.className = state;
        line.element.firstChild.replaceWith(mark(state));
        line.text.replaceChildren(...stepText(step, state), ...(step.output ? [this.fold(`${step.id}:output`, { head: t("step_output"), list: h("pre", { class: "call", tabindex: "0" }, h("code", { text: step.output })) }, "returned")] : []));
        if (below.length && !line.inside) line.element.lastChild.append((line.inside = this.makeInside(step.id)).element);
      }
      if (line.inside) {
        line.inside.head.textContent = t("steps_inside", { n: below.length });
        line.inside.tree.update(below, inner, running);
      }
      if (this.list.children[index] !== line.element) this.list.insertBefore(line.element, this.list.children[index] ?? null);
    }
    while (this.list.children.length > steps.length) this.list.lastChild.remove();
  }

  makeLine() {
    const text = h("div", {});
    return { element: h("li", {}, mark("running"), h("div", { class: "step" }, text)), text, key: "", inside: null };
  }

  makeInside(id) {
    const head = h("span", { class: "dim" }), list = h("ul", {});
    return { head, element: this.fold(id, { head, list }, "inner"), tree: new StepTree(list, this.fold) };
  }
}

function stepText(step, state) {
  return [
    h("span", { class: "title", text: step.title }), step.seconds >= 1 ? h("span", { class: "dim", text: ` ${duration(step.seconds)}` }) : null,
    h("span", { class: "hidden", text: ` (${t(`step_${state}`)})` }),
    step.detail && step.detail !== step.title ? h(step.thinking ? "p" : "code", { class: step.thinking ? "thought" : "detail", text: step.detail }) : null,
    step.progress && state === "running" ? h("div", { class: "child" }, mark("running"), h("span", { text: step.progress })) : null,
  ].filter(Boolean);
}

/** Join steps that follow each other, and put the files together at the end. */
function groups(items) {
  const found = [], files = [];
  for (const item of items) {
    const last = found.at(-1);
    if (item.type === "file") files.push(item);
    else if (item.type === "step" && last?.type === "steps") last.steps.push(item);
    else if (item.type === "step") found.push({ type: "steps", key: item.id, steps: [item] });
    else if (item.type === "text") { if (item.text.trim()) found.push({ ...item, key: item.part }); }
    else found.push({ ...item, key: item.id ?? item.key ?? item.text });
  }
  return files.length ? [...found, { type: "files", key: "", files }] : found;
}
