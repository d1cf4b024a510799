"""Several open questions, and answers that arrive together with other messages."""

from __future__ import annotations

from typing import Any

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.fakes.telegram_world import Shown
from tests.support.service_process import Service, ask
from tests.support.settled import outcome


def question(text: str, *options: str) -> dict[str, Any]:
    return {"name": "ask_clarification", "args": {"question": text, "options": [*options]}}


BOTH = [{"calls": [question("Which format?", "csv", "xlsx"), question("Delete the old one?", "Yes", "No")]}]


async def ask_both(telegram: FakeTelegram, service: Service) -> list[Shown]:
    """Let the model ask both questions, and return their messages once the turn has ended."""
    telegram.send(ask(steps=BOTH, text="thank you"))
    await telegram.wait(JANE, "Delete the old one?")
    await service.quiet()
    return [shown for shown in telegram.visible(JANE) if shown.buttons]


def results(model: FakeModel) -> list[str]:
    return [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "tool"]


async def test_two_open_questions_are_answered_separately(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    first, _ = await ask_both(telegram, service)
    assert [label for label, _ in first.buttons] == ["csv", "xlsx"]
    telegram.send("no")  # only one of them has that option
    await telegram.wait(JANE, "✓ Delete the old one? → no")
    await service.quiet()
    assert len(model.requests()) == 1
    [again] = [shown for shown in telegram.visible(JANE) if shown.buttons]
    telegram.click(again.buttons[1][1], again.id)
    await telegram.wait(JANE, "thank you")
    await service.quiet()
    assert results(model) == ["xlsx", "no"]


async def test_a_second_click_during_the_resumed_turn_is_kept(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    first, second = await ask_both(telegram, service)
    telegram.click(first.buttons[0][1], first.id)
    click = telegram.click(second.buttons[1][1], second.id)
    await telegram.wait(JANE, "thank you")
    await service.quiet()
    assert "✓ No" in str(telegram.answers[click])
    assert results(model) == ["csv", "No"]


async def test_messages_sent_with_an_answer_reach_the_model(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """The bot is offline while a user answers and then sends a long paste."""
    service = await start()
    telegram.send(ask(steps=[{"calls": [question("Which text?")]}], text="thank you"))
    await telegram.wait(JANE, "Which text?")
    await service.quiet()
    await service.stop()
    telegram.send("this one:")
    telegram.send("x" * 4096)
    telegram.send("the end of it")
    await service.start()
    await until(lambda: "the end of it" in str(model.requests()[-1].messages), what="the paste")
    await service.quiet()
    assert results(model) == ["this one:"]
    assert "x" * 4096 in str(model.requests()[-1].messages)


async def test_a_reply_to_a_question_and_a_press_after_a_kill_answer_their_own_questions(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    _, second = await ask_both(telegram, service)
    telegram.send("rather not", reply_to=second.id)  # without the reply it would answer the first question
    await telegram.wait(JANE, "✓ Delete the old one? → rather not")
    await service.quiet()
    again = next(shown for shown in telegram.visible(JANE)[::-1] if shown.buttons)
    await service.restart()
    assert len(model.requests()) == 1
    telegram.click(again.buttons[1][1], again.id)
    await telegram.wait(JANE, "thank you")
    await service.quiet()
    assert results(model) == ["xlsx", "rather not"]


async def test_a_question_without_an_answer_is_closed_and_its_turn_continues(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(limits={"question_hours": 0.0001})
    telegram.send(ask(steps=[{"calls": [question("Which text?", "a", "b")]}], text="thank you"))
    await telegram.wait(JANE, "Nobody answered in time")
    await telegram.wait(JANE, "thank you")
    await service.quiet()
    assert results(model) == ["no answer in time"]


async def test_stop_and_new_close_the_open_question(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    for number, (command, answer) in enumerate((("/stop", "Stopped."), ("/new", "my open question is closed."))):
        telegram.send(ask(steps=[{"calls": [question(f"Which {command}?", "a", "b")]}], id=str(number)))
        shown = await telegram.wait(JANE, f"Which {command}?")
        await service.quiet()
        telegram.send(command)
        await telegram.wait(JANE, answer)
        assert "Closed without an answer" in await outcome(telegram, shown)
    telegram.send(ask(text="a new turn", id="3"))
    await telegram.wait(JANE, "a new turn")
    await service.quiet()
    assert service.rows("SELECT DISTINCT state FROM questions") == [("closed",)]


async def test_a_call_that_is_asked_about_again_has_one_set_of_buttons(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """The run that takes the first answer asks the other question again, below. /steps has the steps of all runs."""
    service = await start(permissions={"ask": ["write_file"]})
    calls = [{"name": "write_file", "args": {"path": f"outputs/{name}", "content": name}} for name in ("a", "b")]
    telegram.send(ask(steps=[{"calls": calls}], text="both are settled"))
    await until(
        lambda: sum("Approve" in dict(each.buttons) for each in telegram.visible(JANE)) == 2, what="two questions"
    )
    await service.quiet()
    first, second = (each for each in telegram.visible(JANE) if each.buttons)
    telegram.click(dict(second.buttons)["Approve"], second.id)
    await telegram.wait(JANE, "Still open:")
    await service.quiet()
    [again] = [each for each in telegram.visible(JANE) if each.buttons]
    assert "↓ I ask this again below." in await outcome(telegram, first)
    telegram.click(dict(again.buttons)["Deny"], again.id)
    await telegram.wait(JANE, "both are settled")
    await service.quiet()
    telegram.send("/steps")
    listed = (await telegram.wait(JANE, "shows what a step returned")).text
    assert [line[:2] for line in listed.splitlines() if line[:1].isdigit()] == ["1.", "2."]
