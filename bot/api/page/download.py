"""Send a thread as one archive: what was said as Markdown, with the files that came and went."""

from __future__ import annotations

import asyncio
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from aiohttp import web

from bot.api.shared.caller import Caller, find_caller
from bot.api.shared.file_endpoints import BoundedFile, attachment
from bot.api.shared.paths import path_thread
from bot.api.shared.read_models import find_thread
from bot.api.shared.sessions import for_page
from bot.base.web_files import WebFiles, open_draft
from bot.commands.feature import Door
from bot.database.database import Execute
from bot.database.states import EntryKind
from bot.http.route import HttpProblem, Route
from bot.status.transcript_format import render_entry
from bot.storage import transcripts, web_files
from bot.storage.api_keys import READ
from bot.storage.transcripts import StoredEntry
from sandbox.disk.file_threads import run_file_work

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

PAGE_ENTRIES = 1000
MOST_ENTRIES, MOST_BYTES = 200_000, 2 << 30
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
            if len(entries) > MOST_ENTRIES:
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
            id = web_files.id_of_entry(entry.item, sent=bool(entry.author))
            if web_files.find_file(execute, id, caller.author.id):
                found[entry.id] = id
    return found


def safe_name(name: str) -> str:
    """Return the last part of a path as the name of a file in an archive."""
    return re.sub(r"[^\w .()-]+", "_", name.rpartition("/")[2]).strip(" .")[:120] or "file"
