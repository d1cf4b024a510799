"""Checks of the way to the outside: names that resolve, proxies that listen, and a clock that is right.

Check of `fawn check`: whether the PostgreSQL database can be reached, is fit, and is free for the next start.
"""

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

from agent.settings.network import make_trust
from bot.base.findings import Finding
from bot.config.schema import Config
from bot.database.early_data import is_early
from bot.database.migrate import DatabaseFault, head_revision, revision_chain
from bot.service.store import FILE, read_store
from bot.status.egress import Destination, list_destinations
from catalogue import N_, _, join_sentences, list_items, localized

SUBJECT = N_("database")


async def check_database(config: Config, *, served: bool) -> list[Finding]:
    """Ask the server; nothing where the database is SQLite's file. `served`: this data_dir has a running service."""
    if not config.database.url:
        return []
    try:
        return await asyncio.to_thread(_look, config, served)
    except DatabaseFault as error:
        fix = _("check `url`, `password` and `ca_file` below `database`, and that the server lets this machine in")
        return [Finding("fault", _(SUBJECT), localized(error), fix)]


def _look(config: Config, served: bool) -> list[Finding]:
    from bot.database.postgres_schema import check_server, check_writable, read_revision
    from bot.database.postgres_session import may_create, owner_address

    with read_store(config, snapshot=False) as execute:
        version = check_server(execute)
        check_writable(execute)
        revision, owner = read_revision(execute), owner_address(execute)
        found = [_judge(config, version, revision, may_create=may_create(execute))]
    if owner and not served and not config.database.replicas:
        text = _("a service works on it, from {address}", address=owner)
        found.append(
            Finding("note", _(SUBJECT), text, _("a second one is refused: stop that one before you start here"))
        )
    if (config.data_dir / FILE).exists() and not revision:
        text = _(
            "{file} has everything so far, and the server is empty: a start is refused", file=config.data_dir / FILE
        )
        fix = _("copy it with `fawn migrate --to postgresql`, or move the file away to begin with nothing")
        found.append(Finding("fault", _(SUBJECT), text, fix))
    elif (config.data_dir / FILE).exists():
        text = _("{file} is not used, because `database` names PostgreSQL", file=config.data_dir / FILE)
        found.append(Finding("note", _(SUBJECT), text, _("move it away once nobody needs it any more")))
    return found


def _judge(config: Config, version: str, revision: str, *, may_create: bool) -> Finding:
    text = _("PostgreSQL {version} at {where}", version=version, where=config.database.shown)
    if not revision and not may_create:
        text = _("the user may not create tables in the schema public of {where}", where=config.database.shown)
        return Finding("fault", _(SUBJECT), text, _("make it the owner: `ALTER DATABASE fawn OWNER TO fawn`"))
    if is_early(revision):
        text = _("a checkout from before 0.1 made the tables ({version})", version=revision)
        return Finding("fault", _(SUBJECT), text, _("copy them through SQLite (docs/postgresql.md)"))
    if revision and revision not in revision_chain():
        text = _("a newer version of Fawn wrote the tables ({version})", version=revision)
        return Finding("fault", _(SUBJECT), text, _("install that version again, or restore a backup"))
    if not revision:
        return Finding("ok", _(SUBJECT), _("{text}, still empty: the first start makes the tables", text=text))
    if revision != head_revision():
        older = _("Its tables are of an older version; the next start upgrades them.")
        return Finding("note", _(SUBJECT), join_sentences(text, older), _("back up before: `fawn backup FILE`"))
    return Finding("ok", _(SUBJECT), text)


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
        *_note_unproxied(config),
        *await _check_names(direct),
        *await asyncio.gather(*map(_check_proxy, proxies)),
        *await check_clock_skew([f"https://{each.host}:{each.port}/" for each in direct if each.port == 443]),
    ]


def _note_unproxied(config: Config) -> list[Finding]:
    """Name what does not use the proxy of `network`, because no HTTP client of Fawn makes its connections."""
    if not config.network.proxy:
        return []
    lost = [
        _("MCP server {name}: name the proxy in its `env`", name=server.name)
        for server in config.mcp.servers
        if server.enabled and not server.url
    ]
    if config.sandbox.network.enabled and not config.sandbox.network.proxy:
        lost.append(_("sandboxes: name it in `sandbox.network.proxy`, too"))
    if config.database.url:
        lost.append(_("PostgreSQL: it needs a direct way"))
    return [Finding("note", _("proxy"), _("not used by all"), list_items(lost))] if lost else []


async def _check_names(destinations: Sequence[Destination]) -> list[Finding]:
    hosts = {each.host: each for each in destinations}
    lost = [host for host, found in zip(hosts, await asyncio.gather(*map(_resolves, hosts)), strict=True) if not found]
    if not hosts:
        return []
    if not lost:
        return [Finding("ok", _("names"), _("{n} hosts have an address", n=len(hosts)))]
    named = [f"{host} ({hosts[host].what})" for host in lost]
    fix = _("check the names and the resolver (/etc/resolv.conf); behind a proxy, set `network.proxy`")
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
            async with session.head(url, allow_redirects=False, ssl=make_trust()) as answer:
                ours = (began + time.time()) / 2
                said = answer.headers.get("Date", "")
        return ours - parsedate_to_datetime(said).timestamp() if said else None
    return None
