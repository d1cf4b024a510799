"""Whose words are they: what a model wrote is never a person's, and what is repeated stays its author's."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_memory import FACT, HOSTILE, extracts, nothing_queued, settings
from tests.e2e.test_permissions import write, written
from tests.e2e.test_roles import team
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.fakes.model_script import text_of
from tests.fakes.server import Json, until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask, said

EVE, GROUP = 78, -1001
NOTE = {"action": "save", "text": HOSTILE, "quote": HOSTILE}
STARTS = {
    "agent": ("task", {"description": "look", "prompt": HOSTILE, "kind": "general-purpose", "background": True}),
    "follow-up": ("bash", {"command": "true", "background": True, "then": HOSTILE}),
}


def call(name: str, args: Json) -> Answer:
    return Answer(calls=(ToolCall(name, json.dumps(args)),))


def authors_of(service: Service, words: str) -> set[str]:
    rows = service.rows("SELECT author, text FROM transcript WHERE kind='message'")
    return {str(author) for author, text in rows if words in str(text)}


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("start_name", STARTS)
async def test_what_the_model_writes_to_itself_is_never_the_persons_words(
    telegram: FakeTelegram, model: FakeModel, start: Start, start_name: str
) -> None:
    """Neither for the memory tool, nor the extraction, nor the transcript, nor the person's export."""
    answers: list[str] = []
    extract = extracts({**FACT, "quote": HOSTILE})

    def script(body: Json) -> Answer | None:
        if not body.get("tools"):
            return extract(body)
        history = str(body["messages"])
        if "look at that page" in history and HOSTILE not in history:
            return call(*STARTS[start_name])
        last = body["messages"][-1]
        if (last["role"] == "tool" and "Not saved" in text_of(last)) or "Saved as note" in text_of(last):
            answers.append(text_of(last))
            return Answer("noted what I should")
        if last["role"] == "tool" and HOSTILE in history and "read" in text_of(last).lower():
            answers.append(f"Not saved: {text_of(last)}")  # a background agent only reads the memory
            return Answer("noted what I should")
        if last["role"] == "tool":
            return Answer("begun")
        if "memory" not in [tool["function"]["name"] for tool in body["tools"]]:  # what a background agent is offered
            answers.append("Not saved")
            return Answer("noted what I should")
        return call("memory", NOTE)

    model.script = script
    service = await start(**{**settings(model), "sandbox": {"provider": "local"}})
    telegram.send("look at that page")
    if start_name == "follow-up":  # a command's output may be a stranger's: a note asks then
        await telegram.wait(JANE, "May I run memory?")
        telegram.send("/approve")
    await telegram.wait(JANE, "noted what I should")
    await service.quiet()
    await nothing_queued(service)
    assert answers
    assert all(answer.startswith("Not saved") for answer in answers)
    assert service.rows("SELECT text FROM memory") == []
    assert authors_of(service, HOSTILE) == {""}
    telegram.send("/export me")
    await until(lambda: "my-data.jsonl" in [each.file_name for each in telegram.visible(JANE)], what="the file")
    [shown] = [each for each in telegram.visible(JANE) if each.file_name == "my-data.jsonl"]
    lines = [json.loads(line) for line in (shown.file or b"").splitlines()]
    own = [line for line in lines if line.get("kind") == "message" or line.get("author") == str(JANE)]
    assert any("look at that page" in line["text"] for line in own)
    assert not [line for line in own if HOSTILE in line["text"]]


async def test_a_retry_by_an_operator_gives_nobody_more_rights(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    role = {"name": "trainee", "rights": ["talk", "approve"], "deny": ["write_file"]}
    service = await start(**team(("operator", str(JANE)), ("trainee", str(EVE)), team={"roles": [role]}))
    telegram.send(f"@fawn_bot {ask(steps=[{'calls': [write('a')]}], text='tried it')}", chat=GROUP, user=EVE)
    await telegram.wait(GROUP, "tried it")
    await service.quiet()
    telegram.send("/retry@fawn_bot", chat=GROUP, user=JANE)
    await until(lambda: len(service.rows("SELECT 1 FROM runs WHERE state='done'")) == 2, what="the second run")
    assert written(service) == []
    people = service.rows("SELECT people FROM runs ORDER BY id DESC LIMIT 1")[0][0]
    assert set(people.split()) == {str(JANE), str(EVE)}


async def test_words_stay_their_authors_when_another_person_retries(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    secret = "Use pytest, not unittest, for my tests"
    model.script = extracts({**FACT, "quote": secret})
    service = await start(**settings(model), channels={"telegram": {"access": {"open": True}}})
    telegram.send(f"@fawn_bot {secret}", chat=GROUP, user=JANE)
    await until(lambda: len(service.rows("SELECT 1 FROM runs WHERE state='done'")) == 1, what="the first run")
    await service.quiet()
    telegram.send("/retry@fawn_bot", chat=GROUP, user=EVE)
    await until(lambda: len(service.rows("SELECT 1 FROM runs WHERE state='done'")) == 2, what="the second run")
    await service.quiet()
    await nothing_queued(service)
    assert service.rows("SELECT DISTINCT owner FROM memory") == [(str(JANE),)]
    assert authors_of(service, secret) == {str(JANE)}
    paid = service.rows("SELECT run, person FROM usage WHERE kind='turn' ORDER BY id")
    assert [person for _run, person in paid] == [f"telegram:{JANE}", f"telegram:{EVE}"], "who presses it pays"
    telegram.send("/export me", chat=EVE, user=EVE)
    await until(lambda: "my-data.jsonl" in [each.file_name for each in telegram.visible(EVE)], what="the file")
    [shown] = [each for each in telegram.visible(EVE) if each.file_name == "my-data.jsonl"]
    assert b"pytest" not in (shown.file or b"")
    telegram.send("/forget me")
    shown = await telegram.wait(JANE, "Shall I forget you?")
    telegram.click(shown.buttons[0][1], shown.id)
    await telegram.wait(JANE, "Done: I have forgotten you.")
    await service.quiet()
    await service.stop()
    left = [path.name for path in service.data.rglob("*") if path.is_file() and b"unittest" in path.read_bytes()]
    assert left == [], "also in the run of who repeated it"


# ------------------------------------------------------------ no loop without a person


WATCH = "keep an eye on the build"
ENDED = "as often as I may (5 times)"


def watches_for_ever(seconds: float) -> Callable[[Json], Answer]:
    """Return a script: the model begins a command in each turn, after which it continues with the same wish."""
    args = {"command": f"sleep {seconds}", "background": True, "then": f"{WATCH}: begin the next look"}

    def script(body: Json) -> Answer:
        if body["messages"][-1]["role"] == "tool" or not body.get("tools"):
            return Answer("I am looking after it")
        return call("bash", args)

    return script


def finished_runs(service: Service) -> int:
    return len(service.rows("SELECT 1 FROM runs WHERE finished IS NOT NULL"))


@pytest.mark.usefixtures("bubblewrap")
async def test_a_loop_of_the_agent_ends_by_itself_also_over_a_kill(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    model.script = watches_for_ever(0.2)
    service = await start()
    telegram.send(WATCH)
    await until(lambda: finished_runs(service) >= 3, 60, "some rounds")
    await service.quiet()
    await service.restart()
    await until(lambda: ENDED in str(said(telegram, JANE)) or "was lost" in str(said(telegram, JANE)), 60, "the end")
    await service.quiet()
    ended = finished_runs(service)
    assert 3 <= ended <= 6
    assert str(said(telegram, JANE)).count(ENDED) <= 1
    telegram.send(WATCH)
    await until(lambda: finished_runs(service) >= ended + 6, 90, "a new message has an allowance of its own")
    await service.quiet()
    assert finished_runs(service) == ended + 6
    assert len(model.requests()) <= 30


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_stop_and_new_end_what_follows_from_background_commands(
    telegram: FakeTelegram, model: FakeModel, start: Start, command: str
) -> None:
    model.script = watches_for_ever(3)
    service = await start()
    telegram.send(WATCH)
    await until(lambda: finished_runs(service) == 2, 60, "a second round")
    await service.quiet()
    telegram.send("/status")
    await telegram.wait(JANE, "In the background: 2 (sleep 3).")
    telegram.send(command)
    if command == "/stop":
        await telegram.wait(JANE, "This in the background has ended: 2 (sleep 3).")
        assert service.rows("SELECT state FROM tasks ORDER BY id") == [("done",), ("cancelled",)]
    else:
        await telegram.wait(JANE, "A fresh start")
        await telegram.wait(JANE, "Background task 2 is done")
    await service.quiet()
    assert finished_runs(service) == 2


@pytest.mark.usefixtures("bubblewrap")
async def test_what_the_agent_began_itself_cannot_start_a_background_agent(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """A command ends, the agent continues, and that run begins an agent."""

    def script(body: Json) -> Answer:
        history = str(body["messages"])
        if body["messages"][-1]["role"] == "tool" or not body.get("tools"):
            return Answer("seen")
        if "the detour" in history:
            args = {"description": "two", "prompt": "deeper", "kind": "general-purpose", "background": True}
            return call("task", args)
        return call("bash", {"command": "true", "background": True, "then": "the detour"})

    model.script = script
    service = await start()
    telegram.send("begin here")
    await until(lambda: finished_runs(service) == 2, 60, "the detour")
    await service.quiet()
    assert service.rows("SELECT kind FROM tasks ORDER BY id") == [("command",)]
    assert "only the request of a person or a schedule can start" in str(model.requests()[-1].messages)


async def test_a_background_task_of_a_repeated_request_is_of_who_had_it_repeated(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**settings(model), channels={"telegram": {"access": {"open": True}}})
    args = {"description": "look", "prompt": ask(text="looked"), "kind": "general-purpose", "background": True}
    telegram.send(
        f"@fawn_bot {ask(steps=[{'calls': [{'name': 'task', 'args': args}]}], text='begun')}", chat=GROUP, user=EVE
    )
    ended = "SELECT 1 FROM tasks t JOIN inbox i ON i.id=t.message JOIN runs r ON r.id=i.run WHERE r.state='done'"
    await until(lambda: len(service.rows(ended)) == 1, what="the task")
    await service.quiet()
    telegram.send("/retry@fawn_bot", chat=GROUP, user=JANE)
    await until(lambda: len(service.rows(ended)) == 2, what="the other task")
    await service.quiet()
    assert service.rows("SELECT person FROM tasks ORDER BY id") == [(str(EVE),), (str(JANE),)]
    paid = service.rows("SELECT DISTINCT person FROM usage WHERE conversation='task:2' AND kind='turn'")
    assert paid == [(f"telegram:{JANE}",)], "who pressed it pays"
    [(people,)] = service.rows("SELECT people FROM runs WHERE conversation='task:2'")
    assert set(people.split()) == {str(JANE), str(EVE)}, "and nobody gets rights by it"
