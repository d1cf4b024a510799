"""A mention without access in a group, on every platform: one short answer, to that person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.fakes.server import until
from tests.fakes.slack import OPS
from tests.support.all_platforms import AllPlatforms
from tests.support.rigs.slack import SlackRig

SAID = "I don't know you yet"


class ClosedPlatforms(AllPlatforms):
    """A service that knows nobody."""

    access = MappingProxyType({"open": False})


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[ClosedPlatforms]:
    async with ClosedPlatforms.open(tmp_path) as made:
        assert isinstance(made, ClosedPlatforms)
        yield made


async def test_a_mention_without_access_is_answered_once_a_day_on_every_platform(service: ClosedPlatforms) -> None:
    def shown(name: str) -> list[str]:
        rig = service.rigs[name]
        if isinstance(rig, SlackRig):  # only the person sees it
            assert not any(SAID in text for text in rig.visible(7))
            return [post.text for post in rig.server.visible(OPS) if post.only_for and SAID in post.text]
        return [text for text in rig.visible(7) if SAID in text]

    async def visit(name: str) -> None:
        service.rigs[name].mutter("what is new?", 7, mention=True)
        await until(lambda: shown(name), what=f"the answer on {name}")
        service.rigs[name].mutter("hello?", 7, mention=True)

    await asyncio.gather(*(visit(name) for name in service.rigs))
    await until(lambda: service.log().count("reason=no_access") >= 2 * len(service.rigs), what="the second mentions")
    await service.quiet()
    assert {name: len(shown(name)) for name in service.rigs} == dict.fromkeys(service.rigs, 1)
    assert service.rows("SELECT count(*) FROM runs") == [(0,)]
