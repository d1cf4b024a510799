"""Background tasks in the chat: listed, shown, cancelled, repeated, lost with the process, each reported once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_audit import rows_of
from tests.fakes.model import Answer, FakeModel, Request, ToolCall
from tests.fakes.model_script import text_of
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask, bash, said

GROUP = -1001
EVE = 77

pytestmark = pytest.mark.usefixtures("bubblewrap")


def background(command: str, **more: str) -> str:
    """Return a message upon which the model starts a background command."""
    call = {"name": "bash", "args": {"command": command, "background": True, **more}}
    return ask(steps=[{"calls": [call]}], text="started")


def states(service: Service) -> list[str]:
    return [str(row[0]) for row in service.rows("SELECT state FROM tasks ORDER BY id")]


def reports(telegram: FakeTelegram, chat: int = JANE) -> list[str]:
    return [text for text in said(telegram, chat) if text[0] in "✅❌⚠"]


def endings(telegram: FakeTelegram, text: str, chat: int = JANE) -> int:
    """Count the messages that end like this, below the heads of tasks and schedules."""
    return sum(each.endswith(text) for each in said(telegram, chat))


async def test_a_command_outlives_its_turn_and_its_end_is_reported_with_its_output(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send(background("echo first; while [ ! -e go ]; do sleep 0.1; done; echo last; exit 3"))
    await telegram.wait(JANE, "started")
    telegram.send("/tasks")
    shown = await telegram.wait(JANE, "it has run for")
    assert ("/task 1 cancel" in shown.text, "retry" in shown.text) == (True, False)
    telegram.send("/task 1")
    await telegram.wait(JANE, "first")
    assert reports(telegram) == []
    telegram.send(ask(steps=[{"calls": [{"name": "bash", "args": {"command": "touch go"}}]}], text="touched"))
    shown = await telegram.wait(JANE, "❌ Background task 1 failed")
    assert "Exit code 3." in shown.text
    assert "last" in shown.text
    await service.quiet()
    assert len(reports(telegram)) == 1
    telegram.send("/tasks")
    shown = await telegram.wait(JANE, "failed at")
    assert ("cancel" in shown.text, "/task 1 retry" in shown.text) == (False, True)
    telegram.send("/task 1 retry")
    await telegram.wait(JANE, "Trying again as task 2.")
    await telegram.wait(JANE, "❌ Background task 2 failed")
    assert states(service) == ["failed", "failed"]
    await service.quiet()
    changed = await rows_of(service, "--kind", "task.changed")
    assert [(row["what"]["id"], row["result"]) for row in changed] == [
        (1, "started"), (1, "failed"), (2, "started"), (2, "failed"),
    ]  # fmt: skip


async def test_a_killed_service_reports_a_lost_command_once_and_starts_a_queued_one_again(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send(background("echo begun > /mnt/user-data/workspace/seen; sleep 60"))
    await telegram.wait(JANE, "started")
    await until(lambda: states(service) == ["running"], what="the command")
    await service.restart()
    shown = await telegram.wait(JANE, "Background task 1 was lost")
    assert "/task 1 retry" in shown.text
    await service.quiet()
    await service.restart()
    await service.quiet()
    assert len(reports(telegram)) == 1
    assert states(service) == ["lost"]


async def test_a_command_is_cancelled_by_its_person_or_an_operator_only(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    telegram.send(f"@fawn_bot {background('sleep 61')}", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "started")
    telegram.send("/tasks@fawn_bot", chat=GROUP, user=EVE)
    assert (await telegram.wait(GROUP, "of others")).text == "1 task of others is at work here."
    telegram.send("@fawn_bot /task 1 cancel", chat=GROUP, user=EVE)
    telegram.send("/task 1 cancel", chat=GROUP, user=EVE)
    await telegram.wait(GROUP, "I don't know a task 1 here.")
    telegram.send("/task 1 cancel", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "Task 1 is cancelled.")
    await service.quiet()
    assert states(service) == ["cancelled"]
    assert reports(telegram, GROUP) == []
    await service.restart()
    await service.quiet()
    assert reports(telegram, GROUP) == []


async def test_a_running_command_ends_when_its_person_loses_the_right_or_the_budget(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """Nobody works on for a person who may not have it work, and what comes next is not begun."""
    access = {"open": True, "operators": [str(JANE)]}
    budgets = [{"scope": "person", "which": str(EVE + 1), "period": "day", "tokens": 30_000}]
    service = await start(channels={"telegram": {"access": access}}, budgets=budgets)
    for person in (EVE, EVE + 1):
        telegram.send(background(f"echo {person} > /mnt/user-data/workspace/x; sleep 600", then="go on"), chat=person)
        await telegram.wait(person, "started")
    await until(lambda: states(service) == ["running"] * 2, what="both commands")
    telegram.send("/access grant viewer 77")
    shown = await telegram.wait(EVE, "❌ Background task 1 failed")
    assert "I stopped it: the rules here, or your role, do not allow it any more." in shown.text
    assert states(service)[1] == "running"
    telegram.send(ask(text="w " * 40_000), chat=EVE + 1)
    shown = await telegram.wait(EVE + 1, "❌ Background task 2 failed")
    assert "Your budget of 30,000 tokens a day is used up." in shown.text
    await service.quiet()
    assert not service.rows("SELECT 1 FROM inbox WHERE key LIKE 'task:%'"), "nothing continues"


async def test_an_operator_repeats_a_task_for_its_person_and_with_their_rights(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    access = {"open": True, "operators": [str(JANE)]}
    service = await start(channels={"telegram": {"access": access}})
    telegram.send(background("exit 3", then=ask(text="a secret of Eve")), chat=EVE)
    await telegram.wait(EVE, "a secret of Eve")
    await service.quiet()
    telegram.send("/task 1 retry")
    await telegram.wait(JANE, "Trying again as task 2.")
    await telegram.wait(EVE, "Background task 2 failed")
    await until(lambda: said(telegram, EVE).count("a secret of Eve") == 2, what="the second answer")
    await service.quiet()
    assert service.rows("SELECT DISTINCT person FROM tasks") == [(str(EVE),)]
    assert service.rows("SELECT DISTINCT requester FROM runs") == [(str(EVE),)]
    telegram.send("/export me")
    await until(lambda: "my-data.jsonl" in [each.file_name for each in telegram.visible(JANE)], what="the file")
    [shown] = [each for each in telegram.visible(JANE) if each.file_name == "my-data.jsonl"]
    assert b"secret of Eve" not in (shown.file or b"")
    telegram.send("/access grant viewer 77")
    await telegram.wait(JANE, "is viewer from now on.")
    telegram.send("/task 1 retry")
    await telegram.wait(JANE, "The role of the person does not allow work here.")
    await service.quiet()


async def test_an_operator_of_one_chat_sees_the_tasks_of_that_chat_only(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    roles = [{"role": "operator", "who": [f"{GROUP}/{JANE}", f"{JANE}/{JANE}"]}]
    service = await start(channels={"telegram": {"access": {"open": True, "roles": roles}}})
    for chat, words in ((EVE, "echo private"), (GROUP, "echo public")):
        telegram.send(f"@fawn_bot {background(words)}", chat=chat, user=EVE)
        await telegram.wait(chat, "is done after")
        await service.quiet()
    telegram.send("/tasks")
    listed = await telegram.wait(JANE, "Background tasks, newest first")
    assert "echo public" in listed.text
    assert "private" not in listed.text
    telegram.send("/task 1")
    await telegram.wait(JANE, "I don't know a task 1 here.")
    await service.quiet()


async def test_the_agent_continues_after_a_command_and_lists_and_cancels_tasks(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(tasks={"per_thread": 2})
    telegram.send(background("echo 42", then=ask(text="the number is there")))
    await telegram.wait(JANE, "✅ Background task 1 is done")
    await telegram.wait(JANE, "the number is there")
    assert "[Background task 1 ended: done, exit code 0." in text_of(model.requests()[-1].messages[-1])
    await service.quiet()
    telegram.send(background("sleep 62"))
    await until(lambda: states(service) == ["done", "running"], what="a command")
    await service.quiet()
    telegram.send(background("sleep 63"))
    await until(lambda: states(service) == ["done", "running", "running"], what="two commands")
    await service.quiet()
    telegram.send(background("sleep 64"))
    await until(lambda: "At most 2 background tasks" in str(model.requests()[-1].messages), what="the refusal")
    await service.quiet()
    calls = [{"name": "background_tasks", "args": {"action": "cancel", "number": 2}}]
    telegram.send(
        ask(
            steps=[{"calls": calls}, {"calls": [{"name": "background_tasks", "args": {"action": "list"}}]}],
            text="ended it",
        )
    )
    await telegram.wait(JANE, "ended it")
    assert states(service) == ["done", "cancelled", "running"]
    assert "3: running, command, sleep 63" in str(model.requests()[-1].messages)


async def test_a_background_agent_works_in_its_own_conversation_and_survives_a_kill(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    prompt = ask(text="the long result", delay_ms=2000)
    call = {
        "name": "task",
        "args": {"description": "Look around", "prompt": prompt, "kind": "general-purpose", "background": True},
    }
    telegram.send(ask(steps=[{"calls": [call]}], text="delegated"))
    await telegram.wait(JANE, "delegated")
    marked = "[This is a background task"

    def asked() -> list[Request]:
        return [r for r in model.requests() if marked in text_of(r.messages[-1])]

    await until(lambda: bool(asked()), what="the agent")
    await service.restart()
    await telegram.wait(JANE, "the long result")
    await service.quiet()
    assert endings(telegram, "the long result") == 1
    telegram.send("/tasks")
    shown = await telegram.wait(JANE, "1. ✅ “Look around”: done at")
    assert "Background tasks" in shown.text


READER = {"name": "reader", "model": "small", "tools": ["read_file", "ls", "task"], "prompt": "You read."}
AUDITOR = {
    "name": "auditor",
    "prompt": "You audit.",
    "tools": ["read_file", "ls", "bash"],
    "output_schema": {"type": "object", "required": ["n"]},
}
SLOW = {"name": "slow", "seconds": 1.5, "tools": ["bash"]}
LONG = {"name": "long", "max_model_calls": 2, "tools": ["ls"]}
CHECKED = {"name": "checked", "verify": True}
KINDS = {"kinds": [AUDITOR, SLOW, LONG, CHECKED]}


def in_background(kind: str, prompt: str, **more: Any) -> dict[str, Any]:
    args = {"description": f"the {kind}", "prompt": prompt, "kind": kind, "background": True, **more}
    return {"calls": [{"name": "task", "args": args}]}


def background_requests(model: FakeModel) -> list[Request]:
    """Return the requests of sub-agents that work in the background."""
    return [each for each in model.requests() if "to do in the background" in text_of(each.messages[0])]


async def test_a_background_agent_keeps_its_kind_and_the_limits_of_its_caller(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """The named agent that delegates has no bash. The first answer does not fit the schema of the kind."""
    models = [{"name": name, "model": name, "base_url": f"{model.base_url}/v1"} for name in ("main", "small")]
    service = await start(agents=[READER], subagents=KINDS, models=models)
    replies = iter([bash("touch /mnt/user-data/workspace/x"), "three", '{"n": 3}'])

    def work(body: Any) -> Answer | None:
        if "to do in the background" not in text_of(body["messages"][0]):
            return None
        reply = next(replies)
        calls = (
            tuple(ToolCall(each["name"], json.dumps(each["args"])) for each in reply["calls"])
            if isinstance(reply, dict)
            else ()
        )
        return Answer("" if calls else str(reply), calls)

    model.script = work
    telegram.send("/agents reader")
    await telegram.wait(JANE, "reader")
    telegram.send(ask(steps=[in_background("auditor", "audit it")], text="delegated"))
    await telegram.wait(JANE, '{"n": 3}')
    await service.quiet()
    asked = background_requests(model)
    assert [len(asked), *{each.body["model"] for each in asked}] == [3, "small"]
    assert {tool["function"]["name"] for each in asked for tool in each.tools} == {"read_file", "ls"}
    assert "You audit." in text_of(asked[0].messages[0])
    assert "it is not JSON" in text_of(asked[2].messages[-1])
    assert not [*service.data.glob("threads/*/workspace/x")]


async def test_a_background_agent_has_the_time_and_the_calls_of_its_kind(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(subagents=KINDS)
    telegram.send(ask(steps=[in_background("slow", ask(steps=[bash("sleep 60")], text="late"))], text="first"))
    await telegram.wait(JANE, "This took longer than the limit of")
    looks = [{"calls": [{"name": "ls", "args": {"path": f"/mnt/user-data/{number}"}}]} for number in range(5)]
    telegram.send(ask(steps=[in_background("long", ask(steps=looks, text="late"))], text="second"))
    await telegram.wait(JANE, "I stopped after 2 steps")
    await service.quiet()
    assert "late" not in said(telegram, JANE)


async def test_what_a_background_agent_cannot_keep_is_refused_with_the_reason(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(subagents=KINDS)
    steps = [in_background("checked", "x"), in_background("general-purpose", "x", after=["nothing"])]
    telegram.send(ask(steps=steps, text="refused"))
    await telegram.wait(JANE, "refused")
    await service.quiet()
    told = [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "tool"]
    assert ["are checked" in told[0], "cannot come `after` others" in told[1]] == [True, True]
    assert service.rows("SELECT count(*) FROM tasks") == [(0,)]


async def test_a_repeated_agent_has_the_same_kind(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(agents=[READER | {"model": ""}], subagents=KINDS)
    telegram.send("/agents reader")
    await telegram.wait(JANE, "reader")
    call = in_background("long", ask(steps=[{"calls": [{"name": "ls", "args": {"path": "/"}}]}], text="looked"))
    telegram.send(ask(steps=[call], text="delegated"))
    await telegram.wait(JANE, "looked")
    await service.quiet()
    telegram.send("/task 1 retry")
    await until(lambda: endings(telegram, "looked") == 2, what="the second result")
    await service.quiet()
    assert {tool["function"]["name"] for each in background_requests(model) for tool in each.tools} == {"ls"}
    agents = service.rows("SELECT agent FROM conversations WHERE key LIKE 'task:%'")
    assert agents == [("reader",), ("reader",)]


async def test_a_background_agent_whose_kind_is_gone_does_not_become_another_one(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(subagents=KINDS)
    call = in_background("long", ask(steps=[], text="worked", delay_ms=3000))
    telegram.send(ask(steps=[call], text="delegated"))
    await telegram.wait(JANE, "delegated")
    await until(lambda: bool(background_requests(model)), what="the agent")
    await service.kill()
    service.configure({"subagents": {"kinds": [AUDITOR]}})
    await service.start()
    await telegram.wait(JANE, "its agent is no longer configured")
    await service.quiet()
