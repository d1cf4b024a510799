"""Convert Markdown with tables or task lists to the HTML of a rich message, which shows them as such.

core.telegram.org/bots/api#rich-message-formatting-options. Nothing of the text is parsed again: all of it is escaped,
also HTML. A bot cannot find out whether its reader's app shows rich messages, so that an operator turns them on
(docs/decisions/0135-rich-messages-by-setting.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from typing import Any

import pyromark

from channels.shared.markdown import close_wide_emphasis, open_wide_emphasis, utf16_length
from channels.telegram.markdown import LINK, NAME, PARSER_OPTIONS, ZERO_WIDTH_SPACE

MAX_RICH_UNITS, MAX_BLOCKS, MAX_COLUMNS, MAX_DEPTH = 32_768, 500, 20, 16  # of a rich message
_MARKS = ("|", "[ ]", "[x]", "[X]")  # one of which a table or a task list has
_INLINE = {"Strong": "b", "Emphasis": "i", "Strikethrough": "s"}
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")


def to_rich_html(markdown: str, *, mentions: bool) -> str:
    """Return the HTML, or "" for a text that needs no rich message or does not fit into one.

    Without `mentions`, no "@name" becomes one.
    """
    if not any(mark in markdown for mark in _MARKS):
        return ""
    writer = _HtmlWriter(mentions)
    markdown = open_wide_emphasis(markdown.encode("utf-8", "replace").decode())
    for event in pyromark.events(markdown, options=PARSER_OPTIONS):
        writer.take_event(event)
    html = close_wide_emphasis("".join(writer.out))
    fits = writer.blocks <= MAX_BLOCKS and writer.columns <= MAX_COLUMNS and writer.depth <= MAX_DEPTH
    return html if writer.is_needed and fits and utf16_length(html) <= MAX_RICH_UNITS else ""


@dataclass(slots=True)
class _HtmlWriter:
    """The state of one conversion."""

    mentions: bool
    out: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)  # the end tags of what is open
    aligned: list[str] = field(default_factory=list)  # the columns of the table
    cell: int = 0
    in_head: bool = False
    in_code: bool = False
    blocks: int = 0
    columns: int = 0
    depth: int = 0  # the greatest
    is_needed: bool = False  # it has a table or a task list

    def take_event(self, event: Any) -> None:  # events are the parser's nested dicts and names
        match event:
            case {"Text": text} | {"Html": text} | {"InlineHtml": text}:
                self.out.append(self.shown(text))
            case {"Code": code}:
                self.out.append(f"<code>{escape(code)}</code>")
            case {"TaskListMarker": checked}:
                self.is_needed = True
                self.out.append(f'<input type="checkbox"{" checked" if checked else ""}>')
            case "SoftBreak" | "HardBreak":
                self.out.append("<br>")
            case "Rule":
                self.blocks += 1
                self.out.append("<hr/>")
            case {"Start": tag}:
                begin, end = self.tags(tag)
                self.out.append(begin)
                self.ends.append(end)
                self.depth = max(self.depth, len(self.ends))
            case {"End": tag}:
                self.out.append(self.ends.pop())
                self.in_head = self.in_head and tag != "TableHead"
                self.in_code = self.in_code and tag != "CodeBlock"

    def shown(self, text: str) -> str:
        text = text if self.mentions or self.in_code else NAME.sub(f"@{ZERO_WIDTH_SPACE}", text)
        return escape(text, quote=False)

    def tags(self, tag: Any) -> tuple[str, str]:
        """Return the begin and the end of an element."""
        if tag in ("Strong", "Emphasis", "Strikethrough"):
            return f"<{_INLINE[tag]}>", f"</{_INLINE[tag]}>"
        if tag == "TableCell":
            align = self.aligned[self.cell] if self.cell < len(self.aligned) else ""
            self.cell += 1
            name = "th" if self.in_head else "td"
            return f"<{name}{align}>", f"</{name}>"
        match tag:
            case {"Link": link} | {"Image": link}:
                url = link["dest_url"]
                known = bool(LINK.fullmatch(url))
                return (f'<a href="{escape(url)}">', "</a>") if known else ("", f" ({self.shown(url)})" if url else "")
        self.blocks += 1
        match tag:
            case "Paragraph" | "HtmlBlock":
                return "<p>", "</p>"
            case {"Heading": heading}:
                level = "h" + str(heading["level"])[-1]
                return f"<{level}>", f"</{level}>"
            case {"CodeBlock": kind}:
                self.in_code = True
                words = kind["Fenced"].split() if isinstance(kind, dict) else []
                if words and _LANGUAGE.fullmatch(words[0]):
                    return f'<pre><code class="language-{words[0]}">', "</code></pre>"
                return "<pre>", "</pre>"
            case {"BlockQuote": _}:
                return "<blockquote>", "</blockquote>"
            case {"List": None}:
                return "<ul>", "</ul>"
            case {"List": first}:
                return (f'<ol start="{first}">' if first != 1 else "<ol>"), "</ol>"
            case "Item":
                return "<li>", "</li>"
            case {"Table": alignments}:
                self.is_needed = True
                self.columns = max(self.columns, len(alignments))
                self.aligned = [f' align="{each.lower()}"' if each != "None" else "" for each in alignments]
                return "<table bordered striped>", "</table>"
            case "TableHead" | "TableRow":
                self.in_head, self.cell = tag == "TableHead", 0
                return "<tr>", "</tr>"
        return "", ""
