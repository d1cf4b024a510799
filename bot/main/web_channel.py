"""Run the channel `web`: people who act over HTTP, whose messages come through `bot/api`.

A thread is `(web, "", PERSON, ID)`, and always private. What a run shows and how it ends is read from its feed and its
transcript, so there is nothing to post. A notice of the bot itself is posted as an entry of the transcript.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import orjson

from agent.blocks import Block, Final
from agent.messages import Attachment, Message, Thread
from bot.base.stored_files import WebFiles
from bot.database.database import Database, Execute, StorageError
from bot.database.web_people import WEB
from bot.storage import outbox, transcripts, web
from bot.storage.sent_messages import is_of_run
from bot.storage.web import WebFileRow, notice_file_id, run_file_id
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelLimits,
    CommandInfo,
    Health,
    OutgoingFile,
    Readiness,
    Receive,
    SentMessages,
    TryLater,
    find_sent_message,
)

UPLOAD_BYTES = 512 << 20  # of a file that the agent sends


class WebChannel:
    """The channel of the HTTP API: `channels.base.Channel`."""

    name = WEB
    limits = ChannelLimits(text_limit=1_000_000, upload=UPLOAD_BYTES, download=1 << 40, edits_notify=True)
    window = 0.05

    def __init__(self, store: Database, data_dir: Path) -> None:
        self._store = store
        self._files = WebFiles(data_dir)
        self._ready = Readiness(Health.READY, time.time(), "HTTP")

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        """Wait until cancelled: the routes offer the messages."""
        await asyncio.Event().wait()

    def readiness(self) -> Readiness:
        """Return that it works: the listener is checked at the start."""
        return self._ready

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> WebReply:
        """Begin a reply, which readers follow in the run's feed."""
        return WebReply(self._store, thread, posts)

    async def send_files(self, thread: Thread, files: Sequence[OutgoingFile], posts: SentMessages) -> None:
        """Keep the files for those who download them. Files that no run made become entries of the transcript."""
        try:
            item = await self._store.run(partial(outbox.find_shown, reply=posts.key), durable=False)
            row, run = (item.id, item.run) if item else (0, None)
            for index, file in enumerate(files):
                id = run_file_id(run, index) if run else notice_file_id(row, index)
                kept = WebFileRow(id, f"{thread}", thread.chat, file.name, file.size, file.caption, time.time())
                await self._store.run(partial(web.add_file, row=kept))
                await self._files.adopt(id, file.path)
                if not run:
                    await self._store.run(partial(_post_file, row=kept, thread=thread, index=index))
                await _record_sent(posts, index)
        except (OSError, StorageError) as error:
            raise TryLater(str(error)) from error

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file that came with a message."""
        return self._files.read(attachment.ref)

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        """Return the message: it has everything."""
        return message

    def spell_command(self, thread: Thread, command: str) -> str:
        """Return how a person writes a command in a chat."""
        return f"/{command}"

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        """Do nothing: programs read the documentation."""


class WebReply:
    """The reply of a run, whose blocks are in the feed and whose end in the transcript; or a notice."""

    def __init__(self, store: Database, thread: Thread, posts: SentMessages) -> None:
        self._store = store
        self._thread = thread
        self._posts = posts

    def show(self, block: Block) -> None:
        """Do nothing: the feed has it."""

    async def finish(self, final: Final) -> None:
        """Record a reply as delivered; post a notice."""
        await self._post(final)
        await _record_sent(self._posts, 0)

    async def settle(self, final: Final, question: str, outcome: str) -> None:
        """Show what became of a question of a notice; that of a run is read with the run."""
        await self._post(final.settle(question, outcome))

    async def _post(self, final: Final) -> None:
        if is_of_run(self._posts.key):
            return
        text = "\n\n".join(text for text, _ask in final.messages() if text)
        asks = orjson.dumps(final.asks).decode() if any(ask.options for ask in final.asks) else ""
        post = partial(
            transcripts.post_notice, thread=self._thread, key=self._posts.key, text=text, asks=asks, now=time.time()
        )
        try:
            await self._store.run(post)
        except StorageError as error:
            raise TryLater(str(error)) from error

    async def close(self) -> None:
        """Do nothing."""


def _post_file(execute: Execute, row: WebFileRow, thread: Thread, index: int) -> None:
    key = row.id.rpartition("-")[0]
    transcripts.post_file(execute, thread, key, index, f"{row.name} {row.caption}".strip(), row.at)


async def _record_sent(posts: SentMessages, index: int) -> None:
    known = find_sent_message(posts, index)
    if known is None or known.id is None:
        await posts.sending(index)
        await posts.sent(index, uuid4().hex)


@asynccontextmanager
async def connect(store: Database, data_dir: Path) -> AsyncIterator[WebChannel]:
    """Open the channel."""
    yield WebChannel(store, data_dir)
