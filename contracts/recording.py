"""An in-memory inbox and in-memory sent messages, for tests of channels."""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from agent.messages import Kind, Message, ReplyHandle, Unreadable
from channels.base import FILE_ITEM, Channel, Gap, LastEvent, NotStored, Receipt, SentMessage, StateKeeper


async def until(check: Callable[[], object], seconds: float = 60.0, what: str = "the condition") -> None:
    """Wait until `check()` is true. Raises TimeoutError with `what` after so long that only a fault takes it.

    What takes long is looked at less often: looking would keep a core from what is waited for.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not check():
        waited = loop.time() - began
        if waited > seconds:
            raise TimeoutError(f"waited {seconds} s for {what}")
        await asyncio.sleep(min(max(waited / 20, 0.01), 0.05))


class Rows(dict[int, str | None]):
    """Message ids by part; None counts posts with an unknown outcome."""

    def __init__(self, rows: Mapping[int, str | None] = MappingProxyType({})) -> None:
        super().__init__(rows)
        self.posts = dict.fromkeys(rows, 1)
        self.handles: dict[int, str] = {}
        self.questions: dict[int, str] = {}
        self.deleted: list[str] = []  # messages that were found deleted


class Memory:
    """`channels.base.SentMessages` in memory. A second one over the same `rows` is a restarted process.

    `others` are the other replies of the thread. `handle` is the one of the message that is answered.
    """

    def __init__(
        self,
        key: str = "r1",
        rows: Rows | None = None,
        others: Sequence[Rows] = (),
        handle: ReplyHandle | None = None,
    ) -> None:
        self.key = key
        self.rows = Rows() if rows is None else rows
        self.others = others
        self.handle = handle

    @property
    def reply_handle(self) -> str:
        return self.handle.current if self.handle else ""

    @property
    def known(self) -> Sequence[SentMessage]:
        rows = self.rows
        return [SentMessage(i, rows[i], rows.posts[i], rows.handles.get(i, "")) for i in sorted(rows)]

    async def sending(self, index: int, handle: str = "") -> None:
        before = self.rows.posts[index] if self.rows.get(index, "") is None else 0
        self.rows[index], self.rows.posts[index], self.rows.handles[index] = None, before + 1, handle

    async def sent(self, index: int, message_id: str) -> None:
        unknown = self.rows.posts[index] if self.rows.get(index, "") is None else 1
        self.rows[index], self.rows.posts[index] = message_id, unknown
        self.rows.handles.pop(index, None)

    async def adopt(self, index: int, candidates: Sequence[str]) -> str | None:
        taken = {message_id for rows in (self.rows, *self.others) for message_id in rows.values()}
        found = next((candidate for candidate in candidates if candidate not in taken), None)
        if found:
            await self.sent(index, found)
        return found

    async def unsent(self, index: int) -> None:
        self.rows.posts[index] -= 1
        if not self.rows.posts[index]:
            del self.rows[index]

    async def found_deleted(self, index: int) -> None:
        self.rows.deleted.append(self.rows[index] or "")

    async def record_questions(self, questions: Mapping[int, str]) -> None:
        self.rows.questions = dict(questions)


@dataclass
class Box:
    """An inbox that stores each key once, and one click per question.

    `broken` makes it refuse to store, `stalls` makes it refuse one message, `refuses` returns IGNORED for matching
    messages.

    It is also a `CatchUpSource` with the latest event of each chat and thread, and the `StateStore` of one channel.
    """

    events: list[Message | Unreadable] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    broken: bool = False
    stalls: Callable[[Message], bool] = lambda message: False
    stalled: int = 0
    offered: int = 0
    refuses: Callable[[Message], bool] = lambda message: False
    gaps: dict[str, tuple[float, int]] = field(default_factory=dict)  # workspace → since when it is open, and its id
    first_starts: dict[str, float] = field(default_factory=dict)  # workspace → when its first gap was opened
    hours: float = 24.0
    most: int = 200
    kept: dict[str, str] = field(default_factory=dict)  # what the channel keeps over restarts
    owners: dict[str, tuple[str, float | None]] = field(default_factory=dict)  # of each: whom it is about, its end
    _folder: Path | None = None

    async def receive(self, batch: Sequence[Message | Unreadable]) -> list[Receipt]:
        await asyncio.sleep(0)
        self.offered += 1
        if self.broken:
            raise NotStored("disk full")
        if any(isinstance(event, Message) and self.stalls(event) for event in batch):
            self.stalled += 1
            raise NotStored("disk full")
        receipts = []
        for event in batch:
            if any(event.key == known.key for known in self.events):
                receipts.append(Receipt.DUPLICATE)
            elif isinstance(event, Message) and self.refuses(event):
                receipts.append(Receipt.IGNORED)
            elif isinstance(event, Message) and event.kind is Kind.CLICK and self._answered(event.target):
                receipts.append(Receipt.DUPLICATE)
            else:
                self.events.append(event)
                receipts.append(Receipt.ACCEPTED)
        self.receipts += receipts
        return receipts

    def _answered(self, ask: str) -> bool:
        """Accept one click per question."""
        return any(message.kind is Kind.CLICK and message.target == ask for message in self.messages)

    @property
    def folder(self) -> Path:
        """A folder of this box, which goes with it."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="fawn-box-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    async def load(self) -> Mapping[str, str]:
        return dict(self.kept)

    async def save(self, changes: Mapping[str, str | None], *, of: str = "", until: float | None = None) -> None:
        if self.broken:
            raise NotStored("disk full")
        self.owners |= dict.fromkeys(changes, (of, until))
        self.kept |= {name: text for name, text in changes.items() if text is not None}
        for name in [name for name, text in changes.items() if text is None]:
            self.kept.pop(name, None)

    async def renew(self, name: str, text: str, *, until: float) -> bool:
        if name not in self.kept:
            return False
        await self.save({name: text}, of=self.owners[name][0], until=until)
        return True

    def files(self) -> list[str]:
        """Return the names of the texts with which the files in the folder go."""
        return [f"{FILE_ITEM}{path.stem}" for path in self.folder.iterdir()]

    def forget(self, person: str, *, sweep: bool = True) -> None:
        """Drop what the channel keeps of a person, as the service does; `sweep` removes the files, too."""
        for name in [name for name, (of, _) in self.owners.items() if of == person]:
            self.kept.pop(name, None)
        for path in self.folder.iterdir() if sweep else ():
            if f"{FILE_ITEM}{path.stem}" not in self.kept:
                path.unlink()

    async def open_gap(self, channel: str, workspace: str) -> Gap:
        since, number = self.gaps.get(workspace, (math.inf, 0))
        latest: dict[tuple[str, str], float] = {}
        for message in self.messages:
            if (message.thread.channel, message.thread.workspace) == (channel, workspace):
                for place in ((message.thread.chat, ""), (message.thread.chat, message.thread.topic)):
                    latest[place] = max(message.time, latest.get(place, 0.0))
        if not latest:  # nothing was heard yet: the first start counts
            first = self.first_starts.get(workspace, 0.0)
            self.first_starts[workspace] = first or time.time()
            return Gap(since=first)
        self.gaps[workspace] = since, number = min(since, max(latest.values(), default=math.inf)), number + 1
        return Gap([LastEvent(chat, topic, min(at, since)) for (chat, topic), at in latest.items()], number)

    async def close_gap(self, gap: Gap) -> None:
        self.gaps = {place: known for place, known in self.gaps.items() if known[1] != gap.id}

    @property
    def messages(self) -> list[Message]:
        return [event for event in self.events if isinstance(event, Message)]

    async def next(self, number: int = 1, kind: Kind | None = None) -> Message:
        """Wait for the `number`th message (of a kind) and return it."""

        def found() -> list[Message]:
            return [message for message in self.messages if kind in (None, message.kind)]

        await until(lambda: len(found()) >= number, what=f"message {number}")
        return found()[number - 1]


@asynccontextmanager
async def listening(channel: Channel, box: Box) -> AsyncIterator[None]:
    """Run the channel with this inbox."""
    if isinstance(channel, StateKeeper):
        channel.keep_state(box)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(channel.listen(box.receive, box), name="listen")
        try:
            yield
        finally:
            task.cancel()
