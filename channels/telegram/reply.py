"""A reply as Telegram shows it: the pieces of a turn as messages, with entities and buttons."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

from agent.conversation import Ask, Final, Thread, View
from channels.base import Refused
from channels.shared import texts
from channels.shared.markdown_split import split, utf16
from channels.shared.reply_writer import Missing
from channels.telegram.api import Calls, Same, Typing, Unparsable
from channels.telegram.markdown import Entity, convert, quiet

LIMIT = 4096  # UTF-16 units of a message (core.telegram.org/bots/api#sendmessage)
CHUNK = 4050  # …of Markdown: leaves room for the mark of a repeat
HEAD = 2000  # …of plan and steps at most, above the text
DATA = 64  # bytes of a button's data
ROWS = 8  # of buttons
LABEL = 100  # characters of a button
STEPS = 8  # the latest are shown


@dataclass(frozen=True, slots=True)
class Part:
    """One message: plain text before and after some Markdown, and buttons as (label, data)."""

    markdown: str
    head: str = ""
    foot: str = ""
    buttons: tuple[tuple[str, str], ...] = ()
    mention: str = ""  # the person (user id) whom it shall reach


class Surface:
    """The messages of one reply."""

    def __init__(self, calls: Calls, thread: Thread, key: str, to: str, typing: Typing) -> None:
        self._calls = calls
        self._thread = thread
        self._group = thread.chat.startswith("-")
        self._to = to if self._group and to.isdecimal() else ""  # in a private chat it is plain whom one answers
        self._typing = typing
        self._draft_id = zlib.crc32(key.encode()) | 1  # not zero

    # ------------------------------------------------------------ what is shown

    def render(self, view: View) -> list[Part]:
        """The work so far: plan and latest steps, the text, the notice."""
        lines = texts.work(view, STEPS)
        while utf16("\n".join(lines)) > HEAD:
            del lines[0]
        head = "\n".join(lines)
        foot = f"⏳ {texts.short(view.notice.text, 300)}" if view.notice else ""
        if not (head or foot or view.text):
            return []
        head, foot = f"{head}\n\n" if head else "", f"\n\n{foot}" if foot else ""
        chunks = split(view.text, CHUNK - self._size(head) - self._size(foot), self._size) or [""]
        parts = [Part(chunk) for chunk in chunks]
        parts[0] = replace(parts[0], head=head)
        parts[-1] = replace(parts[-1], foot=foot)
        return parts

    def render_final(self, final: Final) -> list[Part]:
        """The answer; an open question's options are buttons under its last message."""
        parts: list[Part] = []
        for text, ask in final.messages():
            buttons, hint = _buttons(ask) if ask else ((), "")
            more = [Part(chunk) for chunk in split(f"{text}\n\n{hint}" if hint else text, CHUNK, self._size)]
            parts += [*more[:-1], *(replace(last, buttons=buttons) for last in more[-1:])]
        if parts and self._group and final.mention.isdecimal():
            parts[0] = replace(parts[0], mention=final.mention)
        return parts

    def placeholder(self) -> Part:
        return Part("…")

    def repeat(self, part: Part) -> Part:
        return replace(part, head=f"{texts.REPEAT} {part.head}")

    # ------------------------------------------------------------ calls

    async def post(self, part: Part, index: int) -> str:
        more: dict[str, Any] = {}
        if self._to and index == 0:
            more["reply_parameters"] = {"message_id": int(self._to), "allow_sending_without_reply": True}
        message = await self._text("sendMessage", part, **more)
        self._typing.ended(self._thread)
        return str(message["message_id"])

    async def edit(self, message_id: str, part: Part) -> None:
        try:
            await self._text("editMessageText", part, message_id=int(message_id))
        except Same:
            return

    async def delete(self, message_id: str) -> None:
        try:
            await self._calls.into(self._thread, "deleteMessage", message_id=int(message_id))
        except Missing:
            return
        except Refused:  # older than two days: it cannot go, but it can be emptied
            await self.edit(message_id, Part("·"))

    async def typing(self) -> None:
        await self._typing.show(self._thread)

    async def draft(self, part: Part) -> None:
        await self._text("sendMessageDraft", part, draft_id=self._draft_id)

    async def _text(self, method: str, part: Part, **arguments: Any) -> Any:
        text, entities = shown(part)
        if self._group:
            text, entities = quiet(text, entities)
        if part.mention:
            text, entities = _mentioning(part.mention, await self._name(part.mention), text, entities)
        if method != "sendMessageDraft":
            arguments["link_preview_options"] = {"is_disabled": True}
        if part.buttons:
            arguments["reply_markup"] = {"inline_keyboard": _rows(part.buttons)}
        try:
            return await self._calls.into(
                self._thread, method, text=text, **({"entities": entities} if entities else {}), **arguments
            )
        except Unparsable:
            if not entities:
                raise
            return await self._calls.into(self._thread, method, text=text, **arguments)

    async def _name(self, person: str) -> str:
        """What a member of the chat is called."""
        try:
            member = await self._calls.into(replace(self._thread, topic=""), "getChatMember", user_id=int(person))
        except Refused:
            return "Psst"
        return str(member["user"]["first_name"])[:64] or "Psst"

    def _size(self, text: str) -> int:
        """UTF-16 units; in a group a name costs one more (`quiet`)."""
        return utf16(text) + (text.count("@") if self._group else 0)


def _mentioning(person: str, name: str, text: str, entities: list[Entity]) -> tuple[str, list[Entity]]:
    """The text with a mention before it. One by user id works for everybody (…/bots/api#messageentity)."""
    head = f"{name}:\n" if "\n" in text else f"{name}: "
    mention: Entity = {"type": "text_mention", "offset": 0, "length": utf16(name), "user": {"id": int(person)}}
    moved = [{**entity, "offset": int(entity["offset"]) + utf16(head)} for entity in entities]
    return head + text, [mention, *moved]


def shown(part: Part) -> tuple[str, list[Entity]]:
    """The text of a part and its entities. Markdown that would not fit or show nothing is left as it is."""
    text, entities = convert(part.markdown)
    whole = part.head + text + part.foot
    if utf16(whole) > LIMIT or (part.markdown.strip() and not text.strip()):
        return part.head + part.markdown + part.foot, []
    if part.head and entities:
        shift = utf16(part.head)
        entities = [{**entity, "offset": int(entity["offset"]) + shift} for entity in entities]
    return whole, entities


def _buttons(ask: Ask) -> tuple[tuple[tuple[str, str], ...], str]:
    """The buttons of a question, and what has to be said in words besides."""
    data = [f"{ask.id}|{index}" for index in range(len(ask.options))]
    fits = all(len(entry.encode()) <= DATA for entry in data) and len(data) <= ROWS * ROWS
    buttons = tuple((texts.short(option, LABEL) or "…", entry) for option, entry in zip(ask.options, data, strict=True))
    return (buttons if fits else ()), texts.hint(ask, fits=fits, label=LABEL)


def _rows(buttons: tuple[tuple[str, str], ...]) -> list[list[dict[str, str]]]:
    """One button a row, more where there would be too many rows."""
    width = -(-len(buttons) // ROWS)
    keys = [{"text": label, "callback_data": data} for label, data in buttons]
    return [keys[at : at + width] for at in range(0, len(keys), width)]
