"""What a message becomes for the agent: with what only the platform knows, and its files in the uploads folder, each
once, also when the turn is tried again."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from pathlib import Path

import orjson

from agent.conversation import Attachment, Message
from agent.desk import Input, Upload
from bot.sections import Limits
from bot.store import Execute, Store
from channels.base import Channel, ChannelError, Refused, TryLater
from sandbox import base
from sandbox.disk import safe_files
from sandbox.disk.loop_images import Images

log = logging.getLogger(__name__)

TRIES = 4
ENRICH = 5.0  # seconds that a platform gets to tell more about a message


class Uploads:
    """The uploads of one conversation, below its `folder`; what was stored is remembered until the run ends."""

    def __init__(self, store: Store, images: Images, conversation: str, folder: Path, limits: Limits) -> None:
        self._store = store
        self._images = images
        self._conversation = conversation
        self._folder = folder
        self._limit = limits.upload_mb << 20

    async def input(self, channel: Channel | None, message: Message, earlier: int = 0) -> Input:
        """The message with names, forwarded texts and up to `earlier` messages before it, and its files stored."""
        if channel is not None:
            try:
                async with asyncio.timeout(ENRICH):
                    message = await channel.enrich(message, earlier)
            except (ChannelError, TimeoutError) as error:  # it can be answered without
                log.warning("enrich.failed key=%s reason=%s", message.key, error or "no answer in time")
        return Input(message, await self.take(channel, message))

    async def take(self, channel: Channel | None, message: Message) -> tuple[Upload, ...]:
        """Fetch and store the message's attachments; a refused one says why. Never raises for a single file."""
        return tuple(
            [
                await self._one(channel, attachment, f"upload:{message.key}:{index}")
                for index, attachment in enumerate(message.attachments)
            ]
        )

    async def _one(self, channel: Channel | None, attachment: Attachment, call: str) -> Upload:
        if earlier := await self._store.run(lambda execute: _known(execute, self._conversation, call)):
            return earlier
        try:
            upload = await self._save(attachment, await self._fetch(channel, attachment))
        except Refused as error:
            upload = Upload(attachment.name, refused=str(error))
        except ChannelError as error:
            log.warning("upload.failed name=%s reason=%s", attachment.name, error)
            upload = Upload(attachment.name, refused="could not be fetched from the chat; please send it again")
        except (base.SandboxError, OSError) as error:
            log.warning("upload.failed name=%s reason=%s", attachment.name, error)
            reason = error.strerror if isinstance(error, OSError) else error
            upload = Upload(attachment.name, refused=f"could not be stored: {reason}")
        await self._store.run(lambda execute: _remember(execute, self._conversation, call, upload))
        return upload

    async def _fetch(self, channel: Channel | None, attachment: Attachment) -> bytes:
        too_big = Refused(f"exceeds the {self._limit >> 20} MB upload limit")
        if attachment.size is not None and attachment.size > self._limit:
            raise too_big
        for attempt in range(TRIES):
            try:
                if channel is None:
                    raise TryLater("the channel is not connected", 1.0)
                data = bytearray()
                async for chunk in channel.fetch(attachment):
                    data += chunk
                    if len(data) > self._limit:
                        raise too_big
                return bytes(data)
            except Refused:
                raise
            except ChannelError as error:
                if attempt == TRIES - 1:
                    raise
                await asyncio.sleep(min(10.0, error.after if isinstance(error, TryLater) else 0.5 * 2**attempt))
        raise AssertionError("unreachable")

    async def _save(self, attachment: Attachment, data: bytes) -> Upload:
        def save() -> Upload:
            safe_files.make_folders(self._folder)
            name = safe_files.free_name(self._folder / "uploads", safe_files.safe_name(attachment.name))
            safe_files.write_file(self._folder / "uploads", name, data)
            return Upload(name, f"{base.UPLOADS}/{name}", len(data))

        async with self._images.open(self._folder):
            return await asyncio.to_thread(save)


def _known(execute: Execute, conversation: str, call: str) -> Upload | None:
    rows = execute(
        "SELECT result FROM ledger WHERE conversation=:conversation AND call=:call",
        {"conversation": conversation, "call": call},
    )
    return Upload(**orjson.loads(rows[0]["result"])) if rows else None


def _remember(execute: Execute, conversation: str, call: str, upload: Upload) -> None:
    execute(
        "INSERT INTO ledger(conversation, call, result) VALUES (:conversation, :call, :result)"
        " ON CONFLICT(conversation, call) DO UPDATE SET result=excluded.result",
        {"conversation": conversation, "call": call, "result": orjson.dumps(asdict(upload)).decode()},
    )
