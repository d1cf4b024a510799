"""Render a reply for Matrix: Markdown as HTML, edits as its stream, options by numbers and reactions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.blocks import Final, View
from agent.messages import Thread
from channels.base import SentMessages, find_sent_message
from channels.matrix.api import Json, MatrixNotFound, UnknownEvent, new_id
from channels.matrix.events import QUESTION
from channels.matrix.html import folded, text_as_html, to_html
from channels.matrix.sender import EventSender, fits, thread_relation
from channels.shared import texts
from channels.shared.markdown import split_markdown
from channels.shared.reply_layout import folded_lines, join_latest, live_lines, notice_line, summary_line
from channels.shared.reply_writer import MessageMissing, MessageRenderer

MAX_TEXT_BYTES = 12_000  # of Markdown: as HTML it is longer, and an edit has both
MAX_HEAD_BYTES, MAX_FOLD_BYTES = 2_000, 4_000
MAX_SHOWN_STEPS = 8
MAX_REACTIONS = 9  # there are keycaps up to nine
MAX_FALLBACK_CHARS = 200  # of an edit, for clients that show no edits
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class MatrixMessage:
    """One message: lines above its Markdown and below it, and the question whose options it lists."""

    text: str
    head: str = ""
    foot: str = ""
    summary: str = ""
    fold: str = ""  # the lines that open below the summary
    mention: str = ""
    ask_id: str = ""
    options: tuple[str, ...] = ()
    is_plain: bool = False  # without HTML


class MatrixRenderer(MessageRenderer[MatrixMessage]):
    """Renders and posts the messages of one reply. A repeated post is one event, by its transaction id."""

    def __init__(
        self,
        sender: EventSender,
        thread: Thread,
        posts: SentMessages,
        to: str,
        on_question: Callable[[str, MatrixMessage], None],
    ) -> None:
        self._sender = sender
        self._thread = thread
        self._posts = posts
        self._to = to
        self._on_question = on_question
        self._unknown: set[int] = set()  # parts that an earlier process may have posted with another content…
        self._tried: set[str] = set()  # …and transactions of this one that may have been taken
        self._ending = False

    # ------------------------------------------------------------ rendering

    def render(self, view: View) -> list[MatrixMessage]:
        """Render a running turn: plan and latest steps, the text, the notice."""
        head = join_latest(live_lines(view, MAX_SHOWN_STEPS), MAX_HEAD_BYTES, byte_length)
        foot = notice_line(view)
        if not (head or foot or view.text):
            return []
        chunks = split_markdown(clean(view.text), MAX_TEXT_BYTES - byte_length(head + foot), byte_length) or [""]
        parts = [MatrixMessage(chunk) for chunk in chunks]
        parts[0] = replace(parts[0], head=clean(head))
        parts[-1] = replace(parts[-1], foot=clean(foot))
        return parts

    def render_final(self, final: Final) -> list[MatrixMessage]:
        """Render the answer, with its steps folded below the first text and the options as numbered lines."""
        self._ending = True
        parts: list[MatrixMessage] = []
        summary = clean(summary_line(final))
        lines = join_latest(folded_lines(final), MAX_FOLD_BYTES, byte_length) if summary else ""
        for text, ask in final.messages():
            hint = texts.question_hint(ask, has_buttons=False, max_label_chars=0) if ask else ""
            whole = clean("\n\n".join(filter(None, (text, hint))))
            messages = [MatrixMessage(chunk) for chunk in split_markdown(whole, MAX_TEXT_BYTES, byte_length)]
            if messages and summary:
                messages[-1], summary = replace(messages[-1], summary=summary, fold=clean(lines)), ""
            if messages and ask:
                options = tuple(map(clean, ask.options))
                messages[-1] = replace(messages[-1], ask_id=ask.id, options=options)
            parts += messages
        if parts and final.mention.startswith("@") and self._thread.topic:
            parts[0] = replace(parts[0], mention=final.mention)
        return parts

    def plain(self, part: MatrixMessage) -> MatrixMessage:
        return replace(part, fold="", is_plain=True)

    # ------------------------------------------------------------ calls

    async def prepare_post(self, part: MatrixMessage, index: int) -> str:
        await self._sender.prepare(self._thread.chat)
        known = find_sent_message(self._posts, index)
        if known and known.id is None:
            self._unknown.add(index)
        return ""

    async def post(self, part: MatrixMessage, index: int, replaced: str) -> str:
        content, room = self._content(part), self._thread.chat
        transaction = transaction_id(self._thread, self._posts.key, index, f"{self._to} {replaced}")
        again = index in self._unknown or transaction in self._tried
        self._tried.add(transaction)
        try:
            relation = thread_relation(self._thread, self._to)
            message = await self._sender.send(room, "m.room.message", content | relation, transaction)
        except UnknownEvent:  # the thread's first message is not in this room, such as after an upgrade of the room
            message = await self._sender.send(room, "m.room.message", content, transaction)
        self._sender.typing.forget(room)
        if again:  # the server may have kept the content of the earlier attempt
            await self._send_edit(message, part)
        self._unknown.discard(index)
        self._tried.discard(transaction)
        self._note_question(message, part)
        return message

    async def edit(self, message_id: str, part: MatrixMessage) -> None:
        """Replace a message. At the end of a reply, look first whether it is there: the server takes all edits."""
        if message_id in self._sender.rooms.redacted or (self._ending and await self._is_gone(message_id)):
            raise MessageMissing("it was deleted")
        await self._send_edit(message_id, part)
        self._note_question(message_id, part)

    async def delete(self, message_id: str) -> None:
        await self._sender.redact(self._thread.chat, message_id)

    async def typing(self) -> None:
        await self._sender.typing.show(self._thread.chat)

    async def _is_gone(self, message_id: str) -> bool:
        try:
            return await self._sender.fetch_content(self._thread.chat, message_id) is None
        except MatrixNotFound:
            return True

    async def _send_edit(self, message_id: str, part: MatrixMessage) -> None:
        new = self._content(part)
        edit = {
            "msgtype": new["msgtype"],
            "body": f"* {new['body'][:MAX_FALLBACK_CHARS]}",
            "m.mentions": {},
            "m.new_content": new,
            "m.relates_to": {"rel_type": "m.replace", "event_id": message_id},
        }
        try:
            await self._sender.send(self._thread.chat, "m.room.message", edit, new_id())
        except UnknownEvent as error:
            raise MessageMissing(str(error)) from None

    def _note_question(self, message_id: str, part: MatrixMessage) -> None:
        if part.options:
            self._on_question(message_id, part)

    def _content(self, part: MatrixMessage) -> Json:
        return message_content(part, self._sender.rooms.room(self._thread.chat).names.get(part.mention, ""))


def message_content(part: MatrixMessage, name: str = "") -> Json:
    """Return the content of a message. `name` is that of the person whom it mentions. Nobody else is notified."""
    person = f"{name or part.mention}: " if part.mention else ""
    body = "\n\n".join(filter(None, (part.head, person + part.text, part.foot, part.summary)))
    content: Json = {"msgtype": "m.text", "body": body, "m.mentions": {}}
    if part.mention:
        content["m.mentions"] = {"user_ids": [part.mention]}
    if part.options:
        content[QUESTION] = {"id": part.ask_id, "options": [option[:1000] for option in part.options[:MAX_REACTIONS]]}
    html = "" if part.is_plain else _html_of(part, name)
    if html:
        formatted = content | {"format": "org.matrix.custom.html", "formatted_body": html}
        content = formatted if fits(formatted) else content
    return content if fits(content) else {key: value for key, value in content.items() if key != QUESTION}


def _html_of(part: MatrixMessage, name: str) -> str:
    """Return the HTML of a message, "" for one that shows the same without it."""
    text = to_html(part.text)
    if not (text or part.head or part.foot or part.fold or part.mention):
        return ""
    person = ""
    if part.mention:
        address = text_as_html(part.mention).replace('"', "%22")
        person = f'<a href="https://matrix.to/#/{address}">{text_as_html(name or part.mention)}</a>: '
    head, foot = (f"<p>{text_as_html(line)}</p>" if line else "" for line in (part.head, part.foot))
    below = folded(part.summary, part.fold) if part.summary else ""
    return head + person + (text or text_as_html(part.text)) + foot + below


def transaction_id(thread: Thread, key: str, index: int, to: str) -> str:
    """Return the transaction id of a post, the same in every process."""
    return "fawn-" + hashlib.blake2s(f"{thread} {key} {index} {to}".encode(), digest_size=16).hexdigest()


def clean(text: str) -> str:
    """Return a text without what servers cannot store: control characters and lone surrogates."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").encode("utf-8", "replace").decode())


def byte_length(text: str) -> int:
    """Return the length of a text in JSON, about: as UTF-8, with what JSON escapes."""
    return len(text.encode("utf-8", "replace")) + text.count('"') + text.count("\\") + text.count("\n")
