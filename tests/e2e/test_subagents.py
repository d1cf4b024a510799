"""Sub-agents in the whole service: questions while others work, kills, stops and sandboxes of their own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.fakes.telegram_world import Shown
from tests.support.service_process import Service, ask, bash, said

ROLE = "You are a sub-agent"


def task(name: str, kind: str = "general-purpose", after: tuple[str, ...] = (), **directive: Any) -> dict[str, Any]:
    args = {"description": name, "prompt": f"{name} {ask(id=name, **directive)}", "kind": kind, "after": after}
    return {"name": "task", "args": args}


def question(text: str, *options: str) -> dict[str, Any]:
    return {"calls": [{"name": "ask_clarification", "args": {"question": text, "options": [*options]}}]}


def calls(model: FakeModel, name: str) -> int:
    """Return how often the sub-agent of this task called the model."""
    return len([each for each in model.requests(name) if str(each.messages[0]["content"]).startswith(ROLE)])


def results(model: FakeModel) -> list[str]:
    return [str(m["content"]).split("\n")[0] for m in model.requests()[-1].messages if m["role"] == "tool"]


GO = bash("touch /mnt/user-data/workspace/go")  # ends WAIT
WAIT = bash("while ! test -e /mnt/user-data/workspace/go; do sleep 0.1; done")
LOOK = {"calls": [{"name": "glob", "args": {"pattern": "*"}}]}


async def ask_beside_work(telegram: FakeTelegram, asks: dict[str, Any], text: str, *before: dict[str, Any]) -> Shown:
    """Send a request in which the call `asks` runs beside a task that works; return the message with the question."""
    telegram.send(ask(steps=[{"calls": [asks, task("works", steps=[*before, WAIT], text="worked")]}], text="all done"))
    await telegram.wait(JANE, text)
    return next(each for each in telegram.visible(JANE) if text in each.text)


async def finish_work(service: Service) -> None:
    """End WAIT."""
    await until(lambda: list(service.data.glob("threads/*/workspace")), what="the sandbox")
    (service.folder_of() / "workspace" / "go").touch()


@pytest.mark.usefixtures("bubblewrap")
async def test_a_question_of_one_task_is_answered_while_the_others_work(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    asking = task("asks", steps=[question("Which?", "red", "blue"), GO], text="painted")
    shown = await ask_beside_work(telegram, asking, "Which?")
    telegram.click(shown.buttons[1][1], shown.id)
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert results(model) == ["painted", "worked"]
    assert service.rows("SELECT count(*) FROM runs") == [(1,)]
    assert service.rows("SELECT state, answer FROM questions") == [("closed", "blue")]
    assert service.rows("SELECT count(*) FROM inbox WHERE state=0") == [(0,)]


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("asks_first", [True, False])
async def test_a_question_of_the_lead_appears_while_its_tasks_work(
    telegram: FakeTelegram, model: FakeModel, start: Start, asks_first: bool
) -> None:
    """Whichever of the calls comes first in the message."""
    service = await start()
    calls = [*question("Which?", "red", "blue")["calls"], task("works", steps=[WAIT], text="worked")]
    telegram.send(ask(steps=[{"calls": calls if asks_first else calls[::-1]}], text="all done"))
    await telegram.wait(JANE, "Which?")
    await until(lambda: len(model.requests()) == 2, what="the call of the task")
    [shown] = [each for each in telegram.visible(JANE) if "Which?" in each.text]
    telegram.click(shown.buttons[1][1], shown.id)
    await until(lambda: service.rows("SELECT 1 FROM inbox WHERE kind='click' AND state<>0"), what="the answer")
    assert len(model.requests()) == 2, "the task still works"
    await finish_work(service)
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert sorted(results(model)) == ["blue", "worked"]
    assert service.rows("SELECT count(*) FROM runs") == [(1,)]
    assert service.rows("SELECT state, answer FROM questions") == [("closed", "blue")]


@pytest.mark.usefixtures("bubblewrap")
async def test_a_question_of_the_lead_that_outlives_its_tasks_ends_the_turn(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    [asks] = question("Which?", "red", "blue")["calls"]
    shown = await ask_beside_work(telegram, asks, "Which?")
    await finish_work(service)
    await telegram.wait(JANE, "answered my question above")
    await service.restart()
    telegram.click(shown.buttons[0][1], shown.id)
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert results(model) == ["red", "worked"]
    assert calls(model, "works") == 2, "not again"
    assert len([text for text in said(telegram, JANE) if "Which?" in text]) == 1


@pytest.mark.usefixtures("bubblewrap")
async def test_a_written_answer_reaches_the_task_and_not_the_lead(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    await ask_beside_work(telegram, task("asks", steps=[question("Which?"), GO], text="painted"), "Which?")
    telegram.send("bright orange")
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert "bright orange" in str([each.messages for each in model.requests("asks")])
    assert "bright orange" not in str(model.requests()[-1].messages)
    assert service.rows("SELECT count(*) FROM runs") == [(1,)]


@pytest.mark.usefixtures("bubblewrap")
async def test_an_approval_inside_a_task_is_pressed_while_the_others_work(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions={"ask": ["bash(touch *)"]})
    shown = await ask_beside_work(telegram, task("careful", steps=[GO], text="touched"), "May I run bash?")
    telegram.click(shown.buttons[0][1], shown.id)
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert results(model) == ["touched", "worked"]


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("of_lead", [True, False])
async def test_an_approval_beside_a_slow_command_is_shown_at_once(
    telegram: FakeTelegram, model: FakeModel, start: Start, of_lead: bool
) -> None:
    """The command ends only when the approved one has run."""
    service = await start(permissions={"ask": ["bash(touch *)"]})
    both = {"calls": [*GO["calls"], *WAIT["calls"]]}
    step = both if of_lead else {"calls": [task("both", steps=[both], text="touched")]}
    telegram.send(ask(steps=[step], text="all done"))
    shown = await telegram.wait(JANE, "May I run bash?")
    telegram.click(shown.buttons[0][1], shown.id)
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert service.rows("SELECT count(*) FROM runs") == [(1,)]


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("of_lead", [True, False])
async def test_a_long_call_that_is_asked_while_others_work_comes_as_a_file(
    telegram: FakeTelegram, model: FakeModel, start: Start, of_lead: bool
) -> None:
    service = await start(permissions={"ask": ["bash(touch *)"]})
    long = bash(f"touch /mnt/user-data/workspace/go # {'x' * 3000}")
    asking = long["calls"][0] if of_lead else task("careful", steps=[long], text="touched")
    shown = await ask_beside_work(telegram, asking, "May I run bash?")
    assert "call.txt" in shown.text
    await until(lambda: [s for s in telegram.visible(JANE) if s.file_name], what="the file")
    [file] = [each for each in telegram.visible(JANE) if each.file_name]
    assert (file.file_name, file.file.count(b"x")) == ("call.txt", 3000)
    telegram.click(shown.buttons[0][1], shown.id)
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert len([each for each in telegram.visible(JANE) if each.file_name]) == 1
    assert not list(service.data.glob("spool/*")), "the copy is deleted"


@pytest.mark.usefixtures("bubblewrap")
async def test_what_a_person_allows_inside_a_task_holds_for_its_later_calls(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions={"ask": ["write_file"]})
    write = {"calls": [{"name": "write_file", "args": {"path": "/mnt/user-data/workspace/a", "content": "x"}}]}
    shown = await ask_beside_work(telegram, task("careful", steps=[write, write, GO], text="wrote"), "May I run")
    [allow] = [data for label, data in shown.buttons if label == "Allow in this conversation"]
    telegram.click(allow, shown.id)
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert results(model) == ["wrote", "worked"]
    assert service.rows("SELECT tool, person FROM permission_grants") == [("write_file", str(JANE))]
    assert service.rows("SELECT count(*) FROM questions") == [(1,)]


@pytest.mark.usefixtures("bubblewrap")
async def test_a_question_that_outlives_the_other_tasks_is_shown_once_and_resumes_its_task(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    asking = task("asks", steps=[question("Which?", "red", "blue")], text="painted")
    shown = await ask_beside_work(telegram, asking, "Which?")
    await finish_work(service)
    await telegram.wait(JANE, "answered my question above")
    await service.quiet()
    assert len([text for text in said(telegram, JANE) if "Which?" in text]) == 1
    telegram.click(shown.buttons[0][1], shown.id)
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert results(model) == ["painted", "worked"]
    assert calls(model, "works") == 2


@pytest.mark.usefixtures("bubblewrap")
async def test_after_a_kill_finished_tasks_do_not_run_again_and_unfinished_ones_continue(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """The third task begins after the kill, with the result of the first, which ended before."""
    service = await start()
    effect = "echo once >> /mnt/user-data/workspace/effects"
    tasks = [
        task("first", steps=[bash(effect)], text="one"),
        task("second", steps=[bash(effect)], text="two", delay_ms=2500),
        task("third", text="three", after=("first", "second")),
    ]
    telegram.send(ask(steps=[{"calls": tasks}], text="all done"))
    await until(lambda: calls(model, "first") == 2 and calls(model, "second") == 2, what="the second task's last call")
    await service.restart()
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert results(model) == ["one", "two", "three"]
    assert (service.folder_of() / "workspace" / "effects").read_text() == "once\nonce\n"
    assert calls(model, "first") == 2, "not again"
    assert calls(model, "second") == 3, "only the call in flight again"
    third = next(each for each in model.requests("third"))
    assert "## first\none" in str(third.messages[1]["content"])
    assert {agent for (agent,) in service.rows("SELECT agent FROM usage")} == {"lead", "general-purpose"}


@pytest.mark.usefixtures("bubblewrap")
async def test_a_question_inside_a_task_survives_a_kill(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    asking = task("asks", steps=[question("Which?", "red", "blue"), GO], text="painted")
    shown = await ask_beside_work(telegram, asking, "Which?", LOOK)
    await until(
        lambda: service.rows("SELECT 1 FROM outbox WHERE kind='say' AND state=2"), what="the record of the post"
    )
    await service.restart()
    telegram.click(shown.buttons[1][1], shown.id)
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert results(model)[0] == "painted"
    assert "blue" in str(model.requests("asks")[-1].messages)
    assert len([text for text in said(telegram, JANE) if "Which?" in text]) == 1


@pytest.mark.usefixtures("bubblewrap")
async def test_a_stop_ends_all_tasks_with_their_processes(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    late = "touch /mnt/user-data/workspace/{0}; sleep 2; touch /mnt/user-data/workspace/{0}-late"
    tasks = [task(name, steps=[bash(late.format(name))]) for name in ("a", "b")]
    telegram.send(ask(steps=[{"calls": tasks}]))
    await until(lambda: len(list(service.data.glob("threads/*/workspace/[ab]"))) == 2, what="both commands")
    telegram.send("/stop")
    await telegram.wait(JANE, "Stopped.")
    await service.quiet()
    telegram.send(ask(steps=[bash("sleep 3; ls")], text="looked"))
    await telegram.wait(JANE, "looked")
    assert "late" not in str(model.requests()[-1].messages[-1])


@pytest.mark.usefixtures("bubblewrap")
async def test_a_sandbox_of_its_own_is_empty_and_its_outputs_are_copied(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(subagents={"kinds": [{"name": "lab", "description": "Alone.", "sandbox": "own"}]})
    look = bash("ls /mnt/user-data/workspace; echo made > /mnt/user-data/outputs/result.txt")
    steps = [
        bash("touch /mnt/user-data/workspace/secret"),
        {"calls": [task("Look around", "lab", steps=[look], text="seen")]},
    ]
    telegram.send(ask(steps=steps, text="all done"))
    await telegram.wait(JANE, "all done")
    await service.quiet()
    await until(lambda: len([*(service.data / "threads").iterdir()]) == 1, what="the end of the task's sandbox")
    assert "secret" not in str(model.requests("Look around")[-1].messages[2:])
    assert "files: /mnt/user-data/outputs/Look-around/result.txt" in str(model.requests()[-1].messages[-1])
    assert (service.folder_of() / "outputs" / "Look-around" / "result.txt").read_text() == "made\n"


@pytest.mark.usefixtures("bubblewrap")
async def test_all_files_of_a_sandbox_of_its_own_are_copied(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(subagents={"kinds": [{"name": "alone", "sandbox": "own"}]})
    make = bash("mkdir -p /mnt/user-data/outputs/a/b/c/d && cd /mnt/user-data/outputs/a/b/c/d && touch $(seq 250)")
    telegram.send(ask(steps=[{"calls": [task("many files", "alone", steps=[make], text="made")]}], text="all done"))
    await telegram.wait(JANE, "all done", seconds=60)
    await service.quiet()
    await until(lambda: len([*(service.data / "threads").iterdir()]) == 1, what="the end of the task's sandbox")
    copied = [path.name for path in service.folder_of().glob("outputs/many-files/a/b/c/d/*")]
    assert sorted(map(int, copied)) == list(range(1, 251))
    assert "and 150 more" in str(model.requests()[-1].messages)


@pytest.mark.usefixtures("bubblewrap")
async def test_files_that_could_not_be_copied_are_named(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    """A file of the conversation stands where the task's folder should be."""
    service = await start(subagents={"kinds": [{"name": "alone", "sandbox": "own"}]})
    steps = [
        bash("touch /mnt/user-data/outputs/blocked"),
        {"calls": [task("blocked", "alone", steps=[bash("touch /mnt/user-data/outputs/lost.txt")], text="made")]},
    ]
    telegram.send(ask(steps=steps, text="all done"))
    await telegram.wait(JANE, "all done", seconds=60)
    await service.quiet()
    said = str(model.requests()[-1].messages[-1])
    assert "NOT COPIED, and lost with the task's sandbox: /mnt/user-data/outputs/blocked/lost.txt (" in said
