"""The channel under test: every channel with a rig, unless a test requires an ability."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.rigs.base import Rig
from tests.support.rigs.registry import RIGS, ready

CONTENT = {"test_channel.py", "test_channel_files.py", "test_channel_reply.py"}  # what is encrypted there, or not


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out plain Matrix where it only repeats encrypted Matrix: each row costs a second of its homeserver."""
    encrypted = {_function_of(item) for item in items if _rig_of(item) == "matrix-encrypted"}
    repeated = [
        item
        for item in items
        if _rig_of(item) == "matrix" and item.path.name not in CONTENT and _function_of(item) in encrypted
    ]
    config.hook.pytest_deselected(items=repeated)
    items[:] = [item for item in items if item not in {*repeated}]


def _function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _rig_of(item: pytest.Item) -> object:
    called = getattr(item, "callspec", None)
    return called.params.get("rig") if called else None


@pytest.fixture(params=sorted(RIGS))
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with RIGS[request.param].start(tmp_path) as made:
        await ready(made)
        yield made
