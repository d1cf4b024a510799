"""Show operators the conversations of shared chats where they operate, and send one as an archive.

What was said in direct chats is nobody else's, also not an operator's.

Send a thread as one archive: what was said as Markdown, with the files that came and went.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from aiohttp import web

from agent.messages import Thread
from bot.api.shared.caller import Caller, find_caller
from bot.api.shared.file_endpoints import BoundedFile, attachment
from bot.api.shared.read_models import find_thread, not_found
from bot.api.shared.requests import PAGE, make_cursor, path_thread, read_cursor
from bot.api.shared.sessions import for_page
from bot.base.data_dir import conversation_folder
from bot.base.stored_files import WebFiles, open_draft
from bot.commands.feature import Door
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import EntryKind
from bot.database.web_people import WEB
from bot.http.route import HttpProblem, Route, read_response
from bot.rights import deeds
from bot.status.transcript_format import render_entry
from bot.storage import conversations, inbox, transcripts
from bot.storage.api_access import OPERATE, READ
from bot.storage.conversations import ConversationRow
from bot.storage.transcripts import StoredEntry
from bot.storage.web import find_file, id_of_entry
from sandbox.base import SandboxFileError
from sandbox.disk import safe_files
from sandbox.disk.file_threads import run_file_work
from sandbox.inside.search import WalkBounds

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter


PAGE_ENTRIES = 1000
MOST_ARCHIVED, MOST_BYTES = 200_000, 2 << 30
TOO_MUCH = HttpProblem(
    413, "too_large", "The thread is too large for one file.", "Whoever runs Fawn gets it with `fawn export`."
)
NO_NAME = "thread"


class PassingFile(BoundedFile):
    """A file that is gone once it was sent."""

    def __init__(self, file: BinaryIO, size: int, headers: Mapping[str, str]) -> None:
        super().__init__(Path(file.name), size, headers)
        self._file = file

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send it."""
        try:
            return await super().prepare(request)
        finally:
            await asyncio.shield(run_file_work(self._file.close))


@dataclass(frozen=True, slots=True)
class DownloadEndpoints:
    """The route."""

    door: Door
    files: WebFiles

    def routes(self) -> Sequence[Route]:
        """Return the route."""
        return [for_page(Route("GET", "/threads/{thread}/download", self._send))]

    async def _send(self, request: web.Request) -> web.StreamResponse:
        caller = await find_caller(self.door, request, READ)
        id = path_thread(request)
        title = await self.door.store.run(partial(_title, caller=caller, id=id), durable=False)
        entries = await self._read(caller, id)
        named = await self.door.store.run(partial(_files, caller=caller, entries=entries), durable=False)
        file = await run_file_work(open_draft, self.files.folder)
        try:
            size = await run_file_work(partial(self._pack, file, title, entries, named))
        except BaseException:
            await asyncio.shield(run_file_work(file.close))
            raise
        return archive_of(file, size, title)

    async def _read(self, caller: Caller, id: str) -> list[StoredEntry]:
        """Return all entries of a thread, a page at a time. Raises HttpProblem."""
        entries, after = list[StoredEntry](), 0
        thread = str(caller.thread(id))
        while page := await self.door.store.run(
            partial(transcripts.read_thread, thread=thread, after=after, limit=PAGE_ENTRIES), durable=False
        ):
            entries += page
            after = page[-1].id
            if len(entries) > MOST_ARCHIVED:
                raise TOO_MUCH
        return entries

    def _pack(self, file: BinaryIO, title: str, entries: Sequence[StoredEntry], named: Mapping[int, str]) -> int:
        """Write the archive and return its size. Blocks. Raises HttpProblem."""
        written, lines = 0, [f"# {title}\n\n"]
        with zipfile.ZipFile(file, "w") as archive:
            for entry in entries:
                source = self.files.path(named[entry.id]) if entry.id in named else None
                if entry.kind == EntryKind.FILE and source and source.is_file():
                    written += source.stat().st_size
                    if written > MOST_BYTES:
                        raise TOO_MUCH
                    name = f"files/{entry.id}-{safe_name(entry.text)}"
                    archive.write(source, name)
                    lines.append(f"- File of {entry.name or 'Fawn'}: [{safe_name(entry.text)}](<{name}>)\n\n")
                else:
                    lines.append(render_entry(asdict(entry), "md"))
            archive.writestr("thread.md", "".join(lines), zipfile.ZIP_DEFLATED)
        return file.tell()


def archive_of(file: BinaryIO, size: int, title: str) -> PassingFile:
    """Return the answer with an archive that is named like a thread."""
    name = re.sub(r"[^\w .()-]+", "_", title).strip(" ._")[:80] or NO_NAME
    return PassingFile(file, size, {"Content-Type": "application/zip", **attachment(f"{name}.zip")})


def _title(execute: Execute, caller: Caller, id: str) -> str:
    return find_thread(execute, caller.thread(id)).title or NO_NAME


def _files(execute: Execute, caller: Caller, entries: Sequence[StoredEntry]) -> dict[int, str]:
    """Return entry → the id of its file, of those that are the caller's."""
    found = {}
    for entry in entries:
        if entry.kind == EntryKind.FILE:
            id = id_of_entry(entry.item, sent=bool(entry.author))
            if find_file(execute, id, caller.author.id):
                found[entry.id] = id
    return found


def safe_name(name: str) -> str:
    """Return the last part of a path as the name of a file in an archive."""
    return re.sub(r"[^\w .()-]+", "_", name.rpartition("/")[2]).strip(" .")[:120] or "file"


Json = dict[str, Any]
LOOKED_AT = 500  # conversations of a page, of which most may be direct ones
MOST_ENTRIES = 20_000
PARTS = ("uploads", "outputs")
BOUNDS = WalkBounds(entries=10_000, seconds=20.0)


@dataclass(frozen=True, slots=True)
class SharedThreads:
    """The routes."""

    door: Door
    files: WebFiles

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        routes = (
            Route("GET", "/operate/threads", self._list, quiet=True),
            Route("GET", "/operate/threads/download", self._send),
        )
        return [*map(for_page, routes)]

    async def _list(self, request: web.Request) -> web.Response:
        """Return a page of conversations, the latest first."""
        caller = await find_caller(self.door, request, OPERATE, deed=deeds.SEE_SERVICE)
        before = read_cursor(request, (float("inf"), ""))
        return read_response(
            request, await self.door.store.run(partial(self._page, caller=caller, before=before), durable=False)
        )

    def _page(self, execute: Execute, caller: Caller, before: tuple[float, str]) -> Json:
        rows = conversations.list_latest(execute, before, LOOKED_AT)
        found, last = list[Json](), None
        for row in rows:
            last = row
            if self._may_read(execute, caller, row):
                found.append({"key": row.key, "thread": row.thread, "title": row.title, "used": row.used})
            if len(found) == PAGE:
                break
        more = last is not None and (last is not rows[-1] or len(rows) == LOOKED_AT)
        return {"threads": found, "next": make_cursor(last.used, last.key) if last and more else None}

    def _may_read(self, execute: Execute, caller: Caller, row: ConversationRow) -> bool:
        place = Thread.parse(row.thread)
        home, id = caller.home(execute)
        if place.channel != home.channel or not inbox.is_shared(execute, row.key):
            return False
        return self.door.current.access.may_do(execute, place, id, deeds.READ_THREAD)

    async def _send(self, request: web.Request) -> web.StreamResponse:
        """Send a conversation: what was said and done as Markdown, with the files that came and went."""
        caller = await find_caller(self.door, request, OPERATE, deed=deeds.SEE_SERVICE)
        read = partial(self._read, caller=caller, key=request.query.get("key", ""))
        row, entries = await self.door.store.run(read)
        folder = conversation_folder(self.door.current.config.data_dir, row.key)
        file = await run_file_work(open_draft, self.files.folder)
        try:
            size = await run_file_work(pack, file, row.title or safe_name(row.thread), entries, folder)
        except BaseException:
            await asyncio.shield(run_file_work(file.close))
            raise
        return archive_of(file, size, row.title)

    def _read(self, execute: Execute, caller: Caller, key: str) -> tuple[ConversationRow, Sequence[StoredEntry]]:
        """Return a conversation with its entries, and note in the audit who stores it. Raises HttpProblem."""
        row = conversations.find_conversation(execute, key)
        if row is None or not self._may_read(execute, caller, row):
            raise not_found("conversation")
        entries = transcripts.latest_of_conversation(execute, key, MOST_ENTRIES + 1)
        if len(entries) > MOST_ENTRIES:
            raise TOO_MUCH
        what: dict[str, int | str] = {"via": "http", "name": "download"}
        event = AuditEvent(AuditKind.COMMAND, Thread.parse(row.thread), caller.author.id, WEB, what=what, result="done")
        audit.record(execute, event)
        return row, entries


def pack(file: BinaryIO, title: str, entries: Sequence[StoredEntry], folder: Path) -> int:
    """Write the archive and return its size. Blocks. Raises HttpProblem."""
    lines, written = [f"# {title}\n\n", *(render_entry(asdict(entry), "md") for entry in entries)], 0
    with zipfile.ZipFile(file, "w") as archive:
        for part in PARTS:
            for path, stamp in sorted(safe_files.list_files(folder / part, BOUNDS, lambda _path, _why: None).items()):
                if stamp.problem:
                    continue
                written += _add(
                    archive, folder / part, path, f"files/{part}/{'/'.join(map(safe_name, path.split('/')))}"
                )
                if written > MOST_BYTES:
                    raise TOO_MUCH
        archive.writestr("thread.md", "".join(lines), zipfile.ZIP_DEFLATED)
    return file.tell()


def _add(archive: zipfile.ZipFile, root: Path, path: str, name: str) -> int:
    """Add a file of a conversation, which its agent may change meanwhile; return its size. A link is left out."""
    try:
        with safe_files.open_regular(root, path) as fd:
            size = os.fstat(fd).st_size
            if size > MOST_BYTES:
                raise TOO_MUCH
            with open(fd, "rb", closefd=False) as source, archive.open(name, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)
            return size
    except SandboxFileError:
        return 0
