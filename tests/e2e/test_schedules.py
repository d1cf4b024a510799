"""Schedules in the chat: proposed by the agent, confirmed by a button, fired once through restarts, silent, paused."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from tests.e2e.conftest import Start
from tests.e2e.test_audit import rows_of
from tests.e2e.test_console import Terminals, shows
from tests.e2e.test_tasks import endings
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.fakes.model_script import text_of
from tests.fakes.server import Json, until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.fakes.telegram_world import Shown
from tests.support.service_process import Service, ask, said

GROUP = -1001
EVE = 77
SETTINGS: Json = {"schedules": {"least_minutes": 0}, "sandbox": {"provider": "none"}}
MARK = "[This request comes from a schedule"


def soon(seconds: float = 2.0) -> str:
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()


def wants(**args: Any) -> str:
    """Return a message upon which the model uses the tool."""
    call = {"name": "schedule", "args": {"action": "create", "what": "Read the news", **args}}
    return ask(steps=[{"calls": [call]}], text="proposed")


async def propose(telegram: FakeTelegram, chat: int = JANE, text: str = "Shall I", **args: Any) -> Shown:
    words = wants(**args)
    telegram.send(words if chat == JANE else f"@fawn_bot {words}", chat=chat, user=JANE)
    return await telegram.wait(chat, text)


def press(telegram: FakeTelegram, shown: Shown, label: str = "Yes", *, chat: int = JANE, user: int = JANE) -> str:
    [data] = [data for name, data in shown.buttons if name == label]
    return telegram.click(data, shown.id, chat=chat, user=user)


def count(service: Service, table: str) -> int:
    return len(service.rows(f"SELECT 1 FROM {table}"))  # noqa: S608 — a constant


def scheduled(model: FakeModel) -> list[str]:
    """Return the last messages of the requests that schedules began."""
    return [text for request in model.requests() if MARK in (text := text_of(request.messages[-1]))]


async def test_work_is_proposed_in_words_confirmed_by_a_button_and_done_at_its_time_as_a_new_message(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**SETTINGS)
    shown = await propose(telegram, at=soon(5))
    assert "Read the news" in shown.text
    assert "When: once" in shown.text
    assert [label for label, _ in shown.buttons] == ["Yes", "No"]
    await telegram.wait(JANE, "proposed")
    assert service.rows("SELECT state, next_at FROM schedules") == [("proposed", None)]
    press(telegram, shown)
    await telegram.wait(JANE, "Schedule 1 is active. Next:")
    await telegram.wait(JANE, "You said: ")
    await service.quiet()
    [request] = scheduled(model)
    assert "Jane" in request
    assert "Read the news" in request
    assert service.rows("SELECT requester, conversation FROM runs ORDER BY id DESC LIMIT 1") == [
        (str(JANE), "schedule:1")
    ]
    changed = await rows_of(service, "--kind", "schedule.changed")
    assert {(row["what"]["schedule"], row["subject"]) for row in changed} == {(1, f"telegram:{JANE}")}
    assert [row["what"]["action"] for row in changed] == ["confirm"]
    [fired] = await rows_of(service, "--kind", "schedule.fired")
    assert (fired["who"], fired["what"]["schedule"]) == (f"telegram:{JANE}", 1)
    telegram.send("/schedule history 1")
    await telegram.wait(JANE, "I don't know a schedule 1 here.")  # it has ended


async def test_only_its_owner_confirms_and_an_unconfirmed_schedule_never_fires(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**SETTINGS)
    shown = await propose(telegram, GROUP, every_minutes=0.01)
    press(telegram, shown, chat=GROUP, user=EVE)
    telegram.send("/schedule confirm 1", chat=GROUP, user=EVE)
    await telegram.wait(GROUP, "Only the person whose schedule it is")
    assert service.rows("SELECT state FROM schedules") == [("proposed",)]
    press(telegram, shown, "No", chat=GROUP)
    await telegram.wait(GROUP, "I dropped this proposal.")
    await service.quiet()
    assert count(service, "schedule_fires") == 0
    assert scheduled(model) == []


async def test_a_fire_survives_kills_and_happens_once(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    """Killed before its time, and again while the run that it began asks the model. It is no message of its owner."""
    service = await start(**SETTINGS, rate_limits=[{"scope": "person", "count": 1, "seconds": "1h"}])
    press(telegram, await propose(telegram, at=soon(5), what=ask(text="w0 the news", delay_ms=2500)))
    await telegram.wait(JANE, "Schedule 1 is active.")
    await service.quiet()
    await service.kill()
    due = float(service.rows("SELECT next_at FROM schedules")[0][0])
    await until(lambda: time.time() > due, what="its time")
    await service.start()
    await until(lambda: bool(scheduled(model)), what="the run")
    await service.restart()
    await telegram.wait(JANE, "w0 the news")
    await service.quiet()
    await service.restart()
    await service.quiet()
    assert endings(telegram, "w0 the news") == 1
    assert service.rows("SELECT result FROM schedule_fires") == [("run",)]
    assert service.rows("SELECT state, next_at FROM schedules") == [("ended", None)]


async def test_nothing_new_sends_nothing_and_the_next_run_knows_the_last_one(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    answers = iter(["Found: one", "NOTHING_NEW", " NOTHING_NEW\n", "Found: two"])

    def script(body: Json) -> Answer | None:
        return Answer(next(answers, "NOTHING_NEW")) if MARK in text_of(body["messages"][-1]) else None

    model.script = script
    service = await start(**SETTINGS)
    press(telegram, await propose(telegram, every_minutes=0.02))
    await telegram.wait(JANE, "Found: two")
    telegram.send("/schedule pause 1")
    await telegram.wait(JANE, "Schedule 1 is paused.")
    await service.quiet()
    texts = said(telegram, JANE)
    assert [text for text in texts if "NOTHING" in text] == []
    found = [text.rpartition("\n")[2] for text in texts if "Found" in text]
    assert found == ["Found: one", "Found: two"]
    last = next(request for request in model.requests()[::-1] if MARK in text_of(request.messages[-1]))
    assert "Found: one" in str(last.messages), "one conversation of its own"
    telegram.send("/schedule history 1")
    shown = await telegram.wait(JANE, "newest first")
    assert shown.text.count("done (run ") >= 4
    fires = count(service, "schedule_fires")
    telegram.send("/schedule run 1")
    await telegram.wait(JANE, "Schedule 1 runs now.")
    await until(lambda: count(service, "schedule_fires") == fires + 1, what="the further fire")
    telegram.send("/schedule delete 1")
    await telegram.wait(JANE, "Schedule 1 is deleted.")
    telegram.send("/schedule")
    await telegram.wait(JANE, "There are no schedules here.")


async def test_a_reminder_needs_no_model_and_moves_to_another_chat(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**SETTINGS)
    press(telegram, await propose(telegram, kind="reminder", what="stretch *now*", every_minutes=0.03))
    await telegram.wait(JANE, "⏰ stretch")
    asked = len(model.requests())
    telegram.send("@fawn_bot /schedule here 1", chat=GROUP, user=JANE)
    telegram.send("/schedule here 1", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "schedule 1 posts here")
    shown = await telegram.wait(GROUP, "⏰ stretch")
    assert any(entity["type"] == "text_mention" for entity in shown.entities), "it mentions its owner"
    assert len(model.requests()) - asked <= 1
    assert count(service, "runs") <= 2


async def test_an_owner_who_may_not_talk_any_more_is_told_and_nothing_runs(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**SETTINGS)
    press(telegram, await propose(telegram, every_minutes=0.05))
    await telegram.wait(JANE, "Schedule 1 is active.")
    await service.stop()
    ran = count(service, "schedule_fires")
    service.configure({**SETTINGS, "channels": {"telegram": {"access": {"open": False, "allow": [str(EVE)]}}}})
    await service.start()
    await telegram.wait(JANE, "may no longer write to me here")
    await service.quiet()
    assert service.rows("SELECT state FROM schedules") == [("paused",)]
    assert count(service, "schedule_fires") == ran


async def test_a_scheduled_run_cannot_make_schedules_without_its_owner(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    again = {"action": "create", "what": "more of it", "every_minutes": 1}

    def script(body: Json) -> Answer | None:
        if MARK not in text_of(body["messages"][-1]):
            return None
        drop = {"action": "delete", "number": 1}
        return Answer("", tuple(ToolCall("schedule", json.dumps(args)) for args in (again, drop)))

    model.script = script
    service = await start(**SETTINGS)
    press(telegram, await propose(telegram, at=soon(5)))
    await until(lambda: count(service, "schedules") == 2, what="the proposal")
    await service.quiet()
    assert service.rows("SELECT state FROM schedules ORDER BY id") == [("ended",), ("proposed",)]


async def test_the_command_goes_to_the_agent_and_the_zone_is_the_persons(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**SETTINGS)
    telegram.send("/schedule every weekday at 9 read the news")
    await telegram.wait(JANE, "every weekday at 9 read the news")
    telegram.send(wants(cron="0 9 * * 1-5"))
    await telegram.wait(JANE, "proposed")
    await service.quiet()
    assert "time zone is unknown" in str(model.requests()[-1].messages[-1])
    telegram.send("/zone Mars/Olympus")
    await telegram.wait(JANE, "I don't know the time zone")
    telegram.send("/zone America/New_York")
    await telegram.wait(JANE, "Your time zone is America/New_York")
    shown = await propose(telegram, cron="0 9 * * 1-5")
    assert "At 09:00, Monday through Friday (America/New_York)" in shown.text
    telegram.send("/language zh")
    await telegram.wait(JANE, "中文")
    chinese = await propose(telegram, text="要我按", cron="0 9 * * 1-5")
    assert "星期一 到 星期五" in chinese.text
    assert [label for label, _ in chinese.buttons] == ["是", "否"]
    press(telegram, chinese, "是")
    await telegram.wait(JANE, "已启用")


async def test_the_console_shows_what_a_schedule_proposes_and_confirms_it(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service, terminals = await start(**SETTINGS), Terminals()
    window = await terminals.open(service, "chat")
    try:
        await shows(window, "Attached to the running Fawn.")
        window.type(f"{wants(kind='reminder', what='stretch', every_minutes=30)}\r")
        await shows(window, "Shall I remind you?")
        window.type("/schedule confirm 1\r")
        await shows(window, "Schedule 1 is active.")
    finally:
        window.close()
    assert service.rows("SELECT state, channel FROM schedules") == [("active", "console")]


async def test_a_hostile_page_deletes_and_pauses_no_schedule_in_silence(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """The owner is asked where it posts, nobody else decides, and their decision is said there."""
    service = await start(**SETTINGS)
    press(telegram, await propose(telegram, GROUP, every_minutes=60), chat=GROUP)
    await telegram.wait(GROUP, "Schedule 1 is active.")
    for action, label, said_then, state in (
        ("delete", "No", "Schedule 1 stays as it is.", "active"),
        ("pause", "Yes", "Schedule 1 is paused.", "paused"),
        ("delete", "Yes", "Schedule 1 is deleted.", "ended"),
    ):
        await service.quiet()
        [before] = service.rows("SELECT state FROM schedules")
        await propose(telegram, GROUP, text=f"I would {action} schedule 1", action=action, number=1)

        def asked(words: str = f"I would {action} schedule 1") -> list[Shown]:
            return [each for each in telegram.visible(GROUP) if each.buttons and words in each.text]

        await until(lambda: bool(asked()), what="the question")
        await service.quiet()
        [shown] = asked()
        assert "Read the news" in shown.text
        press(telegram, shown, chat=GROUP, user=EVE)
        await service.quiet()
        assert service.rows("SELECT state FROM schedules") == [before], "only its owner decides"
        press(telegram, shown, label, chat=GROUP)
        await telegram.wait(GROUP, said_then)
        assert service.rows("SELECT state FROM schedules") in ([(state,)], [])
