// Where a person writes: text, files, and commands with completion.

import { h, icon, iconButton, say, size, t } from "/page/static/dom.js";

export class Composer {
  /** `send(text, files)` returns whether it was taken; `stop()`; `me` has the commands and the limit of a file. `onFiles` hears of each change. */
  constructor({ send, stop, me, onFiles }) {
    this.send = send;
    this.onFiles = onFiles;
    this.me = me;
    this.files = [];
    this.busy = false;
    this.text = h("textarea", {
      id: "text", rows: "1", dir: "auto", "aria-label": t("message"), placeholder: t("write"), autocomplete: "off", enterkeyhint: "send",
      role: "combobox", "aria-expanded": "false", "aria-controls": "commands", "aria-autocomplete": "list",
      on: { keydown: (event) => this.key(event), input: () => this.typed(), paste: (event) => this.pasted(event), blur: () => setTimeout(() => this.close(), 150) },
    });
    this.chips = h("ul", { class: "chips", "aria-label": t("files_to_send") });
    this.list = h("ul", { id: "commands", role: "listbox", "aria-label": t("commands"), hidden: true });
    this.picker = h("input", { type: "file", multiple: true, hidden: true, on: { change: () => { this.add(this.picker.files); this.picker.value = ""; } } });
    this.sendButton = h("button", { class: "send", "aria-label": t("send"), title: t("send") }, icon("send"));
    this.stopButton = h("button", { type: "button", class: "send stop", "aria-label": t("stop"), title: t("stop"), hidden: true, on: { click: stop } }, icon("stop"));
    this.hint = h("p", { class: "hint", id: "hint" });
    this.element = h("form", { class: "composer", "aria-label": t("message"), on: { submit: (event) => { event.preventDefault(); this.submit(); } } },
      this.list, this.chips, h("div", { class: "row" }, iconButton("clip", t("attach"), () => this.picker.click()), this.text, this.stopButton, this.sendButton), this.picker);
    this.place = h("div", { class: "composer-place" }, this.element, this.hint);
    this.typed();
  }

  /** Show whether a turn works: then a message steers it, and Stop is there. */
  setBusy(busy) {
    if (busy === this.busy && this.hint.textContent) return;
    this.busy = busy;
    this.stopButton.hidden = !busy;
    this.hint.textContent = busy ? t("steers") : t("may_err");
    this.hint.classList.toggle("keys", !busy);
    this.typed();
  }

  focus() { if (matchMedia("(pointer: fine)").matches) this.text.focus(); }

  set value(text) {
    this.text.value = text;
    this.typed();
  }
  get value() { return this.text.value; }

  typed() {
    this.sendButton.hidden = this.busy && !this.text.value.trim() && !this.files.length;
    this.sendButton.disabled = !this.text.value.trim() && !this.files.length;
    this.onDraft?.(this.text.value);
    const word = /^\/([\w-]*)$/.exec(this.text.value)?.[1]?.toLowerCase();
    this.options = word === undefined ? [] : this.me.commands.filter((each) => each.name.startsWith(word)).slice(0, 40);
    if (!this.options.length) return this.close();
    this.list.hidden = false;
    this.text.setAttribute("aria-expanded", "true");
    this.list.replaceChildren(...this.options.map((each, index) => h("li", {
      role: "option", id: `command-${index}`, on: { mousedown: (event) => { event.preventDefault(); this.choose(index); } },
    }, h("b", { text: `/${each.name}` }), each.words ? h("i", { text: each.words }) : null, h("span", { text: each.help }))));
    this.select(0);
  }

  close() {
    this.list.hidden = true;
    this.options = [];
    this.text.setAttribute("aria-expanded", "false");
    this.text.removeAttribute("aria-activedescendant");
  }

  select(index) {
    this.selected = (index + this.options.length) % this.options.length;
    for (const [number, option] of [...this.list.children].entries()) option.setAttribute("aria-selected", String(number === this.selected));
    this.list.children[this.selected].scrollIntoView({ block: "nearest" });
    this.text.setAttribute("aria-activedescendant", `command-${this.selected}`);
  }

  choose(index) {
    const command = this.options[index];
    this.value = `/${command.name}${command.words ? " " : ""}`;
    this.close();
    this.text.focus();
  }

  key(event) {
    if (event.isComposing || event.keyCode === 229) return; // an input method takes this Enter
    if (!this.list.hidden) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) { event.preventDefault(); return this.select(this.selected + step); }
      if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); return this.close(); }
      const whole = this.text.value === `/${this.options[this.selected].name}`;
      if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey && !whole)) { event.preventDefault(); return this.choose(this.selected); }
    }
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      this.submit();
    }
  }

  pasted(event) {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    this.add(event.clipboardData.files);
  }

  add(list) {
    for (const file of list) {
      if (file.size > this.me.upload_bytes) say(t("too_large", { name: file.name, most: size(this.me.upload_bytes) }), "bad");
      else this.files.push(file);
    }
    this.onFiles(this.files);
    this.drawFiles();
    this.text.focus();
  }

  /** Show the files of another draft. */
  show(files) {
    this.files = files;
    this.drawFiles();
  }

  drawFiles() {
    this.chips.replaceChildren(...this.files.map((file, index) => h("li", { class: "chip" }, icon("file"), h("span", { class: "name", text: file.name }), h("span", { class: "dim small", text: size(file.size) }),
      iconButton("cross", t("remove_file", { name: file.name }), () => { this.files.splice(index, 1); this.onFiles(this.files); this.drawFiles(); }))));
    this.typed();
  }

  async submit() {
    const text = this.text.value.trim(), files = this.files;
    if (!text && !files.length) return;
    this.value = "";
    this.show([]);
    this.onFiles([]);
    if (await this.send(text, files)) return;
    this.value = this.text.value || text; // what was written meanwhile stays
    this.show([...files, ...this.files]);
    this.onFiles(this.files);
  }
}
