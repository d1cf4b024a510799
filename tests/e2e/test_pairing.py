"""Pairing with a press of a button, on Telegram and Slack."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import Start
from tests.e2e.test_slack import InSlack
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.slack import JANE as SLACK_JANE
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask, said

ANN, BOB, EVE = 76, 77, 78


# Case 4 of docs/cases.md
async def test_an_operator_lets_a_stranger_in_on_telegram(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(channels={"telegram": {"access": {"open": False, "operators": [str(JANE), str(ANN)]}}})
    telegram.send(ask(text="good morning"))
    await telegram.wait(JANE, "good morning")
    telegram.send("/status", chat=ANN)
    await telegram.wait(ANN, "All is well.")
    telegram.send("/start", chat=BOB)
    await telegram.wait(BOB, "Send this code to whoever runs me")
    telegram.send(ask(text="four, of course"), chat=BOB)
    question = await telegram.wait(JANE, "wants to talk to me")
    assert [label for label, _ in question.buttons] == ["Let in", "Decline"]
    await service.quiet()
    assert len(model.requests()) == 1
    foreign = telegram.click(question.buttons[0][1], question.id, user=EVE)
    await until(lambda: foreign in telegram.answers, what="the answer to the foreign press")
    assert "Only the person I asked" in str(telegram.answers[foreign])
    assert len(model.requests()) == 1
    await service.restart()
    press = telegram.click(question.buttons[0][1], question.id)
    await telegram.wait(BOB, "You're in!")
    await telegram.wait(BOB, "four, of course")
    second = await telegram.wait(ANN, "wants to talk to me")
    late = telegram.click(second.buttons[1][1], second.id, chat=ANN)
    await until(lambda: late in telegram.answers, what="the answer to the late press")
    await service.quiet()
    assert "✓ Let in" in str(telegram.answers[press])
    assert "answered or closed" in str(telegram.answers[late])
    assert len(model.requests()) == 2
    assert sum("You're in!" in text for text in said(telegram, BOB)) == 1
    assert (await service.fawn("pair", "list"))[1].count("paired") == 1


async def test_an_operator_lets_a_stranger_in_from_the_list_of_what_waits(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """The number of one who may not decide lists and does nothing."""
    service = await start(
        channels={"telegram": {"access": {"open": False, "operators": [str(JANE)], "allow": [str(EVE)]}}}
    )
    telegram.send(ask(text="good evening"), chat=EVE)
    await telegram.wait(EVE, "good evening")
    telegram.send("/start", chat=BOB)
    await telegram.wait(BOB, "Send this code to whoever runs me")
    telegram.send("/waiting")
    shown = await telegram.wait(JANE, "1. User77 (77 on telegram) wants to talk to me.")
    assert [label for label, _ in shown.buttons] == ["Let in", "Decline"]
    telegram.send("/waiting", chat=EVE)
    await telegram.wait(EVE, "Nothing waits for you.")
    telegram.send("/waiting 1 Let in", chat=EVE)
    await telegram.wait(EVE, "Nothing with the number 1 waits for you any more.")
    await service.kill()
    await service.start()
    assert not any("You're in!" in text for text in said(telegram, BOB))
    telegram.send("/waiting 1 let in")
    await telegram.wait(BOB, "You're in!")
    telegram.send("/waiting")
    await telegram.wait(JANE, "Nothing waits for you.")


async def test_an_operator_lets_a_stranger_in_on_slack(tmp_path: Path) -> None:
    async with FakeModel() as model, FakeSlack() as slack:
        service = InSlack(tmp_path, slack, model)
        access = {"operators": [SLACK_JANE]}
        service.configure({"channels": {"slack": {**service.channels()["slack"], "access": access}}})
        async with service:
            asked = slack.send(ask(text="good morning"), f"D{SLACK_JANE}")
            await slack.wait("good morning", f"D{SLACK_JANE}", asked)
            first = slack.send(ask(text="four, of course"), "DU2", user="U2")
            await slack.wait("Send this code to whoever runs me", "DU2", first)
            question = await slack.wait("wants to talk to me", f"D{SLACK_JANE}")
            slack.click("Let in", question.ts, f"D{SLACK_JANE}")
            await slack.wait("four, of course", "DU2", first)
            await slack.wait("✓ Let in", f"D{SLACK_JANE}")
            await service.quiet()
            assert service.rows("SELECT allowed, code FROM people WHERE person='U2'") == [(1, "")]
            assert len(model.requests()) == 2
