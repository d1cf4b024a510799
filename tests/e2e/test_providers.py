"""Providers in the whole service: tool calls, a restart between two calls, efforts, and the thinking in the chat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_slack import DIRECT, InSlack
from tests.fakes.model import Answer, FakeModel
from tests.fakes.server import Json, until
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask, unfolded
from tests.unit.agent.test_providers import double

LOOKS = {"calls": [{"name": "ls", "args": {"path": "/mnt/user-data"}}]}
SANDBOX = {"provider": "none"}


def models(server: FakeModel, preset: str, name: str) -> list[Json]:
    """Return the `models` of a configuration: one that is shown thinking."""
    url = server.base_url + ("" if preset == "anthropic" else "/v1")
    entry = {"name": "main", "preset": preset, "model": name, "base_url": url, "api_key": "$OPENAI_API_KEY"}
    return [{**entry, "show_thinking": True}]


@pytest.mark.parametrize(
    ("preset", "name", "effort", "reasoning"),
    [
        ("anthropic", "claude-opus-5", {"output_config": {"effort": "high"}}, "signature of thought 1"),
        ("openai-responses", "gpt-5-mini", {"reasoning": {"effort": "high"}}, "encrypted rs_1"),
        ("deepseek", "deepseek-v4", {"reasoning_effort": "high"}, "thought 1"),
    ],
)
async def test_a_turn_continues_with_its_reasoning_after_a_kill_between_two_calls(
    telegram: FakeTelegram, tmp_path: Path, preset: str, name: str, effort: Json, reasoning: str
) -> None:
    busy = True
    async with double(preset) as model:
        model.script = lambda body: (
            Answer(status=429, retry_after=30) if busy and body["messages"][-1]["role"] == "tool" else None
        )
        service = Service(tmp_path, telegram, model, {"models": models(model, preset, name), "sandbox": SANDBOX})
        await service.start()
        try:
            telegram.send("/model high")
            await telegram.wait(JANE, "From your next message on, main (main) answers here with the effort high.")
            telegram.send(ask(steps=[LOOKS], text="all seen"))
            await until(lambda: len(model.requests()) == 2, what="the call with the result of the tool")
            stored = "SELECT * FROM checkpoints"  # it waits two seconds for a commit of the turn
            await until(lambda: reasoning in str(service.rows(stored)), what="the state after the tool")
            busy = False
            await service.restart()
            await telegram.wait(JANE, "all seen")
            await service.quiet()
            telegram.send(ask(text="seen before"))
            await telegram.wait(JANE, "seen before")
        finally:
            await service.kill()
        assert [request.rejected for request in model.requests() if request.rejected] == []
        assert [request.status for request in model.requests()] == [200, 429, 200, 200]
        for number, request in enumerate(model.requests()):
            assert effort == {key: _only(request.body[key], value) for key, value in effort.items()}
            assert (reasoning in str(request.messages)) == (number > 0)
        [shown] = [each for each in telegram.visible(JANE) if "all seen" in each.text]
        folded = shown.text.removeprefix(unfolded(shown))
        assert "Thinking: thought " in folded
        assert "step 20, " in folded
        assert "Traceback" not in service.log()


def _only(sent: Any, wanted: Any) -> Any:
    """Return those fields of a section that are wanted."""
    return {key: sent[key] for key in wanted} if isinstance(wanted, dict) else sent


async def test_thinking_is_a_folded_step_in_slack(tmp_path: Path) -> None:
    async with double("deepseek") as model, FakeSlack() as slack:
        service = InSlack(tmp_path, slack, model)
        service.configure({"models": models(model, "deepseek", "deepseek-v4"), "sandbox": SANDBOX})
        await service.start()
        try:
            asked = slack.send(ask(steps=[LOOKS], text="all seen"), DIRECT)
            await slack.wait("all seen", DIRECT, asked)
            await service.quiet()
        finally:
            await service.kill()
        [shown] = [each for each in slack.visible(DIRECT, asked) if "all seen" in each.text]
        assert shown.tasks == ("Thinking: complete", "Listing user-data: complete", "Thinking: complete")
        assert shown.details["Thinking"].startswith("thought ")
        assert "thought" not in shown.text
        assert "Traceback" not in service.log()
