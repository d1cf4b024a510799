// Charts as SVG. Their values stand beside them as text, so that colours and lengths say nothing alone.

import { h, t } from "/page/static/dom.js";

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function titled(shape, text) {
  const title = svg("title", {});
  title.textContent = text;
  shape.append(title);
  return shape;
}

/** Lying bars, the largest first: {name, value, text}. */
export function bars(rows) {
  const most = Math.max(1, ...rows.map((row) => row.value));
  return h("ul", { class: "bars" }, rows.map((row) => h("li", {}, h("span", { class: "name", title: row.name, text: row.name }), svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { width: "100", height: "8", class: "rail" }), svg("rect", { width: Math.max(0.5, (row.value / most) * 100).toFixed(2), height: "8", class: "bar" })), h("span", { class: "value", text: row.text }))));
}

/** Standing columns, one a day: {name, value, text}. */
export function columns(days) {
  const most = Math.max(1, ...days.map((day) => day.value)), width = 100 / Math.max(days.length, 7);
  const shapes = days.map((day, index) => titled(svg("rect", { x: (index * width + width * 0.12).toFixed(2), y: (40 - (day.value / most) * 38).toFixed(2), width: (width * 0.76).toFixed(2), height: Math.max(0.4, (day.value / most) * 38).toFixed(2), class: "bar" }), `${day.name}: ${day.text}`));
  const peak = days.reduce((best, day) => (day.value > best.value ? day : best), days[0]);
  const label = t("chart_days", { n: days.length, first: days[0].name, last: days.at(-1).name, peak: peak.name, most: peak.text });
  return h("div", { class: "columns" }, svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": label }, ...shapes), h("div", { class: "axis dim small" }, h("span", { text: days[0].name }), h("span", { text: t("peak", { day: peak.name, most: peak.text }) }), h("span", { text: days.at(-1).name })));
}
