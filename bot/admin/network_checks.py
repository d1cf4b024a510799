"""Checks of the way to the outside: names that resolve, proxies that listen, and a clock that is right."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterable, Sequence
from email.utils import parsedate_to_datetime
from statistics import median_low
from urllib.parse import urlsplit

import aiohttp

from bot.base.findings import Finding
from bot.config.schema import Config
from bot.status.egress import Destination, list_destinations
from catalogue import _, list_items

LOOKUP_SECONDS = 5.0
MOST_CLOCKS = 3  # hosts whose clocks are compared
SKEW_NOTE_SECONDS = 30.0
SKEW_FAULT_SECONDS = 300.0  # https://docs.slack.dev/authentication/verifying-requests-from-slack
OPTIONAL = ("sandbox.network", "web.fetch")  # what these reach may be gone without harm to the service


async def check_network(config: Config) -> list[Finding]:
    """Look up every host, connect to every proxy, and compare the clock with those of servers."""
    reached = list_destinations(config)[0]
    direct = [each for each in reached if not (each.is_local or each.through or "*" in each.host)]
    proxies = sorted({each.through for each in reached if each.through})
    return [
        *await _check_names(direct),
        *await asyncio.gather(*map(_check_proxy, proxies)),
        *await check_clock_skew([f"https://{each.host}:{each.port}/" for each in direct if each.port == 443]),
    ]


async def _check_names(destinations: Sequence[Destination]) -> list[Finding]:
    hosts = {each.host: each for each in destinations}
    lost = [host for host, found in zip(hosts, await asyncio.gather(*map(_resolves, hosts)), strict=True) if not found]
    if not hosts:
        return []
    if not lost:
        return [Finding("ok", _("names"), _("{n} hosts have an address", n=len(hosts)))]
    named = [f"{host} ({hosts[host].what})" for host in lost]
    fix = _("check the names and the resolver (/etc/resolv.conf); behind a proxy, set `proxy`")
    needed = any(not hosts[host].what.startswith(OPTIONAL) for host in lost)
    return [
        Finding("fault" if needed else "note", _("names"), _("no address for {hosts}", hosts=list_items(named)), fix)
    ]


async def _resolves(host: str) -> bool:
    with contextlib.suppress(OSError, UnicodeError):  # a TimeoutError is an OSError
        async with asyncio.timeout(LOOKUP_SECONDS):
            await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return True
    return False


async def _check_proxy(address: str) -> Finding:
    """Connect to a proxy, by its URL."""
    parts = urlsplit(address)
    where = f"{parts.hostname}:{parts.port or 80}"
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            _reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    except OSError as error:
        text = _("{address} does not answer: {why}", address=where, why=_why(error))
        return Finding("fault", _("proxy"), text, _("start it, or correct `proxy`"))
    writer.close()
    return Finding("ok", _("proxy"), _("{address} listens", address=where))


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__


async def check_clock_skew(urls: Iterable[str]) -> list[Finding]:
    """Compare this machine's clock with the header `Date` of servers; nothing if none says it."""
    asked = list(dict.fromkeys(urls))[:MOST_CLOCKS]
    skews = [skew for skew in await asyncio.gather(*map(_skew, asked)) if skew is not None]
    if not skews:
        return []
    seconds = median_low(skews)
    if abs(seconds) < SKEW_NOTE_SECONDS:
        return [Finding("ok", _("clock"), _("it agrees with {n} servers", n=len(skews)))]
    text = (
        _("it is {n:.0f} seconds ahead of the servers", n=seconds)
        if seconds > 0
        else _("it is {n:.0f} seconds behind the servers", n=-seconds)
    )
    fix = _("set it by NTP: `sudo timedatectl set-ntp true`")
    return [Finding("fault" if abs(seconds) >= SKEW_FAULT_SECONDS else "note", _("clock"), text, fix)]


async def _skew(url: str) -> float | None:
    """Return by how many seconds our clock is ahead of a server's; None if it does not say."""
    timeout = aiohttp.ClientTimeout(total=LOOKUP_SECONDS)
    with contextlib.suppress(OSError, aiohttp.ClientError, ValueError):
        async with aiohttp.ClientSession(timeout=timeout) as session:
            began = time.time()
            async with session.head(url, allow_redirects=False) as answer:
                ours = (began + time.time()) / 2
                said = answer.headers.get("Date", "")
        return ours - parsedate_to_datetime(said).timestamp() if said else None
    return None
