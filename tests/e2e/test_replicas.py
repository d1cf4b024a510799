"""Two services on one PostgreSQL database: one is killed, paused or stopped, and the other goes on with its turns."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from bot.base.exit_codes import OK, TAKEN
from bot.main.startup import LEASE_LOST
from tests.e2e.test_api import add_key, client_of, finished_run, get, post, wait_for
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import FakeTelegram
from tests.support.postgres import PostgresServer, postgres_server, sql_on_server
from tests.support.service_process import Service, ask, bash

SETTINGS = {
    "data_dir": "data",  # in the folder of each: the same words
    "http": {"listen": "127.0.0.1:0"},
    "sandbox": {"provider": "local"},
    "limits": {"grace_seconds": 0},
}
PATH = "/v1/threads/t/messages"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as made:
        sql_on_server(made, "CREATE DATABASE fawn")
        yield made


class Replica(Service):
    """One of several `fawn run` on a database, with a data_dir of its own."""

    sandboxed = True

    def __init__(self, folder: Path, telegram: FakeTelegram, model: FakeModel, server: PostgresServer) -> None:
        folder.mkdir(exist_ok=True)
        self.server = server
        self.settings = {"database": {"url": server.url.format("fawn"), "replicas": True}}
        super().__init__(folder, telegram, model, SETTINGS | self.settings)

    async def start(self) -> None:
        before = self.log().count("http.listening")
        await self.spawn("run", "--config", "config.yaml")
        await until(lambda: self.log().count("http.listening") > before or self._ended(), 60, "the listener")
        assert not self._ended(), self.log()

    @property
    def host(self) -> str:
        """Its name among those that share the database."""
        return (self.data / "host").read_text("ascii").strip()

    def change(self, sql: str, **values: Any) -> None:
        from bot.database.postgres_session import connect, execute_on

        with closing(connect(self.server.url.format("fawn"))) as connection:
            execute_on(connection, sql, values)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        from bot.database.postgres_session import reading

        with reading(self.server.url.format("fawn"), snapshot=False) as execute:
            return [tuple(row) for row in execute(sql, {})]


@asynccontextmanager
async def both_running(one: Replica, two: Replica) -> AsyncIterator[None]:
    """Start two services one after the other, and kill them at the end; neither may have logged a traceback."""
    try:
        await one.start()
        await two.start()
        yield
    finally:
        for each in (one, two):
            if each.process:
                await each.kill()
    assert "Traceback" not in one.log() + two.log(), one.log() + two.log()


@pytest.fixture
async def pair(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, server: PostgresServer
) -> AsyncIterator[tuple[Replica, Replica]]:
    one, two = (Replica(tmp_path / name, telegram, model, server) for name in ("one", "two"))
    async with both_running(one, two):
        yield one, two


async def begin(one: Replica, text: str) -> tuple[str, int]:
    """Post a message to the first service and wait until its turn has begun; return a key and the message."""
    key = await add_key(one, "ci", "telegram/7")
    async with client_of(one, key) as client:
        status, sent = await post(client, PATH, {"text": text})
        assert status == 202, sent
        await wait_for(client, f"/v1/messages/{sent['id']}", lambda found: found["run"])
    return key, int(sent["id"])


async def answer_at(two: Replica, key: str, message: int) -> str:
    """Return the answer as the second service shows it; there is one."""
    async with client_of(two, key) as client:
        run = await finished_run(client, message)
        _status, thread = await get(client, "/v1/threads/t")
        texts = [each["text"] for each in thread["entries"] if each["by"] == "agent" and each["kind"] == "text"]
        assert texts == [run["text"]]
        return str(run["text"])


async def test_a_turn_of_a_killed_service_is_taken_over(pair: tuple[Replica, Replica]) -> None:
    one, two = pair
    key, message = await begin(one, ask(word="forty-two-", tokens=200, tok_ms=50))
    await one.kill()
    await until(lambda: two.rows("SELECT 1 FROM runs WHERE attempt=2"), what="the next attempt")
    assert "forty-two" in await answer_at(two, key, message)
    assert "replica.dead" in two.log()


async def test_a_killed_service_that_starts_again_goes_on_with_its_own_turn_at_once(
    pair: tuple[Replica, Replica],
) -> None:
    """Whatever is left of the lease that it had before. The other one does not take it: the files are here."""
    one, two = pair
    key, message = await begin(one, ask(word="forty-two-", tokens=100, tok_ms=50))
    await one.kill()
    two.change("UPDATE replicas SET until=until+1000 WHERE host=:host", host=one.host)
    await one.start()
    assert "forty-two" in await answer_at(one, key, message)
    assert two.rows("SELECT attempt FROM runs") == [(2,)]
    assert two.rows("SELECT host FROM conversations WHERE thread LIKE '%/t'") == [(one.host,)]
    assert "replica.dead" in one.log()


async def test_a_paused_service_writes_nothing_when_it_wakes_up_and_ends(pair: tuple[Replica, Replica]) -> None:
    """Its turn was taken over meanwhile. Its effect, which began before the pause, is not repeated."""
    one, two = pair
    steps = [bash("sleep 2; echo effect")]
    key, message = await begin(one, ask(word="forty-two-", steps=steps, tokens=50, tok_ms=50))
    assert one.process
    one.process.send_signal(signal.SIGSTOP)
    await until(lambda: two.rows("SELECT 1 FROM runs WHERE attempt=2"), what="the next attempt")
    one.process.send_signal(signal.SIGCONT)
    assert await asyncio.wait_for(one.process.wait(), 60) == LEASE_LOST
    assert "forty-two" in await answer_at(two, key, message)
    assert "replica.lease_lost" in one.log()
    assert two.rows("SELECT count(*) FROM outbox WHERE kind='reply'") == [(1,)]


async def test_a_service_that_is_stopped_leaves_its_turns_to_the_other_at_once(pair: tuple[Replica, Replica]) -> None:
    one, two = pair
    await begin(one, ask(word="forty-two-", tokens=2000, tok_ms=50))
    assert await one.stop(60) == OK
    await until(lambda: two.rows("SELECT 1 FROM conversations WHERE owner IS NOT NULL"), what="the other one")
    assert "replica.dead" not in two.log(), "it waited for the end of a lease"
    assert two.rows("SELECT attempt FROM runs") == [(1,)]
    assert [*two.rows("SELECT count(*) FROM replicas")] == [(1,)]


async def test_a_service_that_stops_leaves_what_comes_to_the_other_while_its_turns_end(
    pair: tuple[Replica, Replica],
) -> None:
    """Also messages in conversations that were its own. Who asks whether it is ready hears that it is not."""
    one, two = pair
    assert (await one.stop(), await two.stop()) == (OK, OK)
    database = {"url": one.server.url.format("fawn"), "replicas": True}
    one.configure(SETTINGS | {"limits": {"grace_seconds": 600}, "database": database})
    await one.start()
    key = await add_key(one, "ci", "telegram/7")
    second = PATH.replace("/t/", "/u/")
    async with client_of(one, key) as client:
        _status, sent = await post(client, second, {"text": ask(word="first-")})
        await finished_run(client, sent["id"])
        serving = "SELECT count(*) FROM replicas WHERE state='serving'"
        hosts = "SELECT host FROM conversations WHERE thread LIKE '%/u'"
        [(before,)] = two.rows(hosts)
        _status, sent = await post(client, PATH, {"text": ask(word="long-", tokens=4000, tok_ms=50)})
        await wait_for(client, f"/v1/messages/{sent['id']}", lambda found: found["run"])
        await two.start()
        await until(lambda: two.rows(serving) == [(2,)], 60, "both")
        assert one.process
        one.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            while (await get(client, "/readyz"))[0] != 503:
                await asyncio.sleep(0.05)
        _status, sent = await post(client, second, {"text": ask(word="second-")})
        run = await finished_run(client, sent["id"])
        assert "second-" in run["text"]
        assert one.process.returncode is None
        [(after,)] = two.rows(hosts)
        assert before != after


async def test_what_a_service_may_have_died_of_is_tried_alone_by_a_living_one(pair: tuple[Replica, Replica]) -> None:
    """It lets its own turns end first, and begins none beside it."""
    one, two = pair
    serving = "SELECT count(*) FROM replicas WHERE state='serving'"
    await until(lambda: two.rows(serving) == [(2,)], 60, "both")
    key, message = await begin(one, ask(word="suspect-", tokens=100, tok_ms=50))
    async with client_of(two, key) as client:
        _status, sent = await post(client, PATH.replace("/t/", "/u/"), {"text": ask(tokens=250, tok_ms=100)})
        own = int((await wait_for(client, f"/v1/messages/{sent['id']}", lambda found: found["run"]))["run"])
        two.change("UPDATE runs SET attempt=2 WHERE id<>:own", own=own)
        await one.kill()
        await until(lambda: "turn.alone" in two.log(), 60, "the suspect")
        _status, run = await get(client, f"/v1/runs/{own}")
        assert run["state"] == "done"
    assert "suspect-" in await answer_at(two, key, message)


async def test_the_status_names_the_services_and_where_they_differ(pair: tuple[Replica, Replica]) -> None:
    one, two = pair
    serving = "SELECT count(*) FROM replicas WHERE state='serving'"
    await until(lambda: two.rows(serving) == [(2,)], 60, "both")
    hosts = [str(host) for (host,) in two.rows("SELECT host FROM replicas ORDER BY started_at")]
    _code, text = await one.fawn("status")
    lines = [line for line in text.splitlines() if line.startswith("service ")]
    assert [line.split()[1] for line in lines] == hosts
    assert [line.endswith("←") for line in lines] == [True, False]
    assert all(re.search(r"\(0\.1\.0\): serving, lease \d+ s, configuration [0-9a-f]{12}", line) for line in lines)
    assert "different" not in text
    assert await two.stop() == OK
    own = {"data_dir": str(two.data), "log": {"level": "debug"}, "http": {"listen": "127.0.0.2:0"}}
    two.configure(SETTINGS | two.settings | own)
    await two.start()
    assert await differences(two) == [], "what belongs to a machine may differ"
    two.configure(SETTINGS | two.settings | own | {"limits": {"grace_seconds": 1}})
    assert "its configuration differs (" in (await two.fawn("reload"))[1]
    [text] = await differences(one)
    assert "different settings" in text
    two.configure(SETTINGS | two.settings | own)
    assert "with the same configuration" in (await two.fawn("reload"))[1]
    assert await differences(one) == []
    one.change("UPDATE replicas SET version='0.1.7', digest='' WHERE host=:host", host=hosts[0])
    _code, out, _errors = await two.run("status", "--json")
    report = json.loads(out)
    assert {each["host"]: each["version"] for each in report["replicas"]} == {hosts[0]: "0.1.7", hosts[1]: "0.1.0"}
    [text] = report["differences"]
    assert "different versions" in text


async def differences(service: Replica) -> list[str]:
    """Return what `fawn status` says of differences between the services."""
    _code, out, _errors = await service.run("status", "--json")
    found: list[str] = json.loads(out)["differences"]
    return found


async def test_a_service_without_the_setting_is_refused(pair: tuple[Replica, Replica], tmp_path: Path) -> None:
    one, _two = pair
    alone = Replica(tmp_path / "alone", one.telegram, one.model, one.server)
    alone.configure(SETTINGS | {"database": {"url": one.server.url.format("fawn")}})
    code, text = await alone.fawn("run")
    assert code == TAKEN, text
