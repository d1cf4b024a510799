"""The listener for machines: who may ask, slow and silent connections, and what the probes say."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from agent.settings.models import AgentConfigError
from bot.config.http import HttpConfig
from bot.http.health import HealthProbes
from bot.http.listener import MAX_CONNECTIONS, listening
from bot.http.visitors import may_connect
from bot.status.trouble import Trouble, TroubleTimes


class Service:
    """What the probes look at."""

    def __init__(self) -> None:
        self.troubles: Sequence[Trouble] = ()
        self.looks = 0

    async def look(self) -> Sequence[Trouble]:
        self.looks += 1
        return self.troubles


@pytest.fixture
def service() -> Service:
    return Service()


@asynccontextmanager
async def door(service: Service, config: HttpConfig | None = None) -> AsyncIterator[int]:
    """Yield the port."""
    config = config or HttpConfig(listen="127.0.0.1:0")
    async with listening(config, HealthProbes(service.look).routes()) as address:
        yield int(address.rpartition(":")[2])


async def send(port: int, text: str, host: str = "127.0.0.1") -> str:
    """Send raw bytes, and return all that comes until the server closes."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(text.encode())
    try:
        return (await reader.read()).decode()
    except ConnectionResetError:
        return ""
    finally:
        writer.close()


def get(path: str, host: str = "127.0.0.1") -> str:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"


def status_of(answer: str) -> int:
    return int(answer.split()[1])


def body_of(answer: str) -> object:
    return json.loads(answer.partition("\r\n\r\n")[2])


async def test_a_service_that_works_is_alive_and_ready(service: Service) -> None:
    async with door(service) as port:
        assert body_of(await send(port, get("/healthz"))) == {"alive": True}
        answer = await send(port, get("/readyz"))
    assert (status_of(answer), body_of(answer)) == (200, {"ready": True, "troubles": []})
    assert "Cache-Control: no-store" in answer


async def test_a_service_in_trouble_says_which_part_since_when_and_why(service: Service) -> None:
    service.troubles = [Trouble("slack", 1_800_000_000, "The socket is closed.")]
    async with door(service) as port:
        assert status_of(await send(port, get("/healthz"))) == 200
        answer = await send(port, get("/readyz"))
    since = "2027-01-15T08:00:00+00:00"
    found = {"ready": False, "troubles": [{"part": "slack", "since": since, "why": "The socket is closed."}]}
    assert (status_of(answer), body_of(answer)) == (503, found)


async def test_many_probes_cost_one_look(service: Service) -> None:
    async with door(service) as port:
        await asyncio.gather(*(send(port, get("/readyz")) for _ in range(50)))
    assert service.looks <= 2  # a slow machine may need more than a second


async def test_a_page_cannot_ask_by_a_name_that_leads_here(service: Service) -> None:
    """A site whose name leads to this machine (DNS rebinding) reads nothing; an address cannot be rebound."""
    async with door(service, HttpConfig(listen="127.0.0.1:0", hosts=("fawn.example",))) as port:
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[", "a b", "é"):
            assert status_of(await send(port, get("/readyz", host))) in (400, 421), host
        for host in ("localhost", f"localhost:{port}", "[::1]:80", "10.0.0.1", "fawn.example"):
            assert status_of(await send(port, get("/readyz", host))) == 200, host


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True), ("fd00::7", True), ("11.1.2.3", False), ("fe80::1%eth0", False),
        ("::ffff:11.1.2.3", False), ("2001:db8::1", False),
    ],
)  # fmt: skip
def test_peers_are_named_or_refused(address: str, *, may: bool) -> None:
    assert may_connect(HttpConfig(peers=("10.0.0.0/8", "fd00::/8")), address) is may


HOSTILE = {
    "no such path": get("/metrics"),
    "traversal": get("/../etc/passwd"),
    "another method": "POST /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    "no HTTP": "\x00\x01\x02 hello\r\n\r\n",
    "a long line": f"GET /{'a' * 100_000} HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a large header": f"GET /readyz HTTP/1.1\r\nHost: localhost\r\nX: {'a' * 100_000}\r\n\r\n",
    "two hosts": "GET /readyz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    "two lengths": "POST /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunks": "POST /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
    "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an absolute target": "GET http://evil.example/readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
}


@pytest.mark.parametrize("request_text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_hostile_requests_are_refused_and_the_next_one_is_answered(service: Service, request_text: str) -> None:
    async with door(service) as port:
        assert status_of(await send(port, request_text)) in (400, 404, 405, 421)
        assert status_of(await send(port, get("/readyz"))) == 200
    assert service.looks == 1


async def test_a_connection_without_a_whole_request_is_closed(
    service: Service,
) -> None:
    routes = HealthProbes(service.look).routes()
    async with listening(HttpConfig(listen="127.0.0.1:0"), routes, head_seconds=0.2) as address:
        port = int(address.rpartition(":")[2])
        assert await send(port, "") == ""
        assert await send(port, "GET /readyz HTTP/1.1\r\nHost: local") == ""
        assert status_of(await send(port, get("/readyz"))) == 200


async def test_silent_connections_make_room_for_others(service: Service) -> None:
    """More connections than are kept: the oldest without a request are closed, and a probe is answered."""
    async with door(service) as port:
        first, writer = await asyncio.open_connection("127.0.0.1", port)
        others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        with suppress(ConnectionResetError):
            assert await first.read() == b""
        assert status_of(await send(port, get("/healthz"))) == 200
        for each in (writer, *(writer for _, writer in others)):
            each.close()


async def test_an_address_that_is_taken_is_a_fault_of_the_setting(service: Service) -> None:
    async with door(service) as port:
        with pytest.raises(AgentConfigError, match=rf"http: listen: cannot listen on 127\.0\.0\.1:{port}: "):
            async with door(service, HttpConfig(listen=f"127.0.0.1:{port}")):
                pass


def test_since_is_when_a_trouble_began() -> None:
    times = TroubleTimes()
    [first] = times.date({"disk": "full"})
    [again] = times.date({"disk": "fuller"})
    assert (again.since, again.why) == (first.since, "fuller")
    assert times.date({}) == []


def test_a_start_that_does_not_listen_loads_no_server() -> None:
    loaded = "bool({'aiohttp.web', 'bot.api.endpoints'} & set(sys.modules))"
    code = f"import sys, bot.main.app, bot.cli.status; sys.exit({loaded})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
