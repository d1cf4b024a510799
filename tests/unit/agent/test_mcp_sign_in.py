"""Sign-ins at MCP servers: their tokens are renewed once, whoever needs them, and go to no other server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from mcp.shared.auth import OAuthClientInformationFull

from agent.mcp.connection import McpConnection, McpUnavailable
from agent.mcp.sign_in import SignInFailed, SignInNotNeeded, sign_in
from agent.setting import Secret
from agent.settings.mcp import McpOAuthSettings, McpServerSettings
from agent.settings.mcp_tokens import TOKENS_FOLDER, TokenFile, TokenFolder
from bot.admin.service_checks import check_mcp_server
from bot.base.stored_secrets import token_folder
from bot.config.database import DatabaseConfig
from bot.config.schema import Config
from sandbox.disk.sealing import Sealer
from tests.fakes.mcp_http import McpHttpServer
from tests.fakes.mcp_oauth import OAuthMcpServer
from tests.support.mcp_login import redirect_of

pytestmark = pytest.mark.slow
REDIRECT = "http://127.0.0.1:1/callback"  # nobody listens: the test is the browser
Connect = Callable[[McpServerSettings], McpConnection]


@pytest.fixture
def guarded() -> Iterator[OAuthMcpServer]:
    with OAuthMcpServer() as server:
        yield server


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        def make(settings: McpServerSettings) -> McpConnection:
            connection = McpConnection(settings, tokens=TokenFolder(tmp_path))
            stack.push_async_callback(connection.close)
            return connection

        yield make


async def browser(address: str) -> Mapping[str, str]:
    """Consent, and return the parameters of the redirect."""
    return dict(parse_qsl(urlsplit(await redirect_of(address)).query))


async def signed_in(server: OAuthMcpServer, data_dir: Path, **more: Any) -> McpServerSettings:
    """Sign in and store the tokens."""
    settings = McpServerSettings("guarded", url=server.url, **more)
    file = TokenFile(TokenFolder(data_dir), settings)
    async with file.locked():
        file.write(await sign_in(settings, REDIRECT, browser))
    return settings


async def note(connection: McpConnection, text: str) -> str:
    found = await connection.request("note", {"text": text})
    return str(found.result.content[0].text)


async def test_requests_at_once_and_two_services_renew_a_token_once(
    guarded: OAuthMcpServer, connect: Connect, tmp_path: Path
) -> None:
    settings = await signed_in(guarded, tmp_path)
    connections = [connect(settings) for _ in range(3)]  # each as a process of its own: they share only the file
    await asyncio.gather(*(connection.refresh() for connection in connections))
    for number in range(3):
        guarded.people.access.clear()
        texts = [f"{number} {which}" for which in range(9)]
        found = await asyncio.gather(*(note(connections[n % 3], text) for n, text in enumerate(texts)))
        assert found == [f"noted {text}" for text in texts]
    assert (guarded.people.renewals, guarded.people.reuses) == (3, 0)


async def test_a_stopped_call_does_not_lose_the_renewed_token(
    guarded: OAuthMcpServer, connect: Connect, tmp_path: Path
) -> None:
    connection = connect(await signed_in(guarded, tmp_path))
    await connection.refresh()
    guarded.people.access.clear()
    guarded.people.gate = threading.Event()  # the server has replaced the refresh token, and its answer waits
    call = asyncio.create_task(note(connection, "stopped"))
    assert await asyncio.to_thread(guarded.people.renewed.wait, 20)
    call.cancel()
    await asyncio.wait({call})
    guarded.people.gate.set()
    assert await note(connection, "next") == "noted next"
    assert guarded.people.reuses == 0


@pytest.mark.parametrize("seconds", [-1.0, 3600.0])  # it has expired, or only the server knows that it has
async def test_a_command_beside_several_services_leaves_the_renewal_to_them(
    guarded: OAuthMcpServer, tmp_path: Path, seconds: float
) -> None:
    settings, folder = await signed_in(guarded, tmp_path), TokenFolder(tmp_path, renews=False)
    assert (await check_mcp_server(settings, folder)).state == "ok"
    file = TokenFile(folder, settings)
    before = file.read()
    assert before
    file.write(replace(before, expires_at=time.time() + seconds))
    guarded.people.access.clear()
    found = await check_mcp_server(settings, folder)
    assert (found.state, guarded.people.renewals) == ("note" if seconds < 0 else "fault", 0)
    assert "a service renews it" in found.text
    assert (await check_mcp_server(settings, TokenFolder(tmp_path))).state == "ok"
    assert guarded.people.renewals == 1


def test_commands_renew_where_one_service_works_alone(tmp_path: Path) -> None:
    url = "postgresql://fawn@localhost/fawn"
    for database, renews in ((DatabaseConfig(), True), (DatabaseConfig(url, replicas=True), False)):
        assert token_folder(Config(data_dir=tmp_path, database=database)).renews is renews


async def test_tokens_go_only_to_the_url_of_their_sign_in(
    guarded: OAuthMcpServer, connect: Connect, tmp_path: Path
) -> None:
    settings = await signed_in(guarded, tmp_path)
    async with McpHttpServer() as other:
        assert (await connect(replace(settings, url=f"{other.base_url}/mcp")).request("whoami", {})).result
        assert not [headers for headers in other.headers if "Authorization" in headers]


async def test_a_token_endpoint_that_is_down_ends_no_sign_in(
    guarded: OAuthMcpServer, connect: Connect, tmp_path: Path
) -> None:
    settings = await signed_in(guarded, tmp_path)
    file = TokenFile(TokenFolder(tmp_path), settings)
    tokens = file.read()
    assert tokens
    guarded.people.access.clear()
    file.write(replace(tokens, token_endpoint="http://127.0.0.1:1/token"))
    connection = connect(settings)
    with pytest.raises(McpUnavailable, match=r"its token could not be renewed, because http://127\.0\.0\.1:1/token"):
        await connection.refresh()
    assert not connection.needs_sign_in
    file.write(tokens)
    assert await note(connection, "again") == "noted again"


async def test_a_damaged_file_of_tokens_needs_a_sign_in(
    guarded: OAuthMcpServer, connect: Connect, tmp_path: Path
) -> None:
    settings = await signed_in(guarded, tmp_path)
    (tmp_path / "mcp" / "guarded.json").write_text("{")
    with pytest.raises(McpUnavailable, match="it needs a sign-in: run `fawn mcp login guarded`"):
        await connect(settings).refresh()
    assert guarded.people.renewals == 0


async def test_a_configured_client_signs_in_with_its_secret_and_scope(
    guarded: OAuthMcpServer, connect: Connect, tmp_path: Path
) -> None:
    registered = OAuthClientInformationFull(
        client_id="fawn",
        client_secret="s3cret",
        redirect_uris=[REDIRECT],  # type: ignore[list-item]  # pydantic parses it
        token_endpoint_auth_method="client_secret_basic",
        scope="read write",
    )
    guarded.people.clients["fawn"] = registered
    oauth = McpOAuthSettings("fawn", Secret("s3cret"), guarded.base_url, "read", REDIRECT)
    settings = await signed_in(guarded, tmp_path, auth="oauth", oauth=oauth)
    assert {tuple(token.scopes) for token in guarded.people.access.values()} == {("read",)}
    assert "s3cret" not in (tmp_path / "mcp" / "guarded.json").read_text(), "the configuration has it"
    guarded.people.access.clear()
    assert await note(connect(settings), "renewed") == "noted renewed"
    elsewhere = replace(settings, oauth=replace(oauth, issuer="https://elsewhere.example"))
    with pytest.raises(SignInFailed, match=r"does not use the authorization server https://elsewhere\.example"):
        await sign_in(elsewhere, REDIRECT, browser)


async def test_the_sign_in_proves_itself_with_pkce_and_names_the_server(guarded: OAuthMcpServer) -> None:
    asked: list[dict[str, list[str]]] = []

    async def look(address: str) -> Mapping[str, str]:
        asked.append(parse_qs(urlsplit(address).query))
        return await browser(address)

    await sign_in(McpServerSettings("guarded", url=guarded.url), REDIRECT, look)
    assert asked[0]["code_challenge_method"] == ["S256"]
    assert asked[0]["resource"] == [guarded.url]


async def test_other_answers_of_the_authorization_server_are_named(guarded: OAuthMcpServer) -> None:
    settings = McpServerSettings("guarded", url=guarded.url)

    async def answer(address: str) -> Mapping[str, str]:
        state = (await browser(address))["state"]
        return {"state": state, "error": "server_error", "error_description": "try later"}

    with pytest.raises(SignInFailed, match="The authorization server answered: try later"):
        await sign_in(settings, REDIRECT, answer)

    async def stale(address: str) -> Mapping[str, str]:
        return {**await browser(address), "code": "used before"}

    with pytest.raises(SignInFailed, match="The sign-in failed: Token exchange failed"):
        await sign_in(settings, REDIRECT, stale)


async def test_a_server_that_answers_everybody_needs_no_sign_in() -> None:
    async with McpHttpServer() as http:
        with pytest.raises(SignInNotNeeded):
            await sign_in(McpServerSettings("open", url=f"{http.base_url}/mcp"), REDIRECT, browser)


async def test_tokens_lie_under_the_key_and_follow_a_new_one(guarded: OAuthMcpServer, tmp_path: Path) -> None:
    """Whoever has the folder alone has no access; a service with the key signs in with what is there."""
    settings = await signed_in(guarded, tmp_path)
    [file] = (tmp_path / TOKENS_FOLDER).glob("*.json")
    access = json.loads(file.read_text())["access_token"]
    assert access
    old, new = "an-old-key-of-32-characters-or-more", "a-new-key-of-32-characters-or-more!"
    for keys in ([old], [new, old]):  # a key comes to what lay open, and then another one
        assert TokenFile(TokenFolder(tmp_path, Sealer(keys)), settings).seal_anew()
        assert access not in file.read_text()
        assert not TokenFile(TokenFolder(tmp_path, Sealer(keys)), settings).seal_anew()
    for sealer, works in ((Sealer([new]), True), (Sealer([old]), False), (Sealer(), False)):
        connection = McpConnection(settings, tokens=TokenFolder(tmp_path, sealer))
        try:
            if works:
                assert await note(connection, "sealed")
            else:
                with pytest.raises(McpUnavailable):
                    await note(connection, "sealed")
        finally:
            await connection.close()
