"""Send spans to a collector by OTLP over HTTP, as JSON. Imported only where `traces.endpoint` is set.

The spans wait in a queue of bounded length and size; what does not fit is counted and left out, so that a collector
that does not answer costs nothing but its traces. A collector that is busy is asked again, as
opentelemetry.io/docs/specs/otlp/#otlphttp-response wants it; whatever else it refuses is dropped with one warning.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

import aiohttp
import orjson

from agent.backoff import backoff_seconds
from agent.settings.network import choose_proxy, make_trust
from agent.spans import Span
from bot.base.version import VERSION
from bot.config.operations import TracesConfig
from bot.telemetry.conventions import CONTENTS, SpanFormat, attribute_list

log = logging.getLogger(__name__)

EVERY_SECONDS = 2.0  # between two exports
MAX_SPANS = 8192  # that wait
MAX_CONTENT_CHARS = 16_000_000  # of the contents that wait
BATCH_SPANS = 256  # in one request: it is encoded in a few milliseconds
TIMEOUT_SECONDS = 10.0
CLOSE_SECONDS = 3.0  # for what is left at a shutdown
MAX_BACKOFF_SECONDS = 60.0
BUSY = (429, 502, 503, 504)  # the only ones to try again
MAX_ANSWER_BYTES = 10_000


class Later(Exception):
    """The collector does not take spans now. `seconds` is what it asked for, 0 for nothing."""

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


class TraceExporter:
    """Queues spans (`read`) and sends them (`serve`, `close`)."""

    def __init__(self, settings: TracesConfig, spans: SpanFormat, instance: str) -> None:
        self._settings, self._format = settings, spans
        self._waiting: deque[Span] = deque()
        self._chars = 0
        self.dropped = 0
        self._failures = 0
        self._problem: str | None = None
        resource = {"service.name": settings.service, "service.version": VERSION, "service.instance.id": instance}
        self._resource = {"attributes": attribute_list(resource)}

    def read(self, span: Span) -> None:
        """Queue a span that has ended, if it belongs to a trace."""
        if not self._format.wants(span):
            return
        chars = _content_chars(span)
        if len(self._waiting) >= MAX_SPANS or self._chars + chars > MAX_CONTENT_CHARS:
            self.dropped += 1
            return
        self._waiting.append(span)
        self._chars += chars

    async def serve(self) -> None:
        """Send what waits, every two seconds, until cancelled."""
        async with self._session() as session:
            while True:
                await asyncio.sleep(EVERY_SECONDS)
                try:
                    await self._send_all(session)
                    self._failures = 0
                except Later as later:
                    self._failures += 1
                    if self._failures == 1:
                        log.warning("traces.later reason=%s waiting=%d", later, len(self._waiting))
                    await asyncio.sleep(later.seconds or backoff_seconds(self._failures, MAX_BACKOFF_SECONDS))
                if self.dropped:
                    log.warning("traces.dropped spans=%d", self.dropped)
                    self.dropped = 0

    async def close(self) -> None:
        """Send what waits, once. Never raises."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS), self._session() as session:
                await self._send_all(session)
        except (Later, TimeoutError) as error:
            log.warning("traces.lost spans=%d reason=%s", len(self._waiting), error or "timeout")

    async def _send_all(self, session: aiohttp.ClientSession) -> None:
        """Send the queue in batches. Raises Later; what was not taken waits on."""
        while self._waiting:
            batch = [self._waiting[i] for i in range(min(BATCH_SPANS, len(self._waiting)))]
            await self._send(session, batch)
            for span in batch:
                self._waiting.popleft()
                self._chars -= _content_chars(span)

    async def _send(self, session: aiohttp.ClientSession, spans: Sequence[Span]) -> None:
        scope = {"scope": {"name": "fawn", "version": VERSION}, "spans": [*map(self._format.as_json, spans)]}
        body = orjson.dumps({"resourceSpans": [{"resource": self._resource, "scopeSpans": [scope]}]})
        problem = await post(session, self._settings, body)
        if problem and problem != self._problem:  # one line a series
            log.warning("traces.refused spans=%d reason=%s", len(spans), problem)
        self._problem = problem

    def _session(self) -> aiohttp.ClientSession:
        return open_session(self._settings)


def open_session(settings: TracesConfig) -> aiohttp.ClientSession:
    """Return a session with the headers of the configuration."""
    headers = {"Content-Type": "application/json", **{name: text.reveal() for name, text in settings.headers.items()}}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    return aiohttp.ClientSession(
        headers=headers,
        timeout=timeout,
        connector=aiohttp.TCPConnector(ssl=make_trust()),
        proxy=choose_proxy(settings.endpoint),
    )


async def post(session: aiohttp.ClientSession, settings: TracesConfig, body: bytes) -> str | None:
    """Post one request; return what is wrong with it, None if it was taken. Raises Later."""
    try:
        async with session.post(settings.endpoint, data=body, allow_redirects=False) as answer:
            if answer.status in BUSY:
                wait = answer.headers.get("Retry-After", "")
                raise Later(f"HTTP {answer.status}", min(float(wait), MAX_BACKOFF_SECONDS) if wait.isdecimal() else 0.0)
            text = await answer.content.read(MAX_ANSWER_BYTES)
            status = answer.status
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Later(type(error).__name__) from error
    if status >= 300:
        return f"HTTP {status}"
    rejected = _rejected(text)
    return f"{rejected} spans were rejected" if rejected else None


def _rejected(text: bytes) -> int:
    """Return how many spans an answer says that it did not take (ExportTraceServiceResponse)."""
    try:
        return int(orjson.loads(text)["partialSuccess"].get("rejectedSpans", 0))
    except (ValueError, TypeError, KeyError, AttributeError):
        return 0


def _content_chars(span: Span) -> int:
    return sum(len(span.facts[fact]) for fact in CONTENTS if fact in span.facts)
