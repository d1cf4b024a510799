"""The channel under test: every channel with a rig, unless a test requires an ability."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.rigs.base import Rig
from tests.support.rigs.registry import RIGS, ready


@pytest.fixture(params=sorted(RIGS))
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with RIGS[request.param].start(tmp_path) as made:
        await ready(made)
        yield made
