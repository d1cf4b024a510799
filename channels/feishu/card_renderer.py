"""Render a reply as Feishu cards (JSON 2.0), within the limits of a card.

open.feishu.cn/document/feishu-cards/card-json-v2-structure
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import orjson
from markdown_it import MarkdownIt

from agent.blocks import Ask, Final, View
from agent.messages import Kind, Message
from catalogue import N_, _
from channels.shared import texts
from channels.shared.markdown import images_as_links, split_markdown
from channels.shared.reply_layout import (
    PRESSED,
    button_label,
    final_button,
    folded_lines,
    join_latest,
    lay_out,
    live_button,
    live_lines,
    notice_line,
    summary_line,
)

MAX_CARD_BYTES = 22_000  # of text as JSON: a card takes 30 KB with its progress, buttons and frame
MAX_PROGRESS_BYTES = 3_000  # of plan and steps
MAX_TABLES = 5  # Feishu refuses a card with more
MAX_BUTTONS = 20
MAX_LABEL_CHARS = 100  # of a button
MAX_SHOWN_STEPS = 30  # the latest
MAX_SUMMARY_CHARS = 80  # in the list of chats
CHOICES = "choices"  # id of the element with the buttons
APPROVAL_STYLES = ("primary", "danger", "default", "default")
STEPS_TITLE = N_("Steps")

_MENTION_TAG = re.compile(r"<(?=/?(?:at|person)\b)", re.IGNORECASE)
_CODE_OR_TAG = re.compile(  # code within a line, which stays as it is, or the start of a mention
    rf"(?<![`\\])(?P<mark>`++).*?(?<!`)(?P=mark)(?!`)|{_MENTION_TAG.pattern}", re.IGNORECASE
)
_BLOCKS = MarkdownIt("commonmark").disable("inline")  # finds fences
_NO_NAME = re.compile(r"[|>`~=]|[-*+] |\d+[.)] |.{200}|.*\|")  # begins what is no line that names a table
_TABLE_RULE = re.compile(r"[ >]*+\|?(?: *:?-+:? *\|)+(?: *:?-+:?)? *")  # the line below a table's header

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FeishuMessage:
    """One card: Markdown, above it a panel with the progress, below it a notice, and the buttons of a question.

    The panel of an ended turn is folded, and its `summary` the title. `command` is the data of a button that sends one.
    A `final` card no longer streams. `mention` is the open id of a person. A `quote` refers to the message it answers.
    """

    text: str
    progress: str = ""
    summary: str = ""
    notice: str = ""
    mention: str = ""
    ask_id: str = ""
    options: tuple[str, ...] = ()
    approval: bool = False  # the options are "Approve" and "Deny"
    command: str = ""
    final: bool = False
    quote: bool = False
    plain: bool = False  # bare text in a card, or a rich message

    @property
    def keeps_buttons(self) -> bool:
        """Whether it has buttons that a press replaces, for which each names its card."""
        return bool(self.options or (self.command and self.final))

    @property
    def text_with_mention(self) -> str:
        return (f"<at id={self.mention}></at> " if self.mention else "") + self.text


def card_bytes(text: str) -> int:
    """Return the size of a text inside a card."""
    return len(orjson.dumps(text)) - 2


def render_live(view: View, reply: str) -> list[FeishuMessage]:
    """Render the running turn: plan and steps in a panel, the text, the notice."""
    shown = _panel_text(live_lines(view, MAX_SHOWN_STEPS))
    notice = without_mentions(notice_line(view))
    if not (shown or notice or view.text):
        return []
    parts = [FeishuMessage(chunk) for chunk in _split_for_cards(view.text)] or [FeishuMessage("")]
    parts[0] = replace(parts[0], progress=shown)
    parts[-1] = replace(parts[-1], notice=notice, command=live_button(view, reply))
    return parts


def render_final_cards(final: Final, reply: str, *, direct: bool) -> list[FeishuMessage]:
    """Render the answer; the options of an open question are buttons on its last card.

    In a `direct` chat nobody is mentioned: every message notifies the person.
    """
    parts: list[FeishuMessage] = []
    for text, ask in lay_out(final, _fits, MAX_LABEL_CHARS):
        cards = [FeishuMessage(chunk, final=True) for chunk in _split_for_cards(text)]
        if cards and ask:
            options = tuple(map(without_mentions, ask.options))
            cards[-1] = replace(cards[-1], ask_id=ask.id, options=options, approval=ask.approval)
        parts += cards
    if parts:
        folded = _panel_text(folded_lines(final))
        parts[0] = replace(parts[0], progress=folded, summary=summary_line(final))
        parts[-1] = replace(parts[-1], command=final_button(final, reply))
    if parts and final.mention:
        parts[0] = replace(parts[0], mention="" if direct else final.mention, quote=True)
    return parts


def _fits(ask: Ask) -> bool:
    return 0 < len(ask.options) <= MAX_BUTTONS


def _panel_text(lines: Iterable[str]) -> str:
    return join_latest(map(without_mentions, lines), MAX_PROGRESS_BYTES, card_bytes)


def card_json(part: FeishuMessage, topic: str, card_id: str) -> Json:
    """Return the whole card. A click returns the `topic` and the `card_id`."""
    config: Json = {"update_multi": True, "streaming_mode": not part.final}
    if part.final:
        config["summary"] = {"content": texts.shorten(part.text, MAX_SUMMARY_CHARS)}
    else:
        config["streaming_config"] = {
            "print_frequency_ms": {"default": 30},
            "print_step": {"default": 5},
            "print_strategy": "fast",
        }
    return {"schema": "2.0", "config": config, "body": {"elements": list(_card_elements(part, topic, card_id))}}


def choice_element(press: Message) -> Json:
    """Return the element that shows the choice in place of the buttons. It names a person without notifying them."""
    if press.kind is Kind.COMMAND:
        line = texts.text_for(press, PRESSED[press.text])
    else:  # open.feishu.cn/document/feishu-cards/card-json-v2-components/content-components/rich-text
        person = f"<person id='{press.author.id}' show_name=true show_avatar=false style='normal'></person>"
        line = texts.choice_line(without_mentions(press.text), person)
    return {"tag": "markdown", "element_id": CHOICES, "content": line}


def answered_card(card: Json, press: Message) -> Json:
    """Return a card with the choice in place of the buttons."""
    elements = card["body"]["elements"]
    shown = [choice_element(press) if each.get("element_id") == CHOICES else each for each in elements]
    return {**card, "body": {"elements": shown}}


def without_mentions(text: str) -> str:
    """Return the text without mentions, and without lone surrogates, which JSON cannot encode."""
    return _MENTION_TAG.sub("<\u200b", text if text.isascii() else text.encode("utf-8", "replace").decode())


def rich_message(part: FeishuMessage) -> Json:
    """Return the part as a rich message, for apps that may not send cards."""
    options = "\n".join(f"- {without_mentions(option)}" for option in part.options)
    lines = [part.text_with_mention, part.notice, options, part.summary]
    return {"zh_cn": {"content": [[{"tag": "md", "text": line}] for line in lines if line]}}


def _card_elements(part: FeishuMessage, topic: str, card_id: str) -> Iterator[Json]:
    if part.plain:
        yield _plain_element("text", f"{part.text}\n\n{part.summary}" if part.summary else part.text)
        return
    if part.progress:
        yield {
            "tag": "collapsible_panel",
            "element_id": "panel",
            "expanded": not part.summary,
            "header": {"title": {"tag": "plain_text", "content": part.summary or _(STEPS_TITLE)}},
            "elements": [_plain_element("steps", part.progress)],
        }
    elif part.summary:
        yield _plain_element("panel", part.summary)
    if part.text_with_mention:
        yield {"tag": "markdown", "element_id": "text", "content": part.text_with_mention}
    if part.notice:
        yield {"tag": "markdown", "element_id": "foot", "content": part.notice}
    value = {"topic": topic, "card": card_id}
    styles = APPROVAL_STYLES if part.approval else ("default",) * len(part.options)
    asked = zip(part.options, styles, strict=False)
    buttons = [_button(option, style, {**value, "ask": part.ask_id, "option": option}) for option, style in asked]
    if part.command:
        buttons.append(_button(button_label(part.command), "default", {**value, "command": part.command}))
    if buttons:
        column = {"tag": "column", "width": "weighted", "weight": 1, "elements": buttons}
        yield {"tag": "column_set", "element_id": CHOICES, "columns": [column]}


def _plain_element(element_id: str, text: str) -> Json:
    return {"tag": "div", "element_id": element_id, "text": {"tag": "plain_text", "content": text}}


def _button(text: str, style: str, value: Json) -> Json:
    label = {"tag": "plain_text", "content": texts.shorten(text, MAX_LABEL_CHARS) or "…"}
    return {"tag": "button", "text": label, "type": style, "behaviors": [{"type": "callback", "value": value}]}


# ---------------------------------------------------------------- text


def _split_for_cards(text: str) -> list[str]:
    return [
        chunk
        for section in _split_tables(_card_markdown(text))
        for chunk in split_markdown(section, MAX_CARD_BYTES, card_bytes)
    ]


def _card_markdown(text: str) -> str:
    """Convert Markdown for a card: no mentions, and links for images, because Feishu refuses foreign images."""
    text = text if text.isascii() else text.encode("utf-8", "replace").decode()
    text = _without_mentions_outside_code(text) if _MENTION_TAG.search(text) else text
    return images_as_links(text)


def _without_mentions_outside_code(text: str) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    code = {
        number
        for token in _BLOCKS.parse("\n".join(lines))
        if token.type == "fence" and token.map
        for number in range(*token.map)
    }
    quiet = [line if number in code else _CODE_OR_TAG.sub(_quiet_tag, line) for number, line in enumerate(lines)]
    return "\n".join(quiet)


def _quiet_tag(found: re.Match[str]) -> str:
    return found[0] if found["mark"] else "<\u200b"


def _split_tables(text: str) -> list[str]:
    """Cut the text before every table that exceeds the limit of a card."""
    lines = text.split("\n")
    cuts, tables, fence = [0], 0, ""
    for number, line in enumerate(lines):
        mark = line.lstrip(" >")[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence and number and "|" in lines[number - 1] and _TABLE_RULE.fullmatch(line):
            tables += 1
            if tables > MAX_TABLES:
                cuts.append(_start_of_table(lines, number - 1, cuts[-1]))
                tables = 1
    return ["\n".join(lines[start:end]) for start, end in zip(cuts, [*cuts[1:], len(lines)], strict=True)]


def _start_of_table(lines: list[str], head: int, first: int) -> int:
    """Return the line from `first` on at which a table begins with what names it: a line, and the headings above."""
    start, may_name = head, True
    for number in range(head - 1, first, -1):
        line, above = lines[number].strip(), lines[number - 1].strip()
        if line.startswith("#") or (line and may_name and not above and not _NO_NAME.match(line)):
            start, may_name = number, False
        elif line:
            break
    return start
