"""Store a message's attachments, once also when its turn is tried again, and look up what only the platform knows."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import orjson

from agent.backoff import backoff_seconds
from agent.messages import Attachment, Message, Quote
from agent.user_input import UploadedFile, UserInput
from bot.config.schema import ServiceLimits
from bot.config.uploads import UploadsConfig
from bot.database.database import Database
from bot.journey.talk_above import NO_TALK, TalkAbove, has_talk_above, talk_above
from bot.journey.upload_details import UploadInspector
from bot.storage import outbox, tool_calls
from bot.storage.quoted import record_quotes
from catalogue import _, ngettext
from channels.base import Channel, ChannelError, FileNamer, Refused, TryLater
from sandbox import base
from sandbox.disk import safe_files
from sandbox.disk.file_threads import run_file_work

log = logging.getLogger(__name__)

MAX_TRIES = 4
MAX_WAIT_SECONDS = 10.0  # between two attempts
PIECE = 1 << 18  # bytes in memory before they are written
ENRICH_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts in seconds: of a file with all its attempts, and of each `PIECE`."""

    whole: float = 600.0
    piece: float = 30.0


class Attachments:
    """The uploads of one conversation, below its `folder`. The ledger records them until the run ends."""

    def __init__(
        self,
        store: Database,
        conversation: str,
        folder: Path,
        limits: ServiceLimits,
        accepts: UploadsConfig,
        patience: Patience = Patience(),
        inspector: UploadInspector | None = None,
    ) -> None:
        self._store = store
        self._conversation = conversation
        self._folder = folder
        self._limits = limits
        self._accepts = accepts
        self._limit = accepts.max_mb << 20
        self._too_big = Refused(_("exceeds the {limit} MB upload limit", limit=accepts.max_mb))
        self._patience = patience
        self._inspector = inspector

    async def make_inputs(self, channel: Channel | None, messages: Sequence[Message]) -> tuple[UserInput, ...]:
        """Prepare the messages of a request. The last one brings the talk above it."""
        above = NO_TALK
        if has_talk_above(messages[-1], self._limits):
            look = partial(talk_above, conversation=self._conversation, messages=messages, limits=self._limits)
            above = await self._store.run(look, durable=False)
        talk = [*[NO_TALK] * (len(messages) - 1), above]
        return tuple([await self.make_input(channel, *each) for each in zip(messages, talk, strict=True)])

    async def make_input(self, channel: Channel | None, message: Message, above: TalkAbove = NO_TALK) -> UserInput:
        """Add names, forwarded texts and the talk above a message, and store its files."""
        if channel is not None:
            message = replace(message, quotes=(*above.kept, *message.quotes))
            message = above.bound(await _enrich(channel, message, above))
            if message.quotes:
                await self._store.run(partial(record_quotes, message=message, conversation=self._conversation))
        return UserInput(message, await self.store_attachments(channel, message))

    async def store_attachments(self, channel: Channel | None, message: Message) -> tuple[UploadedFile, ...]:
        """Fetch and store the message's attachments.

        The chat is notified of each refused one, and why. A single file never raises.
        """
        uploads = tuple(
            [
                await self._store_one(channel, attachment, f"upload:{message.key}:{index}")
                for index, attachment in enumerate(message.attachments)
            ]
        )
        if refused := [
            _("{name}: {reason}", name=upload.name, reason=upload.refused) for upload in uploads if upload.refused
        ]:
            words = _("I could not take {files}.", files=_("; ").join(refused))
            await self._notify(message, f"upload:{message.key}", words)
        for index, upload in enumerate(uploads):
            if upload.notice:
                await self._notify(message, f"voice:{message.key}:{index}", upload.notice)
        return uploads

    async def _notify(self, message: Message, key: str, text: str) -> None:
        now = time.time()
        await self._store.run(
            lambda execute: outbox.enqueue_notice(execute, message.thread, text, key=key, now=now, reply_to=message.id)
        )

    async def _store_one(self, channel: Channel | None, attachment: Attachment, call: str) -> UploadedFile:
        entry = await self._store.run(lambda execute: tool_calls.find_call(execute, self._conversation, call))
        if entry and entry.result:
            return UploadedFile(**orjson.loads(entry.result))
        try:
            upload = await self._get(channel, attachment)
        except Refused as error:
            upload = UploadedFile(attachment.name, refused=str(error))
        except ChannelError as error:
            log.warning("upload.failed name=%s reason=%s", attachment.name, error)
            upload = UploadedFile(
                attachment.name, refused=_("could not be fetched from the chat; please send it again")
            )
        except (base.SandboxError, OSError) as error:
            log.warning("upload.failed name=%s reason=%s", attachment.name, error)
            reason = error.strerror if isinstance(error, OSError) else error
            upload = UploadedFile(attachment.name, refused=_("could not be stored: {reason}", reason=reason))
        result = orjson.dumps(asdict(upload)).decode()
        await self._store.run(lambda execute: tool_calls.record_result(execute, self._conversation, call, result))
        return upload

    async def _get(self, channel: Channel | None, attachment: Attachment) -> UploadedFile:
        """Download into a file without a name, which needs no cleanup, and copy it from there to the agent."""
        if refusal := self._accepts.refusal(attachment):
            raise Refused(refusal)
        if attachment.size is not None and attachment.size > self._limit:
            raise self._too_big
        file = await run_file_work(_draft, self._folder.parent)
        try:
            async with asyncio.timeout(self._patience.whole):
                await self._fetch(channel, attachment, file)
            name = channel.name_of(attachment) if isinstance(channel, FileNamer) else attachment.name
            upload = await run_file_work(_save, self._folder, name, file)
            return await self._inspector.inspect(upload, file, self._folder) if self._inspector else upload
        except TimeoutError:
            minutes = round(self._patience.whole / 60)
            raise Refused(
                ngettext(
                    "did not arrive within {n} minute; please send it again",
                    "did not arrive within {n} minutes; please send it again",
                    minutes,
                )
            ) from None
        finally:
            await run_file_work(file.close)

    async def _fetch(self, channel: Channel | None, attachment: Attachment, file: BinaryIO) -> None:
        for attempt in range(MAX_TRIES):
            try:
                if channel is None:
                    raise TryLater("the channel is not connected", 1.0)
                async with aclosing(channel.fetch(attachment)) as chunks:
                    return await self._write(chunks, file)
            except Refused:
                raise
            except ChannelError as error:
                if attempt == MAX_TRIES - 1:
                    raise
                wait = error.after if isinstance(error, TryLater) else backoff_seconds(attempt + 1, MAX_WAIT_SECONDS)
                await asyncio.sleep(min(MAX_WAIT_SECONDS, wait))
        raise AssertionError("unreachable")

    async def _write(self, chunks: AsyncIterator[bytes], file: BinaryIO) -> None:
        """Write the file in pieces. Each must arrive within its timeout, so that a trickle ends."""
        size, piece, loop = 0, bytearray(), asyncio.get_running_loop()
        await run_file_work(_empty, file)
        try:
            async with asyncio.timeout(self._patience.piece) as patience:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > self._limit:
                        raise self._too_big
                    piece += chunk
                    if len(piece) >= PIECE:
                        await run_file_work(file.write, bytes(piece))
                        piece.clear()
                        patience.reschedule(loop.time() + self._patience.piece)
        except TimeoutError:
            raise TryLater(f"no {PIECE >> 10} KB in {self._patience.piece:.0f} s") from None
        await run_file_work(file.write, bytes(piece))


async def _enrich(channel: Channel, message: Message, above: TalkAbove) -> Message:
    """Look up what only the platform knows, also after a short wait. Else the model learns that it is missing."""
    error: Exception = TimeoutError()
    try:
        async with asyncio.timeout(ENRICH_TIMEOUT_SECONDS) as patience:
            while True:
                try:
                    return await channel.enrich(message, above.most, above.since)
                except TryLater as refused:
                    error = refused
                    ends = asyncio.get_running_loop().time() + refused.after
                    if ends >= (patience.when() or 0.0):
                        break
                    await asyncio.sleep(refused.after)
    except (ChannelError, TimeoutError) as failure:
        error = error if isinstance(failure, TimeoutError) else failure
    log.warning("enrich.failed key=%s reason=%s", message.key, error or "no answer in time")
    return replace(message, quotes=(*message.quotes, Quote("", "", "unread")))


def _draft(folder: Path) -> BinaryIO:
    folder.mkdir(parents=True, exist_ok=True)
    return cast(BinaryIO, tempfile.TemporaryFile(dir=folder))


def _empty(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()


def _save(folder: Path, name: str, file: BinaryIO) -> UploadedFile:
    safe_files.make_folders(folder)
    uploads = folder / "uploads"
    free = safe_files.free_name(uploads, safe_files.safe_name(name))
    file.seek(0)
    return UploadedFile(free, f"{base.UPLOADS}/{free}", safe_files.copy_in(uploads, free, file))
