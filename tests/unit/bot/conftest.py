"""Give tests a PostgreSQL database of their own, and two processes that share it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bot.storage.database import Database
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
        yield one, two
