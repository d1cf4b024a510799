"""`fawn mcp login`, where nobody comes, and where the redirect address cannot be listened at."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from agent.settings.mcp import McpServerSettings
from bot.admin.redirect import open_redirect, pasted_lines
from bot.cli.mcp import McpCommandFailed, log_in
from bot.config.schema import Config
from tests.fakes.mcp_oauth import OAuthMcpServer


async def test_a_sign_in_that_nobody_finishes_ends(tmp_path: Path) -> None:
    with OAuthMcpServer() as guarded:
        server = McpServerSettings("guarded", url=guarded.url)
        with pytest.raises(McpCommandFailed, match=r"Nobody signed in within .* Run `fawn mcp login guarded`"):
            await log_in(server, Config(data_dir=tmp_path), seconds=3)
    assert not (tmp_path / "mcp").exists()


async def test_a_taken_port_and_a_foreign_address_leave_the_terminal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"http://localhost:{taken.getsockname()[1]}/callback"
        for redirect_uri in (address, "https://fawn.example/callback"):
            async with open_redirect(redirect_uri) as waiter:
                assert (waiter.redirect_uri, waiter.is_listening) == (redirect_uri, False)
                waiting = asyncio.create_task(waiter.wait("s"))
                await asyncio.sleep(0)  # it begins
                waiter.accept(f"{redirect_uri}?code=c&state=s")
                assert await waiting == {"code": "c", "state": "s"}


async def test_lines_are_taken_as_a_whole_and_the_end_of_the_input_is_no_fault() -> None:
    lines: list[str] = []
    reader, writer = socket.socketpair()
    with reader:
        async with pasted_lines(reader.fileno(), lines.append):
            with writer:
                for part in (b"http://a?co", b"de=1\n\n", b"two\nthree"):
                    writer.send(part)
            async with asyncio.timeout(60):
                while lines != ["http://a?code=1", "two"]:
                    await asyncio.sleep(0)
