"""Convert Markdown to the HTML that Matrix clients show. Nothing of the text is parsed again: all of it is escaped.

The elements are those of spec.matrix.org/latest/client-server-api/#mroommessage-msgtypes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from typing import Any

import pyromark

from channels.shared.markdown import close_wide_emphasis, open_wide_emphasis

MAX_DEPTH = 60  # of elements in each other; clients cut at 100
_OPTIONS = pyromark.Options.ENABLE_TABLES | pyromark.Options.ENABLE_STRIKETHROUGH | pyromark.Options.ENABLE_TASKLISTS
_INLINE = {"Strong": "strong", "Emphasis": "em", "Strikethrough": "del"}
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_ADDRESS = re.compile(r"(?:https?|ftp|magnet):\S+|mailto:[^\s?]+", re.IGNORECASE)
_PERSON = re.compile(r"https?://matrix\.to/#/(?:@|%40)", re.IGNORECASE)  # a link that clients show as a mention
_MARKUP = re.compile(r"[\\`*_~\[<&|\n]|^[ \t]*(?:[#>+=-]|\d+[.)])|^(?: {4}|\t)", re.MULTILINE)


def to_html(markdown: str) -> str:
    """Return the HTML, or "" for a text without any markup, or with too much of it in each other."""
    if not _MARKUP.search(markdown):
        return ""
    writer = _HtmlWriter()
    for event in pyromark.events(open_wide_emphasis(markdown), options=_OPTIONS):
        writer.take_event(event)
        if len(writer.ends) > MAX_DEPTH:
            return ""
    html = close_wide_emphasis("".join(writer.out))
    return html[3:-4] if html.startswith("<p>") and html.count("<p>") == 1 and html.endswith("</p>") else html


def text_as_html(text: str) -> str:
    """Return a text without markup."""
    return escape(text, quote=False).replace("\n", "<br>")


def folded(summary: str, lines: str) -> str:
    """Return lines that a reader unfolds."""
    if not lines:
        return f"<p><sub>{text_as_html(summary)}</sub></p>"
    return f"<details><summary>{text_as_html(summary)}</summary>{text_as_html(lines)}</details>"


@dataclass(slots=True)
class _HtmlWriter:
    """The state of one conversion."""

    out: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)  # the end tags of what is open
    in_head: bool = False

    def take_event(self, event: Any) -> None:  # events are the parser's nested dicts and names
        match event:
            case {"Text": text} | {"Html": text} | {"InlineHtml": text}:
                self.out.append(escape(text, quote=False))
            case {"Code": code}:
                self.out.append(f"<code>{escape(code, quote=False)}</code>")
            case {"TaskListMarker": checked}:
                self.out.append("☑ " if checked else "☐ ")
            case "SoftBreak" | "HardBreak":
                self.out.append("<br>")
            case "Rule":
                self.out.append("<hr>")
            case {"Start": tag}:
                begin, end = self.tags(tag)
                self.out.append(begin)
                self.ends.append(end)
            case {"End": tag}:
                self.out.append(self.ends.pop())
                self.in_head = self.in_head and tag != "TableHead"

    def tags(self, tag: Any) -> tuple[str, str]:
        """Return the begin and the end of an element."""
        match tag:
            case "Strong" | "Emphasis" | "Strikethrough":
                return f"<{_INLINE[tag]}>", f"</{_INLINE[tag]}>"
            case "TableCell":
                return ("<th>", "</th>") if self.in_head else ("<td>", "</td>")
            case {"Link": link} | {"Image": link}:
                return _link_tags(str(link["dest_url"]))
            case "Paragraph" | "HtmlBlock":
                return "<p>", "</p>"
            case {"Heading": heading}:
                level = "h" + str(heading["level"])[-1]
                return f"<{level}>", f"</{level}>"
            case {"CodeBlock": kind}:
                words = kind["Fenced"].split() if isinstance(kind, dict) else []
                language = words[0] if words and _LANGUAGE.fullmatch(words[0]) else ""
                attribute = f' class="language-{language}"' if language else ""
                return f"<pre><code{attribute}>", "</code></pre>"
            case {"BlockQuote": _}:
                return "<blockquote>", "</blockquote>"
            case {"List": None}:
                return "<ul>", "</ul>"
            case {"List": first}:
                return (f'<ol start="{int(first)}">' if first != 1 else "<ol>"), "</ol>"
            case "Item":
                return "<li>", "</li>"
            case {"Table": _}:
                return "<table>", "</table>"
            case "TableHead" | "TableRow":
                self.in_head = tag == "TableHead"
                return "<tr>", "</tr>"
        return "", ""


def _link_tags(url: str) -> tuple[str, str]:
    """Return a link. One to a person would be a mention, and other addresses than these clients do not open."""
    if _ADDRESS.fullmatch(url) and not _PERSON.match(url):
        return f'<a href="{escape(url)}">', "</a>"
    return "", f" ({escape(url, quote=False)})" if url else ""
