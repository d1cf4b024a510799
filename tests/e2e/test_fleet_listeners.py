"""Two services on one PostgreSQL database and a platform where only the one that listens can post: WeCom, WeChat,
Matrix with an encrypted room. The listener is killed, then stopped; the other one hears and answers everything once.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.base.exit_codes import OK
from bot.database.replicas import LEASE_SECONDS
from tests.fakes.model_script import without_directives
from tests.fakes.server import until
from tests.support.fleet import Fleet, Replica
from tests.support.postgres import need_postgres
from tests.support.service_process import ask

LISTENER = "SELECT r.host FROM leases l JOIN replicas r ON r.id=l.owner WHERE l.name LIKE 'listen %'"


class ListeningPair(Fleet):
    """Two of them. The first one keeps what the set-up of the platform has, such as WeChat's login, in the database."""

    count = 2

    async def start(self) -> None:
        self.replicas[0].kept, self.kept = self.kept, {}
        await super().start()
        while not (self.listener and await self.listener.is_connected()):  # Matrix: its keys are known from then on
            pass

    def is_heard(self) -> bool:
        return len(self.rows(LISTENER)) == 1

    @property
    def listener(self) -> Replica | None:
        """The one that listens, while there is one."""
        hosts = [host for (host,) in self.rows(LISTENER)]
        return next((each for each in self.replicas if [each.host] == hosts), None)


@pytest.fixture(params=["wecom", "wechat", "matrix"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ListeningPair]:
    need_postgres()
    async with ListeningPair.open(tmp_path, request.param, sandbox={"provider": "local"}) as made:
        yield made


async def other_listens(pair: ListeningPair, ended: Replica) -> Replica:
    """Wait until another one listens than that which has ended."""
    await until(lambda: pair.listener not in (None, ended), LEASE_SECONDS + 10, "the other listener")
    listener = pair.listener
    assert listener
    return listener


async def test_the_other_service_listens_and_answers_once_after_a_kill_and_a_stop(pair: ListeningPair) -> None:
    """A turn that a kill met ends in its message, and what is written while nobody listens is answered."""
    [name] = pair.names
    rig = pair.rigs[name]
    rig.mutter(ask(text="hello"), 0)
    await pair.shows(name, "hello")
    await pair.quiet()
    first = pair.listener
    assert first
    rig.mutter(ask(word="long-", tokens=40, tok_ms=100, id="long"), 0)
    await until(lambda: pair.rows("SELECT 1 FROM runs WHERE state='running'"), what="the turn")
    await first.kill()
    killed = time.monotonic()
    second = await other_listens(pair, first)
    print(f"{name}: listens {time.monotonic() - killed:.1f} s after the kill")
    await pair.shows(name, "long-39")
    await pair.quiet()
    await first.start()
    assert pair.listener is second, "a start takes nothing from a living service"

    await second.kill()
    rig.mutter(ask(text="while nobody listened"), 0)
    assert await other_listens(pair, second) is first
    await pair.shows(name, "while nobody listened")
    await second.start()

    assert await first.stop() == OK
    stopped = time.monotonic()
    rig.mutter(ask(text="after the stop"), 0)
    await pair.shows(name, "after the stop")
    print(f"{name}: answers {time.monotonic() - stopped:.1f} s after the stop")
    assert pair.listener is second
    await pair.quiet()
    shown = without_directives("\n".join(rig.visible(0)))
    for text in ("hello", "long-39", "while nobody listened", "after the stop"):
        assert shown.count(text) == 1, shown
    assert pair.rows("SELECT count(*) FROM outbox WHERE state<>2") == [(0,)]
