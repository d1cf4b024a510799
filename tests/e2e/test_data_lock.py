"""Commands on data_dir beside a service that starts: both orders, with kills; nobody fails and all is answered."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from tests.e2e.test_console import Terminals, answers, shows
from tests.e2e.test_console import terminals as terminals
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.forked_services import Running, fork
from tests.support.service_process import Service, ask

WAITS = "data_dir.waits"
LONG = ask(text="at last", delay_ms=6_000)


@pytest.fixture
def service(tmp_path: Path, telegram: FakeTelegram, model: FakeModel) -> Service:
    """A configured service that does not run. A turn has half a second to end in a shutdown."""
    return Service(tmp_path, telegram, model, {"sandbox": {"provider": "none"}, "limits": {"grace_seconds": 0.5}})


class Asked:
    """`fawn ask` as a process that has begun."""

    def __init__(self, service: Service, process: Running, number: int) -> None:
        self.process = process
        self._folder, self._number = service.folder, number

    async def ended(self) -> int:
        async with asyncio.timeout(60):
            return await self.process.wait()

    def out(self) -> str:
        return (self._folder / f"ask-{self._number}.out").read_text().strip()

    def errors(self) -> str:
        return (self._folder / f"ask-{self._number}.err").read_text()


async def begin_ask(service: Service, text: str, number: int = 0) -> Asked:
    """Begin `fawn ask`."""
    out, errors = (service.folder / f"ask-{number}.{name}" for name in ("out", "err"))
    for file in (out, errors):
        file.unlink(missing_ok=True)
    words = ["ask", "--config", "config.yaml", text]
    return Asked(service, await fork(words, service.folder, service.environment(), out, errors), number)


async def begin_ask_alone(service: Service, model: FakeModel, text: str) -> Asked:
    """Begin `fawn ask` without a service, and wait until the model is asked."""
    calls = len(model.requests())
    asked = await begin_ask(service, text)
    await until(lambda: len(model.requests()) > calls, what="the model's call")
    return asked


async def begin_service(service: Service, *, waits: bool = False) -> None:
    """Begin `fawn run`; wait until it says that it waits, or that it listens."""
    polls = service.telegram.poll_count()
    await service.spawn("run", "--config", "config.yaml")
    if waits:
        await until(lambda: WAITS in service.log(), what="a service that waits")
    else:
        await until(lambda: service.telegram.poll_count() > polls, what="the first getUpdates")


async def listens(service: Service) -> None:
    polls = service.telegram.poll_count()
    await until(lambda: service.telegram.poll_count() > polls, what="getUpdates")
    assert service.process
    assert service.process.returncode is None, service.log()


async def test_a_service_that_starts_beside_an_ask_goes_on_with_its_turn(
    service: Service, model: FakeModel, telegram: FakeTelegram
) -> None:
    """The ask's own service ends for it, suspends the turn, and the answer comes from the service."""
    asked = await begin_ask_alone(service, model, LONG)
    try:
        await begin_service(service, waits=True)
        await listens(service)
        assert asked.process.returncode is None
        assert (await asked.ended(), asked.out()) == (0, "at last"), asked.errors()
        assert service.rows("SELECT count(*) FROM inbox") == [(1,)]
        telegram.send(ask(text="from a chat"))
        await telegram.wait(JANE, "from a chat")
    finally:
        await service.kill()


async def test_a_killed_ask_leaves_the_data_dir_to_the_service(service: Service, model: FakeModel) -> None:
    asked = await begin_ask_alone(service, model, LONG)
    try:
        asked.process.kill()
        await begin_service(service)
        assert (await service.run("ask", ask(text="again")))[:2] == (0, "again\n")
    finally:
        await service.kill()


async def test_a_service_that_is_killed_while_it_waits_leaves_the_answer_to_the_ask(
    service: Service, model: FakeModel
) -> None:
    asked = await begin_ask_alone(service, model, LONG)
    await begin_service(service, waits=True)
    await service.kill()
    try:
        assert (await asked.ended(), asked.out()) == (0, "at last"), asked.errors()
        assert service.rows("SELECT count(*) FROM inbox") == [(1,)]
    finally:
        asked.process.kill()


async def test_asks_at_random_moments_of_a_start_are_all_answered_and_the_service_starts(service: Service) -> None:
    moments = random.Random(31)
    for number in range(4):
        words = [ask(text=f"answer {number}.{each}") for each in range(3)]
        first = await begin_ask(service, words[0], 0)
        await asyncio.sleep(moments.uniform(0, 1.5))  # the moments are what is tried
        await service.spawn("run", "--config", "config.yaml")
        await asyncio.sleep(moments.uniform(0, 0.5))
        asks = [first, *[await begin_ask(service, words[each], each) for each in (1, 2)]]
        try:
            for each, asked in enumerate(asks):
                assert (await asked.ended(), asked.out()) == (0, f"answer {number}.{each}"), asked.errors()
            await listens(service)
        finally:
            await service.kill()
            for asked in asks:
                asked.process.kill()


async def test_commands_on_the_database_wait_for_a_service_that_starts(service: Service) -> None:
    assert (await service.run("ask", ask(text="so that there is a database")))[0] == 0
    for _ in range(3):
        await service.spawn("run", "--config", "config.yaml")
        try:
            done = await asyncio.gather(*(service.run("pair", "list") for _ in range(3)))
            assert [code for code, _, _ in done] == [0, 0, 0], done
            await listens(service)
        finally:
            await service.kill()


async def test_a_chat_alone_continues_with_the_service_that_starts(service: Service, terminals: Terminals) -> None:
    window = await terminals.open(service, "chat")
    window.type(ask(text="alone") + "\r")
    await answers(window, "alone")
    await begin_service(service)
    try:
        await shows(window, "Attached to the running Fawn")
        window.type(ask(text="together") + "\r")
        await answers(window, "together")
        status, out, _ = await service.run("status", "--json")
        assert (status, json.loads(out)["pid"]) == (0, service.process.pid if service.process else 0)
    finally:
        await service.kill()


async def test_a_second_service_is_refused_at_once_while_the_first_one_waits(
    service: Service, model: FakeModel
) -> None:
    asked = await begin_ask_alone(service, model, LONG)
    await begin_service(service, waits=True)
    try:
        code, _, errors = await service.run("run")
        assert (code, "Another process already works on this data_dir" in errors) == (3, True)
        assert await asked.ended() == 0
    finally:
        await service.kill()
        asked.process.kill()
