"""HTTP sessions of the platforms' API clients, and their network errors as channel errors."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

import aiohttp
from aiohttp.connector import Connection

from agent.settings.network import choose_proxy, describe_failure, make_trust
from agent.spans import SpanKind, is_read, open_span
from channels.base import MayPass, OutcomeUnknown, Refused, TokenRejected, TryLater, Unattended
from channels.shared.files import CHUNK

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 10.0
LONG_POLL = "long poll"  # `trace_request_ctx` of a request that the server answers when something happens
IDLE_TIMEOUT_SECONDS = 15.0  # shorter than the servers' own, so that they close no connection under a call

_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)


def call_timeout(silence_seconds: float) -> aiohttp.ClientTimeout:
    """Limit the time to connect and the server's silence, but not the length of a transfer."""
    return aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=silence_seconds)


CALL_TIMEOUT = call_timeout(20.0)  # the default of a session
UPLOAD_TIMEOUT = call_timeout(120.0)  # the server processes an upload before it answers


class RateLimited(TryLater):
    """The platform rejected a call because of its rate limit."""

    def __init__(self, platform: str, seconds: float) -> None:
        super().__init__(f"{platform} asked to retry after {seconds:.3g} s", seconds)


class CodedRefusal(MayPass):
    """The platform refused a call, with a code. Subclasses are the codes that the channel knows."""

    platform: ClassVar[str]

    def __init__(self, code: str | int, message: str) -> None:
        super().__init__(f"{self.platform}: {message[:300]} ({code})")
        self.code = code


class TokenState:
    """Whether the platform takes a token, by the latest answer to a call with it: connections outlive a token."""

    def __init__(self) -> None:
        self.fault = ""  # why the platform rejects it, "" while it takes it
        self.since = 0.0  # Unix time of the fault

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note what a call says about the token."""
        try:
            yield
        except TokenRejected as error:
            if not self.fault:
                self.since = time.time()
                log.warning("channel.token_rejected reason=%s", error)
            self.fault = str(error)
            raise
        except Refused:
            self.fault = ""
            raise
        self.fault = ""


class HttpClient:
    """One HTTP session with the proxy and the certificates of a channel's settings. `platform` names it in errors."""

    certificates: ssl.SSLContext  # from `open` on

    def __init__(self, platform: str, proxy: str, ca_file: str, headers: Mapping[str, str] | None = None) -> None:
        self.platform = platform
        self._proxy = proxy
        self._ca_file = ca_file
        self._headers = headers
        self._session: aiohttp.ClientSession | None = None
        self.may_call: Callable[[], bool] = lambda: True
        self.token_state = TokenState()  # of the token with which most calls are made

    def check_may_call(self) -> None:
        """Raise Unattended where this process may make no call."""
        if not self.may_call():
            raise Unattended("another process may do this now")

    def proxy_for(self, url: str) -> str | None:
        """Return the proxy for an address of the platform."""
        return choose_proxy(url, self._proxy)

    async def open(self) -> None:
        """Open the session, which keeps connections alive and does not limit their number. Raises Refused."""
        check_proxy(self._proxy)
        try:
            self.certificates = await asyncio.to_thread(make_trust, self._ca_file)
        except OSError as error:
            reason = f"`ca_file` cannot be used ({type(error).__name__}): name a PEM file of certificates"
            raise Refused(reason) from None
        connector = FencedConnector(
            self.check_may_call, limit=0, keepalive_timeout=IDLE_TIMEOUT_SECONDS, ssl=self.certificates
        )
        traces = [report_calls(self.platform.lower())] if is_read() else []
        self._session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=CALL_TIMEOUT, trace_configs=traces
        )

    async def close(self) -> None:
        if self._session:
            await self._session.close()
            self._session = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session. Raises TryLater before `open` and after `close`."""
        if self._session is None or self._session.closed:
            raise TryLater("the channel is closed")
        return self._session

    @asynccontextmanager
    async def request(
        self, method: str, url: str, *, repeatable: bool = False, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make one call. Network errors, and OutcomeUnknown of the caller, become what `mapped_network_errors` says.

        A GET is always repeatable. `options` are aiohttp's.
        """
        if not isinstance(options.get("data", b""), (bytes, str, type(None))):
            options.setdefault("timeout", UPLOAD_TIMEOUT)
        with mapped_network_errors(self.platform, repeatable=repeatable or method == "GET"):
            async with self.session.request(method, url, proxy=self.proxy_for(url), **options) as answer:
                yield answer

    async def download(
        self, url: str, check: Callable[[aiohttp.ClientResponse], Awaitable[None]] | None = None, **options: Any
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes behind a URL in chunks. `check` raises the platform's own errors. Raises TryLater."""
        async with self.request("GET", url, **options) as answer:
            if check:
                await check(answer)
            if answer.status != 200:
                reason = f"{self.platform}'s file server answered {answer.status}"
                raise TryLater(reason, retry_after_seconds(answer.headers))
            async for chunk in answer.content.iter_chunked(CHUNK):
                yield chunk


class FencedConnector(aiohttp.TCPConnector):
    """Asks `check` once more when a request has its connection: it is sent then, and a process can be paused before."""

    def __init__(self, check: Callable[[], None], **options: Any) -> None:
        super().__init__(**options)
        self._check = check

    async def connect(
        self, request: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """Return a connection. Raises what `check` raises."""
        connection = await super().connect(request, traces, timeout)
        try:
            self._check()
        except BaseException:
            connection.release()
            raise
        return connection


def report_calls(platform: str) -> aiohttp.TraceConfig:
    """Return what reports each request of a session, also those of an SDK. One with LONG_POLL waits on purpose."""
    config = aiohttp.TraceConfig()

    async def begin(_session: object, call: Any, request: aiohttp.TraceRequestStartParams) -> None:
        call.span = open_span(SpanKind.CALL, platform, method=request.method, poll=call.trace_request_ctx == LONG_POLL)

    async def end(_session: object, call: Any, answered: aiohttp.TraceRequestEndParams) -> None:
        call.span.note(status=answered.response.status)
        call.span.end()

    async def fail(_session: object, call: Any, failed: aiohttp.TraceRequestExceptionParams) -> None:
        call.span.note(failed=type(failed.exception).__name__)
        call.span.end()

    config.on_request_start.append(begin)
    config.on_request_end.append(end)
    config.on_request_exception.append(fail)
    return config


@contextmanager
def mapped_network_errors(platform: str, *, repeatable: bool = False) -> Iterator[None]:
    """Raise TryLater if the platform cannot have received the call, else OutcomeUnknown.

    A `repeatable` call, such as a download, always gives TryLater. The error has only the system's reason: the
    text of its cause may contain a URL with a token.
    """
    try:
        yield
    except _NOT_SENT as error:
        raise TryLater(f"{platform} cannot be reached ({describe_failure(error)})") from None
    except (aiohttp.ClientError, OSError) as error:
        kind = TryLater if repeatable else OutcomeUnknown
        raise kind(f"{platform} did not answer ({describe_failure(error)})") from None
    except OutcomeUnknown as error:
        raise (TryLater(str(error)) if repeatable else error) from None


@asynccontextmanager
async def opened_file(path: Path, mode: Literal["rb", "wb"] = "rb") -> AsyncIterator[BinaryIO]:
    """Open a file to send, or one that comes, off the event loop."""
    opening: asyncio.Future[BinaryIO] = asyncio.ensure_future(asyncio.to_thread(path.open, mode))
    try:
        handle = await asyncio.shield(opening)
    except asyncio.CancelledError:  # the thread opens it all the same
        opening.add_done_callback(_close_unused)
        raise
    try:
        yield handle
    finally:
        await asyncio.to_thread(handle.close)


def _close_unused(opening: asyncio.Future[BinaryIO]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


async def read_body(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body of an answer. Raises OutcomeUnknown for one of more than `most` bytes."""
    parts, size = list[bytes](), 0
    async for part in answer.content.iter_chunked(CHUNK):
        parts.append(part)
        size += len(part)
        if size > most:
            raise OutcomeUnknown("the answer is too long")
    return b"".join(parts)


def retry_after_seconds(headers: Mapping[str, str]) -> float:
    """Return the seconds of the Retry-After header, or 1.0 without one."""
    value = str(headers.get("Retry-After", ""))
    return float(value) if value.isdigit() else 1.0


def check_proxy(proxy: str) -> None:
    """Raise Refused for a proxy that is not an HTTP proxy."""
    if proxy and not proxy.lower().startswith(("http://", "https://")):
        kind = proxy.partition("://")[0] if "://" in proxy else "unnamed"
        raise Refused(f"a proxy of kind {kind[:10]} cannot be used: `proxy` takes http://… or https://…")
