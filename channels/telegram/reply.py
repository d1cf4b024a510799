"""Render a reply for Telegram: messages with entities and buttons."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from agent.blocks import Ask, Final, View
from agent.messages import Thread
from catalogue import _
from channels.base import ChatGone, Refused, TokenRejected
from channels.shared import texts
from channels.shared.caches import TypingActions
from channels.shared.markdown import cut_units, split_markdown, utf16_length
from channels.shared.reply_layout import (
    PREFIX,
    button_label,
    button_labels,
    final_button,
    folded_lines,
    join_latest,
    lay_out,
    live_button,
    live_head,
    notice_line,
    summary_line,
)
from channels.shared.reply_writer import MessageMissing, MessageRenderer
from channels.telegram.api import NotModified, TelegramApi
from channels.telegram.markdown import Entity, to_entities, without_mentions
from channels.telegram.rich import to_rich_html

log = logging.getLogger(__name__)

MAX_MESSAGE_UNITS = 4096  # UTF-16 units of a message (core.telegram.org/bots/api#sendmessage)
CHUNK_UNITS = 4050  # …of Markdown in it; the rest is for REPEAT_MARK
MAX_HEAD_UNITS = 2000  # …of plan and steps above the text
MAX_FOLD_UNITS = 1500  # …of plan and steps below the answer
MAX_SUMMARY_UNITS = 80  # …of the line above those, for which every answer leaves room
MAX_CALLBACK_BYTES = 64  # of a button's data
MAX_BUTTON_ROWS = 8
MAX_BUTTONS_PER_ROW = 8
MAX_LABEL_CHARS = 100  # of a button
NO_PREVIEW = {"is_disabled": True}


TelegramButton = tuple[str, str, str]
APPROVAL_STYLES = ("success", "danger", "", "")  # core.telegram.org/bots/api#inlinekeyboardbutton


@dataclass(frozen=True, slots=True)
class TelegramMessage:
    """One message: plain text before and after some Markdown, and buttons as (label, data, style).

    The `fold` is a quote below all that, of which people see the first lines until they open it.
    """

    markdown: str
    head: str = ""
    foot: str = ""
    fold: str = ""
    buttons: tuple[TelegramButton, ...] = ()
    mention: str = ""  # the user id of the person to notify
    rich: str = ""  # the Markdown as the HTML of a rich message
    plain: bool = False  # without entities


class TelegramRenderer(MessageRenderer[TelegramMessage]):
    """The messages of one reply."""

    def __init__(
        self, api: TelegramApi, thread: Thread, key: str, to: str, typing: TypingActions[Thread], *, rich: bool = False
    ) -> None:
        self._api = api
        self._rich = rich
        self._thread = thread
        self._key = key
        self._group = thread.chat.startswith("-")
        self._to = to if self._group and to.isdecimal() else ""  # a private chat needs no reference to the question
        self._typing = typing
        self._draft_id = zlib.crc32(key.encode()) | 1  # not zero

    # ------------------------------------------------------------ rendering

    def render(self, view: View) -> list[TelegramMessage]:
        """Render a running turn: plan and latest steps, the text, the notice."""
        head = live_head(view, MAX_HEAD_UNITS, utf16_length)
        foot = notice_line(view)
        if not (head or foot or view.text):
            return []
        head, foot = f"{head}\n\n" if head else "", f"\n\n{foot}" if foot else ""
        chunks = split_markdown(
            view.text, CHUNK_UNITS - self._message_units(head) - self._message_units(foot), self._message_units
        ) or [""]
        parts = [TelegramMessage(chunk) for chunk in chunks]
        parts[0] = replace(parts[0], head=head)
        parts[-1] = replace(parts[-1], foot=foot, buttons=_command_buttons(live_button(view, self._key)))
        return parts

    def render_final(self, final: Final) -> list[TelegramMessage]:
        """Render the answer, with the options of an open question as buttons under its last message."""
        parts: list[TelegramMessage] = []
        summary = summary_line(final)
        command = _command_buttons(final_button(final, self._key))
        for text, ask in lay_out(final, _fits, MAX_LABEL_CHARS):
            keys, room = _question_buttons(ask) if ask else command, CHUNK_UNITS - (MAX_SUMMARY_UNITS if summary else 0)
            messages = [TelegramMessage(chunk) for chunk in split_markdown(text, room, self._message_units)]
            if messages:
                fold = self._fold(final, summary, messages[-1]) if summary else ""
                messages[-1], summary = replace(messages[-1], fold=fold, buttons=keys), ""
            parts += messages
        if self._rich:
            parts = [replace(part, rich=to_rich_html(part.markdown, mentions=not self._group)) for part in parts]
        if parts and self._group and final.mention.isdecimal():
            parts[0] = replace(parts[0], mention=final.mention)
        return parts

    def placeholder(self) -> TelegramMessage:
        return TelegramMessage("…")

    def repeat(self, part: TelegramMessage) -> TelegramMessage:
        return replace(part, head=f"{_(texts.REPEAT_MARK)} {part.head}")

    def plain(self, part: TelegramMessage) -> TelegramMessage:
        options = [label for label, data, _ in part.buttons if not data.startswith(PREFIX)]
        text = texts.with_options(part.head + part.markdown + part.foot, options)
        summary = part.fold.partition("\n")[0]
        text = cut_units(text, MAX_MESSAGE_UNITS - utf16_length(summary) - 2)
        return TelegramMessage(f"{text}\n\n{summary}".strip() if summary else text, plain=True)

    # ------------------------------------------------------------ calls

    async def post(self, part: TelegramMessage, index: int, replaced: str) -> str:
        reference: dict[str, Any] = {}
        if self._to and index == 0:
            reference["reply_parameters"] = {"message_id": int(self._to), "allow_sending_without_reply": True}
        message = await self._call_with_text("sendMessage", part, **reference)
        self._typing.forget(self._thread)
        return str(message["message_id"])

    async def edit(self, message_id: str, part: TelegramMessage) -> None:
        try:
            await self._call_with_text("editMessageText", part, message_id=int(message_id))
        except NotModified:
            return

    async def delete(self, message_id: str) -> None:
        try:
            await self._api.call_in_thread(self._thread, "deleteMessage", message_id=int(message_id))
        except MessageMissing:
            return
        except Refused:  # a message older than two days can be edited, but not deleted
            await self.edit(message_id, TelegramMessage("·"))

    async def typing(self) -> None:
        await self._typing.show(self._thread)

    async def probe(self) -> None:
        await self._api.call_in_thread(self._thread, "sendChatAction", action="typing")

    async def draft(self, part: TelegramMessage) -> None:
        await self._call_with_text("sendMessageDraft", part, draft_id=self._draft_id)

    async def _call_with_text(self, method: str, part: TelegramMessage, **arguments: Any) -> Any:
        if part.rich:
            try:
                return await self._call_with_rich_text(method, part, **arguments)
            except (ChatGone, MessageMissing, NotModified):
                raise
            except (Refused, TokenRejected) as error:  # a server without the method answers like to a wrong token
                log.info("telegram.not_rich thread=%s reason=%s", self._thread, error)
        text, entities = _message_entities(part)
        if self._group:
            text, entities = without_mentions(text, entities)
        if part.mention:
            text, entities = _add_mention(part.mention, await self._member_name(part.mention), text, entities)
        if method == "sendMessageDraft":
            arguments["can_stop"] = True
        else:
            arguments["link_preview_options"] = NO_PREVIEW
        if part.buttons:
            arguments["reply_markup"] = {"inline_keyboard": _button_rows(part.buttons)}
        if entities and not part.plain:
            arguments["entities"] = entities
        return await self._api.call_in_thread(self._thread, method, text=text, **arguments)

    async def _call_with_rich_text(self, method: str, part: TelegramMessage, **arguments: Any) -> Any:
        name = escape(await self._member_name(part.mention)) if part.mention else ""
        before = f'<p><a href="tg://user?id={part.mention}">{name}</a>:</p>' if name else ""
        before += f"<p>{escape(part.head)}</p>" if part.head else ""
        summary, _line, steps = part.fold.partition("\n")
        lines = escape(steps, quote=False).replace("\n", "<br>")
        after = f"<details><summary>{escape(summary)}</summary>{lines}</details>" if lines else ""
        after = after or (f"<footer>{escape(summary)}</footer>" if summary else "")
        if part.buttons:
            arguments["reply_markup"] = {"inline_keyboard": _button_rows(part.buttons)}
        rich = {"html": before + part.rich + after}
        method = "sendRichMessage" if method == "sendMessage" else method
        return await self._api.call_in_thread(self._thread, method, rich_message=rich, **arguments)

    async def _member_name(self, user_id: str) -> str:
        try:
            member = await self._api.call_in_thread(self._thread.without_topic, "getChatMember", user_id=int(user_id))
        except Refused:
            return "Psst"
        return str(member["user"]["first_name"])[:64] or "Psst"

    def _fold(self, final: Final, summary: str, part: TelegramMessage) -> str:
        """Return the summary of the steps, and as many of them as the message has room for."""
        room = min(CHUNK_UNITS - self._message_units(part.markdown + summary) - 4, MAX_FOLD_UNITS)
        lines = join_latest(folded_lines(final), room, self._message_units)
        return f"{summary}\n{lines}" if lines else summary

    def _message_units(self, text: str) -> int:
        """Count UTF-16 units; in a group `without_mentions` adds one to each name."""
        return utf16_length(text) + (text.count("@") if self._group else 0)


def choice_arguments(message: Mapping[str, Any], choice: str) -> dict[str, Any]:
    """Return the arguments that show a choice below the text of a question, or {} if it does not fit."""
    text, entities = str(message.get("text") or ""), list(message.get("entities") or ())
    line, _ = without_mentions(choice, [])
    whole = f"{text}\n\n{line}"
    shown = {"text": whole, "entities": entities, "link_preview_options": NO_PREVIEW}
    return shown if text and utf16_length(whole) <= MAX_MESSAGE_UNITS else {}


def _add_mention(user_id: str, name: str, text: str, entities: list[Entity]) -> tuple[str, list[Entity]]:
    """Put a mention before the text. A mention by id needs no user name (…/bots/api#messageentity)."""
    head = f"{name}:\n" if "\n" in text else f"{name}: "
    mention: Entity = {"type": "text_mention", "offset": 0, "length": utf16_length(name), "user": {"id": int(user_id)}}
    moved = [{**entity, "offset": int(entity["offset"]) + utf16_length(head)} for entity in entities]
    return head + text, [mention, *moved]


def _message_entities(part: TelegramMessage) -> tuple[str, list[Entity]]:
    """Return the text and entities of a message. Markdown that would not fit or show nothing stays as it is."""
    if part.plain:
        return part.markdown.encode("utf-8", "replace").decode(), []  # no lone surrogates
    text, entities = to_entities(part.markdown)
    fold = f"\n\n{part.fold}" if part.fold else ""
    whole = part.head + text + part.foot
    if utf16_length(whole + fold) > MAX_MESSAGE_UNITS or (part.markdown.strip() and not text.strip()):
        whole, entities = part.head + part.markdown + part.foot, []
    if part.head and entities:
        shift = utf16_length(part.head)
        entities = [{**entity, "offset": int(entity["offset"]) + shift} for entity in entities]
    if fold:
        quote = {"type": "expandable_blockquote", "offset": utf16_length(whole) + 2, "length": utf16_length(part.fold)}
        entities = [quote, *entities]  # Telegram ignores those beyond the hundredth
    return whole + fold, entities


def _command_buttons(data: str) -> tuple[TelegramButton, ...]:
    return ((button_label(data), data, ""),) if data else ()


def _fits(ask: Ask) -> bool:
    """Return whether the options of a question can be buttons."""
    longest = len(f"{ask.id}|{len(ask.options) - 1}".encode())
    return len(ask.options) <= MAX_BUTTON_ROWS * MAX_BUTTONS_PER_ROW and longest <= MAX_CALLBACK_BYTES


def _question_buttons(ask: Ask) -> tuple[TelegramButton, ...]:
    styles = APPROVAL_STYLES if ask.approval else ("",) * len(ask.options)
    labels = button_labels(ask.options, MAX_LABEL_CHARS)
    return tuple((label, f"{ask.id}|{n}", styles[n]) for n, label in enumerate(labels))


def _button_rows(shown: tuple[TelegramButton, ...]) -> list[list[dict[str, str]]]:
    """Arrange one button per row, or more if there would be too many rows."""
    width = -(-len(shown) // MAX_BUTTON_ROWS)
    keys = [
        {"text": label, "callback_data": data} | ({"style": style} if style else {}) for label, data, style in shown
    ]
    return [keys[at : at + width] for at in range(0, len(keys), width)]
