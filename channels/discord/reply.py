"""A reply as Discord shows it: the pieces of a turn as messages, work going on in an embed, options as components."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from dataclasses import dataclass, replace
from typing import Any

from agent.conversation import Ask, Final, Thread, View
from channels.base import ChannelError, Posts, Refused
from channels.discord.api import Calls, Expired
from channels.discord.guild_cache import DIRECT
from channels.discord.interactions import Tokens
from channels.discord.markdown import convert, quiet
from channels.discord.threads import Rooms
from channels.shared import texts
from channels.shared.markdown_split import split, utf16
from channels.shared.rate_limit import Place
from channels.shared.reply_writer import Missing, Writer

log = logging.getLogger(__name__)

LIMIT = 2000  # characters of a message (discord.com/developers/docs/resources/message#create-message)
CHUNK = 1950  # UTF-16 units (the strictest way to count) of Markdown: leaves room for a mention, the mark of a repeat
WORK = 2000  # …of plan and steps (an embed takes 4,096)
STEPS = 10  # the latest are shown
BUTTONS, ROW, LABEL = 25, 5, 80  # buttons of a message, of a row, characters of one
MENUS, CHOICES, CHOICE = 5, 25, 100  # menus of a message, options of one, characters of an option
NO_PREVIEWS = 1 << 2  # SUPPRESS_EMBEDS: takes link previews away, and embeds of ours too
COLOUR = 0x5865F2


Json = dict[str, Any]  # the shape is Discord's


@dataclass(frozen=True, slots=True)
class Part:
    """One message: text, the embed that shows work going on, an open question, and whom it reaches."""

    text: str
    work: str = ""
    ask: Ask | None = None
    mention: str = ""


class Surface:
    """The messages of one reply."""

    def __init__(self, calls: Calls, rooms: Rooms, tokens: Tokens, thread: Thread, posts: Posts, to: str) -> None:
        self._calls = calls
        self._rooms = rooms
        self._tokens = tokens
        self._thread = thread
        self._key = posts.key
        self._to = to
        self.posted = asyncio.Event()  # a message took the typing away
        self._lost = 0  # messages that somebody deleted

    # ------------------------------------------------------------ what is shown

    def render(self, view: View) -> list[Part]:
        """The work so far: the text, below it plan, latest steps and notice."""
        lines = texts.work(view, STEPS)
        if view.notice:
            lines.append(f"⏳ {texts.short(view.notice.text, 300)}")
        while len("\n".join(lines)) > WORK:
            del lines[0]
        work = "\n".join(lines)
        chunks = split(convert(view.text), CHUNK, utf16)
        if not (chunks or work):
            return []
        parts = [Part(chunk) for chunk in chunks] or [Part("")]
        parts[-1] = replace(parts[-1], work=work)
        return parts

    def render_final(self, final: Final) -> list[Part]:
        """The answer; an open question's options are under its last message."""
        parts: list[Part] = []
        for text, ask in final.messages():
            hint = _hint(ask) if ask else ""
            more = [Part(chunk) for chunk in split(convert(f"{text}\n\n{hint}" if hint else text), CHUNK, utf16)]
            parts += [*more[:-1], *(replace(last, ask=ask) for last in more[-1:])]
        if parts and final.mention and self._thread.workspace != DIRECT:
            parts[0] = replace(parts[0], mention=final.mention)
        return parts

    def placeholder(self) -> Part:
        return Part("…")

    def repeat(self, part: Part) -> Part:
        return replace(part, text=f"{texts.REPEAT} {part.text}")

    # ------------------------------------------------------------ calls

    async def post(self, part: Part, index: int) -> str:
        body = _body(part)
        if index == 0 and (token := await self._tokens.take(self._to)):
            try:
                return await self._answer(token, body)
            except Expired:
                log.debug("discord.expired interaction=%s", self._to)  # a normal post, then
        body |= {"nonce": nonce(self._thread, self._key, index, f"{self._to} {self._lost}"), "enforce_nonce": True}

        async def send(room: str) -> Any:
            if reference := self._reference(room, part, index):
                body["message_reference"] = {"message_id": reference, "fail_if_not_exists": False}
            return await self._calls("POST", f"/channels/{room}/messages", body)

        answer = await self._rooms.into(self._thread, send)
        if _differs(answer, part):  # the nonce was used before, by us
            await self._calls("PATCH", f"/channels/{answer['channel_id']}/messages/{answer['id']}", _body(part))
        self._rooms.typed(answer["channel_id"])
        self.posted.set()
        if index == 0:
            await self._explain()
        return str(answer["id"])

    async def edit(self, message_id: str, part: Part) -> None:
        body = _body(part)
        try:
            await self._rooms.into(
                self._thread, lambda room: self._calls("PATCH", f"/channels/{room}/messages/{message_id}", body)
            )
        except Missing:
            self._lost += 1  # it is posted anew: the old nonce might give the deleted message back
            raise

    async def delete(self, message_id: str) -> None:
        await self._rooms.into(
            self._thread, lambda room: self._calls("DELETE", f"/channels/{room}/messages/{message_id}")
        )

    async def typing(self) -> None:
        await self._rooms.enter(self._thread)  # the first words need not wait for the thread
        await self._rooms.type(self._thread)

    # ------------------------------------------------------------ parts

    async def _answer(self, token: str, body: Json) -> str:
        """As the answer that the native command is waiting for."""
        answer = await self._calls("PATCH", f"/webhooks/{token}/messages/@original", body, free=True)
        return str(answer["id"])

    def _reference(self, room: str, part: Part, index: int) -> str:
        """The message it visibly answers: where the answers of several mix in one channel, and for a ping."""
        if index or self._thread.workspace == DIRECT:
            return ""
        if self._rooms.barred(self._thread):
            return self._thread.topic
        to = self._to if self._to.isdecimal() and not self._tokens.known(self._to) else ""
        return to if part.mention or room == self._thread.chat else ""

    async def _explain(self) -> None:
        try:
            await self._rooms.explain(self._thread)
        except ChannelError as error:
            log.debug("discord.explain reason=%s", error)


class LiveWriter(Writer[Part]):
    """A writer that types as long as it works: on Discord an edit shows nobody that work goes on."""

    TYPING = 8.5  # seconds: Discord forgets it after ten

    def __init__(self, surface: Surface, posts: Posts, place: Place) -> None:
        self._posted = surface.posted
        super().__init__(surface, posts, place)

    async def _type(self) -> None:
        while not self._ending:
            self._posted.clear()
            try:
                await self._surface.typing()
            except Refused:
                return
            except ChannelError as error:
                log.debug("discord.typing reason=%s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.TYPING):
                    await self._posted.wait()


def part_text(part: Part) -> str:
    """The content of a part's message."""
    text = quiet(part.text) if part.work else part.text
    if len(text) > LIMIT:
        text = part.text
    return f"<@{part.mention}> {text}" if part.mention else text


def _differs(answer: Json, part: Part) -> bool:
    """A message shows something else than the part that was posted."""
    return str(answer.get("content") or "").strip() != part_text(part).strip()


def _body(part: Part) -> Json:
    return {
        "content": part_text(part),
        "embeds": [{"description": part.work, "color": COLOUR}] if part.work else [],
        "components": _components(part.ask) if part.ask else [],
        "flags": 0 if part.work else NO_PREVIEWS,
        "allowed_mentions": {"parse": [], "users": [part.mention] if part.mention else [], "replied_user": False},
    }


def nonce(thread: Thread, key: str, index: int, to: str) -> str:
    """The same for the same post, in whatever process: Discord shows it once. At most 25 characters."""
    return hashlib.blake2s(f"{thread} {key} {index} {to}".encode(), digest_size=12).hexdigest()


def _as_buttons(ask: Ask) -> bool:
    return len(ask.options) <= BUTTONS and all(len(option) <= LABEL for option in ask.options)


def _fits(ask: Ask) -> bool:
    return len(ask.options) <= MENUS * CHOICES


def _hint(ask: Ask) -> str:
    return texts.hint(ask, fits=_fits(ask), label=LABEL if _as_buttons(ask) else CHOICE)


def _components(ask: Ask) -> list[Json]:
    """Buttons, five a row; menus when they are many or long."""
    numbered = list(enumerate(ask.options))
    if not _fits(ask):
        return []
    if _as_buttons(ask):
        buttons = [
            {"type": 2, "style": 2, "label": texts.short(option, LABEL) or "…", "custom_id": f"{ask.id}|{index}"}
            for index, option in numbered
        ]
        return [{"type": 1, "components": buttons[at : at + ROW]} for at in range(0, len(buttons), ROW)]
    rows = []
    for at in range(0, len(numbered), CHOICES):
        options = [
            {"label": texts.short(option, CHOICE) or "…", "value": str(index)}
            for index, option in numbered[at : at + CHOICES]
        ]
        rows.append({"type": 1, "components": [{"type": 3, "custom_id": f"{ask.id}|m{at}", "options": options}]})
    return rows
