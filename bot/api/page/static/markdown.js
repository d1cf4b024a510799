// Markdown of models, people and tools as elements. What they write is data: their HTML is text, their pictures are links.

import { copy, h, iconButton, t } from "/page/static/dom.js";

let marked = null, purify = null, Tokenizer, loading = null; // the libraries, which a person who begins to write does not wait for
const escaped = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** Formulas, which Markdown would take apart: they are shown as they are written, as code. */
const formula = (name, level, begin, found) => ({
  name,
  level,
  start: (text) => { const at = text.search(begin); return at < 0 ? undefined : at; },
  tokenizer: (text) => { const match = found.exec(text); return match ? { type: name, raw: match[0], text: match.slice(1).find((each) => each !== undefined).trim() } : undefined; },
  renderer: ({ text }) => (level === "block" ? `<pre><code class="language-latex">${escaped(text)}</code></pre>` : `<code class="formula">${escaped(text)}</code>`),
});
/** Return a text as one in which stars next to wide punctuation have a letter there, and the character before it. */
function widened(text, before) {
  let wide = "", at = 0;
  for (const { 0: run, index } of text.matchAll(/\*+/g)) {
    const end = index + run.length, from = [...text.slice(Math.max(0, index - 2), index)].at(-1) ?? before, to = end < text.length ? String.fromCodePoint(text.codePointAt(end)) : "";
    if (!from || !to || from === "\\" || /\s/.test(from + to) || /^[\0-\x7f]*$/.test(from + to)) continue;
    if (index && PUNCTUATION.test(from)) wide += text.slice(at, (at = Math.max(at, index - from.length))) + "x".repeat(index - at), at = index;
    else if (!index && PUNCTUATION.test(from)) before = "x";
    if (PUNCTUATION.test(to)) wide += text.slice(at, end) + "x".repeat(to.length), at = end + to.length;
  }
  return [wide + text.slice(at), before];
}

const PUNCTUATION = /^[\p{P}\p{S}]$/u;
const LONGEST_WIDENED = 5000; // characters of a paragraph: each of its stars costs as much
let lastMasked, lastWidened; // of the text that is read now: each of its stars asks

/** Emphasis next to wide punctuation, as in `**注意：**请`: CommonMark lets such stars only open or only close. */
function emStrong(src, masked, before = "") {
  if (src[0] !== "*" || masked.length > LONGEST_WIDENED || !/[^\0-\x7f]/.test(masked)) return false;
  if (masked !== lastMasked) [lastMasked, lastWidened] = [masked, widened(masked, "")[0]];
  const head = /^\*+(?:..?)?/su.exec(src)[0], [text, from] = widened(head, before); // the mark and what follows it
  this.probe ??= Object.create(this, { lexer: { value: { inlineTokens: () => [] } } });
  const found = Tokenizer.prototype.emStrong.call(this.probe, text + src.slice(head.length), lastWidened, from);
  if (!found) return undefined;
  const raw = src.slice(0, found.raw.length), marks = found.type === "strong" ? 2 : 1, inner = raw.slice(marks, -marks);
  return { ...found, raw, text: inner, tokens: this.lexer.inlineTokens(inner) };
}

const OPTIONS = {
  gfm: true,
  breaks: true,
  extensions: [
    formula("formulas", "block", /^(?:\$\$[^$]{1,5000}\$\$|\\\[(?:[^\\]|\\(?!\])){1,5000}\\\])[ \t]*$/m, /^(?:\$\$([^$]{1,5000})\$\$|\\\[((?:[^\\]|\\(?!\])){1,5000})\\\])[ \t]*(?:\n|$)/),
    formula("formula", "inline", /\$|\\\(/, /^(?:\$\$([^$\n]{1,1000})\$\$|\$(?![\s$])([^$\n]{1,1000})(?<!\s)\$(?![\d$])|\\\(((?:[^\\\n]|\\(?!\))){1,1000})\\\))/),
  ],
  tokenizer: { emStrong },
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
};

const waiting = new Set(); // places that show their text as it is

/** Load what Markdown needs; texts are shown as they are until then. */
export function loadMarkdown() {
  loading ??= Promise.all([import("/page/static/vendor/marked.js"), import("/page/static/vendor/purify.js")]).then(([library]) => {
    Tokenizer = library.Tokenizer;
    purify = globalThis.DOMPurify;
    marked = new library.Marked(OPTIONS);
    for (const view of waiting) view.update(...view.late);
    waiting.clear();
  }).catch(() => { loading = null; }); // the next text asks again
  return loading;
}
const CLEAN = {
  ALLOWED_TAGS: ["a", "p", "br", "hr", "em", "strong", "del", "code", "pre", "blockquote", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"],
  ALLOWED_ATTR: ["href", "align", "class", "start"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  RETURN_DOM_FRAGMENT: true,
};
const COLOURS = { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true };
const LANGUAGES = "bash c cpp css diff dockerfile go ini java javascript json markdown python rust sql typescript xml yaml".split(" ");
const NAMES = { sh: "bash", shell: "bash", zsh: "bash", console: "bash", py: "python", js: "javascript", mjs: "javascript", jsx: "javascript", ts: "typescript", tsx: "typescript", yml: "yaml", html: "xml", svg: "xml", toml: "ini", rs: "rust", "c++": "cpp", h: "c", md: "markdown" };
const LONGEST_COLOURED = 20000; // characters
const registered = new Map();

/** Return highlight.js with a language, which is loaded when first seen; null where there is none. */
async function highlighter(name) {
  const language = NAMES[name] ?? name;
  if (!LANGUAGES.includes(language)) return null;
  if (!registered.has(language)) {
    registered.set(language, (async () => {
      const [{ default: hljs }, { default: grammar }] = await Promise.all([
        import("/page/static/vendor/highlight.js"), import(`/page/static/vendor/highlight/${language}.js`),
      ]);
      hljs.registerLanguage(language, grammar);
      return hljs;
    })().catch(() => null));
  }
  const hljs = await registered.get(language);
  return hljs && ((text) => hljs.highlight(text, { language, ignoreIllegals: true }).value);
}

function block(token, links) {
  const tokens = [token];
  tokens.links = links;
  const fragment = purify.sanitize(marked.parser(tokens), CLEAN);
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const table of fragment.querySelectorAll("table")) {
    const frame = h("div", { class: "table", tabindex: "0", role: "region", "aria-label": t("table") });
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const pre of fragment.querySelectorAll("pre")) codeFrame(pre);
  return [...fragment.childNodes].filter((node) => node.nodeType === Node.ELEMENT_NODE || node.data.trim());
}

function codeFrame(pre) {
  const code = pre.querySelector("code") ?? pre, name = /language-([\w+#.-]+)/.exec(code.className)?.[1]?.toLowerCase() ?? "";
  const frame = h("div", { class: "code", data: { language: name } },
    h("div", { class: "code-head" }, h("span", { text: name || t("code") }), iconButton("copy", t("copy_code"), () => copy(code.textContent))));
  pre.replaceWith(frame);
  pre.tabIndex = 0;
  pre.setAttribute("aria-label", t("code"));
  frame.append(pre);
}

let colouring = Promise.resolve();

/** Colour code, one frame after the other, each in a task of its own. */
function colour(frame) {
  const code = frame.querySelector("code");
  if (!frame.dataset.language || !code || code.textContent.length > LONGEST_COLOURED) return;
  colouring = colouring.then(async () => {
    const paint = await highlighter(frame.dataset.language);
    if (!paint) return;
    await new Promise((go) => setTimeout(go));
    code.replaceChildren(purify.sanitize(paint(code.textContent), COLOURS));
  });
}

// Words that only continue a text: no sign of Markdown, and behind a word that is none of a link or an address.
const WORDS = /^[\p{L}\p{N}]*(?:[,;]? [\p{L}\p{N}]+)*[,;]? ?$/u, BEHIND = /(?:^|\s)([\p{L}\p{N}]+)( ?)$/u;
const DEFINES = /^ {0,3}\[[^\]]+\]:/m; // a name for an address, which links anywhere in the text may use

/** A place that shows Markdown. While a text grows, its finished blocks stay, and words are added to the last one. */
export class Markdown {
  constructor(className = "markdown") {
    this.element = h("div", { class: className });
    this.late = null; // what is shown as it is, until the libraries are there
    this.blocks = []; // {raw, at, token, nodes}
    this.text = null;
    this.done = false;
    this.links = "{}";
    this.whole = false; // each change has to be read from the begin
  }

  /** Show a text. `done`: it is whole, so that its last block is finished, too. */
  update(text, done) {
    if (!marked) {
      this.late = [text, done];
      this.element.textContent = text;
      waiting.add(this);
      loadMarkdown();
      return;
    }
    if (this.late) this.element.replaceChildren();
    this.late = null;
    if (text.includes("\r")) text = text.replace(/\r\n?/g, "\n");
    if (text !== this.text) {
      const before = this.text, grows = before !== null && text.startsWith(before), more = grows ? text.slice(before.length) : "";
      this.text = text;
      this.done = false;
      if (!(grows && (this.addWords(before, more) || this.addParts()))) this.read(grows && !this.whole && !DEFINES.test(text.slice(this.lastAt)) ? this.lastAt : 0);
    }
    if (done && !this.done) {
      this.done = true;
      this.finish(this.blocks);
    }
  }

  get lastAt() { return this.blocks.at(-1)?.at ?? 0; }

  /** Read the text anew from the begin of a block on: appending changes the last block alone. */
  read(from) {
    const tokens = marked.lexer(this.text.slice(from)), shown = [];
    const links = JSON.stringify(tokens.links), renewed = links !== this.links; // names that the text defines: any block may use them
    let at = from;
    this.links = links;
    this.whole = links !== "{}";
    if (from && this.whole) return this.read(0);
    for (const token of tokens) {
      while (this.text[at] === "\n" && !this.text.startsWith(token.raw, at)) at += 1; // some leave out line ends
      this.whole ||= !this.text.startsWith(token.raw, at);
      if (token.type !== "space" && token.type !== "def") shown.push({ token, at });
      at += token.raw.length;
    }
    let kept = this.blocks.findIndex((each) => each.at >= from);
    if (kept < 0) kept = this.blocks.length;
    let same = 0;
    while (!renewed && same < shown.length && shown[same].token.raw === this.blocks[kept + same]?.raw) same += 1;
    if (shown[same] && !renewed && growCode(this.blocks[kept + same], shown[same].token)) same += 1;
    for (const old of this.blocks.splice(kept + same)) for (const node of old.nodes) node.remove();
    this.append(shown.slice(same), tokens.links);
  }

  append(shown, links) {
    for (const { token, at } of shown) {
      const nodes = block(token, links);
      this.element.append(...nodes);
      this.blocks.push({ raw: token.raw, at, token, nodes });
    }
    this.finish(this.blocks.slice(0, -1));
  }

  /** Add rows to the table, or items to the list, that the text ends with: only its last one is read again. Returns whether that was possible. */
  addParts() {
    const last = this.blocks.at(-1), kind = last?.token.type, places = { table: ["tbody", "tr"], list: ["ul, ol", "li"] }[kind];
    if (!places || this.whole) return false;
    const head = kind === "table" ? /^.*\n.*\n/.exec(last.raw)?.[0] : "", begin = kind === "table" ? last.raw.trimEnd().lastIndexOf("\n") + 1 : last.partAt ?? last.raw.trimEnd().length - last.token.items.at(-1).raw.trimEnd().length;
    if (head === undefined || begin < head.length || begin <= 0) return false;
    const rest = this.text.slice(last.at + begin), tokens = marked.lexer(head + rest), [first, ...others] = tokens;
    if (DEFINES.test(rest) || first?.type !== kind || (kind === "list" && (first.ordered !== last.token.ordered || (first.loose && !last.token.loose) || (last.token.loose && first.items.some((item) => item.task))))) return false;
    if (kind === "list" && last.token.loose) first.items.forEach(loosen);
    const shown = last.nodes.at(-1), [place, part] = places, body = shown.matches(place) ? shown : shown.querySelector(place), fresh = block(first, {}).at(-1);
    const parts = (fresh.matches(place) ? fresh : fresh.querySelector(place)).querySelectorAll(`:scope > ${part}`);
    if (!body?.lastElementChild || !parts.length) return false;
    body.lastElementChild.remove();
    body.append(...parts);
    last.raw = last.raw.slice(0, begin) + first.raw.slice(head.length);
    if (kind === "list") last.partAt = last.raw.trimEnd().length - first.items.at(-1).raw.trimEnd().length;
    let at = last.at + last.raw.length;
    const more = [];
    for (const token of others) {
      if (token.type !== "space") more.push({ token, at });
      at += token.raw.length;
    }
    this.append(more, {});
    return true;
  }

  /** Add words to the last text of the last block, if they change nothing else. Returns whether they were added. */
  addWords(before, more) {
    const last = this.blocks.at(-1), behind = BEHIND.exec(before.slice(-200));
    if (!last || !behind || !WORDS.test(more)) return false;
    const text = lastText(last.nodes.at(-1)), end = text?.data.trimEnd().length;
    if (!text?.data.slice(0, end).endsWith(behind[1])) return false;
    text.replaceData(end, text.data.length - end, behind[2] + more + (text.parentNode.closest("pre") ? "\n" : ""));
    last.raw += more;
    if (last.token.type === "code") last.token = { ...last.token, text: last.token.text + more };
    return true;
  }

  /** Colour the code of blocks that do not change any more. */
  finish(blocks) {
    for (const each of blocks) {
      if (each.finished || each.token.type === "paragraph") continue;
      each.finished = true;
      for (const node of each.nodes) {
        if (node.nodeType !== Node.ELEMENT_NODE) continue;
        const frames = node.matches(".code") ? [node] : node.querySelectorAll(".code");
        for (const frame of frames) colour(frame);
      }
    }
  }
}

/** Show more of a code block in the element that is there. */
function growCode(shown, token) {
  if (shown?.token.type !== "code" || token.type !== "code" || shown.finished || shown.token.lang !== token.lang || !token.text.startsWith(shown.token.text)) return false;
  const text = lastText(shown.nodes.at(-1)), end = text?.data.trimEnd().length, begun = shown.token.text.trimEnd();
  if (!text || !text.data.slice(0, end).endsWith(begun.slice(-80))) return false;
  text.replaceData(end, text.data.length - end, `${token.text.slice(begun.length)}\n`);
  Object.assign(shown, { raw: token.raw, token });
  return true;
}

/** Make the texts of a list's item paragraphs, as they are where a blank line stands between items. */
function loosen(item) {
  item.loose = true;
  for (const token of item.tokens) if (token.type === "text") token.type = "paragraph";
}

/** Return the last text inside of a node that is not blank. */
function lastText(node) {
  while (node && node.nodeType !== Node.TEXT_NODE) {
    node = node.lastChild;
    while (node?.nodeType === Node.TEXT_NODE && !node.data.trim()) node = node.previousSibling;
  }
  return node;
}
