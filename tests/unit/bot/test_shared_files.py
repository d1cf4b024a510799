"""Processes on one database have the same tokens of MCP servers, whichever of them changed them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.mcp.connection import McpConnection
from agent.settings.mcp import McpConfig, McpServerSettings
from agent.settings.mcp_tokens import TokenFile, TokenFolder
from bot.config.schema import Config
from bot.database.database import Database
from bot.rights.current import Current
from bot.service.shared_files import SharedFiles, SharedTokens, share_tokens
from tests.fakes.mcp_oauth import OAuthMcpServer
from tests.unit.agent.test_mcp_sign_in import note, signed_in

pytestmark = pytest.mark.slow
Pair = tuple[Database, Database]


@dataclass
class Process:
    """A process with a folder of its own, as far as its sign-ins go."""

    store: Database
    data: Path
    settings: McpServerSettings
    connection: McpConnection

    def file(self) -> TokenFile:
        return TokenFile(TokenFolder(self.data), self.settings)

    async def look(self) -> None:
        current = Current(Config(data_dir=self.data, mcp=McpConfig(servers=(self.settings,))))
        await share_tokens(self.store, SharedFiles(self.store, self.data), current)


@pytest.fixture
def guarded() -> Iterator[OAuthMcpServer]:
    with OAuthMcpServer() as server:
        yield server


@pytest.fixture
async def processes(pair: Pair, guarded: OAuthMcpServer, tmp_path: Path) -> AsyncIterator[list[Process]]:
    """Two processes; somebody has signed in where the first one runs."""
    made = []
    async with AsyncExitStack() as stack:
        for name, store in zip(("one", "two"), pair, strict=True):
            (data := tmp_path / name).mkdir()
            settings = McpServerSettings("guarded", url=guarded.url)
            folder = TokenFolder(data, exchange=SharedTokens(SharedFiles(store, data)))
            connection = McpConnection(settings, tokens=folder)
            stack.push_async_callback(connection.close)
            made.append(Process(store, data, settings, connection))
        await signed_in(guarded, made[0].data)
        yield made


async def test_a_sign_in_and_its_end_reach_the_others(processes: list[Process]) -> None:
    one, two = processes
    await one.look()
    assert two.file().read() is None
    await two.look()
    assert two.file().read() == one.file().read() is not None
    assert two.file().remove()
    await two.look()
    await one.look()
    assert one.file().read() is None


async def test_a_refresh_token_is_used_once_by_all_processes(processes: list[Process], guarded: OAuthMcpServer) -> None:
    for each in processes:
        await each.look()
    await asyncio.gather(*(each.connection.refresh() for each in processes))
    for number in range(4):
        guarded.people.access.clear()
        texts = [f"{number} {which}" for which in range(6)]
        calls = [note(processes[which % 2].connection, text) for which, text in enumerate(texts)]
        assert await asyncio.gather(*calls) == [f"noted {text}" for text in texts]
        guarded.people.access.clear()
        assert await note(processes[number % 2].connection, "alone") == "noted alone"
    assert (guarded.people.renewals, guarded.people.reuses) == (8, 0)


async def test_a_new_sign_in_wins_and_a_lost_note_takes_the_row(
    processes: list[Process], guarded: OAuthMcpServer
) -> None:
    one, two = processes
    for each in (one, two):
        await each.look()
    await signed_in(guarded, two.data)
    new = two.file().read()
    await two.look()
    await one.look()
    assert one.file().read() == new
    (one.data / "shared.json").write_text("damaged")
    one.file().store(b"old")
    await one.look()
    assert one.file().read() == new
