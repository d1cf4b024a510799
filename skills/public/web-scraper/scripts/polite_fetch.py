"""Fetch pages politely: robots.txt, one request per host at a time with a pause, Retry-After, a size limit, a cache."""

from __future__ import annotations

import hashlib
import time
import urllib.error
import urllib.parse
import urllib.request
import urllib.robotparser
from email.message import Message
from pathlib import Path
from typing import NamedTuple

USER_AGENT = "FawnScraper/1.0"
TIMEOUT_SECONDS = 20
MAX_PAGE_BYTES = 10 << 20
MAX_WAIT_SECONDS = 60  # that a server may ask for
RETRIES = 2
RETRIED_STATUSES = (429, 502, 503, 504)


class FetchFailure(Exception):
    """A page cannot be fetched. The text says why and what to do."""


class Page(NamedTuple):
    """A page: where it came from after redirects, and its HTML."""

    url: str
    text: str


def decode_page(data: bytes, headers: Message | None = None) -> str:
    charset = headers.get_content_charset() if headers else None
    start = data[:2048].lower()
    if not charset and b"charset=" in start:
        charset = (
            start.split(b"charset=", 1)[1]
            .strip(b"\"' ")
            .split(b'"')[0]
            .split(b"'")[0]
            .split(b">")[0]
            .split(b";")[0]
            .strip(b" /")
            .decode("ascii", "ignore")
        )
    for name in (charset, "utf-8", "gb18030"):
        try:
            return data.decode(name or "utf-8")
        except (UnicodeDecodeError, LookupError):
            continue
    return data.decode("latin-1")


class PoliteFetcher:
    """Fetches pages of the web, and reads files."""

    def __init__(self, delay: float, cache: Path | None = None) -> None:
        self._delay, self._cache = delay, cache
        self._last: dict[str, float] = {}  # when each host answered last
        self._robots: dict[str, urllib.robotparser.RobotFileParser] = {}

    def fetch(self, source: str) -> Page:
        """Return the page of a URL, or the content of a file. Raises FetchFailure."""
        if not source.startswith(("http://", "https://")):
            try:
                return Page(source, decode_page(Path(source).read_bytes()))
            except OSError as error:
                raise FetchFailure(f"{source}: {error.strerror}") from error
        kept = self._cache / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.html" if self._cache else None
        if kept and kept.is_file():
            return Page(source, kept.read_text("utf-8"))
        host = urllib.parse.urlsplit(source).netloc
        delay = max(self._delay, self._allowed_delay(source, host))
        page = self._request(source, host, delay)
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(page.text, encoding="utf-8")
        return page

    def _allowed_delay(self, url: str, host: str) -> float:
        """Return the pause that robots.txt asks for. Raises FetchFailure if it forbids the page."""
        if host not in self._robots:
            rules = urllib.robotparser.RobotFileParser()
            try:
                rules.parse(self._request(urllib.parse.urljoin(url, "/robots.txt"), host, 0).text.splitlines())
            except FetchFailure as failure:
                if "HTTP 4" not in str(failure):  # without robots.txt, everything is allowed
                    raise
                rules.parse([])
            self._robots[host] = rules
        rules = self._robots[host]
        if not rules.can_fetch(USER_AGENT, url):
            raise FetchFailure(f"{url}: robots.txt of {host} forbids it. Ask its owner, or use an API or an export.")
        return float(rules.crawl_delay(USER_AGENT) or 0)

    def _request(self, url: str, host: str, delay: float) -> Page:
        request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT, "Accept": "text/html,*/*;q=0.5"})
        for attempt in range(RETRIES + 1):
            time.sleep(max(0.0, self._last.get(host, 0.0) + delay - time.monotonic()))
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                    data = response.read(MAX_PAGE_BYTES + 1)
                    if len(data) > MAX_PAGE_BYTES:
                        raise FetchFailure(f"{url}: larger than {MAX_PAGE_BYTES >> 20} MB.")
                    return Page(response.url, decode_page(data, response.headers))
            except urllib.error.HTTPError as error:
                if error.code not in RETRIED_STATUSES or attempt == RETRIES:
                    raise FetchFailure(f"{url}: HTTP {error.code} {error.reason}") from error
                wait = error.headers.get("Retry-After", "")
                delay = max(delay, min(float(wait), MAX_WAIT_SECONDS) if wait.isdigit() else 2.0**attempt)
            except OSError as error:  # includes URLError and timeouts
                reason = getattr(error, "reason", error)
                raise FetchFailure(
                    f"{url}: {reason}. "
                    f"The operator decides what the sandbox's network allows; local files work without it."
                ) from error
            finally:
                self._last[host] = time.monotonic()
        raise AssertionError("the last attempt returns or raises")
