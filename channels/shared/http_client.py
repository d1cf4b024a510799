"""HTTP sessions of the platforms' API clients, and their network errors as channel errors."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import aiohttp

from channels.base import OutcomeUnknown, TryLater

CONNECT_TIMEOUT_SECONDS = 10.0
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


def create_session(certificates: ssl.SSLContext, headers: Mapping[str, str] | None = None) -> aiohttp.ClientSession:
    """Create a session that keeps connections alive and limits their number nowhere."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_TIMEOUT_SECONDS, ssl=certificates)
    return aiohttp.ClientSession(connector=connector, headers=headers, timeout=CALL_TIMEOUT)


@contextmanager
def mapped_network_errors(platform: str, *, repeatable: bool = False) -> Iterator[None]:
    """Raise TryLater if the platform cannot have received the call, else OutcomeUnknown.

    A `repeatable` call, such as a download, always gives TryLater. The error names only the type of its cause, whose
    text may contain a URL with a token.
    """
    try:
        yield
    except _NOT_SENT as error:
        raise TryLater(f"{platform} cannot be reached ({type(error).__name__})") from None
    except (aiohttp.ClientError, OSError) as error:
        kind = TryLater if repeatable else OutcomeUnknown
        raise kind(f"{platform} did not answer ({type(error).__name__})") from None


def retry_after_seconds(headers: Mapping[str, str]) -> float:
    """Return the seconds of the Retry-After header, or 1.0 without one."""
    value = str(headers.get("Retry-After", ""))
    return float(value) if value.isdigit() else 1.0
