"""Store a message's attachments, once also when its turn is tried again, and look up what only the platform knows.

Find out what the model should know about an upload beside its name: what it is, and what it shows.
"""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import re
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import orjson

from agent.backoff import backoff_seconds
from agent.core.pictures import (
    FOLDER,
    HEAD_BYTES,
    MAX_BYTES,
    UNSHOWN,
    is_picture,
    picture_suffix,
    scale_picture,
)
from agent.messages import Attachment, Author, Message, Quote, UploadedFile, UserInput
from agent.parsing.child import ParserFailed, ParserProcess
from agent.settings.sections import VoiceConfig
from agent.spending import Meter
from agent.turn.transcription import NotTranscribed, is_audio, transcribe
from bot.database.database import Database, Execute
from bot.journey.talk_above import NO_TALK, TalkAbove, has_talk_above, talk_above
from bot.rights.current import Current
from bot.storage import calls, outbox
from bot.storage.quoted import record_quotes
from catalogue import _, ngettext
from channels.base import Channel, ChannelError, FileNamer, Refused, TryLater
from sandbox import base
from sandbox.base import WORKSPACE, SandboxError, SandboxHandle
from sandbox.disk import safe_files
from sandbox.disk.file_threads import run_file_work

log = logging.getLogger(__name__)

BLIND = "a picture, which you cannot see"
VIDEO_SUFFIXES = frozenset((".mp4", ".m4v", ".mov", ".mkv", ".avi", ".mpg", ".mpeg", ".3gp"))
VIDEO = "video; `ffmpeg -ss SECONDS -i FILE -frames:v 1 FRAME.png` takes a frame, and view_image shows it"


@dataclass(frozen=True, slots=True)
class UploadInspector:
    """Inspects the uploads of one turn. `shows_pictures`: at least one model sees them. `parser` is the service's."""

    sandbox: SandboxHandle
    shows_pictures: bool = False
    voice: VoiceConfig = VoiceConfig()
    meter: Meter = field(default_factory=Meter)
    parser: ParserProcess = field(default_factory=ParserProcess)

    async def inspect(self, upload: UploadedFile, file: BinaryIO, folder: Path) -> UploadedFile:
        """Return the upload with its details. `file` has its bytes, `folder` is the conversation's."""
        head = await run_file_work(_read_head, file)
        if kind := UNSHOWN.get(picture_suffix(head)):
            words = _(
                "I can't look at {name}: it is a {kind} picture. Send it as JPEG or PNG.", name=upload.name, kind=kind
            )
            return replace(upload, about=f"a {kind} picture, which cannot be shown to you", notice=words)
        if is_picture(upload.name, head):
            return await self._show_picture(upload, file, folder)
        if is_audio(upload.name):
            return await self._transcribe(upload, file)
        if Path(upload.name).suffix.lower() in VIDEO_SUFFIXES:
            return replace(upload, about=VIDEO if self.sandbox.runs_commands else "video, which you cannot see")
        from agent.parsing.documents import (  # which load long, and later than the channels
            describe_document,
            is_document,
        )

        if self.sandbox.runs_commands and is_document(upload.path):
            try:
                return replace(upload, about=await describe_document(await self.sandbox.get(), upload.path))
            except SandboxError as error:  # the model learns it when it reads the file
                log.info("upload.not_described reason=%s", error)
        return upload

    async def _show_picture(self, upload: UploadedFile, file: BinaryIO, folder: Path) -> UploadedFile:
        """Store the picture scaled, for `agent.policies.added_context`."""
        if not self.shows_pictures:
            return replace(upload, about=BLIND)
        if upload.size > MAX_BYTES:
            return replace(upload, about=f"a picture of more than {MAX_BYTES >> 20} MB, which is not shown")
        try:
            read = partial(run_file_work, _read_from_start, file)
            picture = await scale_picture(self.parser, read, owner=self.meter.root)
            rel = f"{FOLDER}/{picture.name}"
            await run_file_work(safe_files.write_file, folder / "workspace", rel, picture.data)
        except (ParserFailed, SandboxError) as error:
            return replace(upload, about=f"a picture that cannot be shown: {error}")
        return replace(upload, about=f"picture, {picture.width}×{picture.height}", picture=f"{WORKSPACE}/{rel}")

    async def _transcribe(self, upload: UploadedFile, file: BinaryIO) -> UploadedFile:
        """Add the words of a voice message; the chat sees them as a quote."""
        if not self.voice.base_url:
            return replace(upload, about="audio, which you cannot hear")
        try:
            words = await transcribe(self.voice, upload.name, await run_file_work(_read_from_start, file), self.meter)
        except NotTranscribed as error:
            log.warning("voice.not_transcribed name=%s reason=%s", upload.name, error.__cause__ or error)
            return replace(upload, about="audio, which could not be transcribed", notice=str(error))
        if not words:
            return replace(upload, about="audio without words")
        quote = "\n".join(f"> {line}" for line in words.splitlines())
        return replace(upload, about="audio, transcribed", transcript=words, notice=quote)


def _read_head(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(HEAD_BYTES)


def _read_from_start(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


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
        current: Current,
        patience: Patience = Patience(),
        inspector: UploadInspector | None = None,
    ) -> None:
        self._store = store
        self._conversation = conversation
        self._folder = folder
        self._current = current
        self._limits = current.limits
        self._accepts = accepts = current.config.uploads
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
                message = await self._store.run(partial(self._take_quotes, message=message))
        return UserInput(message, await self.store_attachments(channel, message))

    def _take_quotes(self, execute: Execute, message: Message) -> Message:
        """Record the quotes, and return the message with those of members of the team marked: who may talk here."""
        record_quotes(execute, message, self._conversation)
        authors = {each.author_id: Author(each.author_id, "") for each in message.quotes if each.member}
        may_enter = self._current.access.may_enter
        members = {id for id, author in authors.items() if may_enter(execute, replace(message, author=author))}
        quotes = [replace(each, member=each.member and each.author_id in members) for each in message.quotes]
        return replace(message, quotes=tuple(quotes))

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
        entry = await self._store.run(lambda execute: calls.find_call(execute, self._conversation, call))
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
        await self._store.run(lambda execute: calls.record_result(execute, self._conversation, call, result))
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
            attachment = channel.named(attachment) if isinstance(channel, FileNamer) else attachment
            name = complete_name(attachment.name, attachment.mime, await run_file_work(_read_head, file))
            if refusal := self._accepts.refusal(replace(attachment, name=name)):
                raise Refused(refusal)
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


_TYPES = mimetypes.MimeTypes()  # those of Python, which are the same on each system
_OFFICE = "application/vnd.openxmlformats-officedocument"
_MIME_SUFFIXES = {
    f"{_OFFICE}.wordprocessingml.document": ".docx",
    f"{_OFFICE}.spreadsheetml.sheet": ".xlsx",
    f"{_OFFICE}.presentationml.presentation": ".pptx",
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.oasis.opendocument.spreadsheet": ".ods",
    "application/epub+zip": ".epub",
    "application/rtf": ".rtf",
    "application/gzip": ".gz",
    "application/x-yaml": ".yaml",
    "text/markdown": ".md",
    "text/html": ".html",
    "text/plain": ".txt",
    "message/rfc822": ".eml",
    "audio/ogg": ".ogg",
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "video/mp4": ".mp4",
}
_HEAD_SUFFIXES = (
    *((b"%PDF-", ".pdf"), (b"OggS", ".ogg"), (b"ID3", ".mp3"), (b"fLaC", ".flac"), (b"{\\rtf", ".rtf")),
    *((b"PK\x03\x04", ".zip"), (b"\x1f\x8b", ".gz"), (b"7z\xbc\xaf", ".7z"), (b"SQLite format 3", ".sqlite")),
)


def complete_name(name: str, mime: str, head: bytes) -> str:
    """Return the name of a file with a suffix: that of its first bytes, or of the type that the platform says."""
    suffix = PurePosixPath(name).suffix
    if suffix and re.fullmatch(r"\.(?=.*[a-zA-Z])[a-zA-Z0-9_+-]{1,12}", suffix):
        return name
    mime = mime.partition(";")[0].strip().lower()
    by_type = "" if mime == "application/octet-stream" else _MIME_SUFFIXES.get(mime) or _TYPES.guess_extension(mime)
    by_head = next((end for start, end in _HEAD_SUFFIXES if head.startswith(start)), "")
    return f"{name}{picture_suffix(head) or by_type or by_head}"


def _save(folder: Path, name: str, file: BinaryIO) -> UploadedFile:
    safe_files.make_folders(folder)
    uploads = folder / "uploads"
    free = safe_files.free_name(uploads, safe_files.safe_name(name))
    file.seek(0)
    return UploadedFile(free, f"{base.UPLOADS}/{free}", safe_files.copy_in(uploads, free, file))
