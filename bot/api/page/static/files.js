// Files: chips with a preview of pictures. What a file contains is never shown as a page of this address.

import { h, icon, size } from "/page/static/dom.js";

const PICTURES = /\.(png|jpe?g|gif|webp)$/i;

/** Return the chip of a file: a name, or {name, url, size, caption} where it can be opened. */
export function fileChip(file, { mine = false } = {}) {
  const { name, caption = "", url: path } = typeof file === "string" ? { name: file } : { ...file, name: file.name ?? file.path?.split("/").at(-1) ?? "" };
  const url = path ? `/page${path}` : "";
  const facts = [file.size ? size(file.size) : "", caption].filter(Boolean).join(" · ");
  const inside = [icon("file"), h("span", { class: "name", text: name }), facts ? h("span", { class: "dim small", text: facts }) : null];
  if (!url) return h("span", { class: `chip ${mine ? "mine" : ""}`, title: name }, inside);
  const chip = h("a", { class: "chip", href: url, download: name, title: name }, inside);
  if (!PICTURES.test(name)) return chip;
  const picture = h("img", { src: `${url}?inline`, alt: caption || name, loading: "lazy", on: { error: () => picture.remove() } });
  return h("figure", { class: "preview" }, h("a", { href: url, download: name, title: name }, picture), h("figcaption", {}, chip));
}
