"""A real bubblewrap, and a machine of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.base import Sandbox
from sandbox.bubblewrap.provider import Bubblewrap
from sandbox.settings import Settings
from tests.support.engines import need_bubblewrap


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    skills = tmp_path / "skills"
    skills.mkdir()
    (skills / "SKILL.md").write_text("# A skill\n")
    return Settings(skills, memory_mb=256, processes=64, file_mb=8, tmp_mb=16)


@pytest.fixture
async def provider(settings: Settings) -> AsyncIterator[Bubblewrap]:
    need_bubblewrap()
    made = Bubblewrap(settings)
    yield made
    await made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The thread's folder on the host."""
    return tmp_path / "thread"


@pytest.fixture
async def sandbox(provider: Bubblewrap, folder: Path) -> AsyncIterator[Sandbox]:
    async with provider.acquire("t", folder) as made:
        yield made
