"""A real bubblewrap provider and one of its sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.base import Sandbox
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.settings import SandboxSettings
from tests.support.engines import need_bubblewrap


@pytest.fixture
def settings(tmp_path: Path) -> SandboxSettings:
    skills = tmp_path / "skills"
    skills.mkdir()
    (skills / "SKILL.md").write_text("# A skill\n")
    return SandboxSettings(skills, memory_mb=256, processes=64, file_mb=8, tmp_mb=16)


@pytest.fixture
async def provider(settings: SandboxSettings) -> AsyncIterator[BubblewrapProvider]:
    need_bubblewrap()
    made = BubblewrapProvider(settings)
    yield made
    await made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The conversation's folder on the host."""
    return tmp_path / "thread"


@pytest.fixture
async def sandbox(provider: BubblewrapProvider, folder: Path) -> AsyncIterator[Sandbox]:
    async with provider.acquire("t", folder) as made:
        yield made
