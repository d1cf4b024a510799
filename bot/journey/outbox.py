"""Deliver outbox rows: one lane per thread, in order, each row once.

Rows are written in the transaction that ends a run. The lane delivers them through the reply that already streams (an
edit), or through a new reply over the stored messages. The type of an error decides about retries. A refused row, and
one that has failed too often for too long, becomes a dead letter. Later rows overtake a row that has failed for a
minute; it is still tried before them. A notice that waited a week for a person is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from agent.backoff import backoff_seconds
from agent.blocks import Final
from agent.messages import Thread
from agent.spans import SpanKind, inside_run, note_here, open_span
from bot.base.background import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS, run_forever, until_stored
from bot.base.log import key_var, run_var, thread_var
from bot.base.stored_files import command_folder, copy_path, row_folder
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute, StorageError
from bot.database.states import OutboxKind, OutboxState
from bot.database.wake_ups import Written
from bot.journey.outbox_posts import (
    AsksInPrivate,
    Redirect,
    item_posts,
    open_home,
    reader_of,
    redirect_answer,
    show_settled,
)
from bot.journey.replies import open_reply
from bot.rights import approvals
from bot.rights.current import Current
from bot.storage import inbox, outbox, sent_messages
from bot.storage.outbox import Holder, OutboxItem
from catalogue import _, list_items, ngettext, use_language
from channels.base import (
    Channel,
    ChannelError,
    ChatGone,
    FilesRefused,
    OutcomeUnknown,
    OutgoingFile,
    Refused,
    Reply,
    TryLater,
    Unattended,
    Unconfirmed,
    WaitsForPerson,
)
from channels.shared.background import BackgroundTasks

log = logging.getLogger(__name__)

RETRY_LIMIT, RETRY_LIMIT_SECONDS = 50, 86400.0  # a row that is older than this and was tried as often is given up
REFUSAL_RETRIES, REFUSAL_SECONDS = 3, 1.5  # of a row whose refusal may pass, and between two; then it goes elsewhere
ANSWERS = (OutboxKind.REPLY, OutboxKind.FILE)
CLAIM_BATCH = 500  # rows claimed at once
NEWS_SECONDS = 7 * 86400.0  # that a notice waits for a person; answers and files wait without an end
LOOK_SECONDS = 10.0  # between looks for rows that came without a wake-up
FILE_SECONDS = 600.0  # that files wait for the process that has them, when it is dead


@dataclass(slots=True)
class Pending:
    """A row in its lane. Times are monotonic."""

    item: OutboxItem
    attempts: int  # in all processes
    failures: int = 0
    refusals: int = 0  # that may pass
    failed: float = 0.0  # for the first time
    due: float = 0.0  # the next attempt
    unattended: bool = False  # since the last attempt
    waits: bool = False  # for a person, since then


@dataclass(slots=True)
class Lane:
    """The rows of one thread, in order."""

    rows: list[Pending] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)


class Outbox:
    """All lanes. `channel` finds a connected channel by name (None while it is away).

    `without` returns the channels that only another process can post to. `asked` returns the questions that go along
    with a refused answer.
    """

    OVERTAKE_SECONDS = 60.0  # a row that fails for longer holds back no other
    UNKNOWN_SECONDS = 5.0  # before a post of unknown outcome is repeated: few repeats are allowed

    def __init__(
        self,
        store: Database,
        channel: Callable[[str], Channel | None],
        current: Current,
        without: Callable[[], Collection[str]] = tuple,
        asked: AsksInPrivate = lambda _execute, _viewer, _now: {},
    ) -> None:
        self._store = store
        self._asked = asked
        self._without = without
        self._channel = channel
        self._current = current
        self._lanes: dict[Thread, Lane] = {}
        self._live: dict[int, Reply] = {}  # run → the reply that streams it
        self._awaited: dict[int, asyncio.Event] = {}  # row → set when it left the outbox
        self._wake = store.listen(Written.OUTBOX)
        self._claiming = False
        self._tasks = BackgroundTasks()

    @property
    def holder(self) -> Holder:
        """As which this process claims rows."""
        return Holder(self._store.me, self._store.is_shared, self._without())

    def adopt_reply(self, run: int, reply: Reply) -> None:
        """Deliver the end of `run` through this reply."""
        self._live[run] = reply

    def give_up_reply(self, run: int) -> None:
        """Deliver the end of `run` through no reply of this process: another one ends it."""
        self._live.pop(run, None)

    def offer(self, items: Sequence[OutboxItem]) -> None:
        """Put rows that were committed as claimed into their lanes."""
        for item in items:
            if item.state == OutboxState.CLAIMED:  # else it waits for what another process delivers there
                self._offer(item)

    def try_again(self, channel: str) -> None:
        """Retry the rows of a channel now: a wait that its old connection had to keep does not bind the new one."""
        for thread, lane in self._lanes.items():
            if thread.channel == channel:
                for row in lane.rows:
                    row.due = 0.0
                lane.more.set()

    async def wait_for(self, keys: Sequence[str], seconds: float) -> None:
        """Wait until the rows with these keys have left the outbox of this process, for so long at most."""
        if not keys or self._store.is_shared:  # another process may deliver them
            return
        look = partial(outbox.undelivered_rows, keys=keys)
        events = {row: asyncio.Event() for row in await self._store.run(look, durable=False)}
        self._awaited |= events
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    for row in events.keys() & {*await self._store.run(look, durable=False)}:  # left in between
                        await events[row].wait()
        finally:
            for row in events:
                del self._awaited[row]

    def waiting_for_people(self) -> frozenset[int]:
        """Return the rows that are delivered when a person comes, and those behind them."""
        lanes = (lane.rows for lane in self._lanes.values() if lane.rows and lane.rows[0].waits)
        return frozenset(row.item.id for rows in lanes for row in rows)

    async def wait_until_idle(self) -> None:
        """Wait until every row that can be delivered now is."""
        self._wake.set()
        while self._wake.is_set() or self._claiming or self._has_attended_lane():  # noqa: ASYNC110 — at the end of the process only
            await asyncio.sleep(0.01)

    def _has_attended_lane(self) -> bool:
        return any(lane.rows and not lane.rows[0].unattended for lane in self._lanes.values())

    async def serve(self) -> None:
        """Hand rows to their lanes until cancelled."""
        try:
            await run_forever("outbox", self._round)
        finally:
            await self._tasks.cancel()

    async def _round(self) -> None:
        self._claiming, late = True, time.time() - FILE_SECONDS
        self._wake.clear()  # before the look: what is written during it is looked at again
        try:
            claim = partial(outbox.claim_rows, holder=self.holder, limit=CLAIM_BATCH, late=late)
            items = await self._store.run(claim)
            self.offer(items)
        finally:
            self._claiming = False
        if len(items) == CLAIM_BATCH:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._wake.wait()

    def _offer(self, item: OutboxItem) -> None:
        lane = self._lanes.get(item.thread)
        if lane is None:
            lane = self._lanes[item.thread] = Lane()
            self._tasks.start(self._run_lane(item.thread, lane), name=f"lane {item.thread}")
        lane.rows.append(Pending(item, item.attempts))
        lane.more.set()

    async def _run_lane(self, thread: Thread, lane: Lane) -> None:
        """Deliver a lane's rows in order. The lane ends in the same step that finds it empty."""
        try:
            while lane.rows:
                lane.more.clear()
                now, open_ = time.monotonic(), self._open(lane)
                due = [number for number, row in enumerate(open_, 1) if row.due <= now]
                for row in open_[: due[-1]] if due else ():  # the first goes first, so that an outage changes no order
                    if await self._try(row):
                        lane.rows.remove(row)
                if lane.rows:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(max(0.0, self._due(lane) - time.monotonic())):
                            await lane.more.wait()
        finally:
            del self._lanes[thread]

    def _open(self, lane: Lane) -> list[Pending]:
        """Return the rows that only rows which have failed for long precede."""
        late = time.monotonic() - self.OVERTAKE_SECONDS
        failing = list(itertools.takewhile(lambda row: row.failures and row.failed <= late, lane.rows))
        return lane.rows[: len(failing) + 1]

    def _due(self, lane: Lane) -> float:
        """Return the monotonic time of the next attempt."""
        open_ = self._open(lane)
        due = min(row.due for row in open_)
        return due if len(open_) == len(lane.rows) else min(due, open_[-1].failed + self.OVERTAKE_SECONDS)

    async def _try(self, row: Pending) -> bool:
        """Try once. Returns whether the row left the outbox, delivered or not."""
        item = row.item
        thread_var.set(str(item.thread))
        run_var.set(str(item.run or ""))
        key_var.set("")  # a lane began in the turn of its first row
        with (
            use_language(item.language),
            inside_run(item.run),
            open_span(SpanKind.DELIVERY, item.thread.channel, sort=item.kind, attempt=row.attempts) as span,
        ):
            try:
                done = await self._deliver(row)
                span.note(outcome="ended" if done else "later")
                if done and (awaited := self._awaited.get(item.id)):
                    awaited.set()
                return done
            except Exception as error:  # the boundary of one row, also of its burial
                span.note(outcome="dead")
                log.exception("outbox.fault row=%d", item.id)
                await self._end_item(item, OutboxState.DEAD, repr(error))
                return True

    async def _deliver(self, row: Pending) -> bool:
        item, channel = row.item, self._channel(row.item.thread.channel)
        if item.thread.channel in self._without():
            await self._drop_live(item)
            await until_stored("outbox", partial(self._store.run, partial(outbox.give_back, row=item.id)))
            return True
        try:
            await self._show_item(item, channel)
        except ChatGone as error:
            try:
                home = await self._open_home(item, channel)
            except (ChannelError, StorageError) as later:
                await self._drop_live(item)
                return await self._put_off(row, later, channel)
            await self._drop_item(item, error, home)
        except Refused as error:
            if error.may_pass and row.refusals < REFUSAL_RETRIES:
                row.refusals += 1
                await self._drop_live(item)
                return await self._put_off(row, error, channel)
            await self._bury_item(item, error, await self._find_home(item, channel, error))
        except (ChannelError, StorageError) as error:
            await self._drop_live(item)
            return await self._put_off(row, error, channel)
        except Exception as error:  # the boundary of one row: a fault must not stop the lane
            log.exception("outbox.fault row=%d", item.id)
            await self._bury_item(item, error)
        else:
            await self._drop_live(item)
            await self._end_item(item, OutboxState.SENT, "")
        return True

    async def _find_home(self, item: OutboxItem, channel: Channel | None, error: Refused) -> Thread | None:
        """Return the private chat that gets what its place refuses for good, whatever the reason.

        Files that are too large or empty are refused there, too.
        """
        if isinstance(error, Unconfirmed) or (item.kind == OutboxKind.FILE and not error.may_pass):
            return None
        try:
            return await self._open_home(item, channel)
        except (ChannelError, StorageError) as later:
            log.warning("outbox.no_private_chat thread=%s reason=%s", item.thread, later)
            return None

    async def _open_home(self, item: OutboxItem, channel: Channel | None) -> Thread | None:
        person = await self._store.run(lambda execute: reader_of(execute, item))
        return await open_home(self._store, channel, person, item.thread)

    async def _show_item(self, item: OutboxItem, channel: Channel | None) -> None:
        if channel is None:
            away = WaitsForPerson if item.thread.channel == "console" else Unattended
            raise away("the channel is not connected", 0.5)
        if item.kind == OutboxKind.FILE:
            await self._send_files(channel, item)
            return
        if item.kind == OutboxKind.SETTLED:
            await show_settled(self._store, self._current, channel, item)
            return
        reply = self._live.get(item.run) if item.run is not None and item.kind == OutboxKind.REPLY else None
        if reply is None:
            to = item.reply_to
            if item.kind == OutboxKind.PING:
                to = await self._store.run(lambda execute: _answer_message_id(execute, item))
            posts = await item_posts(self._store, self._current, item, to)
            reply = open_reply(channel, item.thread, posts, to=to, asker=item.person)
            if item.run is not None and item.kind == OutboxKind.REPLY:
                self._live[item.run] = reply
        final = Final.load(item.payload)
        await reply.finish(final if item.kind == OutboxKind.PING else self._with_age_note(final, item))

    async def _send_files(self, channel: Channel, item: OutboxItem) -> None:
        files, texts = self._outgoing_files(item), _texts_of_files(item)
        await asyncio.to_thread(_write_texts, files, texts)
        try:
            await channel.send_files(
                item.thread, files, await item_posts(self._store, self._current, item, item.reply_to)
            )
        finally:
            if texts:
                await asyncio.to_thread(_discard_copies, files)

    def _outgoing_files(self, item: OutboxItem) -> list[OutgoingFile]:
        data_dir = self._current.config.data_dir
        texts = row_folder(data_dir, item.id)
        return [
            OutgoingFile(
                copy_path(data_dir, file["path"]) if file["path"] else texts / file["name"],
                file["name"],
                file["size"],
                file["caption"],
            )
            for file in _file_entries(item)
        ]

    def _with_age_note(self, final: Final, item: OutboxItem) -> Final:
        """Note in a late reply that it is late."""
        age = time.time() - item.created
        if age < self._current.limits.reply_hours * 3600:
            return final
        note = ngettext(
            "_(Late by {n} hour: I couldn't reach this chat.)_",
            "_(Late by {n} hours: I couldn't reach this chat.)_",
            round(age / 3600),
        )
        return replace(final, text=f"{note}\n\n{final.text}")

    async def _drop_live(self, item: OutboxItem) -> None:
        if item.kind == OutboxKind.REPLY and item.run is not None and (reply := self._live.pop(item.run, None)):
            await reply.close()

    async def _put_off(self, row: Pending, error: Exception, channel: Channel | None) -> bool:
        """Schedule the next attempt after one on `channel`. Returns whether the row failed too long and is given up."""
        item, now = row.item, time.monotonic()
        first, row.unattended = not row.unattended, isinstance(error, Unattended)
        row.waits = isinstance(error, WaitsForPerson)
        if row.waits and item.kind not in ANSWERS and time.time() - item.created >= NEWS_SECONDS:
            log.info("outbox.expired row=%d kind=%s thread=%s", item.id, item.kind, item.thread)
            await self._end_item(item, OutboxState.DROPPED, _reason(error))
            return True
        if isinstance(error, ChannelError) and not row.unattended:
            row.attempts += 1
            if row.attempts >= RETRY_LIMIT and time.time() - item.created >= RETRY_LIMIT_SECONDS:
                await self._bury_item(item, error)
                return True
            await self._count(row, error)
        row.failed = row.failed if row.failures else now
        row.failures += 1
        wait = backoff_seconds(row.failures, MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS)
        if isinstance(error, Refused):
            wait = min(wait, REFUSAL_SECONDS)
        if isinstance(error, TryLater) and channel is self._channel(item.thread.channel):
            wait = max(error.after, min(wait, 5.0) if error.after else wait)
        if isinstance(error, OutcomeUnknown):
            wait = max(wait, self.UNKNOWN_SECONDS)
        row.due = now + wait
        note_here(reason=type(error).__name__)
        level = logging.WARNING if first or not row.unattended else logging.DEBUG
        log.log(
            level, "outbox.later row=%d attempt=%d wait=%.1f reason=%s", item.id, row.failures, wait, _reason(error)
        )
        return False

    async def _count(self, row: Pending, error: ChannelError) -> None:
        try:
            await self._store.run(lambda execute: outbox.record_attempt(execute, row.item.id, row.attempts, str(error)))
        except StorageError as fault:  # the next failure records it, unless the process ends before
            log.error("outbox.uncounted row=%d reason=%s", row.item.id, fault)  # noqa: TRY400 — the reason is enough

    async def _bury_item(self, item: OutboxItem, error: Exception, home: Thread | None = None) -> None:
        """Give a row up: it becomes a dead letter, its chat is notified once, and its words go to `home`."""
        await self._drop_live(item)
        log.error("outbox.dead row=%d kind=%s thread=%s reason=%s", item.id, item.kind, item.thread, _reason(error))
        words, careful = _notice(item, error, is_redirected=home is not None), isinstance(error, Unconfirmed)
        again = await self._redirect(item, error, home)
        await self._end_item(item, OutboxState.DEAD, str(error) or type(error).__name__, words, again, careful=careful)

    async def _drop_item(self, item: OutboxItem, error: ChatGone, home: Thread | None) -> None:
        """Give up a row whose chat is gone: it goes to the private chat of its reader, if there is one.

        An answer and its files are a dead letter, too.
        """
        await self._drop_live(item)
        log.error("outbox.gone row=%d kind=%s thread=%s reason=%s", item.id, item.kind, item.thread, _reason(error))
        state = OutboxState.DEAD if item.kind in ANSWERS else OutboxState.DROPPED
        again = await self._redirect(item, error, home)
        await self._end_item(item, state, str(error) or type(error).__name__, again=again)

    async def _redirect(self, item: OutboxItem, error: Exception, home: Thread | None) -> Redirect | None:
        """Return what goes to `home`: the words of a row, or copies of its files, since a dead letter keeps its own."""
        if home is None:
            return None
        if item.kind != OutboxKind.FILE:
            return Redirect(home, _reason(error), Final.load(item.payload), item.conversation)
        entries = _file_entries(item)
        if isinstance(error, FilesRefused):
            entries = [entry for entry in entries if (refused := error.refused.get(entry["name"])) and refused.may_pass]
        try:
            payload = await asyncio.to_thread(_copy_entries, self._current.config.data_dir, item.id, entries)
        except OSError as fault:
            log.error("outbox.not_copied row=%d reason=%s", item.id, fault.strerror)  # noqa: TRY400 — the reason is enough
            return None
        names = list_items(entry["name"] for entry in entries)
        return Redirect(home, _reason(error), names=names, files=payload)

    async def _end_item(
        self,
        item: OutboxItem,
        state: OutboxState,
        error: str,
        words: str = "",
        again: Redirect | None = None,
        *,
        careful: bool = False,
    ) -> None:
        now = time.time()

        def work(execute: Execute) -> str:
            outbox.end_row(execute, item.id, state, error)
            if item.kind in (OutboxKind.REPLY, OutboxKind.FILE) or state is OutboxState.DEAD:
                kind = AuditKind.DEAD_LETTER if state is OutboxState.DEAD else AuditKind.DELIVERY
                what: dict[str, int | str] = {"id": item.id, "kind": item.kind}
                audit.record(execute, AuditEvent(kind, item.thread, run=item.run, what=what, result=state.name.lower()))
            if again is not None:
                key = f"gone:{item.id}"
                redirect_answer(execute, reader_of(execute, item), again, item.thread, key, now, self._asked)
            if item.kind == OutboxKind.SAY and item.run is not None and state is not OutboxState.SENT:
                approvals.report_unreached(execute, item.thread, item.run, now)
            if words:
                key = f"dead:{item.id}"
                outbox.enqueue_notice(
                    execute, item.thread, words, key=key, now=now, reply_to=item.reply_to, careful=careful
                )
            return inbox.first_key(execute, item.run) if state is OutboxState.SENT and item.run is not None else ""

        # Unrecorded, it would be delivered again. A power failure may undo the end of a reply: its posts are recorded,
        # so they would be edited only.
        durable = state is not OutboxState.SENT or item.kind != OutboxKind.REPLY
        message = await until_stored("outbox", lambda: self._store.run(work, durable=durable))
        if state is OutboxState.SENT:
            log.info("outbox.delivered row=%d kind=%s key=%s", item.id, item.kind, message or "-")
        if state is not OutboxState.DEAD and item.kind == OutboxKind.FILE:
            await asyncio.to_thread(_discard_copies, self._outgoing_files(item))


def _reason(error: Exception) -> str:
    """Return the platform's words, without the names of files."""
    errors = error.refused.values() if isinstance(error, FilesRefused) else [error]
    return "; ".join(dict.fromkeys(str(each) or type(each).__name__ for each in errors))


def _notice(item: OutboxItem, error: Exception, *, is_redirected: bool) -> str:
    """Return the notice about a dead letter; "" for a notice or a ping."""
    if item.kind not in (OutboxKind.REPLY, OutboxKind.FILE):
        return ""
    if item.kind == OutboxKind.FILE:
        if isinstance(error, FilesRefused):
            sentences = (_("I could not send {name}: {reason}", name=n, reason=r) for n, r in error.refused.items())
            return "\n".join(sentences)
        name = list_items(file["name"] for file in _file_entries(item))
        if isinstance(error, Unconfirmed):
            return _("I sent {name}, but got no confirmation. If you can't see it, ask me for it again.", name=name)
        return _("I could not send {name}: {reason}", name=name, reason=error)
    if isinstance(error, Unconfirmed):
        return _("I sent my answer, but got no confirmation. If you can't see it, ask me for it again.")
    if is_redirected:
        return _("I can't post my answer here, so I've sent it to your private chat.")
    return _("I have an answer but can't post it here. Whoever runs me can still deliver it (`fawn dead list`).")


def _answer_message_id(execute: Execute, item: OutboxItem) -> str:
    """Return the message with the end of the run's answer, to which a ping refers."""
    shown = [post.id for post in sent_messages.known_messages(execute, f"r{item.run}") if post.id]
    return shown[-1] if shown else item.reply_to


def _discard_copies(files: Sequence[OutgoingFile]) -> None:
    """Remove the private copies of files, and their folder with the last copy. Retention removes what remains."""
    for file in files:
        try:
            file.path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("outbox.not_removed file=%s reason=%s", file.path, error)
    with contextlib.suppress(OSError):  # it holds other copies, or it is gone
        files[0].path.parent.rmdir()


def _copy_entries(data_dir: Path, row: int, entries: Sequence[dict[str, Any]]) -> bytes:
    """Copy the files of a row into a folder of their own, and return the payload of a row with them. Raises OSError."""
    folder, copies = command_folder(data_dir, "gone", str(row)), []
    folder.mkdir(parents=True, exist_ok=True)
    for number, entry in enumerate(entries):
        copy = folder / f"{number}-{Path(entry['path']).name}"
        if entry["path"] and not copy.exists():
            shutil.copyfile(copy_path(data_dir, entry["path"]), copy)
        copies.append({**entry, "path": str(copy) if entry["path"] else ""})
    return orjson.dumps(copies)


def _file_entries(item: OutboxItem) -> list[dict[str, Any]]:
    raw = orjson.loads(item.payload)
    return raw if isinstance(raw, list) else [raw]  # an older version wrote a row for each file


def _texts_of_files(item: OutboxItem) -> list[str]:
    return [file["text"] for file in _file_entries(item) if "text" in file]


def _write_texts(files: Sequence[OutgoingFile], texts: Sequence[str]) -> None:
    """Write the texts of a row whose files were not copied when it was enqueued."""
    for file, text in zip(files, texts, strict=False):
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_text(text, "utf-8")


def undelivered_file(execute: Execute, run: int, number: int) -> OutgoingFile | None:
    """Return a file of a run that is on its way still, with the stored path of its copy (`copy_path` says where)."""
    item = outbox.find_row(execute, f"run:{run}:files")
    entries = _file_entries(item) if item and item.state in (OutboxState.NEW, OutboxState.CLAIMED) else []
    if number >= len(entries) or not entries[number]["path"]:
        return None
    file = entries[number]
    return OutgoingFile(Path(file["path"]), file["name"], file["size"], file["caption"])


def files_payload(files: Sequence[OutgoingFile]) -> bytes:
    """Return the payload of the files of a run: where their private copies are."""
    return orjson.dumps([{**asdict(file), "path": str(file.path)} for file in files])
