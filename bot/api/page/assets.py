"""Serve the files of the page: own ES modules, one stylesheet, and the vendored libraries."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bot.http.route import Route

if TYPE_CHECKING:
    from aiohttp import web

STATIC = Path(__file__).parent / "static"
FOLDERS = ("", "vendor/", "vendor/highlight/")
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
ENTRY = "index.html"  # of every address of the page
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "frame-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent."""

    type: str
    content: bytes
    packed: bytes  # with gzip
    tag: str

    @classmethod
    def read(cls, path: Path) -> Asset:
        """Read a file, which ships with Fawn."""
        content = path.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
        return cls(TYPES[path.suffix], content, gzip.compress(content, 9, mtime=0), tag)


def read_assets() -> Mapping[str, Asset]:
    """Return name below `static` → file."""
    files = (path for folder in FOLDERS for path in STATIC.glob(f"{folder}*") if path.suffix in TYPES)
    return {path.relative_to(STATIC).as_posix(): Asset.read(path) for path in files}


class Assets:
    """The routes of the files. They are read once, when a browser first asks."""

    def __init__(self) -> None:
        self._files: Mapping[str, Asset] = {}
        self._reading = asyncio.Lock()

    def routes(self) -> Sequence[Route]:
        """Return the routes, which need no login: the files say nothing about anybody."""
        return [
            Route("GET", "/", self._entry, quiet=True),
            Route("GET", "/login", self._entry, quiet=True),
            Route("GET", "/page/static/{name:.+}", self._file, quiet=True),
        ]

    async def _entry(self, request: web.Request) -> web.Response:
        return await self._answer(request, ENTRY)

    async def _file(self, request: web.Request) -> web.Response:
        return await self._answer(request, request.match_info["name"])

    async def _answer(self, request: web.Request, name: str) -> web.Response:
        from aiohttp import web

        async with self._reading:
            self._files = self._files or await asyncio.to_thread(read_assets)
        found = self._files.get(name)
        if found is None:
            raise web.HTTPNotFound
        headers = {**HEADERS, "ETag": found.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("If-None-Match") == found.tag:
            return web.Response(status=304, headers=headers)
        takes_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
        headers |= {"Content-Encoding": "gzip"} if takes_gzip else {}
        body = found.packed if takes_gzip else found.content
        return web.Response(body=body, content_type=found.type, charset="utf-8", headers=headers)
