"""Read a message with files, as a form sends it: streamed to the disk, within the limits of the channels."""

from __future__ import annotations

import asyncio
import mimetypes
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.messages import Attachment, Message
from bot.base.stored_files import Draft, WebFiles
from bot.database.database import Execute
from bot.http.route import HttpProblem
from bot.storage.web import WebFileRow, add_file, sent_id
from sandbox.disk.safe_files import safe_name

if TYPE_CHECKING:
    from aiohttp import BodyPartReader, web

MAX_FILES = 20  # of a message
CHUNK_BYTES = 1 << 18
WHOLE_SECONDS, CHUNK_SECONDS = 600.0, 30.0
MAX_MIME_CHARS = 100
FORM = "multipart/form-data"
_MIME = re.compile(r"[a-z0-9]+/[a-z0-9.+-]+")

BAD_FORM = HttpProblem(
    *(422, "bad_body", "This is not a form with a message."), "Send the field `text`, and the files as fields `file`."
)
BROKEN = HttpProblem(400, "broken_body", "The body is broken.", "Check its length, its boundary and its encoding.")
TOO_SLOW = HttpProblem(408, "too_slow", "The files did not come in time.", "Send them again.")
TOO_MANY = HttpProblem(422, "too_many_files", f"The message has more than {MAX_FILES} files.", "Send several messages.")
NO_ROOM = HttpProblem(507, "not_stored", "The files could not be stored.", "Nothing is stored. Try it later.")


@dataclass(slots=True)
class Upload:
    """A message with its files, which are drafts: `keep` makes them those of a message."""

    store: WebFiles
    text: str = ""
    files: list[tuple[Attachment, Draft]] = field(default_factory=list)

    async def add(self, name: str, mime: str, data: bytes, most: int) -> None:
        """Add a file that is in memory. Raises HttpProblem."""
        draft = await self.begin_file(name)
        _check_size(self.files[-1][0].name, len(data), most)
        await draft.write(data)
        self.end_file(mime)

    async def begin_file(self, name: str) -> Draft:
        """Begin a file, which is written piece by piece. Raises HttpProblem."""
        if len(self.files) == MAX_FILES:
            raise TOO_MANY
        draft = await self.store.draft()
        self.files.append((Attachment("", safe_name(name)), draft))
        return draft

    def end_file(self, mime: str) -> None:
        """Note the type and the size of the last file, which is complete."""
        named, draft = self.files[-1]
        mime = _mime(mime, named.name)
        kind = mime.partition("/")[0]
        kinds = {"image": "image", "audio": "audio", "video": "video"}
        self.files[-1] = Attachment("", named.name, mime, draft.size, kinds.get(kind, "file")), draft  # type: ignore[arg-type]  # one of four

    def attachments(self, key: str) -> tuple[Attachment, ...]:
        """Return the files as those of the message with this key."""
        named = enumerate(each for each, _draft in self.files)
        return tuple(
            Attachment(sent_id(key, number), each.name, each.mime, each.size, each.kind) for number, each in named
        )

    async def keep(self, key: str) -> None:
        """Keep the files for the message with this key. Raises HttpProblem."""
        try:
            for number, (_attachment, draft) in enumerate(self.files):
                await draft.keep(sent_id(key, number))
        except OSError as error:
            raise NO_ROOM from error


@asynccontextmanager
async def read_form(request: web.Request, files: WebFiles, text_bytes: int, file_bytes: int) -> AsyncIterator[Upload]:
    """Read text and files, as `kept_files` collects them. Raises HttpProblem."""
    async with kept_files(files) as upload:
        async with asyncio.timeout(WHOLE_SECONDS):
            await _read_parts(request, upload, text_bytes, file_bytes)
        yield upload


@asynccontextmanager
async def kept_files(files: WebFiles) -> AsyncIterator[Upload]:
    """Collect the files of a message, and delete at the end those that were not kept. Raises HttpProblem."""
    upload = Upload(files)
    try:
        yield upload
    except TimeoutError:
        raise TOO_SLOW from None
    except OSError as error:
        if isinstance(error, ConnectionError):
            raise
        raise NO_ROOM from error
    finally:
        for _attachment, draft in upload.files:
            await draft.close()


async def _read_parts(request: web.Request, upload: Upload, text_bytes: int, file_bytes: int) -> None:
    from aiohttp import BodyPartReader, http_exceptions, web

    try:
        reader = await request.multipart()
        seen: set[str | None] = set()
        while part := await reader.next():
            if not isinstance(part, BodyPartReader):
                raise BAD_FORM
            if part.filename is not None:
                await _read_file(part, upload, file_bytes)
            elif part.name == "text" and "text" not in seen:
                seen.add(part.name)
                upload.text = (await _read_text(part, text_bytes)).decode()
            else:
                raise BAD_FORM
    except (web.RequestPayloadError, http_exceptions.HttpProcessingError, ValueError, AssertionError) as error:
        raise BROKEN from error


async def _read_text(part: BodyPartReader, most: int) -> bytes:
    found = bytearray()
    async for chunk in _chunks(part):
        found += chunk
        if len(found) > most:
            raise HttpProblem(413, "too_large", f"The text has more than {most} bytes.", "Send it as a file.")
    return bytes(found)


async def _read_file(part: BodyPartReader, upload: Upload, most: int) -> None:
    draft = await upload.begin_file(part.filename or "")
    async for chunk in _chunks(part):
        await draft.write(chunk)
        _check_size(upload.files[-1][0].name, draft.size, most)
    upload.end_file(part.headers.get("Content-Type", ""))


def _check_size(name: str, size: int, most: int) -> None:
    if size > most:
        what = f"The file {name} has more than {most >> 20} MB."
        raise HttpProblem(413, "too_large", what, "Send a smaller one; the operator sets uploads.max_mb.")


async def _chunks(part: BodyPartReader) -> AsyncIterator[bytes]:
    while True:
        async with asyncio.timeout(CHUNK_SECONDS):
            chunk = await part.read_chunk(CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


def _mime(header: str, name: str) -> str:
    said = header.partition(";")[0].strip().lower()
    if len(said) <= MAX_MIME_CHARS and _MIME.fullmatch(said) and said != "application/octet-stream":
        return said
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def record_files(execute: Execute, message: Message) -> None:
    """Record the files of a message, before they are kept."""
    for each in message.attachments:
        row = WebFileRow(each.ref, f"{message.thread}", message.author.id, each.name, each.size or 0, "", message.time)
        add_file(execute, row)
