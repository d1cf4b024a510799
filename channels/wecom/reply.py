"""Post a reply on WeCom: streams that answer a message, Markdown where nothing was asked, and cards with buttons.

Streams and cards: developer.work.weixin.qq.com/document/path/101031 and …/101032. Posts of the robot: …/101463.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson

from agent.blocks import Ask, Final, View
from agent.messages import Thread
from catalogue import N_, _
from channels.base import OutcomeUnknown, Refused, SentMessages, TryLater, find_sent_message
from channels.shared import reply_layout, texts
from channels.shared.background import BackgroundTasks
from channels.shared.http_client import RateLimited
from channels.shared.markdown import images_as_links, split_markdown
from channels.shared.rate_limit import SAFETY_FACTOR, CallRate, Priority, RateLimitScope
from channels.shared.reply_layout import button_labels, lay_out
from channels.shared.reply_writer import MessageMissing, MessageRenderer
from channels.wecom.connection import RESPOND, STREAM_ENDED, AnswerEnded, WeComConnection

POST = "post"
POST_LIMITS = [  # of a conversation's messages (…/101463)
    CallRate(calls * SAFETY_FACTOR, seconds, calls * SAFETY_FACTOR, name, per_chat=True, sliding=True)
    for calls, seconds, name in ((30, 60.0, "minute"), (1000, 3600.0, "hour"))
]
MAX_POST_WAIT_SECONDS = 10.0
MAX_TEXT_BYTES = 20_000  # of a message: 20,480
MAX_HEAD_BYTES = 4_000  # of plan and steps above the text
MAX_BUTTONS = 6
MAX_LABEL_CHARS = 40  # of a button: WeCom recommends 10, and shows more
MAX_KEY_BYTES = 1_000  # of what a button sends: 1,024
MAX_CARD_TITLE_CHARS = 60
STREAM_SECONDS = 600.0  # the life of a stream from its first frame on, however many follow
SEAL_SECONDS = 540.0  # after which it is ended in time, and the answer goes on in another one
FREE_FRAMES = 20  # of a stream at any speed; WeCom takes about 85 of one (operators' measurement)…
FRAME_SECONDS = 9.0  # …so that the others are spread over its life

SHOWN = "="  # behind the id of a stream, before what its last frame showed for certain

LOADING = "<think></think>"  # shown as “thinking”; an empty text is no frame
CONTINUES = N_("_Continues below._")
CHOOSE = N_("Choose here")
_THINK = re.compile(r"<(?=/?think\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WeComMessage:
    """One message: text, with `head` folded above it, or a card with the buttons of a question."""

    text: str
    head: str = ""
    ask_id: str = ""
    options: tuple[str, ...] = ()
    final: bool = False
    repeated: bool = False  # it may be visible already

    @property
    def content(self) -> str:
        """The text as WeCom gets it: what stands between `think` marks is folded."""
        mark = f"{_(texts.REPEAT_MARK)}\n\n" if self.repeated else ""
        text = f"{mark}{_unfolded(self.text)}"
        if self.head:
            return f"<think>{_unfolded(self.head)}</think>\n{text}"
        return text or LOADING


class PacedScope(RateLimitScope):
    """The rate limit of an answer, whose frames are spread over the life of its stream."""

    frame_seconds = FRAME_SECONDS
    began = 0.0  # time.monotonic() of the first frame, 0 before
    frames = 0

    async def acquire_post(self) -> None:
        """Wait until the conversation may have another message. Raises TryLater if that takes long."""
        wait = self._limiter.seconds_until_free(self._chat, POST)
        if wait > MAX_POST_WAIT_SECONDS:
            raise RateLimited("WeCom", wait)
        await self._limiter.acquire(self._chat, Priority.FINAL, method=POST)

    def count_frame(self, *, first: bool) -> None:
        """Count a frame of the latest stream."""
        if first:
            self.began, self.frames = time.monotonic(), 0
        self.frames += 1

    def go_on(self, seconds: float) -> None:
        """Go on with a stream of an earlier process, which wrote as many frames in so long as it may have."""
        self.began = time.monotonic() - seconds
        self.frames = FREE_FRAMES + int(seconds / self.frame_seconds)

    async def acquire(self, priority: Priority) -> None:
        due = self.began + (self.frames - FREE_FRAMES) * self.frame_seconds
        if priority is Priority.STREAM and self.began and (wait := due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        await super().acquire(priority)


class WeComRenderer(MessageRenderer[WeComMessage]):
    """Renders and posts the messages of one reply.

    A stream has an id of its own, which Fawn chooses and records before the first frame: the same id again is the same
    message. It contains the time at which it began. Before the last frame, "ID/DIGEST" is recorded, with a digest of
    what that shows: WeCom refuses a repeat because the stream has ended, and only the record tells by what. "md-…" and
    "card-…" are messages that cannot be changed; their ids contain what they show.
    """

    def __init__(
        self,
        line: WeComConnection,
        thread: Thread,
        posts: SentMessages,
        scope: PacedScope,
        background: BackgroundTasks,
        *,
        req_id: str,
        seal_seconds: float,
    ) -> None:
        self._line = line
        self._thread = thread
        self._posts = posts
        self._scope = scope
        self._req_id = req_id  # of the message that is answered; "" where nothing was asked, or it is too old
        self._background = background
        self._seal_seconds = seal_seconds
        self._ids: dict[int, str] = {}  # chosen for the next post of a part
        self._live: dict[str, WeComMessage] = {}  # streams of this process that are not ended, and what they show
        self._seals: dict[str, asyncio.TimerHandle] = {}
        self._last: dict[str, str] = {}  # stream → digest of a last frame whose outcome is unknown, or SHOWN and digest
        self._unsure: set[str] = set()  # streams that have ended, perhaps with the whole answer
        self._earlier = {_stream_of(post.id or post.handle) for post in posts.known}  # streams of other processes

    # ------------------------------------------------------------ rendering

    def render(self, view: View) -> list[WeComMessage]:
        """Render a running turn; nothing where no message is answered, because other posts cannot be changed."""
        if not self._req_id:
            return []
        head = reply_layout.live_head(view, MAX_HEAD_BYTES, _bytes)
        text = "\n\n".join(filter(None, (view.text, reply_layout.notice_line(view))))
        if head and not text:  # what is folded alone is not seen
            return [WeComMessage(head)]
        return _split(text, head)

    def render_final(self, final: Final) -> list[WeComMessage]:
        """Render the answer below its folded steps. The options of an open question are a card of their own."""
        parts: list[WeComMessage] = []
        summary = reply_layout.summary_line(final)
        lines = [summary, *reply_layout.folded_lines(final)] if summary else []
        head = reply_layout.join_latest(lines, MAX_HEAD_BYTES, _bytes) if len(lines) > 1 else ""
        for text, ask in lay_out(final, _fits, MAX_LABEL_CHARS, "" if head else summary):
            parts += [replace(chunk, final=True) for chunk in _split(text, head)]
            head = ""
            if ask:
                parts.append(WeComMessage(ask.question, ask_id=ask.id, options=ask.options, final=True))
        return parts

    def placeholder(self) -> WeComMessage | None:
        return WeComMessage("") if self._req_id else None

    def repeat(self, part: WeComMessage) -> WeComMessage:
        return replace(part, repeated=True)

    def plain(self, part: WeComMessage) -> WeComMessage:
        if not part.options:
            return part
        return WeComMessage(texts.with_options(part.text, part.options), final=True)

    # ------------------------------------------------------------ calls

    async def prepare_post(self, part: WeComMessage, index: int) -> str:
        """Choose the id of a message: that of an earlier attempt of unknown outcome, if it was one of its kind."""
        known = find_sent_message(self._posts, index)
        kind = "card" if part.ask_id else "stream" if self._req_id else "md"
        id = known.handle if known and known.id is None and known.handle.startswith(f"{kind}-") else ""
        if stream := _stream_of(id):
            id, _slash, self._last[stream] = id.partition("/")
        last = uuid.uuid4().hex[:12] if kind == "stream" else f"{uuid.uuid4().hex[:12]}-{_digest(part)}"
        self._ids[index] = id = id or f"{kind}-{int(time.time())}-{last}"
        return f"{id}/{_end_digest(part)}" if kind == "stream" and part.final else id

    async def post(self, part: WeComMessage, index: int, replaced: str) -> str:
        id = self._ids[index]
        await self._scope.acquire_post()
        if part.ask_id:
            await self._send_card(id, part, index)
            return id
        if _stream_of(replaced) in self._unsure and part.final:
            part = self.repeat(part)
        if id.startswith("stream-"):
            try:
                await self._write_frame(id, part, first=True)
            except AnswerEnded:  # the message is too old to be answered
                self._req_id = ""
                if not part.final:
                    raise
            else:
                return f"{id}/{SHOWN}{_end_digest(part)}" if part.final else id
            id = f"md-{id.partition('-')[2]}-{_digest(part)}"
        if self._is_repeat(index):
            part = self.repeat(part)
        await self._line.send_markdown(self._thread, part.content, feedback={"id": id})
        return id

    async def edit(self, message_id: str, part: WeComMessage) -> None:
        """Write the whole text into a stream. Raises MessageMissing when that has ended, and Refused for other posts.

        Where nobody can know what its last frame showed, the text may be visible twice, and is marked.
        """
        if not message_id.startswith("stream-"):
            if message_id.endswith(f"-{_digest(part)}"):
                return  # it shows this
            raise Refused(_("WeCom cannot change a message of the robot."))
        id, _slash, stored = message_id.partition("/")
        last = self._last.setdefault(id, stored)
        if part.final and last == f"{SHOWN}{_end_digest(part)}":
            return
        try:
            if not self._is_young(id) and id not in self._live:
                raise MessageMissing("its stream has ended")
            if part.final:
                await self._record_end(id, part)
            await self._write_frame(id, part)
        except Refused as error:
            self._end(id)
            if last:
                self._unsure.add(id)
            if isinstance(error, AnswerEnded):
                raise MessageMissing(str(error)) from None
            raise

    async def delete(self, message_id: str) -> None:
        """End a stream that has no more to say: nothing can be taken back."""
        if id := _stream_of(message_id):
            with suppress(AnswerEnded):
                await self._write_frame(id, WeComMessage("·", final=True))
            self._end(id)

    async def _write_frame(self, id: str, part: WeComMessage, *, first: bool = False) -> None:
        """Write a frame, which replaces the text of its stream. The last one ends it.

        Raises AnswerEnded if the stream has ended, unless an earlier attempt of the same last frame did that.
        """
        last = self._last.get(id, "")
        if id in self._earlier:
            self._earlier.remove(id)
            self._scope.go_on(time.time() - _began_at(id))
        self._scope.count_frame(first=first)
        try:
            if part.final:
                self._last[id] = _end_digest(part)
            await self._send_frame(id, part, {"feedback": {"id": id}} if first else {})
        except TryLater:  # it was not written
            self._last[id] = last
            raise
        except AnswerEnded as error:
            if not (part.final and error.code == STREAM_ENDED and self._is_young(id) and last == _end_digest(part)):
                raise
        if part.final:
            self._last[id] = f"{SHOWN}{_end_digest(part)}"
            self._end(id)
        else:
            self._live[id] = part
            self._seal_in_time(id)

    async def _record_end(self, id: str, part: WeComMessage) -> None:
        """Record what the last frame of a stream is going to show."""
        found = (post.index for post in self._posts.known if post.id and _stream_of(post.id) == id)
        for index in found:
            await self._posts.sent(index, f"{id}/{_end_digest(part)}")

    def _is_young(self, id: str) -> bool:
        """Return whether a stream cannot have ended by its age."""
        return time.time() - _began_at(id) <= self._seal_seconds

    async def _send_frame(self, id: str, part: WeComMessage, more: Mapping[str, Any]) -> None:
        stream = {"id": id, "finish": part.final, "content": part.content, **more}
        await self._line.call(RESPOND, {"msgtype": "stream", "stream": stream}, self._req_id)

    def _seal_in_time(self, id: str) -> None:
        if id not in self._seals:
            left = max(0.0, _began_at(id) + self._seal_seconds - time.time())
            self._seals[id] = asyncio.get_running_loop().call_later(left, self._begin_seal, id)

    def _begin_seal(self, id: str) -> None:
        self._background.start_best_effort(self._seal(id), f"wecom seal {id}")

    async def _seal(self, id: str) -> None:
        """End a stream that lasts too long, with what it shows: the writer goes on in another one."""
        part = self._live.pop(id, None)
        self._end(id)
        if part:
            text = "\n\n".join(filter(None, (part.text, _(CONTINUES))))
            await self._send_frame(id, replace(part, text=text, final=True), {})

    def _end(self, id: str) -> None:
        self._live.pop(id, None)
        if timer := self._seals.pop(id, None):
            timer.cancel()

    def close(self) -> None:
        for timer in self._seals.values():
            timer.cancel()
        self._seals.clear()

    async def _send_card(self, id: str, part: WeComMessage, index: int) -> None:
        """Post the buttons of a question. Its id is taken once: a refused repeat is visible already."""
        try:
            await self._line.send(self._thread, "template_card", question_card(id, part))
        except OutcomeUnknown:
            raise
        except Refused:
            if not self._is_repeat(index):
                raise

    def _is_repeat(self, index: int) -> bool:
        """Return whether an earlier post of this part may be visible."""
        known = find_sent_message(self._posts, index)
        return known is not None and known.posts > 1


def question_card(task: str, part: WeComMessage) -> dict[str, Any]:
    """Return the buttons of a question, whose text stands above."""
    title = {"title": texts.shorten(part.text, MAX_CARD_TITLE_CHARS) or _(CHOOSE)}
    keys = [orjson.dumps({"ask": part.ask_id, "option": option}).decode() for option in part.options]
    labels = button_labels(part.options, MAX_LABEL_CHARS)
    buttons = [{"text": label, "style": 1, "key": key} for label, key in zip(labels, keys, strict=True)]
    return {"card_type": "button_interaction", "main_title": title, "button_list": buttons, "task_id": task}


def answered_card(task: str, choice: str) -> dict[str, Any]:
    """Return the card that takes the place of one whose button was pressed: its only button has no effect."""
    button = {"text": texts.shorten(choice, MAX_LABEL_CHARS), "style": 4, "key": "-"}
    title = {"title": texts.shorten(choice, MAX_CARD_TITLE_CHARS)}
    return {"card_type": "button_interaction", "main_title": title, "button_list": [button], "task_id": task}


def _fits(ask: Ask) -> bool:
    """Return whether the options of a question can be buttons."""
    keys = (orjson.dumps({"ask": ask.id, "option": option}) for option in ask.options)
    return 0 < len(ask.options) <= MAX_BUTTONS and all(len(key) <= MAX_KEY_BYTES for key in keys)


def _split(text: str, head: str) -> list[WeComMessage]:
    """Split a text into messages, the first one below a folded head."""
    room = MAX_TEXT_BYTES - (_bytes(head) + 20 if head else 0)
    chunks = split_markdown(images_as_links(text), room, _bytes)
    return [WeComMessage(chunk, "" if number else head) for number, chunk in enumerate(chunks or [""] * bool(head))]


def _unfolded(text: str) -> str:
    """Return a text whose own `think` marks fold nothing."""
    return _THINK.sub("<\u200b", text)


def _bytes(text: str) -> int:
    return len(_unfolded(text).encode("utf-8", "replace"))


def _digest(part: WeComMessage) -> str:
    shown = orjson.dumps([part.content, part.ask_id, part.options])
    return hashlib.blake2b(shown, digest_size=6).hexdigest()


def _end_digest(part: WeComMessage) -> str:
    """Return the digest of what the last frame of a stream shows, with or without the mark of a repeat."""
    return _digest(replace(part, repeated=False))


def _stream_of(id: str) -> str:
    """Return the id of a stream in a stored one; "" for another message."""
    return id.partition("/")[0] if id.startswith("stream-") else ""


def _began_at(stream: str) -> float:
    """Return the unix time in the id of a stream."""
    return float(stream.split("-")[1])
