"""External agents in the whole service: an agent works in the sandbox, asks the person, and stops with the turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.fakes.telegram_world import Shown
from tests.support.service_process import Service, ask

pytestmark = pytest.mark.usefixtures("bubblewrap")

# Asks before each file that it writes. The packages of the protocol's SDK are tried in tests/unit/agent.
PROGRAM = b"""
import json, sys
def send(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def receive(): return json.loads(sys.stdin.readline())
def update(**fields): send(method="session/update", params={"sessionId": "s", "update": fields})
for result in ({"protocolVersion": 1}, {"sessionId": "s"}):
    send(id=receive()["id"], result=result)
prompt = receive()
for name in prompt["params"]["prompt"][0]["text"].split():
    call = {"toolCallId": name, "title": f"Write {name}", "kind": "edit", "rawInput": {"path": name}}
    update(sessionUpdate="tool_call", **call)
    options = [{"optionId": id, "name": id, "kind": kind} for id, kind in (("y", "allow_once"), ("n", "reject_once"))]
    send(id=name, method="session/request_permission", params={"sessionId": "s", "toolCall": call, "options": options})
    if receive()["result"]["outcome"].get("optionId") == "y":
        open(name, "w").write("by the agent")
update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "All asked."})
update(sessionUpdate="usage_update", used=900, size=200000, cost={"amount": 0.25, "currency": "USD"})
update(sessionUpdate="usage_update", used=950, size=200000, cost={"amount": 0.30, "currency": "USD"})
send(id=prompt["id"], result={"stopReason": "end_turn", "usage": {"inputTokens": 800, "outputTokens": 150}})
"""
SETTINGS: Mapping[str, Any] = {
    "external_agents": [
        {"name": "coder", "description": "Writes files.", "command": "python3 /mnt/user-data/uploads/*agent.py"}
    ]
}


async def begin(telegram: FakeTelegram, start: Start, prompt: str, **more: Any) -> Service:
    """Start a service whose model gives this prompt to the agent."""
    service = await start(**SETTINGS, **more)
    call = {"name": "invoke_agent", "args": {"agent": "coder", "prompt": prompt}}
    telegram.send_document("agent.py", PROGRAM, caption=ask(steps=[{"calls": [call]}], text="the end"), chat=JANE)
    return service


async def question(telegram: FakeTelegram, path: str) -> Shown:
    """Return the message that asks whether the agent may write this file."""

    def found() -> list[Shown]:
        return [each for each in telegram.visible(JANE) if each.buttons and f'"{path}"' in each.text]

    await until(lambda: bool(found()), what="the question of the agent")
    return found()[0]


def press(telegram: FakeTelegram, shown: Shown, label: str) -> None:
    telegram.click(next(data for name, data in shown.buttons if name == label), shown.id)


def result(model: FakeModel) -> str:
    """Return the result of the tool in the last request."""
    return str([each["content"] for each in model.requests()[-1].messages if each["role"] == "tool"][-1])


def written(service: Service) -> list[str]:
    return sorted(path.name for path in service.data.glob("threads/*/workspace/*.txt"))


# Case 113 of docs/cases.md
async def test_an_agent_asks_the_person_and_works_on_with_the_answers(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await begin(telegram, start, "a.txt b.txt c.txt d.txt")
    asked = await question(telegram, "a.txt")
    assert "The agent coder asks for permission" in asked.text
    assert [label for label, _ in asked.buttons] == ["Approve", "Deny", "Allow in this conversation"]
    press(telegram, asked, "Approve")
    press(telegram, await question(telegram, "b.txt"), "Deny")
    press(telegram, await question(telegram, "c.txt"), "Allow in this conversation")  # covers d.txt, too
    await telegram.wait(JANE, "the end")
    await service.quiet()
    assert result(model).startswith("All asked.\n\n[coder: 4 tool calls")
    assert written(service) == ["a.txt", "c.txt", "d.txt"]
    assert len(model.requests()) == 2, "the turn went on; it did not end to wait"


async def test_an_agent_does_not_work_while_the_caller_plans(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions={"allow": ["invoke_agent", "acp__*"]}, **SETTINGS)
    call = {"name": "invoke_agent", "args": {"agent": "coder", "prompt": "a.txt"}}
    telegram.send_document("agent.py", PROGRAM, caption=ask(text="here it is"), chat=JANE)
    await telegram.wait(JANE, "here it is")
    telegram.send("/plan " + ask(steps=[{"calls": [call]}], text="my plan"))
    await telegram.wait(JANE, "my plan")
    await service.quiet()
    assert result(model).startswith("Plan mode: only tools that just read or search run")
    assert written(service) == []


async def test_a_stop_ends_an_agent_that_waits_for_a_person(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await begin(telegram, start, "a.txt")
    await question(telegram, "a.txt")
    telegram.send("/stop")
    await telegram.wait(JANE, "Stopped")
    await service.quiet()
    await until(lambda: not any(each.buttons for each in telegram.visible(JANE)), what="the end of the buttons")
    telegram.send("hello again")
    await telegram.wait(JANE, "hello again")
    await service.quiet()
    assert written(service) == []


async def test_after_a_crash_the_model_learns_that_the_end_is_unknown_and_the_question_is_closed(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await begin(telegram, start, "a.txt")
    await question(telegram, "a.txt")
    await service.restart()  # kill -9
    await telegram.wait(JANE, "the end")
    assert "unknown" in result(model)
    await service.quiet()
    telegram.send("hello again")
    await telegram.wait(JANE, "hello again")
    await service.quiet()
    assert service.rows("SELECT 1 FROM questions WHERE state='open'") == []


async def test_what_an_agent_says_it_cost_is_charged_and_a_used_up_budget_starts_none(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    budgets = [{"scope": "person", "period": "day", "money": "0.30 USD"}]
    use = {"use": "langchain_openai:ChatOpenAI", "base_url": f"{model.base_url}/v1", "api_key": "$OPENAI_API_KEY"}
    models = [{"name": "main", "model": "any", "price": {"input": 1, "output": 2}, **use}]
    service = await begin(telegram, start, "", budgets=budgets, models=models)
    await telegram.wait(JANE, "Your budget of $0.30 a day is used up")
    await service.quiet()
    rows = service.rows("SELECT model, input, output, cost, price, open FROM usage WHERE kind='external'")
    assert rows == [("coder", 800, 150, 300_000, "agent", 0)]
    [(money, held)] = service.rows("SELECT money, (SELECT coalesce(sum(money), 0) FROM budget_holds) FROM budgets")
    assert (money, held) == (service.rows("SELECT sum(cost) FROM usage")[0][0], 0)
