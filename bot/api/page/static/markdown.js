// Markdown of models, people and tools as elements. What they write is data: their HTML is text, their pictures are links.

import { Marked } from "/page/static/vendor/marked.js";
import "/page/static/vendor/purify.js";
import { copy, h, iconButton, t } from "/page/static/dom.js";

const purify = globalThis.DOMPurify;
const escaped = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** Formulas, which Markdown would take apart: they are shown as they are written, as code. */
const formula = (name, level, begin, found) => ({
  name,
  level,
  start: (text) => { const at = text.search(begin); return at < 0 ? undefined : at; },
  tokenizer: (text) => { const match = found.exec(text); return match ? { type: name, raw: match[0], text: match.slice(1).find((each) => each !== undefined).trim() } : undefined; },
  renderer: ({ text }) => (level === "block" ? `<pre><code class="language-latex">${escaped(text)}</code></pre>` : `<code class="formula">${escaped(text)}</code>`),
});
const marked = new Marked({
  gfm: true,
  breaks: true,
  extensions: [
    formula("formulas", "block", /^(?:\$\$[^$]{1,5000}\$\$|\\\[(?:[^\\]|\\(?!\])){1,5000}\\\])[ \t]*$/m, /^(?:\$\$([^$]{1,5000})\$\$|\\\[((?:[^\\]|\\(?!\])){1,5000})\\\])[ \t]*(?:\n|$)/),
    formula("formula", "inline", /\$|\\\(/, /^(?:\$\$([^$\n]{1,1000})\$\$|\$(?![\s$])([^$\n]{1,1000})(?<!\s)\$(?![\d$])|\\\(((?:[^\\\n]|\\(?!\))){1,1000})\\\))/),
  ],
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});
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
const LONGEST_COLOURED = 50000; // characters
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
  return [...fragment.childNodes];
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

async function colour(frame) {
  const code = frame.querySelector("code");
  if (!frame.dataset.language || !code || code.textContent.length > LONGEST_COLOURED) return;
  const paint = await highlighter(frame.dataset.language);
  if (paint) code.replaceChildren(purify.sanitize(paint(code.textContent), COLOURS));
}

/** A place that shows Markdown. While it grows, only the blocks that changed are made anew. */
export class Markdown {
  constructor(className = "markdown") {
    this.element = h("div", { class: className });
    this.blocks = []; // {raw, nodes}
    this.text = null;
    this.done = false;
  }

  /** Show a text. `done`: it is whole, so that its code is coloured. */
  update(text, done) {
    if (text !== this.text) {
      this.text = text;
      this.done = false;
      const tokens = marked.lexer(text), shown = tokens.filter((token) => token.type !== "space" && token.type !== "def");
      let same = 0;
      while (same < shown.length && same < this.blocks.length && shown[same].raw === this.blocks[same].raw) same += 1;
      for (const old of this.blocks.splice(same)) for (const node of old.nodes) node.remove();
      for (const token of shown.slice(same)) {
        const nodes = block(token, tokens.links);
        this.element.append(...nodes);
        this.blocks.push({ raw: token.raw, nodes });
      }
    }
    if (done && !this.done) {
      this.done = true;
      for (const frame of this.element.querySelectorAll(".code")) colour(frame);
    }
  }
}
