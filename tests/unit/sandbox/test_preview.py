"""A server inside a sandbox, reached through a link."""

from __future__ import annotations

import asyncio
import io
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from sandbox.base import WORKSPACE, Sandbox, SandboxError, SandboxUnavailable, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.disk.quota import QuotaProvider
from sandbox.network.preview import PreviewServer, PreviewSettings
from sandbox.settings import SandboxSettings
from tests.support.cluster import kubernetes_provider
from tests.support.engines import docker_provider, docker_settings, measured, need_bubblewrap

SETTINGS = PreviewSettings(True, "127.0.0.1:0")
SERVER = r"""
import asyncio, base64, hashlib, os

async def serve(reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    path = head.split(" ")[1]
    fields = {k.lower(): v for k, _, v in (line.partition(": ") for line in head.split("\r\n")[1:])}
    def answer(body, *more, status="200 OK"):
        writer.write("\r\n".join([f"HTTP/1.1 {status}", *more, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    if path == "/ws" and "evil" in fields.get("origin", ""):
        answer(b"", status="403 Forbidden")
    elif path == "/ws":
        accept = hashlib.sha1(fields["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        writer.write(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
                     + base64.b64encode(accept) + b"\r\n\r\n")
        while True:
            first, size = await reader.readexactly(2)
            size &= 127
            size = int.from_bytes(await reader.readexactly(2), "big") if size == 126 else size
            mask, data = await reader.readexactly(4), await reader.readexactly(size)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
            writer.write(bytes([first]) + (bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")) + data)
            if first & 15 == 8:
                break
    elif path.startswith("/echo"):
        answer(await reader.readexactly(int(fields["content-length"])), f"HX-Path: {path}")
    elif path == "/stream":
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        while not os.path.exists("/tmp/go"):
            await asyncio.sleep(0.02)
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
    elif path == "/early":
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        answer(b"late")
    elif path == "/half":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
    elif path == "/cookie":
        cookies = "Set-Cookie: a=b; Path=/x; Domain=localhost; HttpOnly", "Set-Cookie: c=d"
        answer(b"", *cookies, "Service-Worker-Allowed: /")
    elif path == "/there":
        answer(b"", "Location: /headers?x=1", status="302 Found")
    elif path == "/absolute":
        answer(b"", "Location: http://localhost:8000/headers", status="302 Found")
    elif path == "/away":
        answer(b"", "Location: https://elsewhere.example/", status="302 Found")
    else:
        answer(head.encode())
    await writer.drain()
    writer.close()

async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", 8000) as server:
        await server.serve_forever()
asyncio.run(main())
"""


@pytest.fixture(params=["bubblewrap", "docker", "kubernetes"])
async def disk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[QuotaProvider]:
    async with AsyncExitStack() as stack:
        if request.param == "docker":
            yield QuotaProvider(
                await stack.enter_async_context(docker_provider(docker_settings(tmp_path))), measured(1000)
            )
        elif request.param == "kubernetes":
            pods, _kube = await stack.enter_async_context(kubernetes_provider(tmp_path))
            yield QuotaProvider(pods, measured(1000))
        else:
            need_bubblewrap()
            provider = BubblewrapProvider(SandboxSettings(tmp_path / "skills"))
            stack.push_async_callback(provider.close)
            yield QuotaProvider(provider, measured(1000))


@pytest.fixture
async def sandbox(disk: QuotaProvider, tmp_path: Path) -> AsyncIterator[Sandbox]:
    """A sandbox with SERVER on port 8000."""
    async with disk.acquire("t", tmp_path / "t") as made:
        await serve(made)
        yield made


async def serve(sandbox: Sandbox) -> None:
    await sandbox.write(f"{WORKSPACE}/server.py", SERVER.encode())
    wait = "python3 server.py > log 2>&1 & until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done"
    assert (await sandbox.run(ShellCommand(wait, timeout_seconds=20))).exit_code == 0


@pytest.fixture
async def person() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session:
        yield session


async def test_a_page_is_forwarded_unchanged(sandbox: Sandbox, person: aiohttp.ClientSession) -> None:
    async with PreviewServer(SETTINGS) as preview:
        link = await preview.make_link(sandbox, 8000)
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/p/[0-9a-f-]+/", link)
        prefix = "/p/" + link.split("/p/")[1].rstrip("/")
        headers = {"Origin": link.split("/p/")[0], "HX-Mine": "1", "HX-Hop": "1", "Connection": "keep-alive, HX-Hop"}
        plain = aiohttp.ClientSession(skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"))
        async with plain, plain.get(f"{link}a%2Fb/?q=%20x", headers=headers) as answer:
            said = await answer.text()
            assert answer.status == 200
            assert answer.headers["Referrer-Policy"] == "same-origin"
        assert said.startswith("GET /a%2Fb/?q=%20x HTTP/1.1\r\n")
        assert "Host: localhost:8000" in said
        assert "Origin: http://localhost:8000" in said
        assert "HX-Mine: 1" in said
        assert "HX-Hop" not in said
        assert "Accept" not in said  # otherwise the response could have an unexpected form
        for origin in ("http://evil.test", "null", "http://["):
            async with person.get(link, headers={"Origin": origin}) as answer:
                assert f"Origin: {origin}\r\n" in await answer.text()
        payload = random.randbytes(3 << 20)
        async with person.post(f"{link}echo?1", data=io.BytesIO(payload)) as answer:
            assert await answer.read() == payload
            assert answer.headers["HX-Path"] == "/echo?1"
        for path, where in (
            ("there", f"{prefix}/headers?x=1"),
            ("absolute", f"{prefix}/headers"),
            ("away", "https://elsewhere.example/"),
        ):
            async with person.get(link + path, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (302, where)
        # The Referer leads a request at the root to its link.
        root = link.split("/p/")[0]
        async with person.get(f"{root}/app.js?v=1", headers={"Referer": link + "page"}) as answer:
            assert (await answer.text()).startswith("GET /app.js?v=1 ")
        async with person.get(f"{root}/app.js") as answer:
            assert answer.status == 403


async def test_a_response_streams(sandbox: Sandbox, person: aiohttp.ClientSession) -> None:
    async with PreviewServer(SETTINGS) as preview:
        link = await preview.make_link(sandbox, 8000)
        async with person.get(f"{link}stream") as answer:
            assert await answer.content.readexactly(3) == b"one"
            await sandbox.run(ShellCommand("touch /tmp/go"))
            assert await answer.content.read() == b"two"


@pytest.mark.parametrize(("path", "answer"), [("early", "200 OK((?!HTTP).)*Referrer.*late"), ("half", ".*half.*")])
async def test_a_truncated_response_is_forwarded(sandbox: Sandbox, path: str, answer: str) -> None:
    """The browser sees that it is incomplete."""
    async with PreviewServer(SETTINGS) as preview:
        link = URL(await preview.make_link(sandbox, 8000))
        reader, writer = await asyncio.open_connection(link.host, link.port)
        writer.write(f"GET {link.path}{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        said = (await asyncio.wait_for(reader.read(), 60)).decode()
        assert re.fullmatch(f"HTTP/1.1 {answer}", said, re.DOTALL), said
        writer.close()


async def test_websockets_work_in_both_directions(sandbox: Sandbox, person: aiohttp.ClientSession) -> None:
    async with PreviewServer(SETTINGS) as preview:
        link = await preview.make_link(sandbox, 8000)
        async with person.ws_connect(f"{link}ws") as socket:
            for text in ("hello", "x" * 5000, "谢谢"):
                await socket.send_str(text)
                assert await socket.receive_str() == text
            await socket.send_bytes(b"\0\xff")
            assert await socket.receive_bytes() == b"\0\xff"
        # CORS is a decision of the server inside.
        async with person.ws_connect(f"{link}ws", origin=link.split("/p/")[0]):
            pass
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await person.ws_connect(f"{link}ws", origin="https://evil.test")


async def test_only_a_valid_link_is_accepted(sandbox: Sandbox, person: aiohttp.ClientSession) -> None:
    async with PreviewServer(SETTINGS) as preview, PreviewServer(SETTINGS) as other:
        link = await preview.make_link(sandbox, 8000)
        foreign = await other.make_link(sandbox, 8000)
        root, token = link.rstrip("/").split("/p/")
        name, ends, mac = token.split("-")
        later = f"{int(ends, 16) + 3600:x}"
        wrong = [
            f"{name}-{later}-{mac}",
            f"{'0' * 16}-{ends}-{mac}",
            f"{name}-{ends}-{'0' * 32}",
            f"{name}-{ends}-{mac[:-1]}",
        ]
        wrong += [f"{name}-{ends}", "", "..", "x" * 5000, foreign.split("/p/")[1].rstrip("/")]
        for one in wrong:
            async with person.get(f"{root}/p/{one}/headers") as answer:
                assert (answer.status, await answer.text()) == (
                    403,
                    "This link is not valid or has expired.\n",
                ), one
        async with person.get(f"{root}/") as answer:
            assert answer.status == 403
        # The link reaches only its port, whatever the request is.
        for path in ("../../etc/passwd", "http://127.0.0.1:22/", "//127.0.0.1:22/", "@127.0.0.1:22/"):
            async with person.get(URL(f"{link}{path}", encoded=True)) as answer:
                assert "Host: localhost:8000" in await answer.text()


async def test_a_link_expires_and_ends_with_its_sandbox(
    disk: QuotaProvider, sandbox: Sandbox, person: aiohttp.ClientSession, tmp_path: Path
) -> None:
    async with PreviewServer(replace(SETTINGS, minutes=0.1)) as brief, PreviewServer(SETTINGS) as preview:
        short, link = await brief.make_link(sandbox, 8000), await preview.make_link(sandbox, 8000)
        async with person.get(short) as answer:
            assert answer.status == 200
        async with person.ws_connect(f"{short}ws") as socket:  # open connections end, too
            assert (await socket.receive(15)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        async with person.get(short) as answer:
            assert answer.status == 403
        await sandbox.run(ShellCommand("pkill -f server.py"))
        async with person.get(link) as answer:
            assert answer.status == 502
            assert "port 8000" in await answer.text()
        await disk.destroy("t")
        async with disk.acquire("t", tmp_path / "t") as next_one:
            await serve(next_one)  # the same port of another sandbox
            async with person.get(link) as answer:
                assert answer.status == 410
            assert sandbox.gone
            with pytest.raises(SandboxError):
                await preview.make_link(sandbox, 8000)


async def test_a_closed_port_cannot_be_linked(sandbox: Sandbox, tmp_path: Path) -> None:
    async with PreviewServer(SETTINGS) as preview:
        with pytest.raises(SandboxError, match="port 8001: Connection refused"):
            await preview.make_link(sandbox, 8001)
        async with FilesOnlyProvider(tmp_path).acquire("f", tmp_path / "f") as folders:
            with pytest.raises(SandboxUnavailable, match="cannot show"):
                await preview.make_link(folders, 8000)
    with pytest.raises(SandboxUnavailable, match=r"sandbox\.preview\.listen"):
        async with PreviewServer(replace(SETTINGS, listen="nonsense")):
            pass


async def test_links_with_their_own_host(sandbox: Sandbox, person: aiohttp.ClientSession) -> None:
    async with PreviewServer(replace(SETTINGS, public_url="https://*.preview.example.com")) as preview:
        link = await preview.make_link(sandbox, 8000)
        host = link.removeprefix("https://").rstrip("/")
        assert re.fullmatch(r"[0-9a-f-]{1,63}\.preview\.example\.com", host)
        port = preview._server.sockets[0].getsockname()[1]
        for path in ("/app.js", "/p/00c0ffee/1"):  # the second connection is the server's own
            async with person.get(f"http://127.0.0.1:{port}{path}", headers={"Host": host}) as answer:
                assert (await answer.text()).startswith(f"GET {path} ")


async def test_an_open_link_keeps_the_sandbox_from_being_reaped(
    disk: QuotaProvider, person: aiohttp.ClientSession, tmp_path: Path
) -> None:
    async with PreviewServer(SETTINGS) as preview:
        async with disk.acquire("t", tmp_path / "t") as sandbox:
            await serve(sandbox)
            link = await preview.make_link(sandbox, 8000)
        async with person.get(f"{link}stream") as answer:
            assert await answer.content.readexactly(3) == b"one"
            assert await disk.reap(0) == []
        async with asyncio.timeout(60):
            while await disk.reap(0) != ["t"]:
                await asyncio.sleep(0.05)
        async with person.get(link) as answer:
            assert answer.status == 410
