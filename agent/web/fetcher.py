"""Fetch public pages as Markdown, with a limit on everything that a hostile server controls."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
from yarl import URL

from agent.parsing.child import ParserFailed, ParserProcess
from agent.settings.network import choose_proxy, make_trust
from agent.web.addresses import AddressGuard, WebError
from agent.web.robots import ROBOT_NAME, Politeness
from sandbox.inside.text_encoding import codec_of

MAX_REDIRECTS = 5
MAX_BYTES = 5 << 20  # of a page, as it is sent and decompressed
MAX_PDF_BYTES = 20 << 20
MAX_ROBOTS_BYTES = 500 << 10  # RFC 9309 §2.5
TIMEOUT_SECONDS = 60.0  # of a page with its redirects
REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30.0, sock_connect=8.0, sock_read=15.0)
REDIRECTS = (301, 302, 303, 307, 308)
HEADERS = {
    "User-Agent": f"Mozilla/5.0 (compatible; {ROBOT_NAME}/1.0)",
    "Accept": "text/html,application/xhtml+xml,text/markdown,text/plain,application/pdf,*/*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}
KEEP_SECONDS = 1800.0
MAX_KEPT_PAGES = 64
MAX_KEPT_CHARS = 200_000  # of one page
MAX_FETCHES = 10  # at once, of one conversation


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page: its final URL, what it says about itself, and its text as Markdown."""

    url: str
    title: str
    date: str
    text: str


@dataclass(frozen=True, slots=True)
class _Response:
    url: URL
    status: int
    reason: str
    mime: str
    codec: str  # of Python; "" if the page names none of the web
    body: bytes
    cut: bool
    location: str


class WebFetcher:
    """Fetches pages and keeps the latest in memory. Requests carry no cookies and no credentials. A
    proxy is asked only if it is configured, here or for the process."""

    def __init__(
        self,
        *,
        obeys_robots: bool = True,
        guard: AddressGuard | None = None,
        pace_seconds: float = 1.0,
        parser: ParserProcess | None = None,
        proxy: str = "",
    ) -> None:
        self._guard = guard or AddressGuard()
        self._proxy = proxy
        self._politeness = Politeness(self._read_robots, obeys_robots=obeys_robots, pace_seconds=pace_seconds)
        self._parser = parser or ParserProcess()
        self._fetches: Counter[Hashable] = Counter()
        self._kept: dict[URL, tuple[float, WebPage]] = {}

    async def fetch(self, text: str, *, max_age_seconds: float = KEEP_SECONDS, owner: Hashable = "") -> WebPage:
        """Return the page of a URL, read at most so long ago. Raises WebError.

        `owner` is the conversation that it is for: conversations share hosts and parsers fairly.
        """
        url = self._guard.check_url(text)
        kept_at, page = self._kept.get(url, (0.0, None))
        if page and time.monotonic() - kept_at < max_age_seconds:
            return page
        try:
            with self._counted(owner):
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    page = await self._parse(await self._follow(url, owner), owner)
        except TimeoutError:
            raise WebError(f"{url.host} did not deliver the page within {TIMEOUT_SECONDS:.0f} s.") from None
        self._kept.pop(url, None)
        if len(page.text) <= MAX_KEPT_CHARS:
            self._kept[url] = (time.monotonic(), page)
        if len(self._kept) > MAX_KEPT_PAGES:
            del self._kept[next(iter(self._kept))]
        return page

    @contextmanager
    def _counted(self, owner: Hashable) -> Iterator[None]:
        """Count a fetch of a conversation. Raises WebError if it has too many."""
        if self._fetches[owner] >= MAX_FETCHES:
            raise WebError(f"{MAX_FETCHES} pages are being read for this conversation: wait for one of them.")
        self._fetches[owner] += 1
        try:
            yield
        finally:
            self._fetches[owner] -= 1
            if not self._fetches[owner]:
                del self._fetches[owner]

    async def _follow(self, url: URL, owner: Hashable, *, polite: bool = True, limit: int = MAX_BYTES) -> _Response:
        """Request a URL and follow its redirects, each of which is checked like the first one."""
        for _ in range(MAX_REDIRECTS + 1):
            if polite:
                await self._politeness.wait_for_turn(url, owner)
            response = await self._request(url, limit)
            if response.status not in REDIRECTS or not response.location:
                return response
            try:
                target = str(url.join(URL(response.location)))
            except ValueError as error:
                raise WebError(f"{url.host} redirects to something that is not a URL.") from error
            url = self._guard.check_url(target)
        raise WebError(f"{url.host} redirects more than {MAX_REDIRECTS} times.")

    async def _read_robots(self, url: URL) -> tuple[int, bytes]:
        response = await self._follow(url, "", polite=False, limit=MAX_ROBOTS_BYTES)
        return response.status, response.body

    async def _request(self, url: URL, limit: int) -> _Response:
        proxy = choose_proxy(str(url), self._proxy)
        resolver = None if proxy else self._guard  # the proxy itself may be on a private network
        connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, ssl=make_trust())
        try:
            if proxy:
                await self._guard.check_name(url)
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,  # `_read_body` limits the result
                    trust_env=False,
                    timeout=REQUEST_TIMEOUT,
                    headers=HEADERS,
                ) as session,
                session.get(url, allow_redirects=False, proxy=proxy) as response,
            ):
                is_pdf = response.content_type == "application/pdf"
                body, cut = await _read_body(response, max(limit, MAX_PDF_BYTES) if is_pdf else limit)
                return _Response(
                    url,
                    response.status,
                    response.reason or "",
                    response.content_type,
                    codec_of(_charset_of(response)),
                    body,
                    cut,
                    response.headers.get("Location", "").strip(),
                )
        except TimeoutError:  # before OSError, of which it is a kind
            raise WebError(f"{url.host} does not answer in time.") from None
        except (aiohttp.ClientError, OSError, zlib.error, ValueError) as error:
            raise WebError(f"{url.host} could not be read: {_describe_error(error)}.") from error

    async def _parse(self, response: _Response, owner: Hashable) -> WebPage:
        url = str(response.url)
        if response.status >= 400:
            raise WebError(f"{url} answers with status {response.status} {response.reason[:60]}.")
        task = _parser_task(response)
        options = {} if task == "pdf" else {"codec": response.codec}
        if task == "html":
            options["url"] = url
        try:
            about, _ = await self._parser.run(task, response.body, owner=owner, **options)
        except ParserFailed as error:
            raise WebError(f"{url}: {error}.") from error
        text = about["text"].strip() + (f"\n\n[cut after {MAX_BYTES >> 20} MB]" if response.cut else "")
        return WebPage(url, about["title"].strip(), about["date"], text)


def _parser_task(response: _Response) -> str:
    mime = response.mime
    if mime in ("text/html", "application/xhtml+xml"):
        return "html"
    if mime == "application/pdf" and not response.cut:
        return "pdf"
    if mime == "application/pdf":
        raise WebError(f"{response.url} is a PDF of more than {MAX_PDF_BYTES >> 20} MB, which is too large.")
    if mime.startswith("text/") or mime.endswith(("json", "xml", "yaml", "javascript")):
        return "text"
    raise WebError(f"{response.url} is a file of type {mime[:80]}, not a page that can be read as text.")


def _describe_error(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "the name cannot be resolved"
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not valid"
        case aiohttp.ClientConnectorError():
            return "the connection failed"
        case zlib.error():
            return "its compressed data is damaged"
    return type(error).__name__


async def _read_body(response: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """Return at most `limit` bytes, decompressed, and whether more followed. What is sent has the same limit: blocks
    without content, and what follows the compressed data, would never end."""
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip", "x-gzip", "deflate"):
        raise WebError(f"{response.url.host} answers with the encoding {coding[:20]!r}, which was not asked for.")
    inflate = zlib.decompressobj(47) if coding != "identity" else None  # 47: zlib or gzip, by the header
    body, sent = bytearray(), 0
    async for chunk in response.content.iter_chunked(1 << 16):
        sent += len(chunk)
        body += inflate.decompress(chunk, limit + 1 - len(body)) if inflate else chunk
        if len(body) > limit or sent > limit:
            return bytes(body[:limit]), True
        if inflate and inflate.eof:
            break
    return bytes(body), False


def _charset_of(response: aiohttp.ClientResponse) -> str:
    try:
        return response.charset or ""
    except ValueError:  # a header that cannot be parsed
        return ""
