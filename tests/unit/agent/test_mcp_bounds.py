"""What an authorization server answers is bounded, and clean where it is printed."""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiohttp import web

from agent.foreign_text import printable_line, printable_text
from agent.mcp.bounds import MAX_LOGGED_LINES
from agent.mcp.connection import McpCallLost, McpConnection, McpUnavailable
from agent.mcp.sign_in import SignInFailed, sign_in
from agent.setting import Secret
from agent.settings.mcp import McpOAuthSettings, McpServerSettings
from agent.settings.mcp_tokens import TokenFile, TokenFolder
from bot.admin.doctor import render_finding
from bot.base.exit_codes import fail
from bot.base.findings import Finding
from tests.fakes.mcp_oauth import OAuthMcpServer
from tests.support.mcp_login import redirect_of

pytestmark = pytest.mark.slow
REDIRECT = "http://127.0.0.1:1/callback"  # nobody listens: the test is the browser
ENDLESS_BYTES = 64 << 20
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202emoc.live\u0085 denied\r\nfawn: all is well"


class FloodServer:
    """Answers every request with megabytes, plain or compressed, and counts what it wrote."""

    def __init__(self) -> None:
        self.written = 0
        self.compressed = False
        self.base_url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/mcp":
            return web.Response(status=401)
        headers = {"Content-Type": "application/json"} | ({"Content-Encoding": "gzip"} if self.compressed else {})
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        chunk = gzip.compress(b" " * (64 << 20)) if self.compressed else b" " * (1 << 16)
        while self.written < (len(chunk) if self.compressed else ENDLESS_BYTES):
            await response.write(chunk)
            self.written += len(chunk)
        return response


@pytest.fixture
async def flood() -> AsyncIterator[FloodServer]:
    server = FloodServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
def guarded() -> Iterator[OAuthMcpServer]:
    with OAuthMcpServer() as server:
        yield server


async def browser(address: str) -> Mapping[str, str]:
    """Consent, and return the parameters of the redirect."""
    return dict(parse_qsl(urlsplit(await redirect_of(address)).query))


async def nobody(address: str) -> Mapping[str, str]:
    raise AssertionError(address)


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_renewal_reads_one_megabyte_at_most(
    guarded: OAuthMcpServer, flood: FloodServer, tmp_path: Path, compressed: bool
) -> None:
    settings = McpServerSettings("guarded", url=guarded.url)
    file = TokenFile(TokenFolder(tmp_path), settings)
    tokens = await sign_in(settings, REDIRECT, browser)
    async with file.locked():
        file.write(replace(tokens, token_endpoint=f"{flood.base_url}/token"))
    guarded.people.access.clear()
    flood.compressed = compressed
    connection = McpConnection(settings, tokens=TokenFolder(tmp_path))
    try:
        with pytest.raises(McpUnavailable, match="could not be renewed"):
            await connection.refresh()
    finally:
        await connection.close()
    assert flood.written < 16 << 20, "what the kernel's buffers took, and no more"


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_sign_in_reads_one_megabyte_at_most(flood: FloodServer, compressed: bool) -> None:
    flood.compressed = compressed
    with pytest.raises(SignInFailed, match=r"answers with more than 1 MB, or compressed"):
        await sign_in(McpServerSettings("flood", url=f"{flood.base_url}/mcp"), REDIRECT, nobody)
    assert flood.written < 16 << 20


async def test_credentials_of_a_client_are_asked_for_with_the_same_bound(flood: FloodServer) -> None:
    oauth = McpOAuthSettings(client_id="fawn", client_secret=Secret("s"), issuer=flood.base_url)
    connection = McpConnection(McpServerSettings("flood", url=f"{flood.base_url}/mcp", oauth=oauth))
    try:
        with pytest.raises(McpUnavailable, match=r"more than 1 MB"):
            await connection.refresh()
    finally:
        await connection.close()
    assert flood.written < 16 << 20


async def test_the_words_of_an_authorization_server_control_no_terminal(guarded: OAuthMcpServer) -> None:
    for error in ("access_denied", "server_error", HOSTILE):

        async def refuse(address: str, error: str = error) -> Mapping[str, str]:
            state = dict(parse_qsl(urlsplit(address).query))["state"]
            return {"error": error, "error_description": HOSTILE if error != HOSTILE else "", "state": state}

        with pytest.raises(SignInFailed) as caught:
            await sign_in(McpServerSettings("guarded", url=guarded.url), REDIRECT, refuse)
        assert str(caught.value).isprintable()
        assert "]0;owned [2J" in str(caught.value)


def test_nothing_that_a_command_prints_about_a_server_controls_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fail(HOSTILE, 1)
    print(render_finding(Finding("fault", "MCP server x", HOSTILE, HOSTILE)))
    shown = "".join(capsys.readouterr())
    assert "owned" in shown
    assert not re.search(r"[^\n\x20-\x7e→]", shown)


@pytest.mark.parametrize("text", [HOSTILE, "\x9b31m", "\ud800", "\u2066x\u2069", "a" * 5000, ""])
def test_a_printable_line_is_one_short_line(text: str) -> None:
    line = printable_line(text)
    assert line.isprintable()
    assert len(line) <= 300
    assert printable_text(text).replace("\n", "").isprintable()


async def test_a_server_that_writes_no_messages_is_ended_and_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    program = Path(__file__).parents[2] / "redteam" / "mcp_server.py"
    connection = McpConnection(McpServerSettings("flood", command=sys.executable, args=(str(program), "flood")))
    try:
        with pytest.raises(McpCallLost):
            await connection.request("flood", {"kind": "lines"})
    finally:
        await connection.close()
    assert caplog.text.count("mcp.odd_line") == MAX_LOGGED_LINES
