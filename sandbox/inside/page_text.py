"""Turn HTML into text. Runs in the sandbox: standard library only, Python 3.9+."""

from __future__ import annotations

import html.parser
import re


class PageText(html.parser.HTMLParser):
    """Collects the text of a page, with its headings, items, cells and links."""

    BLOCKS = re.compile("p|div|section|article|br|tr|table|ul|ol|pre|blockquote|header|footer|figure|dd|dt|h[1-6]")
    HIDDEN = frozenset(("script", "style", "template", "noscript", "svg"))

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.hidden = 0
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in self.HIDDEN
        if re.fullmatch("h[1-6]", tag):
            self.parts.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag == "li":
            self.parts.append("\n- ")
        elif tag in ("td", "th"):
            self.parts.append(" | ")
        elif self.BLOCKS.fullmatch(tag):
            self.parts.append("\n")
        elif tag == "a":
            self.links.append(dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in self.HIDDEN and self.hidden > 0
        if self.BLOCKS.fullmatch(tag):
            self.parts.append("\n")
        elif tag == "a" and self.links:
            target = self.links.pop()
            self.parts.append(f" ({target})" if target.startswith("http") else "")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def html_text(text: str) -> str:
    """Return the text of a page."""
    parser = PageText()
    parser.feed(without_comments(text))
    parser.close()
    return re.sub(r"\n\s*\n\s*", "\n\n", "".join(parser.parts)).strip() + "\n"


def without_comments(text: str) -> str:
    """Return HTML without its comments, each of which an unclosed one would make the parser search again."""
    parts, at = [], 0
    while (begin := text.find("<!--", at)) >= 0:
        parts.append(text[at:begin])
        end = text.find("-->", begin + 4)
        if end < 0:
            return "".join(parts)
        at = end + 3
    return "".join([*parts, text[at:]])
