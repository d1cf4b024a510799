"""HTTP between a sandbox, its proxy and a server: the bytes on the wire."""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import h11
import pytest

from sandbox.base import StreamPair
from sandbox.network.http import HttpPeer
from sandbox.network.service import EgressService
from sandbox.network.tls import NoServerName, parse_server_name
from sandbox.rules import SOCKET_NAME, NetworkRules
from tests.support.outside_world import HOST, Names, hosts

GET = "GET / HTTP/1.1\r\nHost: inner.corp\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short path, because the path of a unix socket ends at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fawn-") as folder:
        yield Path(folder)


class Origin:
    """A server that records all bytes, answers each read with `response`, and never closes by itself."""

    def __init__(self, response: bytes = OK) -> None:
        self.response, self.got = response, b""
        self.ended = asyncio.Event()

    async def __aenter__(self) -> Origin:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.got += data
                writer.write(self.response)
        except ConnectionError:
            pass
        self.ended.set()
        writer.close()


@asynccontextmanager
async def way_out(tmp_path: Path, rules: NetworkRules) -> AsyncIterator[StreamPair]:
    """Connect a sandbox to its proxy."""
    egress = EgressService(rules, tmp_path / "e", Names())
    folder = await egress.open_proxy("t")
    reader, writer = await asyncio.open_unix_connection(folder / SOCKET_NAME)
    try:
        async with asyncio.timeout(60):
            yield reader, writer
    finally:
        writer.close()
        await egress.aclose()


@pytest.mark.parametrize("pipelined", [True, False])
async def test_a_second_request_on_a_connection_is_dropped(tmp_path: Path, pipelined: bool) -> None:
    async with Origin() as origin, way_out(tmp_path, NetworkRules("allowlist", hosts(origin.port))) as (reader, writer):
        first = f"GET http://{HOST}:{origin.port}/one HTTP/1.1\r\nHost: x\r\n\r\n"
        writer.write((first + GET * pipelined).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(2) == b"ok"
        assert b"connection: close" in head.lower()
        writer.write(GET.encode())
        assert await reader.read() == b""
        await origin.ended.wait()
        assert origin.got.startswith(b"GET /one HTTP/1.1\r\nHost: registry.test:")
        assert b"inner.corp" not in origin.got


@pytest.mark.parametrize(
    ("framing", "sent", "reached"),
    [
        ("Content-Length: 3", "abc" + GET, b"abc"),
        ("Transfer-Encoding: chunked", "3;x=y\r\nabc\r\n0\r\nHost: inner.corp\r\n\r\n" + GET, b"3\r\nabc\r\n0\r\n\r\n"),
        ("Content-Length: 99\r\nTransfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n" + GET, b"3\r\nabc\r\n0\r\n\r\n"),
        ("Content-Length: 3\r\nConnection: content-length", "abc" + GET, b"abc"),
        ("Content-Length: 0\r\nX: 1\r\n Host: inner.corp", "", b""),
    ],
)
async def test_bytes_behind_the_body_are_not_forwarded(tmp_path: Path, framing: str, sent: str, reached: bytes) -> None:
    async with Origin() as origin, way_out(tmp_path, NetworkRules("allowlist", hosts(origin.port))) as (reader, writer):
        line = f"POST http://{HOST}:{origin.port}/one HTTP/1.1"
        writer.write(f"{line}\r\nHost: inner.corp\r\n{framing}\r\n\r\n{sent}".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        await reader.read()
        await origin.ended.wait()
        head, _, body = origin.got.partition(b"\r\n\r\n")
        assert body.startswith(reached[: len(body)])  # the response may arrive before the last bytes
        assert b"\nHost: inner" not in head
        assert head.count(b"\nHost: ") == 1
        assert head.lower().count(b"\ncontent-length") + head.lower().count(b"\ntransfer-encoding") == 1


@pytest.mark.parametrize(
    "framing", ["Content-Length: 3\r\nContent-Length: 4", "Transfer-Encoding: gzip, chunked", "Content-Length: -1"]
)
async def test_an_ambiguous_body_length_is_refused(tmp_path: Path, framing: str) -> None:
    async with Origin() as origin, way_out(tmp_path, NetworkRules("allowlist", hosts(origin.port))) as (reader, writer):
        writer.write(f"POST http://{HOST}:{origin.port}/ HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\nabc".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        assert origin.got == b""


@pytest.mark.parametrize(
    ("version", "response", "seen"),
    [
        ("1.1", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + OK, b"\r\n\r\nok"),
        ("1.1", b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n", b"\r\n\r\n"),
        ("1.0", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + OK, b"\r\n\r\nok"),
        ("1.1", b"nonsense\r\n\r\n", b" does not answer\n"),
    ],
)
async def test_bytes_behind_a_response_are_not_forwarded(
    tmp_path: Path, version: str, response: bytes, seen: bytes
) -> None:
    """A response of a newer HTTP version than the client's is translated."""
    async with (
        Origin(response) as origin,
        way_out(tmp_path, NetworkRules("allowlist", hosts(origin.port))) as (reader, writer),
    ):
        writer.write(f"GET http://{HOST}:{origin.port}/ HTTP/{version}\r\nHost: x\r\n\r\n".encode())
        said = await reader.read()
        assert said.endswith(seen)
        assert said.count(b"HTTP/") == 1


async def test_expect_100_continue_is_answered(tmp_path: Path) -> None:
    async with Origin() as origin, way_out(tmp_path, NetworkRules("allowlist", hosts(origin.port))) as (reader, writer):
        head = f"POST http://{HOST}:{origin.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue"
        writer.write(f"{head}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"abc")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert b"100-continue" not in origin.got


# ---------------------------------------------------------------- tunnels


def client_hello(name: str | None) -> bytes:
    """Return the first bytes of a real TLS client."""
    context = ssl.create_default_context()
    context.check_hostname = False
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


def test_the_server_name_is_parsed() -> None:
    hello = client_hello("Registry.TEST")
    assert parse_server_name(hello) == "Registry.TEST"
    broken = [
        client_hello(None),
        hello.replace(b"Registry", b"R\xffgistry"),
        b"\x17" + hello[1:],
        b"",
        b"GET / HTTP/1.1",
    ]
    for record in broken + [hello[:end] for end in range(len(hello))]:
        with pytest.raises(NoServerName):
            parse_server_name(record)


@pytest.mark.parametrize(
    ("target", "first", "passes"),
    [
        ("registry.test:443", client_hello("REGISTRY.test"), True),
        ("registry.test:443", client_hello("evil.test"), False),
        ("registry.test:443", client_hello(None), False),
        ("registry.test:443", b"SSH-2.0-x\r\n", False),
        ("registry.test:8443", client_hello("evil.test"), False),
        ("registry.test:8443", client_hello(None), False),
        ("registry.test:8443", b"SSH-2.0-x\r\n", True),
        ("1.1.1.1:443", client_hello(None), True),
        ("1.1.1.1:443", client_hello("evil.test"), True),
    ],
)
async def test_the_server_name_must_match_the_tunnel(
    tmp_path: Path, target: str, first: bytes, passes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The upstream proxy makes port 443 of any host available."""
    async with Origin(b"HTTP/1.1 200 ok\r\n\r\n") as origin:
        names = ("registry.test", "registry.test:8443", "1.1.1.1")
        rules = NetworkRules("allowlist", names, proxy=f"http://127.0.0.1:{origin.port}")
        egress = EgressService(rules, tmp_path / "e", Names(**{HOST: ["9.9.9.9"]}))
        folder = await egress.open_proxy("t")
        reader, writer = await asyncio.open_unix_connection(folder / SOCKET_NAME)
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        origin.got, origin.response = b"", b"hello"
        with caplog.at_level(logging.WARNING):
            writer.write(first[:3])
            await writer.drain()
            writer.write(first[3:])
            if passes:
                assert await asyncio.wait_for(reader.readexactly(5), 60) == b"hello"
                assert first.startswith(origin.got)
            else:
                assert await asyncio.wait_for(reader.read(), 60) == b"\x15\x03\x03\x00\x02\x02\x70"  # unrecognized_name
                assert origin.got == b""
                assert "egress.refused sandbox=t host=registry.test" in caplog.text
                assert "why=sni" in caplog.text
        writer.close()
        await egress.aclose()


async def test_a_connection_closes_after_a_slow_reader_has_read_everything() -> None:
    """The writer still has data when it is closed."""
    ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    async def serve(*ends: asyncio.StreamReader | asyncio.StreamWriter) -> None:
        reader, writer = ends
        assert isinstance(reader, asyncio.StreamReader)
        assert isinstance(writer, asyncio.StreamWriter)
        try:
            async with HttpPeer(h11.SERVER, (reader, writer)):
                writer.write(bytes(20_000_000))
        except Exception as error:  # noqa: BLE001 — the test shows it
            ended.set_result(error)
        else:
            ended.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert len(await reader.read(-1)) == 20_000_000
    assert await ended is None
    writer.close()
    server.close()
