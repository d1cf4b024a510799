"""What a plan reserves in the budgets: no other work uses it up, and it ends with the plan, however that ends."""

from __future__ import annotations

from typing import Any

from tests.e2e.conftest import Start
from tests.e2e.test_budgets import priced
from tests.e2e.test_questions import question
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.fakes.telegram_world import Shown
from tests.support.service_process import Service, ask

EVE = 77
BUDGETS = [{"scope": "everything", "money": "0.56 USD"}, {"scope": "person", "money": "5 USD"}]
RESERVED = "What is left of everybody's budget of $0.56 a month is reserved for a plan"
HOLDS = "SELECT scope, money FROM budget_holds UNION ALL SELECT scope, money FROM plan_holds"
HELD = f"SELECT scope, sum(money) FROM ({HOLDS}) AS held GROUP BY scope HAVING sum(money)>0 ORDER BY scope"  # noqa: S608 — constants


def work(body: dict[str, Any]) -> Answer | None:
    """After "go", ask one thing, and end with the answer."""
    messages = str(body["messages"])
    if not body.get("tools") or "agreed to the plan" not in messages:
        return None
    if "blue" in str(body["messages"][-1]):
        return Answer("made it")
    asked = question("Which colour?", "red", "blue")
    return Answer("", calls=(ToolCall(asked["name"], '{"question": "Which colour?", "options": ["red", "blue"]}'),))


async def agreed(telegram: FakeTelegram, model: FakeModel, start: Start) -> tuple[Service, Shown]:
    """Let Jane agree to a plan that holds all that is left; return the service and the question of its work."""
    service = await start(**priced(model, budgets=BUDGETS))
    for number in range(5):
        telegram.send("/plan " + ask(text=f"before {number}"))
        await telegram.wait(JANE, f"before {number}")
        await service.quiet()
        shown = await telegram.wait(JANE, f"before {number}")
        telegram.click(shown.buttons[0][1], shown.id)
        await until(lambda: "agreed to the plan" in str(model.requests()[-1].messages[-1]), what="the work")
        await service.quiet()
    assert await service.stop() == 0
    service.change(
        "UPDATE usage SET cost=CASE WHEN kind='turn' AND run NOT IN (SELECT id FROM runs WHERE mode='plan')"
        " THEN 100000 ELSE 0 END"
    )
    await service.start()
    telegram.send("/new")
    await telegram.wait(JANE, "A fresh start")
    await service.quiet()
    model.script = work
    telegram.send("/plan " + ask(text="my plan"))
    shown = await telegram.wait(JANE, "The work of earlier plans cost")
    assert "Go reserves them, and I stop when they are used up." in shown.text
    await service.quiet()
    assert service.rows(HELD) == []
    telegram.click(shown.buttons[0][1], shown.id)
    asked = await telegram.wait(JANE, "Which colour?")
    await service.quiet()
    return service, asked


async def is_refused(telegram: FakeTelegram, service: Service, name: str) -> bool:
    """Eve asks for something; return whether the budget refuses it."""
    telegram.send(ask(text=f"served {name}", id=name), chat=EVE)
    seen = len(telegram.visible(EVE))
    await until(lambda: len(telegram.visible(EVE)) > seen, what="an answer")
    await service.quiet()
    text = telegram.visible(EVE)[-1].text
    assert (RESERVED in text) != (f"served {name}" in text), text
    return RESERVED in text


async def test_others_do_not_use_what_a_plan_reserves_until_it_ends(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service, asked = await agreed(telegram, model, start)
    [(scope, held), (person, _)] = service.rows(HELD)
    assert (scope, person) == ("everything:all", f"person:telegram:{JANE}")
    assert await is_refused(telegram, service, "while it waits")
    await service.restart()
    assert service.rows(HELD)[0] == (scope, held), "as before the kill"
    assert await is_refused(telegram, service, "after a kill")
    telegram.click(asked.buttons[1][1], asked.id)
    await telegram.wait(JANE, "made it")
    await service.quiet()
    assert service.rows(HELD) == []
    assert not await is_refused(telegram, service, "after its end")


async def test_what_a_plan_reserves_is_free_when_its_conversation_is_left(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service, _ = await agreed(telegram, model, start)
    assert await is_refused(telegram, service, "while it waits")
    telegram.send("/new")
    await until(lambda: "A fresh start" in telegram.visible(JANE)[-1].text, what="a new conversation")
    await service.quiet()
    assert not await is_refused(telegram, service, "after that")
    assert service.rows(HELD) == []


async def test_what_a_plan_reserves_is_free_when_its_work_is_stopped(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service, asked = await agreed(telegram, model, start)
    model.script = lambda body: Answer("slow", delay=600.0) if "agreed to the plan" in str(body) else None
    calls = len(model.requests())
    telegram.click(asked.buttons[1][1], asked.id)
    await until(lambda: len(model.requests()) > calls, what="the work")
    assert await is_refused_at_once(telegram)
    telegram.send("/stop")
    await telegram.wait(JANE, "Stopped")
    await service.quiet()
    assert service.rows(HELD) == []
    assert not await is_refused(telegram, service, "after that")


async def is_refused_at_once(telegram: FakeTelegram) -> bool:
    """Eve asks while the plan's work runs: a refusal does not wait for its end."""
    telegram.send(ask(text="too early"), chat=EVE)
    return RESERVED in (await telegram.wait(EVE, RESERVED)).text
