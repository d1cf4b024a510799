"""Fixtures for the tests of single channels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.telegram import JANE
from tests.support.rigs.telegram import GROUP, TelegramRig


@pytest.fixture
async def telegram_rig(tmp_path: Path) -> AsyncIterator[TelegramRig]:
    """Telegram with a private chat and a small group."""
    async with TelegramRig.start(tmp_path) as made:
        made.server.chat(JANE)
        made.server.chat(GROUP)
        yield made
