"""How models, tools and skills did: counted in the chat, shown to operators and members."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_skills import run_skill, write_skill
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, FakeSlack
from tests.fakes.slack import JANE as SLACK_JANE
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask, bash

EVE = 78
WRITES = {"calls": [{"name": "write_file", "args": {"path": "/mnt/user-data/outputs/a.txt", "content": "a"}}]}
OPERATED = {"telegram": {"access": {"open": True, "operators": [str(JANE)]}}}


def entry(model: FakeModel, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "use": "langchain_openai:ChatOpenAI",
        "model": "any",
        "base_url": f"{model.base_url}/v1",
        "api_key": "$OPENAI_API_KEY",
        "price": {"input": 1, "output": 2},
    }


def sums(service: Service, used: str) -> list[tuple[Any, ...]]:
    rows = service.rows("SELECT used, name, role, requests, calls, failed, up, down FROM outcomes ORDER BY name, role")
    return [row[1:] for row in rows if row[0] == used]


def add_history(service: Service, name: str, cost: int) -> None:
    """Store 60 judged requests of a model, all of the same cost."""
    service.change(
        "INSERT INTO outcomes(day, used, name, role, requests, calls, seconds, cost, up, down)"
        " VALUES (:day, 'model', :name, 'lead', 60, 60, 120, :cost, 57, 3)",
        day=int(time.time() // 86400) - 1,
        name=name,
        cost=60 * cost,
    )


async def test_outcomes_are_counted_and_shown_by_right(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(
        models=[entry(model, "main"), entry(model, "cheap")], sandbox={"provider": "none"}, channels=OPERATED
    )
    telegram.send(ask(errors=[429], at=0, retry_after=0, steps=[WRITES], text="written"))
    shown = await telegram.wait(JANE, "written")
    await service.quiet()
    assert sums(service, "model") == [("main", "lead", 1, 3, 1, 0, 0)], "two answers and a refusal"
    assert sums(service, "tool") == [("write_file", "", 1, 1, 0, 0, 0)]
    assert service.rows("SELECT used, name, error, count FROM outcome_errors") == [("model", "main", "busy", 1)]
    [(spent,)] = service.rows("SELECT sum(cost) FROM usage")
    assert service.rows("SELECT cost FROM outcomes WHERE used='model'") == [(spent,)]

    for emoji, expected in (("👍", (1, 0)), ("👎", (0, 1)), ("", (0, 0)), ("👍", (1, 0))):
        telegram.react(emoji, shown.id)
        for used in ("model", "tool"):
            await until(lambda: sums(service, used)[0][-2:] == expected, what=f"{emoji} on {used}")  # noqa: B023 — awaited in the round

    telegram.send("/models")
    told = (await telegram.wait(JANE, "In the last 30 days:")).text
    assert "main: 1 request; 3 calls; " in told
    assert "1 failed (1 × busy); 1 👍 and 0 👎; $" in told
    telegram.send("/skills stats")
    assert "write_file: 1 request; 1 call; " in (await telegram.wait(JANE, "Tools:")).text
    telegram.send("/models", chat=EVE)
    assert "In the last" not in (await telegram.wait(EVE, "chooses one for this conversation")).text

    add_history(service, "cheap", 600_000)
    telegram.send("/models again", chat=EVE)
    told = (await telegram.wait(EVE, "In the last 30 days:")).text
    assert "cheap: 👍 95 %, 2.0 s a call, 0 % of the calls failed" in told
    assert not [word for word in ("$", "request;", "failed (") if word in told]


async def test_a_skill_counts_with_its_failures(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path, bubblewrap: None
) -> None:
    write_skill(tmp_path)
    service = await start(channels=OPERATED)
    steps = [run_skill(numbers=[1, 2]), run_skill(fail=True), bash("cat /mnt/skills/add-numbers/SKILL.md; exit 3")]
    telegram.send(ask(steps=steps, text="done"))
    await telegram.wait(JANE, "done", seconds=60)
    await service.quiet()
    assert sums(service, "skill") == [("add-numbers", "", 1, 3, 2, 0, 0)]
    errors = service.rows("SELECT error, count FROM outcome_errors WHERE used='skill' ORDER BY error")
    assert errors == [("exit code", 1), ("reported by the tool", 1)]
    telegram.send("/skills stats")
    told = (await telegram.wait(JANE, "In the last 30 days:")).text
    assert "add-numbers: 1 request; 3 calls; " in told
    telegram.send("/skills stats", chat=EVE)
    assert "I can't say yet" in (await telegram.wait(EVE, "too few uses")).text


class InSlack(Service):
    """`fawn run` with Slack only; Jane is an operator."""

    def __init__(self, folder: Path, slack: FakeSlack, model: FakeModel) -> None:
        self.slack = slack
        super().__init__(folder, FakeTelegram(), model, {"sandbox": {"provider": "none"}})

    def channels(self) -> dict[str, dict[str, Any]]:
        tokens = {"bot_token": BOT_TOKEN, "app_token": APP_TOKEN, "base_url": self.slack.api_url}
        return {"slack": {**tokens, "access": {"allow": [SLACK_JANE], "operators": [SLACK_JANE], "pairing": False}}}

    async def start(self) -> None:
        await self.spawn("run", "--config", "config.yaml")
        await until(lambda: self.slack.sockets or self._ended(), what="the event socket")


@pytest.fixture
async def slack(tmp_path: Path) -> AsyncIterator[InSlack]:
    async with FakeModel() as model, FakeSlack() as server:
        service = InSlack(tmp_path, server, model)
        async with service:
            yield service


async def test_outcomes_and_thumbs_in_slack(slack: InSlack) -> None:
    direct = f"D{SLACK_JANE}"
    asked = slack.slack.send(ask(steps=[WRITES], text="written"), direct)
    shown = await slack.slack.wait("written", direct, asked)
    await slack.quiet()
    slack.slack.react(shown.ts, "+1", direct)
    await until(lambda: sums(slack, "model") == [("main", "lead", 1, 2, 0, 1, 0)], what="the thumb")
    slack.slack.unreact(shown.ts, "+1", direct)
    await until(lambda: sums(slack, "tool") == [("write_file", "", 1, 1, 0, 0, 0)], what="the end of the thumb")
    slack.slack.slash("/models", direct)
    await slack.slack.wait("2 calls", direct)
