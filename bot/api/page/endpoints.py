"""Serve the page's files, its login, who one is, and its words.

Serve the files of the page: own ES modules, one stylesheet, and the vendored libraries.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.models.presets import effort_names
from bot.api.page.operate import allowed_deeds
from bot.api.page.words import page_words
from bot.api.shared.caller import find_caller
from bot.api.shared.sessions import (
    LOGIN,
    PERSON_HEADER,
    SESSION_SECONDS,
    cookie_name,
    cookie_var,
    for_page,
    refuse_other_pages,
    sign_out,
    signed_in_by_proxy,
    use_identity,
    use_key,
    use_link,
)
from bot.base.version import VERSION
from bot.commands.feature import Door
from bot.config.team import DEFAULT_AGENT, RoleConfig
from bot.http.route import HttpProblem, Route, json_response, read_json
from bot.http.visitors import OWN_PAGES
from bot.rights.access import notify_after
from bot.rights.current import Current
from bot.storage.api_access import READ
from catalogue import current_language, default_language, preferred_language, use_language
from channels.shared.texts import language_of

if TYPE_CHECKING:
    from aiohttp import web


STATIC = Path(__file__).parent / "static"
FOLDERS = ("", "vendor/", "vendor/highlight/")
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
DOCUMENTS = ("text/html", "image/svg+xml")  # what a browser can show by itself: HEADERS bind only such
ENTRY = "index.html"  # of every address of the page
MAIN, LAST = "app.js", b'<script type="module"'
IMPORT = re.compile(rb'^import [^"]*"/page/static/([^"]+)";', re.MULTILINE)
PLACE = (
    "/page/static/"  # of the files; below it, those of a version, which never change, have its digest before the name
)
ASKS = "asks"  # in the query of LOGIN: the page asks before it signs in
VERSIONED = re.compile(r"[0-9a-f]{16}/")
VERSION_BYTES, FOREVER = 8, "public, max-age=31536000, immutable"
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
    def make(cls, path: Path, content: bytes) -> Asset:
        """Return a file with this content."""
        tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
        return cls(TYPES[path.suffix], content, gzip.compress(content, 9, mtime=0), tag)


def read_assets() -> Mapping[str, Asset]:
    """Return name below `static` → file, also with the version of all before the name: the files name each other so."""
    paths = sorted(path for folder in FOLDERS for path in STATIC.glob(f"{folder}*") if path.suffix in TYPES)
    files = {path: path.read_bytes() for path in paths}
    version = hashlib.blake2b(b"".join(files.values()), digest_size=VERSION_BYTES).hexdigest()
    files[STATIC / ENTRY] = _with_preloads(files)
    plain, versioned = PLACE.encode(), f"{PLACE}{version}/".encode()
    assets = {
        path.relative_to(STATIC).as_posix(): Asset.make(path, content.replace(plain, versioned))
        for path, content in files.items()
    }
    return {**assets, **{f"{version}/{name}": asset for name, asset in assets.items() if name != ENTRY}}


def _with_preloads(files: Mapping[Path, bytes]) -> bytes:
    """Return the entry with a link to each module that it needs: else a browser learns of one from another."""
    needed, found = [STATIC / MAIN], list[Path]()
    while needed:
        if (path := needed.pop()) not in found:
            found.append(path)
            needed += [STATIC / name.decode() for name in IMPORT.findall(files[path])]
    links = "".join(f'<link rel="modulepreload" href="{PLACE}{path.relative_to(STATIC)}">\n' for path in found[1:])
    return files[STATIC / ENTRY].replace(LAST, links.encode() + LAST)


class Assets:
    """The routes of the files. They are read once, when a browser first asks."""

    def __init__(self) -> None:
        self._files: Mapping[str, Asset] = {}
        self._reading = asyncio.Lock()

    def routes(self) -> Sequence[Route]:
        """Return the routes, which need no login: the files say nothing about anybody."""
        return [
            Route("GET", "/", self._entry, quiet=True),
            Route("GET", LOGIN, self._login, quiet=True),
            Route("GET", PLACE + "{name:.+}", self._file, quiet=True),
        ]

    async def _entry(self, request: web.Request) -> web.Response:
        return await self._answer(request, ENTRY)

    async def _login(self, request: web.Request) -> web.StreamResponse:
        """Serve the page for a link. Where another page has led to it, the page asks first (`ASKS`).

        The token is in the fragment, which a browser keeps through the redirect.
        """
        from aiohttp import web

        if ASKS not in request.query and not all(
            site in OWN_PAGES for site in request.headers.getall("Sec-Fetch-Site", ())
        ):
            raise web.HTTPSeeOther(f"{LOGIN}?{ASKS}", headers={"Cache-Control": "no-store"})
        return await self._entry(request)

    async def _file(self, request: web.Request) -> web.Response:
        return await self._answer(request, request.match_info["name"])

    async def _answer(self, request: web.Request, name: str) -> web.Response:
        from aiohttp import web

        async with self._reading:
            self._files = self._files or await asyncio.to_thread(read_assets)
        found = self._files.get(name)
        if found is None:
            raise web.HTTPNotFound
        kept = FOREVER if VERSIONED.match(name) else "no-cache"
        shown = HEADERS if found.type in DOCUMENTS else {}
        headers = {**shown, "ETag": found.tag, "Cache-Control": kept, "Vary": "Accept-Encoding"}
        if request.headers.get("If-None-Match") == found.tag:
            return web.Response(status=304, headers=headers)
        takes_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
        headers |= {"Content-Encoding": "gzip"} if takes_gzip else {}
        body = found.packed if takes_gzip else found.content
        return web.Response(body=body, content_type=found.type, charset="utf-8", headers=headers)


BODY_BYTES = 1024
BAD_LOGIN = HttpProblem(422, "bad_body", "This is no login.", 'Send {"token": "…"} or {"key": "…"}.')


@dataclass(frozen=True, slots=True)
class PageEndpoints:
    """The routes of the page."""

    door: Door
    assets: Assets = field(default_factory=Assets)

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            *self.assets.routes(),
            Route("POST", "/page/login", self._sign_in, body_bytes=BODY_BYTES),
            Route("GET", "/page/words", self._words, quiet=True),
            for_page(Route("POST", "/logout", self._sign_out, body_bytes=BODY_BYTES)),
            for_page(Route("GET", "/me", self._me)),
        ]

    async def _sign_in(self, request: web.Request) -> web.Response:
        refuse_other_pages(request)
        match await read_json(request):
            case {"token": str(token), **more}:
                cookie = request.cookies.get(cookie_name(request), "")
                use = partial(use_link, token=token, cookie=cookie, replaces=more.get("replace") is True)
            case {"key": str(key)}:
                use = partial(use_key, key=key)
            case {"proxy": True} if named := signed_in_by_proxy(self.door.current.config.http.identity, request):
                use = partial(use_identity, channel=named[0], person=named[1])
            case _:
                raise BAD_LOGIN
        session, _row = await self.door.store.run(use)
        response = json_response(200, {})
        response.set_cookie(
            cookie_name(request),
            session,
            httponly=True,
            samesite="Strict",
            max_age=int(SESSION_SECONDS),
            secure=request.headers.get("Origin", "").startswith("https:"),
        )
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        await self.door.store.run(
            partial(sign_out, token=cookie_var.get() or "", shown=request.headers.get(PERSON_HEADER, ""))
        )
        response = json_response(200, {}, {"Clear-Site-Data": '"cache"'})
        response.del_cookie(cookie_name(request), httponly=True, samesite="Strict")
        return response

    async def _words(self, request: web.Request) -> web.Response:
        """Return the sentences of the page in the language of the browser, or in the asked one."""
        asked = request.query.get("language", "") or request.headers.get("Accept-Language", "")
        with use_language(preferred_language(asked) or default_language("")):
            return json_response(200, page_words())

    async def _me(self, request: web.Request) -> web.Response:
        """Return who is signed in, what they may do, and the commands that they may write."""
        caller = await find_caller(self.door, request, READ)
        access, author = self.door.current.access, caller.author
        role = await self.door.store.run(partial(access.role_of, place=caller.chat, person=author.id), durable=False)
        may = await self.door.store.run(partial(allowed_deeds, door=self.door, caller=caller), durable=False)
        default = self.door.current.limits.notify_seconds
        told = partial(notify_after, channel=caller.chat.channel, person=author.id, default=default)
        with use_language(language_of(caller.chat, caller.author)):
            commands = [asdict(each) for each in self.door.commands.listed()]
            language, words = current_language(), page_words()
        found = {"name": author.name or author.id.partition(":")[2], "role": role.name, "rights": sorted(role.rights)}
        more = {
            "person": author.id,
            "version": VERSION,
            **choices(self.door.current, role),
            "may": may,
            "language": language,
            "notify_seconds": await self.door.store.run(told, durable=False),  # None: never
            "upload_bytes": self.door.current.config.uploads.max_mb << 20,
            "commands": commands,
            "words": words,
        }
        response = json_response(200, {**found, **more})
        response.enable_compression()  # its words are most of a first load
        return response


def choices(current: Current, role: RoleConfig) -> dict[str, object]:
    """Return the models and the agents that a person of this role may choose, each with what it is."""
    efforts = {entry.name: effort_names(entry.preset, entry.use) for entry in current.config.models}
    models = [
        {"name": name, "label": label, "efforts": efforts.get(name, ())}
        for name, label in current.models.items()
        if role.may_use_model(name)
    ]
    agents = [{"name": name, "label": text} for name, text in current.agents.items() if role.may_use_agent(name)]
    return {"models": models, "agents": agents, "may_use_default_agent": role.may_use_agent(DEFAULT_AGENT)}
