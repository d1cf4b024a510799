"""A reply as Discord shows it: the pieces of a turn as messages, work going on in an embed, options as components."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from dataclasses import dataclass, replace
from typing import Any

from agent.blocks import Ask, Final, View
from agent.messages import Thread
from channels.base import ChannelError, Refused, SentMessages
from channels.discord.api import DiscordApi, InteractionExpired
from channels.discord.guild_cache import DIRECT_WORKSPACE
from channels.discord.interactions import InteractionTokens
from channels.discord.markdown import to_discord_markdown, without_previews
from channels.discord.threads import DiscordThreads
from channels.shared import texts
from channels.shared.markdown_split import split_markdown, utf16_length
from channels.shared.rate_limit import RateLimitScope
from channels.shared.reply_writer import MessageMissing, ReplyWriter

log = logging.getLogger(__name__)

MAX_MESSAGE_CHARS = 2000  # characters of a message (discord.com/developers/docs/resources/message#create-message)
CHUNK_CHARS = (
    1950  # UTF-16 units (the strictest way to count) of Markdown: leaves room for a mention, the mark of a repeat
)
MAX_PROGRESS_CHARS = 2000  # …of plan and steps (an embed takes 4,096)
MAX_SHOWN_STEPS = 10  # the latest are shown
MAX_BUTTONS, ROW, LABEL = 25, 5, 80  # buttons of a message, of a row, characters of one
MAX_MENUS, CHOICES, CHOICE = 5, 25, 100  # menus of a message, options of one, characters of an option
SUPPRESS_EMBEDS_FLAG = 1 << 2  # SUPPRESS_EMBEDS: takes link previews away, and embeds of ours too
EMBED_COLOUR = 0x5865F2


Json = dict[str, Any]  # the shape is Discord's


@dataclass(frozen=True, slots=True)
class DiscordMessage:
    """One message: text, the embed that shows work going on, an open question, and whom it reaches."""

    text: str
    work: str = ""
    ask: Ask | None = None
    mention: str = ""


class DiscordRenderer:
    """The messages of one reply."""

    def __init__(
        self,
        calls: DiscordApi,
        rooms: DiscordThreads,
        tokens: InteractionTokens,
        thread: Thread,
        posts: SentMessages,
        to: str,
    ) -> None:
        self._calls = calls
        self._rooms = rooms
        self._tokens = tokens
        self._thread = thread
        self._key = posts.key
        self._to = to
        self.posted = asyncio.Event()  # a message took the typing away
        self._lost = 0  # messages that somebody deleted

    # ------------------------------------------------------------ what is shown

    def render(self, view: View) -> list[DiscordMessage]:
        """The work so far: the text, below it plan, latest steps and notice."""
        lines = texts.progress_lines(view, MAX_SHOWN_STEPS)
        if view.notice:
            lines.append(f"⏳ {texts.shorten(view.notice.text, 300)}")
        while len("\n".join(lines)) > MAX_PROGRESS_CHARS:
            del lines[0]
        work = "\n".join(lines)
        chunks = split_markdown(to_discord_markdown(view.text), CHUNK_CHARS, utf16_length)
        if not (chunks or work):
            return []
        parts = [DiscordMessage(chunk) for chunk in chunks] or [DiscordMessage("")]
        parts[-1] = replace(parts[-1], work=work)
        return parts

    def render_final(self, final: Final) -> list[DiscordMessage]:
        """The answer; an open question's options are under its last message."""
        parts: list[DiscordMessage] = []
        for text, ask in final.messages():
            hint = _question_hint(ask) if ask else ""
            more = [
                DiscordMessage(chunk)
                for chunk in split_markdown(
                    to_discord_markdown(f"{text}\n\n{hint}" if hint else text), CHUNK_CHARS, utf16_length
                )
            ]
            parts += [*more[:-1], *(replace(last, ask=ask) for last in more[-1:])]
        if parts and final.mention and self._thread.workspace != DIRECT_WORKSPACE:
            parts[0] = replace(parts[0], mention=final.mention)
        return parts

    def placeholder(self) -> DiscordMessage:
        return DiscordMessage("…")

    def repeat(self, part: DiscordMessage) -> DiscordMessage:
        return replace(part, text=f"{texts.REPEAT_MARK} {part.text}")

    # ------------------------------------------------------------ calls

    async def post(self, part: DiscordMessage, index: int) -> str:
        body = _message_body(part)
        if index == 0 and (token := await self._tokens.take_token(self._to)):
            try:
                return await self._answer_interaction(token, body)
            except InteractionExpired:
                log.debug("discord.expired interaction=%s", self._to)  # a normal post, then
        body |= {"nonce": post_nonce(self._thread, self._key, index, f"{self._to} {self._lost}"), "enforce_nonce": True}

        async def send(room: str) -> Any:
            if reference := self._message_reference(room, part, index):
                body["message_reference"] = {"message_id": reference, "fail_if_not_exists": False}
            return await self._calls("POST", f"/channels/{room}/messages", body)

        answer = await self._rooms.call_in_thread(self._thread, send)
        if _differs_from(answer, part):  # the nonce was used before, by us
            await self._calls("PATCH", f"/channels/{answer['channel_id']}/messages/{answer['id']}", _message_body(part))
        self._rooms.typing_ended(answer["channel_id"])
        self.posted.set()
        if index == 0:
            await self._explain_missing_threads()
        return str(answer["id"])

    async def edit(self, message_id: str, part: DiscordMessage) -> None:
        body = _message_body(part)
        try:
            await self._rooms.call_in_thread(
                self._thread, lambda room: self._calls("PATCH", f"/channels/{room}/messages/{message_id}", body)
            )
        except MessageMissing:
            self._lost += 1  # it is posted anew: the old nonce might give the deleted message back
            raise

    async def delete(self, message_id: str) -> None:
        await self._rooms.call_in_thread(
            self._thread, lambda room: self._calls("DELETE", f"/channels/{room}/messages/{message_id}")
        )

    async def typing(self) -> None:
        await self._rooms.ensure_thread(self._thread)  # the first words need not wait for the thread
        await self._rooms.show_typing(self._thread)

    # ------------------------------------------------------------ parts

    async def _answer_interaction(self, token: str, body: Json) -> str:
        """As the answer that the native command is waiting for."""
        answer = await self._calls("PATCH", f"/webhooks/{token}/messages/@original", body, free=True)
        return str(answer["id"])

    def _message_reference(self, room: str, part: DiscordMessage, index: int) -> str:
        """The message it visibly answers: where the answers of several mix in one channel, and for a ping."""
        if index or self._thread.workspace == DIRECT_WORKSPACE:
            return ""
        if self._rooms.has_no_thread(self._thread):
            return self._thread.topic
        to = self._to if self._to.isdecimal() and not self._tokens.is_known(self._to) else ""
        return to if part.mention or room == self._thread.chat else ""

    async def _explain_missing_threads(self) -> None:
        try:
            await self._rooms.explain_missing_threads(self._thread)
        except ChannelError as error:
            log.debug("discord.explain reason=%s", error)


class TypingReplyWriter(ReplyWriter[DiscordMessage]):
    """A writer that types as long as it works: on Discord an edit shows nobody that work goes on."""

    TYPING = 8.5  # seconds: Discord forgets it after ten

    def __init__(self, surface: DiscordRenderer, posts: SentMessages, place: RateLimitScope) -> None:
        self._posted = surface.posted
        super().__init__(surface, posts, place)

    async def _show_typing(self) -> None:
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


def part_text(part: DiscordMessage) -> str:
    """The content of a part's message."""
    text = without_previews(part.text) if part.work else part.text
    if len(text) > MAX_MESSAGE_CHARS:
        text = part.text
    return f"<@{part.mention}> {text}" if part.mention else text


def _differs_from(answer: Json, part: DiscordMessage) -> bool:
    """A message shows something else than the part that was posted."""
    return str(answer.get("content") or "").strip() != part_text(part).strip()


def _message_body(part: DiscordMessage) -> Json:
    return {
        "content": part_text(part),
        "embeds": [{"description": part.work, "color": EMBED_COLOUR}] if part.work else [],
        "components": _question_components(part.ask) if part.ask else [],
        "flags": 0 if part.work else SUPPRESS_EMBEDS_FLAG,
        "allowed_mentions": {"parse": [], "users": [part.mention] if part.mention else [], "replied_user": False},
    }


def post_nonce(thread: Thread, key: str, index: int, to: str) -> str:
    """The same for the same post, in whatever process: Discord shows it once. At most 25 characters."""
    return hashlib.blake2s(f"{thread} {key} {index} {to}".encode(), digest_size=12).hexdigest()


def _as_buttons(ask: Ask) -> bool:
    return len(ask.options) <= MAX_BUTTONS and all(len(option) <= LABEL for option in ask.options)


def _fits_components(ask: Ask) -> bool:
    return len(ask.options) <= MAX_MENUS * CHOICES


def _question_hint(ask: Ask) -> str:
    return texts.question_hint(ask, fits=_fits_components(ask), label=LABEL if _as_buttons(ask) else CHOICE)


def _question_components(ask: Ask) -> list[Json]:
    """Buttons, five a row; menus when they are many or long."""
    numbered = list(enumerate(ask.options))
    if not _fits_components(ask):
        return []
    if _as_buttons(ask):
        buttons = [
            {"type": 2, "style": 2, "label": texts.shorten(option, LABEL) or "…", "custom_id": f"{ask.id}|{index}"}
            for index, option in numbered
        ]
        return [{"type": 1, "components": buttons[at : at + ROW]} for at in range(0, len(buttons), ROW)]
    rows = []
    for at in range(0, len(numbered), CHOICES):
        options = [
            {"label": texts.shorten(option, CHOICE) or "…", "value": str(index)}
            for index, option in numbered[at : at + CHOICES]
        ]
        rows.append({"type": 1, "components": [{"type": 3, "custom_id": f"{ask.id}|m{at}", "options": options}]})
    return rows
