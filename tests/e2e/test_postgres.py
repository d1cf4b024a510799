"""The whole service on PostgreSQL: kills, a server that comes late, restarts and cuts connections, a second process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.base.exit_codes import FAULT, OK, TAKEN
from tests.e2e.test_slack import DIRECT, InSlack
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.postgres import PostgresServer, postgres_server, sql_on_server
from tests.support.service_process import Service, ask, bash, said

LISTEN = {"http": {"listen": "127.0.0.1:0"}, "sandbox": {"provider": "none"}}
ANSWER = "one two three four five six seven eight nine ten"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as made:
        sql_on_server(made, "CREATE DATABASE fawn")
        yield made


class OnPostgres(Service):
    """`fawn run` whose database is on a server."""

    def __init__(self, folder: Path, telegram: FakeTelegram, model: FakeModel, server: PostgresServer) -> None:
        folder.mkdir(exist_ok=True)
        self.server = server
        super().__init__(folder, telegram, model, LISTEN | {"database": {"url": server.url.format("fawn")}})

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        from bot.database.postgres_session import reading

        with reading(self.server.url.format("fawn"), snapshot=False) as execute:
            return [tuple(row) for row in execute(sql, {})]


@pytest.fixture
async def service(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, server: PostgresServer
) -> AsyncIterator[OnPostgres]:
    made = OnPostgres(tmp_path / "one", telegram, model, server)
    yield made
    await made.end()


async def troubles(service: Service) -> list[str]:
    """Return what the probe says; ["away"] where nobody listens."""
    found = re.findall(r"http\.listening address=(\S+) port=(\d+)", service.log())
    if not found:
        return ["away"]
    try:
        async with aiohttp.ClientSession() as monitor, monitor.get(f"http://127.0.0.1:{found[-1][1]}/readyz") as answer:
            return [each["part"] for each in (await answer.json())["troubles"]]
    except aiohttp.ClientError:
        return ["away"]


async def wait_for(service: Service, *parts: str) -> None:
    async with asyncio.timeout(60):
        while await troubles(service) != [*parts]:
            await asyncio.sleep(0.1)


async def test_a_start_waits_for_a_server_and_says_so(service: OnPostgres, telegram: FakeTelegram) -> None:
    service.server.stop()
    await service.spawn("run", "--config", "config.yaml")
    await wait_for(service, "database")
    assert "store.away" in service.log()
    service.server.start()
    await wait_for(service)
    telegram.send(ask(text=ANSWER))
    await telegram.wait(JANE, ANSWER)


async def test_a_service_that_waits_for_its_server_can_be_stopped(service: OnPostgres) -> None:
    service.server.stop()
    await service.spawn("run", "--config", "config.yaml")
    await wait_for(service, "database")
    assert await service.stop() == OK


async def test_a_restart_of_the_server_in_the_middle_of_an_answer_loses_and_doubles_nothing(
    service: OnPostgres, telegram: FakeTelegram
) -> None:
    await service.start()
    await wait_for(service)
    telegram.fault("slow", "sendMessage", seconds=2.0, after=True)  # its place is to be stored while nothing can be
    telegram.send(ask(tokens=60, tok_ms=50, id="mid"))
    await telegram.wait(JANE, "w0")
    service.server.stop()
    telegram.send(ask(text=ANSWER))
    await wait_for(service, "database")
    await until(lambda: "task.not_recorded name=posts" in service.log(), what="a place that cannot be stored")
    service.server.start()
    await telegram.wait(JANE, ANSWER)
    await service.quiet()
    answers = [text for text in said(telegram, JANE) if not text.startswith("I can't")]  # the second was told so
    assert answers == [" ".join(f"w{n}" for n in range(60)), ANSWER]
    code, text = await service.fawn("audit", "verify")
    assert (code, "The audit is valid" in text) == (OK, True)


async def test_a_second_service_is_refused_wherever_its_folder_is(
    service: OnPostgres, tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    await service.start()
    other = OnPostgres(tmp_path / "two", telegram, model, service.server)
    process = await other.spawn("run", "--config", "config.yaml")
    assert await process.wait() == TAKEN
    assert "Another process already works on this PostgreSQL database" in other.log()
    code, text = await other.fawn("check")
    assert "a service works on it" in text, code
    code, text = await service.fawn("backup", "a.tar.gz")
    assert (code, "Wrote" in text) == (OK, True), text
    code, text = await other.fawn("restore", str(service.folder / "a.tar.gz"))
    assert (code, "not empty" in text) == (FAULT, True), text
    code, text = await other.fawn("migrate", "--to", "sqlite")
    assert (code, "already works on this PostgreSQL database" in text) == (TAKEN, True), text


async def test_killed_in_the_middle_it_continues_in_the_same_message(
    service: OnPostgres, telegram: FakeTelegram
) -> None:
    await service.start()
    telegram.send(ask(tokens=60, tok_ms=50, id="mid"))
    await telegram.wait(JANE, "w0")
    await until(lambda: service.rows("SELECT 1 FROM posts WHERE sent=1"), what="the stored message id")
    await service.restart()
    await telegram.wait(JANE, "w59")
    await service.quiet()
    assert said(telegram, JANE) == [" ".join(f"w{n}" for n in range(60))]


@pytest.mark.usefixtures("bubblewrap")
async def test_a_finished_command_does_not_run_again_after_a_kill(
    service: OnPostgres, telegram: FakeTelegram, model: FakeModel
) -> None:
    service.configure({"sandbox": {}, "database": {"url": service.server.url.format("fawn")}})
    await service.start()
    steps = [bash("echo once >> /mnt/user-data/workspace/effects")]
    telegram.send(ask(steps=steps, text="all done", delay_ms=1500))
    await until(lambda: len(model.requests()) == 2, what="the model call after the tool")
    await service.restart()
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert (service.folder_of() / "workspace" / "effects").read_text() == "once\n"


async def test_in_slack_a_kill_loses_and_doubles_nothing(tmp_path: Path, server: PostgresServer) -> None:
    async with FakeModel() as model, FakeSlack() as slack:
        service = InSlack(tmp_path, slack, model)
        service.configure({"database": {"url": server.url.format("fawn")}, "sandbox": {"provider": "none"}})
        async with service:
            asked = slack.send(ask(text=ANSWER, delay_ms=1500), DIRECT)
            await until(lambda: bool(model.requests()), what="the model call")
            await service.kill()
            await service.start()
            await slack.wait(ANSWER, DIRECT, asked)
            other = slack.send("and again", DIRECT)
            await slack.wait("and again", DIRECT, other)
