"""Give tests a PostgreSQL database of their own, and two processes that share it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from bot.database.database import Database
from tests.support.postgres import database_of, need_postgres
from tests.support.postgres_sessions import opened, register


@pytest.fixture
def url(tmp_path: Path) -> str:
    need_postgres()
    return database_of(tmp_path)


@pytest.fixture
async def pair(url: str) -> AsyncIterator[tuple[Database, Database]]:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(opened(url)) for _ in range(2)]
        await register(one)
        await register(two)
        await asyncio.gather(until_heard(one, two), until_heard(two, one))
        yield one, two


async def until_heard(sender: Database, receiver: Database) -> None:
    """Wait until a process hears another one: what it was told before is lost."""
    heard = asyncio.Event()
    receiver.read_letters("hello", lambda _sender, _text: heard.set())
    async with asyncio.timeout(60):
        while not heard.is_set():
            sender.send("hello", "")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await heard.wait()
