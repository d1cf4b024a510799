// Signing the bot in to a platform by a code that a telephone scans: the service does it, and this window looks on.

import { get, post } from "/page/static/api.js";
import { showDialog } from "/page/static/dialog.js";
import { h, say, t } from "/page/static/dom.js";

const LOOK = 1000; // milliseconds
const SVG = "http://www.w3.org/2000/svg";

/** Begin, or look on where that goes on already, until the bot is signed in or the window is closed. */
export async function showSignIn(name, doIt) {
  const path = `/operate/channels/${encodeURIComponent(name)}/sign-in`;
  let seen = await doIt(() => post(path));
  if (!seen) return;
  const words = h("p", { class: "words", role: "status" }), place = h("div", { class: "code-place" }), more = h("div", { class: "buttons" });
  const close = showDialog(t("sign_in_to", { name }), h("div", { class: "dialog-body sign-in-code" }, words, place, more, h("p", { class: "dim small", text: t("sign_in_goes_on") })));
  let shown = "", offered = "";
  const draw = () => {
    if (words.textContent !== seen.text) words.textContent = seen.text; // a screen reader says it once
    const path = seen.code?.path ?? "";
    if (path !== shown) place.replaceChildren(...(path ? [drawCode(seen.code)] : []));
    shown = path;
    const offers = seen.asks ? "asks" : !seen.going && seen.out ? "again" : "";
    if (offers !== offered) more.replaceChildren(...({ asks: () => [numberField()], again: () => [again()] }[offers]?.() ?? []));
    offered = offers;
  };
  const look = async (work) => { const found = await doIt(work); if (found) { seen = found; draw(); } };
  const again = () => h("button", { type: "button", text: t("sign_in_again"), on: { click: () => look(() => post(path)) } });
  const numberField = () => h("form", { class: "mini", on: { submit: (event) => { event.preventDefault(); const number = event.target.elements[0].value.trim(); if (number) look(() => post(`${path}/number`, { number })); } } },
    h("input", { type: "text", inputmode: "numeric", autocomplete: "off", maxlength: "12", "aria-label": t("number_shown"), placeholder: t("number_shown") }), h("button", { class: "plain", text: t("send") }));
  draw();
  while (words.isConnected) {
    await new Promise((go) => setTimeout(go, LOOK));
    if (!words.isConnected) return;
    try { seen = await get(path); } catch (problem) { if (problem.status === 0) continue; say(problem.text, "bad"); close(); return; }
    if (!seen.out && seen.ready) { say(seen.text || t("health_ready")); close(); return; }
    draw();
  }
}

function drawCode({ side, path }) {
  const svg = document.createElementNS(SVG, "svg"), dark = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", `0 0 ${side} ${side}`);
  svg.setAttribute("class", "code-to-scan");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", t("code_to_scan"));
  dark.setAttribute("d", path);
  svg.append(dark);
  return svg;
}
