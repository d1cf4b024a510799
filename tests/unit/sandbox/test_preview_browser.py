"""A link in a real browser, beside a company site of the same registrable domain."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from sandbox.base import WORKSPACE, Sandbox, ShellCommand
from sandbox.network.preview import PreviewServer
from tests.support.engines import need_chromium
from tests.support.ports import free_port
from tests.unit.sandbox.test_preview import SETTINGS, disk, sandbox

__all__ = ["disk", "sandbox"]  # the fixtures

# "/" sets cookies for itself and for the company's domain, "/back" records the cookies and redirects to the company.
HOSTILE = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 8001))
while True:
    client = listener.accept()[0]
    head = client.recv(65536)
    if head.startswith(b"GET /back "):
        open("request", "wb").write(head)
        client.sendall(b"HTTP/1.1 302 Found\\r\\nLocation: " + sys.argv[1].encode() + b"\\r\\n\\r\\n")
    elif head.startswith(b"GET / "):
        client.sendall(b"HTTP/1.1 302 Found\\r\\nLocation: /back\\r\\nSet-Cookie: own=mine\\r\\n"
                       b"Set-Cookie: one=hostile; Domain=example.test\\r\\n"
                       b"Set-Cookie: two=hostile; DOMAIN = example.test\\r\\n\\r\\n")
    client.close()
"""


async def test_foreign_cookies_are_not_forwarded(sandbox: Sandbox, tmp_path: Path) -> None:
    need_chromium()
    heads: list[str] = []
    port = free_port()
    settings = replace(SETTINGS, listen=f"127.0.0.1:{port}", public_url=f"http://*.preview.example.test:{port}")

    async def company(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if heads[-1].startswith("GET /start "):
            answer = f"302 Found\r\nSet-Cookie: session=company; Domain=example.test\r\nLocation: {link}"
        else:
            answer = "200 OK"
        writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        writer.close()

    async with AsyncExitStack() as stack:
        intranet = await stack.enter_async_context(await asyncio.start_server(company, "127.0.0.1", 0))
        site = f"http://intranet.example.test:{intranet.sockets[0].getsockname()[1]}"
        await sandbox.write(f"{WORKSPACE}/hostile.py", HOSTILE.encode())
        serve = (
            f"python3 hostile.py {site}/end & until (exec 3<>/dev/tcp/127.0.0.1/8001) 2>/dev/null; do sleep 0.05; done"
        )
        assert (await sandbox.run(ShellCommand(serve, timeout_seconds=20))).exit_code == 0
        preview = await stack.enter_async_context(PreviewServer(settings))
        link = await preview.make_link(sandbox, 8001)
        browser = await asyncio.create_subprocess_exec(
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
            "--host-resolver-rules=MAP *.example.test 127.0.0.1", "--dump-dom", f"{site}/start",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await browser.communicate()
        assert browser.returncode == 0, said.decode()
        got = (await sandbox.read(f"{WORKSPACE}/request")).decode()
        assert "\r\nCookie: own=mine; one=hostile; two=hostile\r\n" in got
        ends = [head for head in heads if head.startswith("GET /end ")]
        assert len(ends) == 1
        assert "session=company" in ends[0]  # the browser has it, and sent it to the link, too
        assert "hostile" not in ends[0]
