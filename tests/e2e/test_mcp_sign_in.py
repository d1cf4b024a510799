"""Signing in to an MCP server with a browser: the real command, the real service, the SDK's authorization server."""

from __future__ import annotations

import json
import stat
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_mcp import calls, results
from tests.fakes.mcp_oauth import OAuthMcpServer
from tests.fakes.model import FakeModel
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.mcp_login import begin_login, log_in, open_page, redirect_of, tokens_file
from tests.support.service_process import Service, ask, said

ALLOWED = {"allow": ["mcp__*"], "outward": "allow"}
NEEDS = "The MCP server “guarded” needs a sign-in. I continue without it. An operator can run fawn mcp login guarded."


@pytest.fixture
def guarded() -> Iterator[OAuthMcpServer]:
    with OAuthMcpServer() as server:
        yield server


def entry(server: OAuthMcpServer, **more: Any) -> dict[str, Any]:
    """Return the section `mcpServers`, as other programs read it."""
    return {"guarded": {"type": "http", "url": server.url, **more}}


async def note(telegram: FakeTelegram, service: Service, text: str) -> None:
    """Have the agent call the tool, and wait for its answer."""
    telegram.send(ask(steps=[calls("mcp__guarded__note", text=text)], text=f"done with {text}"))
    await telegram.wait(JANE, f"done with {text}")
    await service.quiet()


async def test_the_service_asks_for_a_sign_in_and_uses_it_without_a_restart(
    telegram: FakeTelegram, model: FakeModel, start: Start, guarded: OAuthMcpServer
) -> None:
    service = await start(mcpServers=entry(guarded), permissions=ALLOWED)
    for number in range(3):  # also when its failures would make it pause
        await note(telegram, service, f"early {number}")
    told = [NEEDS in text for text in said(telegram, JANE) if "done" in text]
    assert told == [True, False, False], "a conversation is told once"
    assert guarded.people.clients == {}, "the service registers nothing"
    _code, status = await service.fawn("status")
    assert "The MCP server “guarded” needs a sign-in: `fawn mcp login guarded`." in status
    _code, checked = await service.fawn("check")
    assert (
        f"FAULT MCP server guarded: {guarded.url}: it needs a sign-in\n      → run `fawn mcp login guarded`" in checked
    )
    output = await log_in(service, "guarded")
    assert "ok    MCP server guarded: 1 of 1 tools" in output
    await note(telegram, service, "first")
    assert guarded.notes == ["first"]
    _code, listed = await service.fawn("mcp")
    assert listed == f"guarded\t{guarded.url}\tsigned in; the token is renewed automatically\n"
    file = tokens_file(service, "guarded")
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    _code, status = await service.fawn("status")
    assert "sign-in" not in status


async def test_an_expired_token_is_renewed_after_a_restart_and_a_revoked_one_needs_a_person(
    telegram: FakeTelegram, model: FakeModel, start: Start, guarded: OAuthMcpServer
) -> None:
    service = await start(mcpServers=entry(guarded, auth="oauth"), permissions=ALLOWED)
    guarded.people.seconds = 1
    await log_in(service, "guarded")
    await service.kill()
    guarded.people.access.clear()
    guarded.people.seconds = 3600
    renewals = guarded.people.renewals
    await service.start()
    await note(telegram, service, "after the expiry")
    assert (guarded.notes, guarded.people.renewals) == (["after the expiry"], renewals + 1)
    guarded.people.access.clear()  # earlier than it promised
    await note(telegram, service, "renewed again")
    assert guarded.notes[1:] == ["renewed again"]
    guarded.people.revoke()
    await note(telegram, service, "revoked")
    assert "it needs a sign-in: run `fawn mcp login guarded`" in results(model)[-1]
    assert guarded.notes[2:] == []
    _code, listed = await service.fawn("mcp", "list")
    assert "the sign-in has ended: `fawn mcp login guarded`" in listed
    await log_in(service, "guarded")
    await note(telegram, service, "signed in again")
    assert guarded.notes[2:] == ["signed in again"]
    assert guarded.people.reuses == 0


async def test_the_address_can_be_pasted_and_a_wrong_one_does_not_end_the_sign_in(
    telegram: FakeTelegram, model: FakeModel, start: Start, guarded: OAuthMcpServer
) -> None:
    service = await start(mcpServers=entry(guarded))
    login = await begin_login(service, "guarded")
    redirect = await redirect_of(login.address)
    login.paste(login.address)
    await login.read_until("This is not the address of the last page")
    login.paste(redirect.replace("state=", "state=x"))
    await login.read_until("This address belongs to another sign-in")
    assert "another sign-in" in await open_page(redirect.replace("state=", "state=x"))
    login.paste(redirect)
    code, output = await login.end()
    assert (code, "You are signed in to guarded." in output) == (0, True), output
    code, output = await service.fawn("mcp", "logout", "guarded")
    assert (code, output.startswith("Removed the tokens of guarded")) == (0, True)
    assert not tokens_file(service, "guarded").exists()
    assert (await service.fawn("mcp", "logout", "guarded"))[1] == "Nobody is signed in to guarded.\n"


async def test_a_denied_sign_in_says_so_and_stores_nothing(
    telegram: FakeTelegram, model: FakeModel, start: Start, guarded: OAuthMcpServer
) -> None:
    service = await start(mcpServers=entry(guarded))
    guarded.people.denies = True
    login = await begin_login(service, "guarded")
    assert "was not allowed" in await open_page(await redirect_of(login.address))
    code, output = await login.end()
    assert code == 1
    assert output.rstrip().endswith("fawn: The sign-in was denied in the browser (access_denied). Nothing was changed.")
    assert "Traceback" not in output
    assert not tokens_file(service, "guarded").exists()


async def test_servers_that_need_no_sign_in_are_named(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    with OAuthMcpServer(registers=False) as closed:
        servers = {
            "closed": {"url": closed.url},
            "token": {"url": closed.url, "token": "t"},
            "local": {"command": "/bin/true"},
        }
        service = await start(mcpServers=servers)
        _code, listed = await service.fawn("mcp")
        assert [line.split("\t")[2] for line in listed.splitlines()] == [
            "not signed in; if it asks for that: `fawn mcp login closed`",
            "needs no sign-in",
            "uses the credentials of its configuration",
        ]
        code, output = await service.fawn("mcp", "login", "closed")
        assert code == 1
        assert "The server does not let clients register themselves (Registration failed: 404" in output
        assert "with the redirect address http://127.0.0.1:" in output
    code, output = await service.fawn("mcp", "login", "closed")
    assert "or its authorization server cannot be reached" in output
    for name, text in {
        "token": "token uses the credentials of its configuration.",
        "local": "local is a program on this machine and needs no sign-in.",
        "none": "There is no MCP server none. Configured: closed, local, token.",
    }.items():
        code, output = await service.fawn("mcp", "login", name)
        assert (code, text in output) == (1, True), output


async def test_tokens_are_neither_in_the_log_nor_in_a_backup(
    telegram: FakeTelegram, model: FakeModel, start: Start, guarded: OAuthMcpServer
) -> None:
    service = await start(mcpServers=entry(guarded), permissions=ALLOWED, log={"level": "debug"})
    await log_in(service, "guarded")
    guarded.people.access.clear()
    await note(telegram, service, "noted")
    assert guarded.notes == ["noted"]
    code, output = await service.fawn("backup", "all.tar.gz")
    assert code == 0, output
    with tarfile.open(service.folder / "all.tar.gz") as archive:
        assert [name for name in archive.getnames() if name.startswith("mcp")] == []
    tokens = json.loads(tokens_file(service, "guarded").read_text())
    for secret in ("access_token", "refresh_token", "client_secret"):
        assert tokens[secret]
        assert tokens[secret] not in service.log()
    assert not [used for used in guarded.people.used if used in service.log()]
