// A list of choices that a button opens. The browser closes it with Esc and with a click elsewhere.

import { h, icon } from "/page/static/dom.js";

/** Return a button that opens the choices of `build()`: {text, note, current, act} or {text, href, name}; a text is a heading. */
export function menuButton(inside, label, build, className = "icon-button") {
  const list = h("div", { class: "menu-list", popover: "auto", "aria-label": label, on: { keydown: (event) => move(event, list), toggle: (event) => {
    button.setAttribute("aria-expanded", String(event.newState === "open"));
    if (event.newState === "open") list.querySelector("button, a")?.focus();
  } } });
  const button = h("button", { type: "button", class: className, "aria-label": label, title: label, "aria-haspopup": "true", "aria-expanded": "false", on: { click: () => {
    list.replaceChildren(...build().map((choice) => line(choice, () => list.hidePopover())));
    const place = button.getBoundingClientRect();
    list.style.top = `${place.bottom + 4}px`;
    list.style.right = `${Math.max(8, innerWidth - place.right)}px`;
    list.togglePopover();
  } } }, inside);
  return h("span", { class: "menu-place" }, button, list);
}

function line(choice, close) {
  if (typeof choice === "string") return h("h3", { text: choice });
  const inside = [h("span", { class: "mark" }, choice.icon ? icon(choice.icon) : choice.current ? icon("check") : null), h("span", { class: "words" }, h("span", { text: choice.text }), choice.note ? h("span", { class: "dim small", text: choice.note }) : null)];
  if (choice.href) return h("a", { href: choice.href, download: choice.name, on: { click: close } }, inside);
  return h("button", { type: "button", class: choice.danger ? "danger" : "", "aria-current": choice.current ? "true" : false, on: { click: () => { close(); choice.act(); } } }, inside);
}

function move(event, list) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const choices = [...list.querySelectorAll("button, a")], at = choices.indexOf(document.activeElement);
  choices[(at + step + choices.length) % choices.length]?.focus();
}
