"""Two services on one PostgreSQL database: what an operator accepts at one is used in a turn of the other."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_api import add_key, client_of, finished_run, get, post
from tests.e2e.test_replicas import Replica, both_running, server
from tests.e2e.test_skills import packed, run_skill
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.postgres import PostgresServer
from tests.support.service_process import ask, said

__all__ = ["server"]
MAX_TURNS = 20
SLOWLY = "Add slowly."


class OperatedReplica(Replica):
    """One of two, in whose chats Jane operates."""

    def channels(self) -> dict[str, dict[str, Any]]:
        [(name, section)] = super().channels().items()
        return {name: {**section, "access": {"open": True, "operators": [str(JANE)]}}}

    @property
    def turns(self) -> int:
        """How many turns have begun here."""
        return self.log().count("turn.begin ")


Pair = tuple[OperatedReplica, OperatedReplica]


@pytest.fixture
async def pair(tmp_path: Path, telegram: FakeTelegram, model: FakeModel, server: PostgresServer) -> AsyncIterator[Pair]:
    one, two = (OperatedReplica(tmp_path / name, telegram, model, server) for name in ("one", "two"))
    async with both_running(one, two):
        yield one, two


async def shown_at(service: Replica, key: str, **wanted: str) -> None:
    """Wait until `GET /v1/skills` there shows these states, by name ("": not there)."""
    async with client_of(service, key) as client, asyncio.timeout(60):
        while True:
            _status, found = await get(client, "/v1/skills")
            states = {each["name"]: each["state"] for each in found["skills"]}
            if all(states.get(name.replace("_", "-"), "") == state for name, state in wanted.items()):
                return
            await asyncio.sleep(0.05)


async def changed_by_command_line(changing: Replica, other: Replica, action: str) -> None:
    """Change the skill by `fawn skills` on one machine. When it has answered, the row of all has the change."""
    code, text = await changing.fawn("skills", action, "add-numbers")
    assert (code, "once the service" in text) == (0, False), text
    [(shared,)] = other.rows("SELECT content FROM shared_files WHERE name='skills/skills.json'")
    decided = json.loads(bytes(shared))
    assert decided == json.loads((changing.data / "skills" / "skills.json").read_bytes())
    assert "add-numbers" not in decided["disabled"]


async def sum_at(service: OperatedReplica, key: str) -> str:
    """Have a turn of this service run the skill, and return what its tool gave the model."""
    await until(lambda: "app.ready" in service.log().rpartition("app.stopped")[2], 60, "the agent")
    before, results = service.turns, set()
    async with client_of(service, key) as client:
        for _ in range(MAX_TURNS):  # each may begin at either service, and has the same result
            text = ask(steps=[run_skill(numbers=[1, 2])], text="summed")
            _status, sent = await post(client, f"/v1/threads/{time.time_ns()}/messages", {"text": text})
            await finished_run(client, sent["id"])
            results.add([str(m["content"]) for m in service.model.requests()[-1].messages if m["role"] == "tool"][-1])
            if service.turns > before:
                [result] = results
                return result
    raise AssertionError("every turn was elsewhere")


async def test_an_accepted_skill_runs_at_the_other_service_and_follows_its_changes(
    pair: Pair, telegram: FakeTelegram
) -> None:
    """Installed in a chat, changed by the command line of one machine, rolled back while another one is away."""
    one, two = pair
    telegram.send_document("add.skill", packed(), caption="/skills install")
    await telegram.wait(JANE, "The skill add-numbers is installed.")
    key = await add_key(one, "ci", f"telegram/{JANE}")
    for each in pair:
        await shown_at(each, key, add_numbers="enabled")
        assert '"sum": 3' in await sum_at(each, key)
    telegram.send("/skills")
    await telegram.wait(JANE, "• add-numbers: Add numbers.")

    (two.folder / "add.skill").write_bytes(packed(SLOWLY, **{"run.py": 'print(\'{"sum": "slowly"}\')'}))
    assert (await two.fawn("skills", "install", "add.skill"))[0] == 0
    await changed_by_command_line(two, one, "accept")
    view = one.data / "skills" / "view" / "add-numbers" / "SKILL.md"
    await until(lambda: SLOWLY in view.read_text(), what="the change at the other service")
    assert "slowly" in await sum_at(one, key)

    telegram.send("/skills rollback add-numbers")
    await telegram.wait(JANE, "The skill add-numbers is back at its earlier version.")
    views = [each.data / view.relative_to(one.data) for each in pair]
    await until(lambda: not any(SLOWLY in each.read_text() for each in views), what="the earlier version at both")
    telegram.send("/skills disable add-numbers")
    await telegram.wait(JANE, "The skill add-numbers is disabled.")
    await changed_by_command_line(two, one, "enable")
    assert (await two.fawn("skills", "install", "add.skill"))[0] == 0
    await changed_by_command_line(two, one, "accept")
    await until(lambda: SLOWLY in view.read_text(), what="the change at the service that is to take it back")

    await two.stop()
    telegram.send("/skills rollback add-numbers")
    back = "The skill add-numbers is back at its earlier version."
    await until(lambda: sum(back in text for text in said(telegram, JANE)) == 2, what="the second step back")
    await two.start()
    assert '"sum": 3' in await sum_at(two, key), "its first turn has what was decided while it was away"
    telegram.send("/skills rollback add-numbers")
    await telegram.wait(JANE, "The skill add-numbers is removed.")
    for each in pair:
        await shown_at(each, key, add_numbers="")
    assert "I don't know" not in " ".join(said(telegram, JANE))
