// A window over the page, which Esc closes; the browser keeps the keyboard in it and gives it back.

import { h, iconButton, t } from "/page/static/dom.js";

/** Show a window. Returns a function that closes it. */
export function showDialog(title, content, { wide = false, tools = [] } = {}) {
  const close = () => dialog.close();
  const dialog = h("dialog", { class: wide ? "wide" : "", "aria-label": title, on: { close: () => dialog.remove(), click: (event) => event.target === dialog && close() } },
    h("div", { class: "dialog-head" }, h("h2", { text: title }), h("span", { class: "space" }), tools, iconButton("cross", t("close"), close)), content);
  document.body.append(dialog);
  dialog.showModal();
  return close;
}

/** Ask before something that cannot be taken back. Resolves to whether the person agreed. */
export function confirmed(title, words, agree) {
  return new Promise((answer) => {
    let agreed = false;
    const yes = h("button", { type: "button", class: "danger", text: agree, on: { click: () => { agreed = true; close(); } } });
    const no = h("button", { type: "button", text: t("cancel"), autofocus: true, on: { click: () => close() } });
    const close = showDialog(title, h("div", { class: "dialog-body" }, h("p", { text: words }), h("div", { class: "buttons" }, no, yes)));
    yes.closest("dialog").addEventListener("close", () => answer(agreed));
  });
}
