// Elements, words and times. Text is always set as text: markup comes from markdown.js alone.

let words = {};
export function setWords(found) { words = found; }

/** Return a sentence of the catalogue with `values` in place of its placeholders; `unknown` where there is none. Of one
 * thing, the sentence with "_one" at the end of its name counts, where there is one. */
export function t(name, values = {}, unknown = name) {
  return ((String(values.n) === "1" ? words[`${name}_one`] : undefined) ?? words[name] ?? unknown).replace(/\{(\w+)\}/g, (whole, key) => values[key] ?? whole);
}

/** Make an element: `attributes` may have `text`, `on` (name → listener) and `data`; false and null leave one out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
const PATHS = {
  plus: "M12 5v14M5 12h14", send: "M12 19V5M6 11l6-6 6 6", stop: "M7 7h10v10H7z", menu: "M4 7h16M4 12h16M4 17h16",
  clip: "M20 11l-8.500 8.500a5 5 0 0 1-7-7L13 4a3.300 3.300 0 0 1 4.700 4.700L9.500 17a1.700 1.700 0 0 1-2.400-2.400L15 7",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1", check: "M5 12.500l4.500 4.500L19 7.500", cross: "M6 6l12 12M18 6L6 18", retry: "M4 12a8 8 0 1 1 2.500 5.800M4 12V7M4 12h5",
  up: "M7 11v9H4v-9zM7 12l4-8q2.500 0 2.500 3v3H19q1.500 0 1.300 1.500l-1.200 7Q18.900 20 17.500 20H7", down: "M7 13V4H4v9zM7 12l4 8q2.500 0 2.500-3v-3H19q1.500 0 1.300-1.500l-1.200-7Q18.900 4 17.500 4H7",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4", search: "M10.500 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13zM15.500 15.500L20 20", file: "M6 3h8l4 4v14H6zM14 3v4h4",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.400 1.400M17.600 17.600L19 19M5 19l1.400-1.400M17.600 6.400L19 5", moon: "M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10z",
  eye: "M2.500 12s3.500-6 9.500-6 9.500 6 9.500 6-3.500 6-9.500 6-9.500-6-9.500-6zM12 9.500a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5z", bin: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13", person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 20c1-4 4-6 8-6s7 2 8 6",
  more: "M6 12h.010M12 12h.010M18 12h.010", leave: "M14 4H5v16h9M10 12h10M16 8l4 4-4 4", gauge: "M4 18a9 9 0 1 1 16 0M12 14l4-5", chat: "M4 5h16v11H9l-5 4z", chevron: "M9 6l6 6-6 6", question: "M9 9a3 3 0 1 1 4.500 2.600Q12 12.500 12 14M12 17.500v.01", shield: "M12 3l7 3v5q0 7-7 10-7-3-7-10V6z", down_arrow: "M12 5v14M6 13l6 6 6-6", list: "M9 6h11M9 12h11M9 18h11M4.500 6h.010M4.500 12h.010M4.500 18h.010", save: "M12 4v11M7 11l5 5 5-5M5 20h14",
};

/** Return an icon; it says nothing to screen readers. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** Return a button that shows an icon and is called `label`. */
export function iconButton(name, label, click, attributes = {}) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, on: { click }, ...attributes }, icon(name));
}

/** Mark words in a part, in place of what `name` marked before. Text and elements stay as they are. Returns the first place. */
export function markWords(name, part, words) {
  const ranges = [], walker = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && words.length; node = walker.nextNode()) {
    const low = node.data.toLowerCase();
    for (const word of low.length === node.data.length ? words : []) {
      for (let at = low.indexOf(word); at >= 0 && ranges.length < 500; at = low.indexOf(word, at + word.length)) {
        ranges.push(new StaticRange({ startContainer: node, startOffset: at, endContainer: node, endOffset: at + word.length }));
      }
    }
  }
  if (globalThis.Highlight) CSS.highlights.set(name, new Highlight(...ranges));
  return ranges[0] ?? null;
}

const STYLES = { day: { dateStyle: "medium" }, hour: { timeStyle: "short" }, exact: { dateStyle: "medium", timeStyle: "long" }, moment: { dateStyle: "medium", timeStyle: "short" } };
const formats = new Map();

/** Return a time in one of STYLES: as the browser writes times, where that is the language of the page, else as the page's language does. */
export function timeText(at, style) {
  const language = document.documentElement.lang, own = navigator.language.startsWith(language) ? navigator.language : language, key = `${style} ${own}`;
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat(own || undefined, STYLES[style]));
  return formats.get(key).format(at);
}

/** Return an element with a Unix time: today the hour, before the day; the exact time with its zone as title. */
export function timeOf(seconds) {
  const at = new Date(seconds * 1000), today = at.toDateString() === new Date().toDateString();
  return h("time", { datetime: at.toISOString(), title: timeText(at, "exact"), text: timeText(at, today ? "hour" : "day") });
}

export function duration(seconds) {
  if (seconds < 60) return t("seconds", { n: seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds) });
  return seconds < 3600 ? t("minutes", { n: Math.round(seconds / 60) }) : t("hours", { n: Math.round(seconds / 360) / 10 });
}

/** Return an amount in dollars, from millionths; a small one with four digits. */
export function money(millionths) {
  const dollars = millionths / 1e6;
  return `$${dollars.toLocaleString(undefined, { minimumFractionDigits: 2, maximumFractionDigits: dollars > 0 && dollars < 0.1 ? 4 : 2 })}`;
}

export function size(bytes) {
  const unit = bytes < 1000 ? 0 : bytes < 1e6 ? 1 : bytes < 1e9 ? 2 : 3;
  return `${(bytes / 1000 ** unit).toFixed(unit > 1 ? 1 : 0)} ${["B", "kB", "MB", "GB"][unit]}`;
}

/** Say something to screen readers, and show it for a moment. */
export function say(text, kind = "") {
  const place = document.querySelector("#toast");
  if (!place) return;
  place.className = kind;
  place.textContent = "";
  requestAnimationFrame(() => { place.textContent = text; });
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { place.textContent = ""; }, 6000);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say(t("copied"));
  } catch {
    say(t("not_copied"), "bad");
  }
}

/** Return a new random id: letters and digits. */
export function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Whether this browser tells of ended work outside the page: the person has said so, and the browser allows it. */
export const tellsOutside = () => localStorage.getItem("outside") === "on" && globalThis.Notification?.permission === "granted";
