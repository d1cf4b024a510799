"""Render a reply on Discord: text as messages, progress in an embed, options as components."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import logging
import re
from dataclasses import replace
from typing import Any

from agent.blocks import Final, View
from agent.messages import Thread
from catalogue import N_, _
from channels.base import ChannelError, SentMessages, TryLater
from channels.discord.api import NONCE_MARK, ComponentsOnly, DiscordApi, Forbidden, InteractionExpired
from channels.discord.body import (
    CHUNK_UNITS,
    COMPONENTS_FLAG,
    DOCUMENT_NAME,
    MAX_MESSAGE_CHARS,
    MAX_WIDE_UNITS,
    WIDE_UNITS,
    DiscordMessage,
    Json,
    message_body,
    message_content,
    question_hint,
    text_in,
)
from channels.discord.guild_cache import DIRECT_WORKSPACE
from channels.discord.interactions import Interactions
from channels.discord.markdown import to_discord_markdown
from channels.discord.threads import DiscordThreads
from channels.shared import reply_layout, texts
from channels.shared.markdown import cut_units, split_markdown, utf16_length
from channels.shared.rate_limit import ReplyRateLimit
from channels.shared.reply_layout import final_button, live_button
from channels.shared.reply_writer import MessageRenderer, ReplyWriter

log = logging.getLogger(__name__)

MAX_MESSAGES = 3  # of an answer; a file has the rest
REST_FOLLOWS = N_("The answer is long: the rest comes as a file when I am done.")
REST_IN_FILE = N_("The answer is long: the rest is in the file.")
MAX_PROGRESS_CHARS = 2000  # of plan and steps (an embed takes 4,096)
LEAST_PROGRESS_CHARS = 200  # beside a long text, which leaves them less room: else they get a message of their own
MAX_SUMMARY_CHARS = 80  # of the line below an answer, for which every answer leaves room
MAX_STEPS_CHARS = 400  # of the steps below that
MAX_SHOWN_STEPS = 10  # the latest
_FORMATTING = re.compile(r"[\\`*_~|<>\[\]()@#]")


class DiscordRenderer(MessageRenderer[DiscordMessage]):
    """Renders and posts the messages of one reply. Discord shows a repeated nonce once."""

    def __init__(
        self,
        api: DiscordApi,
        threads: DiscordThreads,
        interactions: Interactions,
        thread: Thread,
        posts: SentMessages,
        to: str,
    ) -> None:
        self._api = api
        self._threads = threads
        self._interactions = interactions
        self._thread = thread
        self._posts = posts
        self._to = to
        self._wide: set[str] = set()  # messages that consist of components: they never get a `content` again
        self.posted = asyncio.Event()  # a message has ended the typing indicator

    # ------------------------------------------------------------ rendering

    def render(self, view: View) -> list[DiscordMessage]:
        """Render the running turn: the text; below it plan, latest steps and notice."""
        lines = reply_layout.live_lines(view, MAX_SHOWN_STEPS)
        lines += filter(None, [reply_layout.notice_line(view)])
        parts = self._bounded(_split_text(view.text), REST_FOLLOWS)
        if lines:
            parts = parts or [DiscordMessage("")]
            room = MAX_WIDE_UNITS - utf16_length(parts[-1].text) if parts[-1].is_wide else MAX_PROGRESS_CHARS
            if room < LEAST_PROGRESS_CHARS:
                parts, room = [*parts, DiscordMessage("")], MAX_PROGRESS_CHARS
            shown = reply_layout.join_latest(lines, min(room, MAX_PROGRESS_CHARS), utf16_length)
            parts[-1] = replace(parts[-1], progress=shown, command=live_button(view, self._posts.key))
        return parts

    def render_final(self, final: Final) -> list[DiscordMessage]:
        """Render the answer; the options of an open question are under its last message."""
        parts: list[DiscordMessage] = []
        summary = reply_layout.summary_line(final)
        for text, ask in final.messages():
            hint = question_hint(ask) if ask else ""
            messages = _split_text(f"{text}\n\n{hint}" if hint else text, MAX_SUMMARY_CHARS if summary else 0)
            if not ask:  # a question stays readable
                messages = self._bounded(messages, REST_IN_FILE, as_file=True)
            if messages:
                fold = _fold(final, summary, messages[-1]) if summary else ""
                command = "" if ask else final_button(final, self._posts.key)
                messages[-1], summary = replace(messages[-1], ask=ask, fold=fold, command=command), ""
            parts += messages
        if parts and final.mention and self._thread.workspace != DIRECT_WORKSPACE:
            parts[0] = replace(parts[0], mention=final.mention)
        return parts

    def _bounded(self, parts: list[DiscordMessage], note: str, *, as_file: bool = False) -> list[DiscordMessage]:
        """Put a note in place of the messages from the last allowed one on, with their text as a file."""
        if len(parts) <= MAX_MESSAGES or self._thread.chat in self._threads.chats_without_files:
            return parts
        rest = "\n\n".join(part.text for part in parts[MAX_MESSAGES - 1 :])
        return [*parts[: MAX_MESSAGES - 1], DiscordMessage(f"-# {_(note)}", document=rest if as_file else "")]

    def placeholder(self) -> DiscordMessage:
        return DiscordMessage("…")

    def plain(self, part: DiscordMessage) -> DiscordMessage:
        text = texts.with_options(part.text, part.ask.options) if part.ask else part.text or part.progress
        fold = part.fold.partition("\n")[0]
        most = MAX_WIDE_UNITS if utf16_length(text) > CHUNK_UNITS else MAX_MESSAGE_CHARS
        text = cut_units(text, most - len(f"<@{part.mention}> ") - utf16_length(fold) - 1)
        return DiscordMessage(text, fold=fold, mention=part.mention)

    # ------------------------------------------------------------ calls

    async def post(self, part: DiscordMessage, index: int, replaced: str) -> str:
        body = message_body(part)
        if index == 0:
            try:
                if token := await self._response_token():
                    return self._note_posted(await self._api.edit_response(token, body))
            except InteractionExpired:
                log.debug("discord.expired interaction=%s", self._to)  # a normal post follows
        nonce = post_nonce(self._thread, self._posts.key, index, f"{self._to} {replaced}")
        body |= {"nonce": nonce, "enforce_nonce": True}

        async def send(channel_id: str) -> Any:
            if reference := self._message_reference(channel_id, part, index):
                body["message_reference"] = {"message_id": reference, "fail_if_not_exists": False}
            return await self._send("POST", f"/channels/{channel_id}/messages", body, part)

        answer = await self._threads.call_in_thread(self._thread, send)
        posted = self._note_posted(answer)
        if text_in(answer).strip() != message_content(part).strip():  # an earlier post with this nonce
            await self.edit(posted, part)
        self._threads.clear_typing(answer["channel_id"])
        self.posted.set()
        if index == 0:
            try:
                await self._threads.explain_missing_threads(self._thread)
            except ChannelError as error:
                log.debug("discord.explain reason=%s", error)
        return posted

    async def _response_token(self) -> str:
        """Return the token of the response that this reply fills; "" for a normal post.

        Where an earlier process deferred it, the message that Discord shows is this reply's unless another one has it.
        """
        token = await self._interactions.take_token(self._to)
        if token is not None or not (handle := self._posts.reply_handle):
            return token or ""
        return handle if await self._posts.adopt(0, [await self._api.find_response(handle)]) else ""

    def _note_posted(self, answer: Json) -> str:
        """Return the id of a message that Discord shows."""
        message_id = str(answer["id"])
        if (answer.get("flags") or 0) & COMPONENTS_FLAG:
            self._wide.add(message_id)
        return message_id

    async def edit(self, message_id: str, part: DiscordMessage) -> None:
        """Replace the content. One that consists of components stays so; that of an earlier process is found out."""
        if not (part.is_wide or message_id in self._wide):
            try:
                await self._call_on_message("PATCH", message_id, message_body(part), part)
            except ComponentsOnly:
                log.debug("discord.components message=%s", message_id)
            else:
                return
        self._wide.add(message_id)
        await self._call_on_message("PATCH", message_id, message_body(part, wide=True), part)

    async def _send(self, method: str, path: str, body: Json | None, part: DiscordMessage | None) -> Any:
        """Make a call with the document of a part. Where files are forbidden, the answer is rendered without one."""
        if part is None or not part.document:
            return await self._api(method, path, body)
        try:
            return await self._api(method, path, body, files=[(DOCUMENT_NAME, io.BytesIO(part.document.encode()))])
        except Forbidden:
            self._threads.chats_without_files.add(self._thread.chat)
            raise TryLater("the bot may not attach files here", 0.0) from None

    async def delete(self, message_id: str) -> None:
        await self._call_on_message("DELETE", message_id)

    async def typing(self) -> None:
        await self._threads.ensure_thread(self._thread)  # so that the first post need not wait for it
        await self._threads.show_typing(self._thread)

    async def _call_on_message(
        self, method: str, message_id: str, body: Json | None = None, part: DiscordMessage | None = None
    ) -> None:
        await self._threads.call_in_thread(
            self._thread,
            lambda channel_id: self._send(method, f"/channels/{channel_id}/messages/{message_id}", body, part),
        )

    def _message_reference(self, channel_id: str, part: DiscordMessage, index: int) -> str:
        """Return the message to refer to: outside of a thread of its own, and where the part mentions a user."""
        if index or self._thread.workspace == DIRECT_WORKSPACE:
            return ""
        if self._threads.has_no_thread(self._thread):
            return self._thread.topic
        is_interaction = self._posts.reply_handle or self._interactions.is_interaction(self._to)
        to = self._to if self._to.isdecimal() and not is_interaction else ""
        return to if part.mention or channel_id == self._thread.chat else ""


class TypingReplyWriter(ReplyWriter[DiscordMessage]):
    """Shows typing until the reply ends: Discord does not show users that a message is being edited."""

    TYPING_SECONDS = 8.5  # Discord ends it after ten

    def __init__(self, renderer: DiscordRenderer, posts: SentMessages, rate_limit: ReplyRateLimit) -> None:
        self._posted = renderer.posted
        super().__init__(renderer, posts, rate_limit)

    async def _show_typing(self) -> None:
        while not self._ending:
            self._posted.clear()
            if not await self._try_typing():
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.TYPING_SECONDS):
                    await self._posted.wait()


def _split_text(text: str, spare: int = 0) -> list[DiscordMessage]:
    """Split Markdown into messages: one with a `content` if it fits into that, else ones with a text component."""
    shown = to_discord_markdown(text)
    room = (CHUNK_UNITS if utf16_length(shown) <= CHUNK_UNITS - spare else WIDE_UNITS) - spare
    return [DiscordMessage(chunk) for chunk in split_markdown(shown, room, utf16_length)]


def _fold(final: Final, summary: str, part: DiscordMessage) -> str:
    """Return the summary as small grey text, and below it the steps in one line: Discord cannot fold."""
    room = WIDE_UNITS if part.is_wide else CHUNK_UNITS
    room = min(room - utf16_length(f"{part.text}{summary}") - 2 * len("\n-# "), MAX_STEPS_CHARS)
    lines = [_FORMATTING.sub(r"\\\g<0>", line) for line in reply_layout.folded_lines(final, details=False)]
    steps = reply_layout.join_latest([f"{line} · " for line in lines], room, utf16_length)
    return f"-# {summary}" + (f"\n-# {steps.replace(chr(10), '').removesuffix(' · ')}" if steps else "")


def post_nonce(thread: Thread, key: str, index: int, to: str) -> str:
    """Return the nonce of a post, the same in every process, at most 25 characters. Discord shows it once."""
    return NONCE_MARK + hashlib.blake2s(f"{thread} {key} {index} {to}".encode(), digest_size=11).hexdigest()
