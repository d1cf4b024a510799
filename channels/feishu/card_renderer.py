"""A reply as cards of Feishu (JSON 2.0): what a person sees of a turn, within what one card takes.

open.feishu.cn/document/feishu-cards/card-json-v2-structure
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import orjson

from agent.blocks import Final, View
from channels.shared import texts
from channels.shared.markdown_split import split_markdown

MAX_CARD_BYTES = 22_000  # bytes of text as JSON in a card: the card takes 30 KB, panel, buttons and frame included
MAX_HEAD_BYTES = 3_000  # …of plan and steps at most
MAX_TABLES = 5  # in a card; one more and it is refused
MAX_BUTTONS = 20
MAX_LABEL_CHARS = 100  # characters of a button
MAX_SHOWN_STEPS = 30  # the latest are shown
MAX_SUMMARY_CHARS = 80  # characters in the list of chats

_PINGS = re.compile(r"<(?=/?(?:at|person)\b)", re.IGNORECASE)
_MARK = re.compile(r"`+|!\[|\]\(?|[)\n]")  # what code and images begin and end with
_RULE = re.compile(r"[ >]*+\|?(?: *:?-+:? *\|)+(?: *:?-+:?)? *")  # the line below a table's head

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FeishuMessage:
    """One card: Markdown with something before and after it, a panel that folds, and the buttons of a question.

    `final`: it grows no more. `mention` is the open id of a person to ping, `quote`: it refers to what it answers.
    """

    text: str
    panel: str = ""
    foot: str = ""
    mention: str = ""
    ask: str = ""
    options: tuple[str, ...] = ()
    final: bool = False
    quote: bool = False

    @property
    def markdown(self) -> str:
        """The main text, as Feishu's Markdown."""
        ping = f"<at id={self.mention}></at> " if self.mention else ""
        return ping + self.text


def card_bytes(text: str) -> int:
    """The bytes of a text inside a card."""
    return len(orjson.dumps(text)) - 2


def render_live(view: View) -> list[FeishuMessage]:
    """The work so far: plan and steps in a panel, the text, the notice."""
    lines = texts.progress_lines(view, MAX_SHOWN_STEPS)
    while card_bytes("\n".join(lines)) > MAX_HEAD_BYTES:
        del lines[0]
    panel = "\n".join(lines)
    foot = f"⏳ {texts.shorten(view.notice.text, 300)}" if view.notice else ""
    if not (panel or foot or view.text):
        return []
    parts = [FeishuMessage(chunk) for chunk in _split_for_cards(view.text)] or [FeishuMessage("")]
    parts[0] = replace(parts[0], panel=panel)
    parts[-1] = replace(parts[-1], foot=foot)
    return parts


def render_final_cards(final: Final, *, direct: bool) -> list[FeishuMessage]:
    """The answer; an open question's options are buttons under its last card. In a `direct` chat nobody is pinged: a
    message reaches them anyway."""
    parts: list[FeishuMessage] = []
    for text, ask in final.messages():
        options = tuple(map(without_mentions, ask.options)) if ask and len(ask.options) <= MAX_BUTTONS else ()
        hint = texts.question_hint(ask, fits=bool(options), label=MAX_LABEL_CHARS) if ask and ask.options else ""
        more = [FeishuMessage(chunk, final=True) for chunk in _split_for_cards(f"{text}\n\n{hint}" if hint else text)]
        if more and ask and options:
            more[-1] = replace(more[-1], ask=ask.id, options=options)
        parts += more
    if parts and final.mention:
        parts[0] = replace(parts[0], mention="" if direct else final.mention, quote=True)
    return parts


def card_json(part: FeishuMessage, topic: str) -> Json:
    """The whole card. `topic` comes back with a click."""
    config: Json = {"update_multi": True, "streaming_mode": not part.final}
    if part.final:
        config["summary"] = {"content": texts.shorten(part.text, MAX_SUMMARY_CHARS)}
    else:
        config["streaming_config"] = {
            "print_frequency_ms": {"default": 30},
            "print_step": {"default": 5},
            "print_strategy": "fast",
        }
    return {"schema": "2.0", "config": config, "body": {"elements": list(_card_elements(part, topic))}}


def choice_element(option: str) -> Json:
    """What stands in the place of the buttons when one was pressed."""
    return {"tag": "markdown", "element_id": "choices", "content": f"✓ {without_mentions(option)}"}


def without_mentions(text: str) -> str:
    """Text that pings nobody (and has no half characters, which JSON cannot carry)."""
    return _PINGS.sub("<\u200b", text if text.isascii() else text.encode("utf-8", "replace").decode())


def rich_message(part: FeishuMessage) -> Json:
    """The part as a rich message, where cards are refused."""
    lines = [
        part.panel,
        part.markdown,
        part.foot,
        "\n".join(f"- {without_mentions(option)}" for option in part.options),
    ]
    return {"zh_cn": {"content": [[{"tag": "md", "text": line}] for line in lines if line]}}


def _card_elements(part: FeishuMessage, topic: str) -> Iterator[Json]:
    if part.panel:
        yield {
            "tag": "collapsible_panel",
            "element_id": "panel",
            "expanded": True,
            "header": {"title": {"tag": "plain_text", "content": "Steps"}},
            "elements": [{"tag": "markdown", "element_id": "steps", "content": part.panel}],
        }
    if part.markdown:
        yield {"tag": "markdown", "element_id": "text", "content": part.markdown}
    if part.foot:
        yield {"tag": "markdown", "element_id": "foot", "content": part.foot}
    if part.options:
        buttons = [_option_button(option, part.ask, topic) for option in part.options]
        column = {"tag": "column", "width": "weighted", "weight": 1, "elements": buttons}
        yield {"tag": "column_set", "element_id": "choices", "columns": [column]}


def _option_button(option: str, ask: str, topic: str) -> Json:
    value = {"ask": ask, "option": option, "topic": topic}
    label = {"tag": "plain_text", "content": texts.shorten(option, MAX_LABEL_CHARS) or "…"}
    return {"tag": "button", "text": label, "behaviors": [{"type": "callback", "value": value}]}


# ---------------------------------------------------------------- text


def _split_for_cards(text: str) -> list[str]:
    return [
        chunk
        for section in _split_tables(_card_markdown(text))
        for chunk in split_markdown(section, MAX_CARD_BYTES, card_bytes)
    ]


def _card_markdown(text: str) -> str:
    """Markdown that a card takes: nobody pinged, images as links (a card with an image from elsewhere is refused)."""
    text = without_mentions(text)
    return _linked(text) if "![" in text else text


def _linked(text: str) -> str:
    """Images outside of code as links. In one pass over the marks: a pattern for all of it would look at the rest of
    the text from every mark that is never closed."""
    marks = list(_MARK.finditer(text))
    runs: dict[str, list[int]] = {}  # of backticks, the last first: code ends with a run as long as its first
    for index in reversed(range(len(marks))):
        runs.setdefault(marks[index][0], []).append(index)
    kept, done, index = [], 0, 0
    start, target = -1, False  # of the image that is open, and whether it has come to its target
    while index < len(marks):
        kind, at = marks[index][0], marks[index].start()
        index += 1
        if kind[0] == "`":
            while runs[kind] and runs[kind][-1] < index:
                runs[kind].pop()
            index = runs[kind][-1] + 1 if runs[kind] else index
        elif kind == "![":
            start = at if start < 0 else start
        elif kind == "](" and start >= 0:
            target = True
        elif kind == ")" and target:
            kept.append(text[done:start])
            start, done, target = -1, start + 1, False
        elif kind == "\n" or (kind == "]" and not target):
            start, target = -1, False
    return "".join([*kept, text[done:]])


def _split_tables(text: str) -> list[str]:
    """Cut before the table that would be one too many."""
    lines = text.split("\n")
    cuts, tables, fence = [0], 0, ""
    for number, line in enumerate(lines):
        mark = line.lstrip(" >")[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence and number and "|" in lines[number - 1] and _RULE.fullmatch(line):
            tables += 1
            if tables > MAX_TABLES:
                cuts.append(number - 1)
                tables = 1
    return ["\n".join(lines[start:end]) for start, end in zip(cuts, [*cuts[1:], len(lines)], strict=True)]
