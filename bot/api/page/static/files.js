// Files: chips with a preview of pictures. What a file contains is never shown as a page of this address: a frame for a
// page that the agent made has an origin of its own, and reaches nothing.

import { showDialog } from "/page/static/dialog.js";
import { h, icon, iconButton, size, t } from "/page/static/dom.js";

const PICTURES = /\.(png|jpe?g|gif|webp)$/i, PAGES = /\.html?$/i;

/** Return the chip of a file: a name, or {name, url, size, caption} where it can be opened. */
export function fileChip(file, { mine = false } = {}) {
  const { name, caption = "", url: path } = typeof file === "string" ? { name: file } : { ...file, name: file.name ?? file.path?.split("/").at(-1) ?? "" };
  const url = path ? `/page${path}` : "";
  const facts = [file.size ? size(file.size) : "", caption].filter(Boolean).join(" · ");
  const inside = [icon("file"), h("span", { class: "name", text: name }), facts ? h("span", { class: "dim small", text: facts }) : null];
  if (!url) return h("span", { class: `chip ${mine ? "mine" : ""}`, title: name }, inside);
  const chip = h("a", { class: "chip", href: url, download: name, title: name }, inside);
  if (PAGES.test(name)) return h("span", { class: "chip-pair" }, chip, iconButton("eye", t("show_page", { name }), () => showPage(name, url)));
  if (!PICTURES.test(name)) return chip;
  const picture = h("img", { src: `${url}?inline`, alt: caption || name, class: "loading", on: { error: () => picture.remove(), load: () => picture.classList.remove("loading") } });
  return h("figure", { class: "preview" }, h("a", { href: url, download: name, title: name }, picture), h("figcaption", {}, chip));
}

function showPage(name, url) {
  const frame = (sandbox, query) => h("iframe", { class: "made-page", title: name, sandbox, referrerpolicy: "no-referrer", src: `${url}?${query}` });
  const still = frame("", "page"); // no policy of Chromium keeps a script from the network: WebRTC is not in it
  const run = h("button", { type: "button", class: "primary run-scripts", text: t("run_scripts"), title: t("run_scripts_title"), on: { click: () => {
    run.remove();
    still.replaceWith(frame("allow-scripts", "page&scripts"));
  } } });
  showDialog(name, still, { wide: true, tools: [run, h("a", { class: "icon-button", href: url, download: name, "aria-label": t("save_file"), title: t("save_file") }, icon("save"))] });
}
