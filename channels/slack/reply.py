"""A reply as Slack shows it: a native stream where there is a thread and somebody who asked, else a message that is
changed.

A stream only grows: text is appended, tasks change their state. What the picture loses (an earlier text, a notice that
is over) goes when the stream has ended, with the one change of the message that leaves exactly the final.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from agent.blocks import Final, View
from agent.messages import Thread
from channels.base import ChannelError, OutcomeUnknown, SentMessages, TryLater
from channels.shared.reply_writer import MessageMissing
from channels.shared.texts import REPEAT_MARK
from channels.slack.api import Json, StreamEnded, thread_arguments
from channels.slack.blocks import (
    CHUNK_CHARS,
    MAX_SHOWN_STEPS,
    MAX_STREAM_TASKS,
    SlackMessage,
    SlackTask,
    message_arguments,
    progress_tasks,
    question_controls,
    question_hint_for,
    split_for_slack,
    stable_prefix,
)
from channels.slack.workspace import Workspace

log = logging.getLogger(__name__)

METADATA_TYPE = "fawn_reply"
RECENT_SECONDS = 86_400.0  # seconds back in which a message of unknown outcome is looked for

Find = Callable[[str], Awaitable[Workspace]]  # the workspace of that name; raises ChannelError


@dataclass(slots=True)
class StreamState:
    """What one stream shows so far."""

    text: str = ""
    tasks: dict[str, SlackTask] = field(default_factory=dict)
    lost: bool = False  # an addition went out and no answer came: nobody knows what it shows

    def missing_chunks(self, part: SlackMessage) -> list[Json] | None:
        """The chunks that bring it to `part`; None when no addition can."""
        text = stable_prefix(part.markdown) if part.live else part.markdown
        if self.lost or not text.startswith(self.text):
            return None
        wanted = {task.id: task for task in part.tasks}
        for name, task in self.tasks.items():  # what is not mentioned any more is over
            if name not in wanted and task.status in ("pending", "in_progress"):
                wanted[name] = replace(task, status="complete")
        chunks: list[Json] = [task.chunk() for name, task in wanted.items() if self.tasks.get(name) != task]
        if rest := text[len(self.text) :]:
            chunks.append({"type": "markdown_text", "text": rest})
        return chunks

    def sent_chunks(self, chunks: list[Json]) -> None:
        for chunk in chunks:
            if chunk["type"] == "markdown_text":
                self.text += chunk["text"]
            else:
                known = SlackTask(chunk["id"], chunk["title"], chunk["status"], chunk.get("details", ""))
                self.tasks[known.id] = known


class SlackRenderer:
    """The messages of one reply."""

    def __init__(self, find: Find, thread: Thread, posts: SentMessages, to: str, asker: str) -> None:
        self._find = find
        self._thread = thread
        self._key = posts.key
        self._to = to
        self._asker = asker
        self._native = bool(thread.topic and asker)
        self._before = ""  # the texts that a stream shows before the latest
        self._streams: dict[str, StreamState] = {}
        self._own: set[str] = set()  # no stream of an earlier life can be open in these
        self._indexes = {post.id: post.index for post in posts.known if post.id}

    # ------------------------------------------------------------ what is shown

    def render(self, view: View) -> list[SlackMessage]:
        """The work so far. A stream shows every text, because it can take none back; a notice is one of its tasks."""
        shown = progress_tasks(
            view.plan, list(view.steps.values()), most=MAX_STREAM_TASKS if self._native else MAX_SHOWN_STEPS
        )
        notice = view.notice.text if view.notice else ""
        text = view.text
        if self._native:
            texts = [piece.strip() for piece in view.texts.values() if piece.strip()]
            text = "\n\n".join(texts)
            self._before = "".join(f"{piece}\n\n" for piece in texts[:-1])
            if notice:
                shown, notice = (*shown, SlackTask("notice", notice[:200], "in_progress")), ""
        if not (text or shown or notice):
            return []
        parts = [SlackMessage(chunk, live=True) for chunk in split_for_slack(text) or [""]]
        parts[0] = replace(parts[0], tasks=shown)
        parts[-1] = replace(parts[-1], notice=notice[:300])
        return parts

    def render_final(self, final: Final) -> list[SlackMessage]:
        """The answer; an open question's options are under its last message. A ping says nothing of the work."""
        ours = bool(self._thread.topic and self._asker and not final.mention)
        parts: list[SlackMessage] = []
        for text, ask in final.messages():
            said = "\n\n".join(piece for piece in (text, question_hint_for(ask)) if piece)
            more = [SlackMessage(chunk, session="processing" if ours else "") for chunk in split_for_slack(said)]
            parts += [*more[:-1], *(replace(last, ask=ask) for last in more[-1:])]
        if parts:
            parts[0] = replace(parts[0], mention="" if self._is_direct else final.mention)
            status = ("suspended" if final.asks else "active") if ours else ""
            parts[-1] = replace(parts[-1], session=status)
        return parts

    def placeholder(self) -> None:
        """A status or a reaction says it: a message without content would only notify people of nothing."""

    def repeat(self, part: SlackMessage) -> SlackMessage:
        return replace(part, mark=REPEAT_MARK)

    @property
    def _is_direct(self) -> bool:
        return self._thread.chat.startswith("D")

    # ------------------------------------------------------------ calls

    async def post(self, part: SlackMessage, index: int) -> str:
        team = await self._find(self._thread.workspace)
        ts = await self._post_or_stream(team, part, index)
        self._own.add(ts)
        self._indexes[ts] = index
        self._end_session(team, part)
        return ts

    async def _post_or_stream(self, team: Workspace, part: SlackMessage, index: int) -> str:
        if self._native and part.live:
            try:
                return await self._start_stream(team, part)
            except OutcomeUnknown:
                raise
            except ChannelError as error:  # no streams here, or too many of late: messages can be changed, too
                if isinstance(error, TryLater) and error.after <= 1.0:
                    raise
                log.info("slack.no_stream thread=%s reason=%s", self._thread, error)
                self._native = False
        answer = await team.calls(
            "chat.postMessage",
            **thread_arguments(self._thread),
            **message_arguments(part),
            metadata=self._metadata(index),
            unfurl_links=False,
            unfurl_media=False,
        )
        return str(answer["ts"])

    async def _start_stream(self, team: Workspace, part: SlackMessage) -> str:
        stream = StreamState()
        chunks = stream.missing_chunks(part) or []
        to: Json = {}
        if not self._is_direct:  # there, whom it is for is clear
            person = await team.people.find_person(self._asker, self._thread.workspace)
            to["recipient_user_id"] = self._asker
            to["recipient_team_id"] = person.team if person else self._thread.workspace
        if chunks:
            to["chunks"] = chunks
        answer = await team.calls("chat.startStream", **thread_arguments(self._thread), **to, task_display_mode="plan")
        stream.sent_chunks(chunks)
        self._streams[str(answer["ts"])] = stream
        return str(answer["ts"])

    async def edit(self, message_id: str, part: SlackMessage) -> None:
        team = await self._find(self._thread.workspace)
        if stream := self._streams.get(message_id):
            try:
                if await self._append_to_stream(team, message_id, stream, part):
                    return
                whole = replace(part, text=self._before + part.text)  # it is seen before the rest is folded away
                fits = not part.live and len(whole.markdown) <= CHUNK_CHARS
                await self._stop_stream(team, message_id, stream, (stream.missing_chunks(whole) or []) if fits else [])
            except (StreamEnded, MessageMissing):  # Slack ended it, or a person did
                pass
            del self._streams[message_id]
            self._native = False
        elif self._thread.topic and message_id not in self._own:  # it may be a stream of an earlier life
            self._native = False
            with suppress(StreamEnded, MessageMissing):
                await self._stop_stream(team, message_id, StreamState(), [])
        self._own.add(message_id)
        await (team.calls.live_call if part.live else team.calls)(
            "chat.update",
            channel=self._thread.chat,
            ts=message_id,
            **message_arguments(part),
            metadata=self._metadata(self._indexes.get(message_id, 0)),
        )
        self._end_session(team, part)

    def _end_session(self, team: Workspace, part: SlackMessage) -> None:
        """Say in which status a final part leaves the thread."""
        if part.session not in ("", "processing"):
            team.end_working(self._thread, part.session)

    async def _append_to_stream(
        self, team: Workspace, message_id: str, stream: StreamState, part: SlackMessage
    ) -> bool:
        """Add what is missing; False when that is not possible. Raises Ended."""
        chunks = stream.missing_chunks(part)
        if chunks is None:
            return False
        try:
            if not part.live:
                ends = {"blocks": question_controls(part.ask)} if part.ask else {}
                metadata = self._metadata(self._indexes[message_id])
                await self._stop_stream(team, message_id, stream, chunks, part.session, **ends, metadata=metadata)
                del self._streams[message_id]
                if part.session != "processing":
                    team.end_working(self._thread)
            elif chunks:
                await team.calls.live_call("chat.appendStream", channel=self._thread.chat, ts=message_id, chunks=chunks)
        except OutcomeUnknown:
            stream.lost = True
            raise
        stream.sent_chunks(chunks)
        return True

    async def _stop_stream(
        self,
        team: Workspace,
        message_id: str,
        stream: StreamState,
        chunks: list[Json],
        session: str = "processing",
        **more: Any,
    ) -> None:
        """End a stream with these chunks: a message cannot be changed while it is one. Raises Ended."""
        address: Json = {"channel": self._thread.chat, "ts": message_id} | ({"chunks": chunks} if chunks else {})
        try:
            await team.calls("chat.stopStream", **address, session_status=session, **more)
        except TryLater:
            if chunks:  # few streams may be ended in a minute, but many additions made: show it at least
                await team.calls("chat.appendStream", **address)
                stream.sent_chunks(chunks)
            raise

    async def delete(self, message_id: str) -> None:
        team = await self._find(self._thread.workspace)
        self._streams.pop(message_id, None)
        try:
            await team.calls("chat.delete", channel=self._thread.chat, ts=message_id)
        except MessageMissing:
            return

    async def typing(self) -> None:
        team = await self._find(self._thread.workspace)
        await team.show_working(self._thread)

    async def find_earlier_post(self, index: int) -> str | None:
        """By its metadata; a stream has none before its end, and is the only such message since the question."""
        team = await self._find(self._thread.workspace)
        since = self._to if self._to.replace(".", "").isdecimal() else f"{time.time() - RECENT_SECONDS:.6f}"
        where: Json = {"channel": self._thread.chat, "oldest": since, "include_all_metadata": True}
        method = "conversations.history"
        if self._thread.topic:
            method, where["ts"] = "conversations.replies", self._thread.topic
        me, pages = await team.identify(), team.calls.list_all(method, "messages", 1000, **where)
        ours = [entry async for page in pages for entry in page if entry.get("bot_id") == me.bot]
        wanted = self._metadata(index)["event_payload"]
        found = [entry["ts"] for entry in ours if (entry.get("metadata") or {}).get("event_payload") == wanted]
        if not found and index == 0 and self._thread.topic:
            found = [
                e["ts"] for e in ours if not (e.get("metadata") or e.get("files") or e["ts"] == self._thread.topic)
            ]
        if not found:
            return None
        self._indexes[found[-1]] = index
        return str(found[-1])

    # ------------------------------------------------------------ parts

    def _metadata(self, index: int) -> Json:
        return {"event_type": METADATA_TYPE, "event_payload": {"key": self._key, "index": index}}
