"""Render a reply for Slack: a native stream in a thread with an asker, else a message that is edited.

A stream only grows: text is appended, tasks change their state. An earlier text or an old notice disappears after the
end of the stream, with the one edit that leaves exactly the final reply.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from agent.blocks import NOTED_STEP, Final, View
from agent.messages import Thread
from catalogue import N_, _
from channels.base import ChannelError, OutcomeUnknown, SentMessages, TryLater
from channels.shared.posts import IDEMPOTENT_POSTS
from channels.shared.rate_limit import Priority, RateLimiter
from channels.shared.reply_layout import final_button, live_button, summary_line
from channels.shared.reply_writer import MessageMissing, MessageRenderer
from channels.shared.texts import REPEAT_MARK, expiry_note, with_options
from channels.slack.api import StreamEnded, thread_arguments
from channels.slack.blocks import (
    MAX_TITLE_BYTES,
    STREAM_TEXT_BYTES,
    SlackMessage,
    SlackTask,
    byte_size,
    context_block,
    controls,
    cut_bytes,
    feedback_buttons,
    folded_tasks,
    live_tasks,
    message_arguments,
    question_hint_for,
    split_for_slack,
    stable_prefix,
)
from channels.slack.events import Json
from channels.slack.workspace import Workspace

log = logging.getLogger(__name__)

WORKING = N_("Working…")  # above the tasks of a running turn
METADATA_TYPE = "fawn_reply"
NOTICE_TASK = "notice:"  # the id of the task that shows a notice
SEARCH_SECONDS = 86_400.0  # back in the history, for a message of unknown outcome
MAX_SEARCHED_MESSAGES = 1000
MAX_STREAM_WAIT_SECONDS = 1.0  # for a new stream, before a message is edited instead
END_CHECK_SECONDS = 0.5  # between two looks whether the end of a live reply is likely free

UPDATE, STOP_STREAM = "chat.update", "chat.stopStream"  # which end a live reply

FindWorkspace = Callable[[str], Awaitable[Workspace]]  # by its id; raises ChannelError


@dataclass(slots=True)
class StreamState:
    """The content of one stream."""

    text: str = ""
    tasks: dict[str, SlackTask] = field(default_factory=dict)
    plan: str = ""
    outcome_unknown: bool = False  # of an addition, and so the content

    def missing_chunks(self, part: SlackMessage) -> list[Json] | None:
        """Return the chunks that turn it into `part`, or None if it would have to shrink."""
        text = stable_prefix(part.markdown) if part.live else part.markdown
        if self.outcome_unknown or not text.startswith(self.text):
            return None
        wanted = {task.id: task for task in part.tasks}
        for name, task in self.tasks.items():  # that disappeared: a notice has ended, a call waits for a person
            if name not in wanted and task.status in ("pending", "in_progress"):
                ended = name.startswith((NOTICE_TASK, NOTED_STEP))
                wanted[name] = replace(task, status="complete" if ended else "pending")
        changed = [task for name, task in wanted.items() if self.tasks.get(name) != task]
        chunks: list[Json] = [replace(task, details=self._missing_details(task)).chunk() for task in changed]
        if (wanted or self.plan) and part.plan not in ("", self.plan):
            chunks.append({"type": "plan_update", "title": part.plan})
        if rest := text[len(self.text) :]:
            chunks.append({"type": "markdown_text", "text": rest})
        return chunks

    def _missing_details(self, task: SlackTask) -> str:
        """Return what Slack has to append: nothing to details that have become others."""
        known = self.tasks[task.id].details if task.id in self.tasks else ""
        return task.details.removeprefix(known) if task.details.startswith(known) else ""

    def note_sent(self, chunks: list[Json]) -> None:
        for chunk in chunks:
            match chunk["type"]:
                case "markdown_text":
                    self.text += chunk["text"]
                case "plan_update":
                    self.plan = chunk["title"]
                case _:
                    known = self.tasks.get(chunk["id"])
                    details = (known.details if known else "") + chunk.get("details", "")
                    self.tasks[chunk["id"]] = SlackTask(chunk["id"], chunk["title"], chunk["status"], details)


class SlackRenderer(MessageRenderer[SlackMessage]):
    """The messages of one reply. It has no placeholder: a status or reaction shows the work and notifies nobody."""

    depends_on_calls = True  # a stream that ended is continued as a message

    def __init__(self, find_workspace: FindWorkspace, thread: Thread, posts: SentMessages, to: str, asker: str) -> None:
        self._find_workspace = find_workspace
        self._thread = thread
        self._posts = posts
        self._key = posts.key
        self._to = to
        self._asker = asker
        self._native = bool(thread.topic and asker)
        self._streamed = self._native  # how the reply is split, also after its streams have ended
        self._owed: list[tuple[RateLimiter, str]] = []  # calls that are kept for the end
        self._reserved = ""  # the method of the next live call, for which its limit was waited for
        self._earlier_texts = ""  # that a stream shows before the latest
        self._streams: dict[str, StreamState] = {}
        self._own: set[str] = set()  # messages of this process, in which no older stream is open
        self._indexes = {post.id: post.index for post in posts.known if post.id}

    # ------------------------------------------------------------ rendering

    def render(self, view: View) -> list[SlackMessage]:
        """Render a running turn. A stream shows every text, because it cannot remove one, and a notice as a task."""
        shown = live_tasks(view, streamed=self._streamed)
        notice = view.notice.text if view.notice else ""
        text = view.text.strip()
        if self._native:
            texts = [piece.strip() for piece in view.texts.values() if piece.strip()]
            text = "\n\n".join(texts)
            self._earlier_texts = "".join(f"{piece}\n\n" for piece in texts[:-1])
            if notice:
                shown, notice = (*shown, SlackTask(NOTICE_TASK, cut_bytes(notice, MAX_TITLE_BYTES), "in_progress")), ""
        if not (text or shown or notice):
            return []
        chunks = split_for_slack(text, shown, streamed=self._streamed)
        parts = [SlackMessage(chunk, live=True) for chunk in chunks or [""]]
        parts[0] = replace(parts[0], tasks=shown, plan=_(WORKING) if shown else "")
        command = "" if self._native else live_button(view, self._key)  # a session has its own button
        parts[-1] = replace(parts[-1], notice=notice[:300], command=command)
        return parts

    def render_final(self, final: Final) -> list[SlackMessage]:
        """Render the answer, with the options of an open question. A notification does not change the session."""
        answers = bool(self._asker and not final.mention)
        parts: list[SlackMessage] = []
        tasks = folded_tasks(final, streamed=self._streamed)
        for text, ask in final.messages():
            markdown = "\n\n".join(piece for piece in (text, question_hint_for(ask)) if piece)
            chunks = split_for_slack(markdown, () if parts else tasks, streamed=self._streamed)
            messages = [SlackMessage(chunk, session="processing" if answers else "") for chunk in chunks]
            parts += [*messages[:-1], *(replace(last, ask=ask) for last in messages[-1:])]
        if parts:
            mention = "" if self._is_direct else final.mention
            parts[0] = replace(parts[0], mention=mention, tasks=tasks, plan=summary_line(final))
            status = ("suspended" if final.asks else "active") if answers else ""
            parts[-1] = replace(parts[-1], session=status, command=final_button(final, self._key))
        if final.reader and not self._is_direct:
            parts = [replace(part, reader=final.reader, session="") for part in parts]
        return parts

    def later(self, part: SlackMessage) -> SlackMessage:
        """Leave the session as it is: other work may go on in it."""
        return replace(part, session="")

    def repeat(self, part: SlackMessage) -> SlackMessage:
        return replace(part, mark=_(REPEAT_MARK))

    def plain(self, part: SlackMessage) -> SlackMessage:
        lines = "\n".join(task.line for task in part.tasks)
        text = with_options(part.text or lines or part.notice or "…", part.ask.options if part.ask else ())
        below = [expiry_note(part.ask) if part.ask else "", "" if part.live else part.plan]
        text = "\n\n".join(filter(None, [text, *below]))
        return SlackMessage(text, session=part.session, live=part.live, plain=True)

    @property
    def _is_direct(self) -> bool:
        return self._thread.chat.startswith("D")

    # ------------------------------------------------------------ calls

    async def post(self, part: SlackMessage, index: int, replaced: str) -> str:
        ts = await self._post_or_stream(part, index)
        self._own.add(ts)
        self._indexes[ts] = index
        await self._end_session(part)
        return ts

    async def _post_or_stream(self, part: SlackMessage, index: int) -> str:
        if self._native and part.live and not part.plain and await self._may_stream():
            try:
                return await self._start_stream(part)
            except OutcomeUnknown:
                raise
            except ChannelError as error:  # no stream is possible here or now: edit a message instead
                if isinstance(error, TryLater) and error.after <= MAX_STREAM_WAIT_SECONDS:
                    raise
                log.info("slack.no_stream thread=%s reason=%s", self._thread, error)
                self._native = False
        if part.reader:
            begins_thread = self._to == self._thread.topic  # before a thread exists, Slack shows nothing private in it
            place = replace(self._thread, topic="") if begins_thread else self._thread
            private = {**thread_arguments(place), **message_arguments(part), "user": part.reader}
            return str((await self._call("chat.postEphemeral", **private))["message_ts"])
        message = {**thread_arguments(self._thread), **message_arguments(part), "metadata": self._metadata(index)}
        (await self._workspace()).note_post(self._thread)
        answer = await self._call("chat.postMessage", **message, unfurl_links=False, unfurl_media=False)
        return str(answer["ts"])

    async def _start_stream(self, part: SlackMessage) -> str:
        stream = StreamState()
        chunks = stream.missing_chunks(part) or []
        arguments = thread_arguments(self._thread) | ({"chunks": chunks} if chunks else {})
        if not self._is_direct:
            person = await (await self._workspace()).find_person(self._asker)
            team_id = person.team if person else self._thread.workspace
            arguments |= {"recipient_user_id": self._asker, "recipient_team_id": team_id}
        workspace = await self._workspace()
        workspace.note_post(self._thread)
        starting = workspace.starting_streams
        starting.append(self._thread)
        try:
            ts = str((await self._call("chat.startStream", **arguments, task_display_mode="plan"))["ts"])
        finally:  # the writer records the message before another task runs
            starting.remove(self._thread)
        workspace.note_stream(self._thread)
        stream.note_sent(chunks)
        self._streams[ts] = stream
        return ts

    async def edit(self, message_id: str, part: SlackMessage) -> None:
        if part.reader:
            return  # what one person sees cannot be edited, and never changes
        if stream := self._streams.get(message_id):
            try:
                if not part.plain and await self._append_to_stream(message_id, stream, part):
                    return
                whole = replace(part, text=self._earlier_texts + part.text)
                fits = not (part.live or part.plain) and byte_size(whole.markdown) <= STREAM_TEXT_BYTES
                await self._stop_stream(message_id, stream, (stream.missing_chunks(whole) or []) if fits else [])
            except (StreamEnded, MessageMissing):  # by Slack or a person
                pass
            del self._streams[message_id]
            self._native = False
            if part.live:
                self._own.add(message_id)
                raise TryLater("the stream has ended: edit the message instead", 0.0)
        elif self._thread.topic and message_id not in self._own:  # it may be an open stream of an earlier process
            self._native = False
            with suppress(StreamEnded, MessageMissing):
                await self._stop_stream(message_id, StreamState(), [])
        self._own.add(message_id)
        message = {**message_arguments(part), "metadata": self._metadata(self._indexes.get(message_id, 0))}
        await self._call(UPDATE, live=part.live, ts=message_id, **message)
        await self._end_session(part)

    async def _append_to_stream(self, message_id: str, stream: StreamState, part: SlackMessage) -> bool:
        """Append what is missing, or return False if it would have to shrink. Raises StreamEnded."""
        chunks = stream.missing_chunks(part)
        if chunks is None:
            return False
        try:
            if not part.live:
                final: Json = {"metadata": self._metadata(self._indexes[message_id])}
                blocks = controls(part)
                if part.plan and not stream.tasks:
                    blocks.insert(0, context_block(part.plan))
                if not blocks and part.session == "active":
                    blocks = feedback_buttons()
                final |= {"blocks": blocks} if blocks else {}
                await self._stop_stream(message_id, stream, chunks, part.session, **final)
                del self._streams[message_id]
                if part.session != "processing":
                    (await self._workspace()).end_working(self._thread)
            elif chunks:
                await self._call("chat.appendStream", live=True, ts=message_id, chunks=chunks)
        except OutcomeUnknown:
            stream.outcome_unknown = True
            raise
        stream.note_sent(chunks)
        return True

    async def _stop_stream(
        self, message_id: str, stream: StreamState, chunks: list[Json], session: str = "processing", **final: Any
    ) -> None:
        """End a stream with these chunks, because a streaming message cannot be edited. Raises StreamEnded."""
        limits = (await self._workspace()).api.limits
        if chunks and limits.seconds_until_free(self._thread.chat, STOP_STREAM):
            await self._call("chat.appendStream", ts=message_id, chunks=chunks)  # its limit is higher: show them now
            stream.note_sent(chunks)
            chunks = []
        arguments: Json = {"ts": message_id} | ({"chunks": chunks} if chunks else {})
        try:
            await self._call(STOP_STREAM, **arguments, session_status=session, **final)
        except TryLater:
            if chunks:
                await self._call("chat.appendStream", **arguments)
                stream.note_sent(chunks)
            raise

    async def delete(self, message_id: str) -> None:
        self._streams.pop(message_id, None)
        with suppress(MessageMissing):
            await self._call("chat.delete", ts=message_id)

    async def typing(self) -> None:
        await (await self._workspace()).show_working(self._thread)

    async def find_earlier_post(self, index: int) -> str | None:
        """Find it by its metadata, or a stream as a message without any since the question.

        Slack does not store metadata before a stream ends. If several replies have an unconfirmed stream, it does not
        matter which reply continues which stream.
        """
        workspace = await self._workspace()
        since = self._to if _is_timestamp(self._to) else f"{time.time() - SEARCH_SECONDS:.6f}"
        search: Json = {"channel": self._thread.chat, "oldest": since, "include_all_metadata": True}
        method = "conversations.history"
        if self._thread.topic:
            method, search["ts"] = "conversations.replies", self._thread.topic
        bot_id = (await workspace.identify()).bot_id
        pages = workspace.api.list_pages(method, "messages", MAX_SEARCHED_MESSAGES, **search)
        ours = [entry async for page in pages for entry in page if entry.get("bot_id") == bot_id]
        wanted = self._metadata(index)["event_payload"]
        found = [
            entry["ts"] for entry in reversed(ours) if (entry.get("metadata") or {}).get("event_payload") == wanted
        ]
        if not found and self._thread.topic:
            unmarked = [entry for entry in ours if not (entry.get("metadata") or entry.get("files"))]
            found = [entry["ts"] for entry in unmarked if entry["ts"] != self._thread.topic]
            if found and self._thread in workspace.starting_streams:
                raise TryLater("another reply is starting a stream in this thread", 1.0)
        adopted = await self._posts.adopt(index, found)
        if adopted:
            self._indexes[adopted] = index
        return adopted

    # ------------------------------------------------------------ parts

    async def _workspace(self) -> Workspace:
        return await self._find_workspace(self._thread.workspace)

    async def _call(self, method: str, /, *, live: bool = False, **arguments: Any) -> Json:
        reserved = method == self._reserved
        if reserved:
            self._reserved = ""
        workspace = await self._workspace()
        arguments = {"channel": self._thread.chat, **arguments}
        return await workspace.api(method, live=live, reserved=reserved, **arguments)

    async def reserve(self, priority: Priority) -> None:
        """Wait until the next live call is allowed; before the first one, until the end of the reply is likely free."""
        with suppress(ChannelError):  # the call itself reports it
            limits = (await self._workspace()).api.limits
            if not self._indexes:
                await self._wait_to_go_live(limits)
                method = "chat.startStream" if self._native else "chat.postMessage"
            else:
                method = "chat.appendStream" if self._streams else UPDATE
            if self._reserved != method:
                await limits.acquire(self._thread.chat, priority, method=method)
                self._reserved = method

    async def _wait_to_go_live(self, limits: RateLimiter) -> None:
        while True:
            if self._owed or self._try_to_go_live(limits):
                return
            await asyncio.sleep(END_CHECK_SECONDS)

    def _try_to_go_live(self, limits: RateLimiter) -> bool:
        """Keep the call that will end the reply, of a stream or else of an edited message, if it is likely free."""
        chat = self._thread.chat
        soon = self._native and limits.seconds_until_free(chat, "chat.startStream") <= MAX_STREAM_WAIT_SECONDS
        if soon and limits.end_is_free(chat, STOP_STREAM):
            self._owe(limits, STOP_STREAM)
            return True
        if limits.end_is_free(chat, UPDATE):
            self._native = False
            self._owe(limits, UPDATE)
            return True
        return False

    def _owe(self, limits: RateLimiter, method: str) -> None:
        limits.owe_end(self._thread.chat, method)
        self._owed.append((limits, method))

    def settle_end(self) -> None:
        """Keep no calls any more for the end of the reply."""
        while self._owed:
            limits, method = self._owed.pop()
            limits.settle_end(self._thread.chat, method)

    async def _may_stream(self) -> bool:
        """Return whether a new stream would begin soon, and end. A further one keeps the call for its end."""
        if self._reserved == "chat.startStream":
            return True
        limits = (await self._workspace()).api.limits
        wait = limits.seconds_until_free(self._thread.chat, "chat.startStream")
        if wait > MAX_STREAM_WAIT_SECONDS or not limits.end_is_free(self._thread.chat, STOP_STREAM):
            return False
        self._owe(limits, STOP_STREAM)
        return True

    async def _end_session(self, part: SlackMessage) -> None:
        """End the signs of work after a final message."""
        if part.session not in ("", "processing"):
            asked = self._to if _is_timestamp(self._to) else ""
            (await self._workspace()).end_working(self._thread, part.session, asked)

    def _metadata(self, index: int) -> Json:
        return {"event_type": METADATA_TYPE, "event_payload": {"key": self._key, "index": index}}


class SlackReplyLimit:
    """The rate limit of one reply, as its writer sees it.

    A live call waits here, and so shows the latest state; any other call waits in `SlackApi`.
    """

    idempotent_posts = IDEMPOTENT_POSTS  # a post of unknown outcome is searched for

    def __init__(self, renderer: SlackRenderer) -> None:
        self._renderer = renderer
        self._paused_until = 0.0  # in the loop's time

    async def acquire(self, priority: Priority) -> None:
        if priority is not Priority.FINAL:
            await asyncio.sleep(max(0.0, self._paused_until - asyncio.get_running_loop().time()))
            await self._renderer.reserve(priority)

    def try_acquire(self, priority: Priority) -> bool:
        """Refuse: only placeholders ask, and Slack shows none."""
        return False

    def release_unused(self) -> None:
        """Keep the reservation for the next call."""

    def pause(self, seconds: float) -> None:
        self._paused_until = asyncio.get_running_loop().time() + seconds

    def owe_end(self) -> None:
        """Keep nothing yet: an answer that comes whole is a post, which its channel counts alone."""

    def settle_end(self) -> None:
        self._renderer.settle_end()


def _is_timestamp(message_id: str) -> bool:
    """Return whether it is a message's ts, and not the id of an interaction."""
    return message_id.replace(".", "").isdecimal()
