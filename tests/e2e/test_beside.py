"""Work beside the thread: what waits is seen, counted, cancelled and answered like all other work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_files import OUT, files
from tests.e2e.test_permissions import press, written
from tests.e2e.test_schedules import propose
from tests.e2e.test_tasks import endings
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.fakes.telegram_world import Shown
from tests.support.service_process import Service, ask, said
from tests.support.settled import outcome

ASK: Mapping[str, Any] = {"ask": ["write_file"]}
GROUP, EVE = -1001, 77
APPROVAL = "May I run write_file?"

pytestmark = pytest.mark.usefixtures("bubblewrap")


def write(name: str) -> dict[str, Any]:
    return {"name": "write_file", "args": {"path": f"/mnt/user-data/workspace/{name}", "content": "x"}}


def delegated(prompt: str, title: str = "Look around") -> str:
    """Return a request whose agent hands work to one in the background."""
    args = {"description": title, "prompt": prompt, "kind": "general-purpose", "background": True}
    return ask(steps=[{"calls": [{"name": "task", "args": args}]}], text="delegated")


def waiting(service: Service) -> list[int]:
    """Return the tasks that have an open question."""
    sql = "SELECT t.id FROM tasks t JOIN questions q ON q.conversation=t.conversation AND q.state='open' ORDER BY t.id"
    return [int(row[0]) for row in service.rows(sql)]


async def waiting_task(telegram: FakeTelegram, service: Service, chat: int = JANE, title: str = "Look around") -> Shown:
    """Have an agent in the background ask for an approval; return the message with the buttons."""
    mention = "@fawn_bot " if chat < 0 else ""
    telegram.send(f"{mention}{delegated(ask(steps=[{'calls': [write('a')]}], text='wrote it'), title)}", chat=chat)
    shown = await telegram.wait(chat, APPROVAL)
    await service.quiet()
    return [each for each in telegram.visible(chat) if each.buttons and APPROVAL in each.text][-1] or shown


async def test_a_waiting_task_is_cancelled_and_its_button_does_nothing(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions=ASK)
    shown = await waiting_task(telegram, service)
    telegram.send("/task 1")
    await telegram.wait(JANE, "1. ❓ “Look around”: it waits for an answer")
    telegram.send("/task 1 cancel")
    await telegram.wait(JANE, "Task 1 is cancelled.")
    assert "Closed without an answer" in await outcome(telegram, shown)
    telegram.send("/task 1")
    await telegram.wait(JANE, "1. ⏹ “Look around”: cancelled at")
    await service.restart()
    await service.quiet()
    assert written(service) == []
    telegram.send("/task 1 retry")
    await telegram.wait(JANE, "Trying again as task 2.")


async def test_the_state_of_a_task_is_that_of_its_latest_run(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """Another run takes the answer."""
    service = await start(permissions=ASK)
    shown = await waiting_task(telegram, service)
    press(telegram, shown, "Approve")
    await telegram.wait(JANE, "wrote it")
    await service.quiet()
    telegram.send("/tasks")
    assert "1. ✅ “Look around”: done at" in (await telegram.wait(JANE, "Background tasks")).text
    telegram.send("/task 1 cancel")
    await telegram.wait(JANE, "Task 1 has ended already.")


async def test_waiting_tasks_count_are_shown_and_end_with_a_stop(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions=ASK, tasks={"per_thread": 1})
    shown = await waiting_task(telegram, service, GROUP)
    telegram.send(f"@fawn_bot {delegated('x', 'Another one')}", chat=GROUP)
    await until(lambda: "At most 1 background tasks" in str(model.requests()[-1].messages), what="the refusal")
    await service.quiet()
    telegram.send("/status@fawn_bot", chat=GROUP)
    await telegram.wait(GROUP, "In the background: 1 (“Look around”)")
    telegram.send("/status@fawn_bot", chat=GROUP, user=EVE)
    await telegram.wait(GROUP, "1 task of others is at work here.")
    telegram.send("/stop@fawn_bot", chat=GROUP, user=EVE)
    await service.quiet()
    assert service.rows("SELECT state FROM questions") == [("open",)], "it is Jane's"
    telegram.send("/stop@fawn_bot", chat=GROUP)
    await telegram.wait(GROUP, "Stopped. This in the background has ended: 1 (“Look around”).")
    assert "Closed without an answer" in await outcome(telegram, shown, GROUP)
    await service.quiet()
    assert written(service) == []


async def test_a_scheduled_run_that_waits_is_in_the_history_and_ends_with_its_schedule(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions=ASK, schedules={"least_minutes": 0})
    what = ask(steps=[{"calls": [write("a")]}], text="wrote it")
    press(telegram, await propose(telegram, cron="0 0 1 1 *", time_zone="UTC", what=what), "Yes")
    await telegram.wait(JANE, "Schedule 1 is active.")
    await fire_and_answer(telegram, service, 1, "Approve")
    await fire_and_answer(telegram, service, 2, "Deny")
    telegram.send("/schedule history 1")
    await until(lambda: said(telegram, JANE)[-1].count(": done (run") == 2, what="the history")
    telegram.send("/tasks")
    await until(lambda: said(telegram, JANE)[-1].count("✅") == 2, what="the list")
    telegram.send("/schedule run 1")
    await until(lambda: bool(service.rows("SELECT 1 FROM questions WHERE state='open'")), what="the approval")
    await service.quiet()
    last = [each for each in telegram.visible(JANE) if each.buttons and APPROVAL in each.text][-1]
    telegram.send("/schedule delete 1")
    await telegram.wait(JANE, "Schedule 1 is deleted.")
    assert "Closed without an answer" in await outcome(telegram, last)
    telegram.send("/task 3")
    await telegram.wait(JANE, "3. ⏹ ")


async def fire_and_answer(telegram: FakeTelegram, service: Service, number: int, label: str) -> None:
    """Run the schedule, look at its history while the run asks, and press a button."""
    telegram.send("/schedule run 1")
    await until(lambda: number in waiting(service), what="the approval")
    await service.quiet()
    shown = [each for each in telegram.visible(JANE) if each.buttons and APPROVAL in each.text]
    telegram.send("/schedule history 1")
    await until(lambda: "it waits for an answer" in said(telegram, JANE)[-1], what="the history")
    press(telegram, shown[-1], label)
    await until(lambda: endings(telegram, "wrote it") == number, what="its end")
    await service.quiet()


def command(shell: str) -> str:
    return ask(steps=[{"calls": [{"name": "bash", "args": {"command": shell, "background": True}}]}], text="started")


async def test_the_files_of_a_command_come_with_its_report(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send(command(f"echo 1 > {OUT}/one.csv; ln -s /etc/passwd {OUT}/link"))
    report = await telegram.wait(JANE, "Background task 1 is done")
    await until(lambda: files(telegram) == ["one.csv"], what="the file")
    told = await telegram.wait(JANE, "Not sent: link (is a link")
    assert told.id == report.id
    await service.quiet()
    telegram.send(ask(steps=[{"calls": [{"name": "bash", "args": {"command": "true"}}]}], text="looked"))
    await telegram.wait(JANE, "looked")
    await service.restart()
    await service.quiet()
    assert files(telegram) == ["one.csv"]


async def test_the_files_of_a_command_that_ends_beside_a_turn_come_after_it(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """What the turn makes may be half done then. The turn itself uses no sandbox."""
    service = await start()
    telegram.send(command(f"echo 1 > {OUT}/one.csv; while [ ! -e {OUT}/../uploads/go ]; do sleep 0.1; done"))
    await telegram.wait(JANE, "started")
    await service.quiet()
    telegram.send(ask(text="talked", delay_ms=6000))
    await until(lambda: bool(service.rows("SELECT 1 FROM runs WHERE state='running'")), what="the turn")
    (service.folder_of() / "uploads").mkdir(exist_ok=True)
    (service.folder_of() / "uploads" / "go").touch()
    await telegram.wait(JANE, "Background task 1 is done")
    assert files(telegram) == []
    await telegram.wait(JANE, "talked")
    await until(lambda: files(telegram) == ["one.csv"], what="the file")
    await service.quiet()
    assert files(telegram) == ["one.csv"]


async def test_the_files_of_a_lost_command_are_not_forgotten(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send(command(f"echo 1 > {OUT}/one.csv; sleep 600"))
    await telegram.wait(JANE, "started")
    await until(lambda: [*service.data.glob("threads/*/outputs/one.csv")], what="the file")
    await service.quiet()
    await service.restart()
    await telegram.wait(JANE, "Background task 1 was lost")
    await until(lambda: files(telegram) == ["one.csv"], what="the file")
