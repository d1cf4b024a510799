"""Serve the files of messages and runs, never as a page of a browser."""

from __future__ import annotations

import asyncio
import mimetypes
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from bot.api.shared import read_models
from bot.api.shared.caller import Caller, find_caller
from bot.api.shared.read_models import not_found
from bot.base.stored_files import WebFiles, copy_path
from bot.commands.feature import Door
from bot.database.database import Execute
from bot.http.route import HttpProblem, Route, Spec
from bot.journey.outbox import undelivered_file
from bot.storage.api_access import READ
from bot.storage.web import WebFileRow, find_file, parse_run_file

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # with `?inline`, for an `img` of the page
ACTIVE = re.compile(r"html|xml|svg|script|xsl")  # types that a browser might run
SLOWEST_BYTES, LEAST_SECONDS = 20_000, 60.0  # a second, that a client must take; and how long it has at least
FILE = Spec("A file", problems=(404, 410), media="file")
CLOSED = "default-src 'none'; sandbox"
# Of a page that the agent made, in a frame of the chat page: it has an origin of its own, without cookies and storage
# (https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Content-Security-Policy/sandbox). No policy keeps a
# script from WebRTC, so scripts run only where the reader has asked for that.
FRAMED = "; ".join(
    (
        "sandbox",
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "font-src data:",
        "media-src data: blob:",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'self'",
    )
)
SCRIPTED = FRAMED.replace("sandbox;", "sandbox allow-scripts; script-src 'unsafe-inline';", 1)
PAGE = "text/html"  # with `?page`, or `?page&scripts`, and only in a frame


class BoundedFile(web.FileResponse):
    """A file, whole or in part. The connection of a client that takes it too slowly is cut."""

    def __init__(self, path: Path, size: int, headers: Mapping[str, str]) -> None:
        super().__init__(path, headers=headers)
        self._seconds = max(LEAST_SECONDS, size / SLOWEST_BYTES)

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send it."""
        try:
            async with asyncio.timeout(self._seconds):
                return await super().prepare(request)
        except TimeoutError:
            if request.transport:
                request.transport.abort()
            raise ConnectionResetError("the client does not read") from None


@dataclass(frozen=True, slots=True)
class FileEndpoints:
    """The route."""

    door: Door
    files: WebFiles

    def routes(self) -> Sequence[Route]:
        """Return the route."""
        return [Route("GET", "/v1/files/{file}", self._send, spec=FILE)]

    async def _send(self, request: web.Request) -> web.StreamResponse:
        caller = await find_caller(self.door, request, READ)
        row, path = await self._find(caller, request.match_info["file"])
        framed = "page" in request.query and request.headers.get("Sec-Fetch-Dest") == "iframe"
        framed = framed and _type_of(row) == PAGE
        policy = (SCRIPTED if "scripts" in request.query else FRAMED) if framed else ""
        return BoundedFile(path, row.size, _headers(row, inline="inline" in request.query, policy=policy))

    async def _find(self, caller: Caller, id: str) -> tuple[WebFileRow, Path]:
        """Return a file of the caller, also one that is on its way still. Raises HttpProblem."""
        find = partial(_find_file, caller=caller, id=id, data_dir=self.door.current.config.data_dir)
        for _attempt in range(2):  # it may be delivered in between
            row, copy = await self.door.store.run(find, durable=False)
            for path in filter(None, (self.files.path(id), copy)):
                if await asyncio.to_thread(path.is_file):
                    return row, path
        raise HttpProblem(410, "gone", "The file is not kept any more.", "Ask for it again in the thread.")


def _find_file(execute: Execute, caller: Caller, id: str, data_dir: Path) -> tuple[WebFileRow, Path | None]:
    """Return a file, and its copy where it is on its way: the row of a file is there before its bytes."""
    row, named = find_file(execute, id, caller.author.id), parse_run_file(id)
    file = undelivered_file(execute, *named) if named else None
    copy = copy_path(data_dir, f"{file.path}") if file else None
    if row:
        return row, copy
    if not named:
        raise not_found("file")
    _found, _row, thread = read_models.read_run(execute, caller, named[0])
    if file is None:
        raise not_found("file")
    return WebFileRow(id, f"{thread}", caller.author.id, file.name, file.size, file.caption, time.time()), copy


def _type_of(row: WebFileRow) -> str:
    return mimetypes.guess_type(row.name)[0] or "application/octet-stream"


def _headers(row: WebFileRow, *, inline: bool, policy: str) -> dict[str, str]:
    """Return the headers; `policy` is that of a frame, "" elsewhere."""
    mime = _type_of(row)
    if policy:
        return {
            "Content-Type": f"{PAGE}; charset=utf-8",
            "Content-Security-Policy": policy,
            "X-DNS-Prefetch-Control": "off",
            "Cache-Control": "no-store",
        }
    mime = "application/octet-stream" if ACTIVE.search(mime) else mime
    how = "inline" if inline and mime in PICTURES else "attachment"
    return {
        "Content-Type": mime,
        **attachment(row.name, how),
        "Cache-Control": "private, no-cache",  # each use asks whether it is still theirs
    }


def attachment(name: str, how: str = "attachment") -> dict[str, str]:
    """Return the headers that have a browser store a file under this name, and show it nowhere as a page."""
    plain = re.sub(r'[^\x20-\x7e]|["\\]', "_", name)
    return {
        "Content-Disposition": f"{how}; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}",
        "Content-Security-Policy": CLOSED,
    }
