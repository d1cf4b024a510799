"""Two services on one PostgreSQL database and two platforms: one is killed, and its turns end in the same messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.server import until
from tests.support.fleet import Fleet
from tests.support.postgres import need_postgres
from tests.support.service_process import ask, bash

PLATFORMS = ("slack", "telegram")
HOSTS = """
SELECT split_part(c.thread, '/', 1), p.host FROM conversations c JOIN replicas p ON p.id=c.owner
JOIN runs r ON r.conversation=c.key WHERE r.state='running'"""


class Pair(Fleet):
    """Two of them."""

    count = 2


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    need_postgres()
    async with Pair.open(tmp_path, PLATFORMS, sandbox={"provider": "local"}) as made:
        yield made


async def test_a_service_is_killed_during_its_turns_and_the_other_one_ends_them_in_the_same_messages(
    pair: Pair,
) -> None:
    """Their effects, which happened before, do not happen again."""
    for name in PLATFORMS:
        effect = bash(f"echo {name} >> /mnt/user-data/workspace/effects")
        pair.rigs[name].mutter(ask(steps=[effect], word=f"{name}-", tokens=80, tok_ms=60, id=name), 0)
    await asyncio.gather(*(pair.shows(name, f"{name}-0") for name in PLATFORMS))
    posted = pair.rows("SELECT count(*) FROM posts WHERE sent=1")
    hosts = dict(pair.rows(HOSTS))
    killed = next(each for each in pair.replicas if each.host == hosts["slack"])
    held = [(name,) for name in PLATFORMS if hosts[name] == killed.host]
    await killed.kill()
    taken = "SELECT split_part(conversation, '/', 1) FROM runs WHERE attempt=2 ORDER BY 1"
    await until(lambda: pair.rows(taken) == held, what="the next attempts")
    for name in PLATFORMS:
        [shown] = await pair.shows(name, f"{name}-79")
        assert shown.count(f"{name}-0 ") == 1
    await pair.quiet()
    assert pair.rows("SELECT count(*) FROM posts WHERE sent=1") == posted
    effects = [line for file in pair.effect_files() for line in file.read_text().split()]
    assert sorted(effects) == sorted(PLATFORMS)
    await killed.start()
    for name in PLATFORMS:
        pair.rigs[name].mutter(ask(text=f"once more on {name}"), 0)
        await pair.shows(name, f"once more on {name}")
