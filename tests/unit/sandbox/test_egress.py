"""The egress proxy: allowed hosts, refusals and their texts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandbox.inside import relay
from sandbox.network import proxy as egress_proxy
from sandbox.network.http import MAX_HEAD_BYTES
from sandbox.network.service import EgressService
from sandbox.rules import CA_FILE, SOCKET_NAME, NetworkRules
from tests.fakes.server import until
from tests.support.outside_world import HOST, Names, Outside, hosts


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short path, because the path of a unix socket ends at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fawn-") as folder:
        yield Path(folder)


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Outside]:
    async with Outside(tmp_path) as made:
        yield made


async def ask(folder: Path, request: str, body: bytes = b"") -> tuple[str, dict[str, str], bytes]:
    """Return status line, headers and body of the proxy's response."""
    if "\nHost:" not in request:
        request += "\nHost: x"
    reader, writer = await asyncio.open_unix_connection(folder / SOCKET_NAME)
    writer.write(request.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    status, *headers = head.decode().split("\r\n")
    return status, {name.lower(): value for name, value in (line.split(": ", 1) for line in headers)}, rest


# ---------------------------------------------------------------- the proxy


async def test_a_tunnel_carries_bytes_both_ways(tmp_path: Path) -> None:
    payload = b"x" + random.randbytes(3 << 20)  # not the first byte of TLS, whose name would be checked

    async def reverse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read())[::-1])  # after the client's end: a half-close is forwarded
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(reverse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    egress = EgressService(NetworkRules("allowlist", hosts(port)), tmp_path / "e", Names())
    folder = await egress.open_proxy("t")
    reader, writer = await asyncio.open_unix_connection(folder / SOCKET_NAME)
    writer.write(f"CONNECT {HOST}:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.write(payload)
    writer.write_eof()
    assert await reader.read() == payload[::-1]
    writer.close()
    await egress.aclose()
    server.close()


async def test_a_plain_request_reaches_only_the_allowed_host(tmp_path: Path, outside: Outside) -> None:
    egress = EgressService(NetworkRules("allowlist", hosts(outside.http)), tmp_path / "e", Names())
    folder = await egress.open_proxy("t")
    body = random.randbytes(200_000)
    head = f"""POST http://user:secret@{HOST}:{outside.http}/echo?q=1 HTTP/1.1
Host: internal.example
Proxy-Authorization: Basic xxx
Proxy-Connection: keep-alive
Connection: keep-alive
X-Mine: 1
Content-Length: {len(body)}"""
    status, _, answer = await ask(folder, head, body)
    assert status == "HTTP/1.1 200 OK"
    assert answer == body
    ((path, headers),) = outside.seen
    assert path == "/echo?q=1"
    assert headers["Host"] == f"{HOST}:{outside.http}"
    assert headers["X-Mine"] == "1"
    assert not any(name.lower().startswith("proxy") for name in headers)
    await egress.aclose()


@pytest.mark.parametrize(
    "request_line", ["CONNECT {host}:{port} HTTP/1.1", "GET http://{host}:{port}/x?key=secret HTTP/1.1"]
)
@pytest.mark.parametrize(
    ("host", "port", "why"),
    [
        ("evil.test", 443, "host"),
        ("169.254.169.254", 80, "host"),
        ("inner.wide.example", 443, "address"),
        (HOST, 22, "port"),
    ],
)
async def test_a_refusal_names_the_host_and_the_setting(
    tmp_path: Path, request_line: str, host: str, port: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = Names(**{"inner.wide.example": ["127.0.0.1", "10.0.0.1"]})
    egress = EgressService(NetworkRules("allowlist", ("*.wide.example",)), tmp_path / "e", names)
    folder = await egress.open_proxy("thread-7")
    with caplog.at_level(logging.INFO):
        status, headers, body = await ask(folder, request_line.format(host=host, port=port))
    assert status.startswith("HTTP/1.1 403 ")
    assert headers["x-fawn-refused"] == why
    assert body.decode().strip() == status.removeprefix("HTTP/1.1 403 ")
    assert host in status
    assert "sandbox.network.hosts" in status
    assert f"egress.refused sandbox=thread-7 host={host} port={port} why={why}" in caplog.text
    assert "secret" not in caplog.text
    assert names.asked == (["inner.wide.example"] if why == "address" else [])  # otherwise it would leak by names
    await egress.aclose()


async def test_dns_rebinding_has_no_effect(tmp_path: Path) -> None:
    """The connection goes to the address that was checked."""
    reached: list[str] = []

    def at(name: str) -> asyncio.StreamReaderProtocol:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reached.append(name)
            writer.close()

        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), serve)

    loop = asyncio.get_running_loop()
    good = await loop.create_server(lambda: at("good"), "127.0.0.1", 0)
    port = good.sockets[0].getsockname()[1]
    inner = await loop.create_server(lambda: at("inner"), "127.0.0.2", port)

    class Rebinding(Names):
        def __call__(self, host: str, port: int) -> list[str]:
            self.asked.append(host)
            return ["127.0.0.1"] if len(self.asked) == 1 else ["127.0.0.2"]

    names = Rebinding()
    egress = EgressService(NetworkRules("allowlist", hosts(port)), tmp_path / "e", names)
    folder = await egress.open_proxy("t")
    await ask(folder, f"CONNECT {HOST}:{port} HTTP/1.1")
    assert names.asked == [HOST]
    assert reached == ["good"]
    await egress.aclose()
    good.close()
    inner.close()


@pytest.mark.parametrize(
    "spelling",
    ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "localhost", "127.0.0.1.", "[::1]", "[::]",
     "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"],
)  # fmt: skip
async def test_every_spelling_of_this_machine_is_refused(tmp_path: Path, spelling: str) -> None:
    egress = EgressService(NetworkRules("on"), tmp_path / "e")
    folder = await egress.open_proxy("t")
    for line in (f"CONNECT {spelling}:443 HTTP/1.1", f"GET http://{spelling}/ HTTP/1.1"):
        status, headers, _ = await ask(folder, line)
        assert (status[:12], headers["x-fawn-refused"]) == ("HTTP/1.1 403", "address"), status
    await egress.aclose()


async def test_the_next_address_is_tried_after_a_failure(tmp_path: Path, outside: Outside) -> None:
    rules = NetworkRules("allowlist", (*hosts(outside.http), f"127.0.0.9:{outside.http}"))
    egress = EgressService(rules, tmp_path / "e", Names(**{HOST: ["127.0.0.8", "127.0.0.9", "127.0.0.1"]}))
    folder = await egress.open_proxy("t")
    assert (await ask(folder, f"GET http://{HOST}:{outside.http}/hello HTTP/1.1"))[2] == b"hello\n"
    await egress.aclose()


async def test_malformed_proxy_requests_get_an_answer(tmp_path: Path) -> None:
    egress = EgressService(NetworkRules("on"), tmp_path / "e", Names())
    folder = await egress.open_proxy("t")
    for bad in ("GET / HTTP/1.1", "nonsense", "CONNECT a b c", "CONNECT :443 HTTP/1.1", "GET ftp://x/ HTTP/1.1",
                "GET http://[::1/ HTTP/1.1", "CONNECT a:99999 HTTP/1.1", "GET http://a\x00b/ HTTP/1.1",
                "CONNECT [2606:4700::1%x\rProxy-Authorization:x]:443 HTTP/1.1", "GET\rX: http://a.test/ HTTP/1.1",
                "GET http://a.test/ HTTP/1.1\nHost : b.test", "GET http://a.test/ HTTP/1.1\nX: 1\rHost: b.test",
                "GET http://a.test/ HTTP/1.1\nHost: a.test\nHost: b.test"):  # fmt: skip
        status, _, _ = await ask(folder, bad)
        assert status.startswith("HTTP/1.1 400 "), bad
    status, headers, _ = await ask(folder, "CONNECT nowhere.test:443 HTTP/1.1")
    assert status.startswith("HTTP/1.1 502 nowhere.test cannot be reached")
    assert headers["x-fawn-refused"] == "unreachable"
    reader, writer = await asyncio.open_unix_connection(folder / SOCKET_NAME)
    writer.write(b"x" * (MAX_HEAD_BYTES * 3))  # a head without an end
    with contextlib.suppress(ConnectionResetError):
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    await egress.aclose()


async def test_connections_are_limited_per_sandbox(tmp_path: Path, outside: Outside) -> None:
    rules = NetworkRules("allowlist", hosts(outside.http))
    egress = EgressService(rules, tmp_path / "e", Names())
    greedy, other = await egress.open_proxy("greedy"), await egress.open_proxy("other")
    held = [await asyncio.open_unix_connection(greedy / SOCKET_NAME) for _ in range(egress_proxy.MAX_CONNECTIONS)]
    request = f"GET http://{HOST}:{outside.http}/hello HTTP/1.1"
    status, _, _ = await ask(greedy, request)
    assert status.startswith("HTTP/1.1 503 more than 64 connections")
    assert (await ask(other, request))[2] == b"hello\n"
    for _, writer in held:
        writer.close()

    async def free() -> bool:
        return (await ask(greedy, request))[2] == b"hello\n"

    async with asyncio.timeout(60):  # what was closed does not count any more
        while not await free():
            await asyncio.sleep(0.02)
    await egress.aclose()


def test_local_names_are_resolved() -> None:
    assert "127.0.0.1" in egress_proxy.resolve_name("localhost", 80)


async def test_requests_beyond_the_limit_of_log_lines_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    egress = EgressService(NetworkRules("allowlist"), tmp_path / "e", Names())
    folder = await egress.open_proxy("t")
    noise = egress_proxy.MAX_LOG_LINES + 30
    with caplog.at_level(logging.INFO):
        for _ in range(noise):
            await ask(folder, "CONNECT noise.test:443 HTTP/1.1")
        await ask(folder, "CONNECT evil.test:443 HTTP/1.1")  # what the noise shall hide
        await egress.aclose()
    lines = [record.getMessage() for record in caplog.records]
    single = [line for line in lines if line.startswith("egress.refused") and "noise.test" in line]
    counted = [int(n) for line in lines for n in re.findall(r"counted .*host=noise\.test .*requests=(\d+)", line)]
    assert len(single) + sum(counted) == noise
    assert len(single) <= egress_proxy.MAX_LOG_LINES * 2, "the minute may change meanwhile"
    assert any("evil.test" in line for line in lines)
    assert "egress.burst" in caplog.text


def test_counts_are_bounded_and_keep_the_bytes() -> None:
    counts = egress_proxy.BurstCounts()
    for number in range(egress_proxy.MAX_COUNTED * 3):
        counts.count("egress.done", f"h{number}.test", 443, (10, 1))
    lines = counts.drain()
    assert len(lines) == egress_proxy.MAX_COUNTED + 1
    rest = 2 * egress_proxy.MAX_COUNTED
    assert lines[-1] == f"event=egress.done host=others port=0 requests={rest} sent={rest * 10} received={rest}"
    assert counts.drain() == []


async def test_the_upstream_proxy_is_used(tmp_path: Path) -> None:
    heard: list[str] = []

    async def company(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if "forbidden" in heard[-1]:
            writer.write(b"HTTP/1.1 407 Authenticate\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 fine\r\n\r\n")
            writer.write(b"got " + await reader.readuntil(b"\n"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(company, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    rules = NetworkRules("on", ("only-it-knows.example:22",), proxy=f"http://me:p%40ss@127.0.0.1:{port}")
    egress = EgressService(rules, tmp_path / "e", Names(**{"sly.example": ["10.0.0.1"]}))
    folder = await egress.open_proxy("t")
    reader, writer = await asyncio.open_unix_connection(folder / SOCKET_NAME)
    writer.write(b"CONNECT only-it-knows.example:22 HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"ping\n")
    assert await reader.read() == b"got ping\n"
    writer.close()
    assert heard[0].startswith("CONNECT only-it-knows.example:22 HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6cEBzcw==" in heard[0]
    status, _, body = await ask(folder, "CONNECT forbidden.example:443 HTTP/1.1")
    assert status.startswith("HTTP/1.1 502 ")
    assert b"p@ss" not in body
    for inner in ("sly.example", "169.254.169.254", "127.0.0.1"):
        assert (await ask(folder, f"CONNECT {inner}:443 HTTP/1.1"))[0].startswith(("HTTP/1.1 403", "HTTP/1.1 502")), (
            inner
        )
    assert len(heard) == 2
    await egress.aclose()
    server.close()


# ---------------------------------------------------------------- folders


async def test_the_folder_of_a_key_stays_the_same_until_it_is_closed(tmp_path: Path, outside: Outside) -> None:
    """A sandbox that outlives the service has the folder mounted, so the new socket must be in the same one."""
    place = tmp_path / ("long-" * 40)  # the path of a socket ends at 107 bytes
    rules = NetworkRules("allowlist", hosts(outside.http), ca_file=str(outside.authority))
    first = EgressService(rules, place, Names())
    folder = await first.open_proxy("t")
    assert await first.open_proxy("t") == folder
    inode = folder.stat().st_ino
    assert place.stat().st_mode & 0o777 == 0o700
    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / CA_FILE).read_bytes().endswith(outside.authority.read_bytes())
    await first.aclose()
    second = EgressService(rules, place, Names())
    assert await second.open_proxy("t") == folder
    assert folder.stat().st_ino == inode
    (tmp_path / "short").symlink_to(folder)
    assert (await ask(tmp_path / "short", f"GET http://{HOST}:{outside.http}/hello HTTP/1.1"))[2] == b"hello\n"
    await second.close_proxy("t")
    assert list(place.iterdir()) == []
    await second.aclose()


async def test_concurrent_services_open_the_same_folder(tmp_path: Path) -> None:
    many = [EgressService(NetworkRules("off"), tmp_path / "e", Names()) for _ in range(4)]
    for number in range(20):
        folders = await asyncio.gather(*(egress.open_proxy(f"t{number}") for egress in many))
        assert len(set(folders)) == 1
        assert [path.name for path in folders[0].iterdir()] == [SOCKET_NAME]
        assert (await ask(folders[0], f"CONNECT {HOST}:443 HTTP/1.1"))[0].startswith("HTTP/1.1 403")
    for egress in many:
        await egress.aclose()


async def test_without_a_network_every_request_is_refused_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = Names()
    egress = EgressService(NetworkRules("off", (HOST,)), tmp_path / "e", names)
    folder = await egress.open_proxy("t")
    with caplog.at_level(logging.INFO):
        status, headers, body = await ask(folder, f"CONNECT {HOST}:443 HTTP/1.1")
    words = f"The sandbox has no network (sandbox.network.mode is off); an operator can allow {HOST}."
    assert status == f"HTTP/1.1 403 {words}"
    assert body.decode() == words + "\n"
    assert headers["x-fawn-refused"] == "off"
    assert f"egress.refused sandbox=t host={HOST} port=443 why=off" in caplog.text
    assert names.asked == []
    await egress.aclose()


async def test_closing_ends_open_connections(tmp_path: Path, outside: Outside) -> None:
    egress = EgressService(NetworkRules("allowlist", hosts(outside.http)), tmp_path / "e", Names())
    folder = await egress.open_proxy("t")
    reader, writer = await asyncio.open_unix_connection(folder / SOCKET_NAME)
    writer.write(f"CONNECT {HOST}:{outside.http} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    await egress.close_proxy("t")
    assert await reader.read() == b""
    writer.close()
    await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name() == "egress:t"])


# ---------------------------------------------------------------- inside the sandbox


def test_copy_both_ways_is_concurrent_and_forwards_the_end() -> None:
    """Both sides send more than the buffers hold before they read; blocking on one side would be a deadlock."""
    near, one = socket.socketpair()
    other, far = socket.socketpair()
    carrying = threading.Thread(target=relay.copy_both_ways, args=(one, other))
    carrying.start()
    payloads = random.randbytes(4 << 20), random.randbytes(3 << 20)
    got: dict[str, bytes] = {}

    def talk(name: str, end: socket.socket, payload: bytes) -> None:
        def send() -> None:
            end.sendall(payload)
            end.shutdown(socket.SHUT_WR)

        sending = threading.Thread(target=send)
        sending.start()
        data = bytearray()
        while piece := end.recv(1 << 16):
            data += piece
        sending.join()
        got[name] = bytes(data)

    talking = [
        threading.Thread(target=talk, args=pair) for pair in (("near", near, payloads[0]), ("far", far, payloads[1]))
    ]
    for thread in talking:
        thread.start()
    for thread in (*talking, carrying):
        thread.join(60)
        assert not thread.is_alive()
    assert got == {"near": payloads[1], "far": payloads[0]}
    for end in (near, one, other, far):
        end.close()
