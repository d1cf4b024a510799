"""A person has their data sent, and is forgotten: nothing of what they said is left in data_dir, through kill -9."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_memory import extracts, nothing_queued, settings
from tests.e2e.test_schedules import press as press_schedule
from tests.e2e.test_schedules import propose
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.left_words import found_in
from tests.support.rehearsed_database import TABLES
from tests.support.service_process import Service, ask, bash

EVE, GROUP, BARK = 78, -1001, "https://bark.test"
WORDS = ("quetzal", "marzipan", "zeppelin", "ocelot", "tangerine", "bassoon", "walrus", "pomelo", "kumquat")
TASK_WORDS = ("gazelle", "lychee", "mulberry", "zither")
FACT = {"text": "I own a quetzal", "subject": "pet", "kind": "context", "confidence": 0.9, "quote": "own a quetzal"}


def found_words(data: Path) -> dict[str, list[str]]:
    """Return which of the words are anywhere in the files, and where."""
    return found_in(data, (*WORDS, *TASK_WORDS))


async def plant(telegram: FakeTelegram, model: FakeModel, service: Service) -> None:
    """Say words by many paths: messages, files, memory, a schedule, steering, questions, a shared thread, a command."""
    model.script = extracts(FACT)
    telegram.send("I own a quetzal")
    await telegram.wait(JANE, "own a quetzal")
    await until(lambda: service.rows("SELECT 1 FROM memory"), what="the memory")
    await nothing_queued(service)
    path = "/mnt/user-data/outputs/zeppelin.txt"
    write = {"name": "write_file", "args": {"path": path, "content": "zeppelin"}}
    telegram.send(ask(steps=[{"calls": [write]}], text="a file for you"))
    await telegram.wait(JANE, "a file for you")
    press_schedule(telegram, await propose(telegram, what="buy an ocelot", every_minutes=600))
    await telegram.wait(JANE, "is active")
    await service.quiet()
    telegram.send_document("tangerine.csv", b"tangerine,1\n", caption="the list")
    await telegram.wait(JANE, "the list")
    telegram.send("/search walrus")
    await telegram.wait(JANE, "walrus")
    question = {"calls": [{"name": "ask_clarification", "args": {"question": "Which?", "options": ["bassoon"]}}]}
    telegram.send(ask(steps=[question], text="thanks"))
    shown = await telegram.wait(JANE, "Which?")
    await service.quiet()
    telegram.click(next(each for each in telegram.visible(JANE) if each.id == shown.id).buttons[0][1], shown.id)
    await telegram.wait(JANE, "thanks")
    telegram.send("@fawn_bot marzipan for all", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "marzipan for all")
    await service.quiet()
    telegram.send_document("pomelo.csv", b"pomelo,1\n", caption="@fawn_bot our list", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "our list")
    await service.quiet()
    telegram.send("@fawn_bot the plan of Eve", chat=GROUP, user=EVE)
    await telegram.wait(GROUP, "the plan of Eve")
    telegram.send("a note of Eve", chat=EVE)
    await telegram.wait(EVE, "a note of Eve")
    await service.quiet()


async def plant_tasks(telegram: FakeTelegram, service: Service) -> None:
    """Say words in background tasks: commands in private and with others, their output and ends, an agent, and one
    command that still runs."""
    command = bash("echo gazelle | tee /mnt/user-data/workspace/gazelle", background=True, then="What of the gazelle?")
    telegram.send(ask(steps=[command], text="begun"))
    await telegram.wait(JANE, "What of the gazelle?")
    telegram.send(f"@fawn_bot {ask(steps=[bash('echo lychee', background=True)], text='begun')}", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "is done after")
    write = {"name": "write_file", "args": {"path": "/mnt/user-data/workspace/mulberry", "content": "mulberry"}}
    prompt = ask(steps=[{"calls": [write]}], text="mulberry")
    args = {"description": "mulberry", "prompt": prompt, "kind": "general-purpose", "background": True}
    telegram.send(ask(steps=[{"calls": [{"name": "task", "args": args}]}], text="delegated"))
    await until(lambda: any("mulberry" in each.text.splitlines() for each in telegram.visible(JANE)), what="its result")
    command = bash("echo zither; sleep 300", background=True)
    telegram.send(f"@fawn_bot {ask(steps=[command], text='runs')}", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "runs")
    logs = service.data / "threads"
    await until(lambda: [each for each in logs.glob("*/workspace/.tasks/4.log") if each.stat().st_size], what="zither")
    await service.quiet()


@pytest.mark.usefixtures("bubblewrap")
async def test_nothing_of_a_forgotten_person_is_left(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    config = {**settings(model), "sandbox": {}, "schedules": {"least_minutes": 0}, "push": {"bark_servers": [BARK]}}
    service = await start(**config, budgets=[{"scope": "person", "tokens": 10**6}])
    await plant(telegram, model, service)
    await plant_tasks(telegram, service)
    telegram.send(ask(steps=[{"calls": [{"name": "ls", "args": {}}]}], text="kumquat", delay_ms=20_000))
    await until(lambda: "kumquat" in str(model.requests()[-1].messages), what="a running turn")
    telegram.send("/zone Europe/Berlin")
    telegram.send(f"/notify bark {BARK}/BARKKEY")
    telegram.send("/notify quiet 22:01-06:59")
    telegram.send("/language en here")
    telegram.send("/model main me")
    await telegram.wait(JANE, "Quiet hours: 22:01-06:59.")
    used = f"SELECT coalesce(sum(input+output), 0), min(conversation) FROM usage WHERE person='telegram:{JANE}'"  # noqa: S608 — a number
    [spent] = service.rows(used)
    assert set(found_words(service.data)) >= {*WORDS, *TASK_WORDS} - {"walrus"}
    telegram.send("/forget me")
    shown = await telegram.wait(JANE, "Shall I forget you?")
    assert [label for label, _ in shown.buttons] == ["Forget me", "Keep everything"]
    telegram.click(shown.buttons[0][1], shown.id)
    await telegram.wait(JANE, "I'm forgetting you.")
    await service.kill()  # kill -9, wherever the job is
    await service.start()
    await telegram.wait(JANE, "Done: I have forgotten you.")
    await service.quiet()
    await service.stop()
    assert found_words(service.data) == {}
    tables = [name for (name,) in service.rows(TABLES)]
    named = [name for name in tables if re.search("Jane|BARKKEY|22:01", str(service.rows(f"SELECT * FROM {name}")))]  # noqa: S608 — own names
    assert named == []
    assert service.rows("SELECT reader FROM languages UNION ALL SELECT reader FROM agent_defaults") == []
    code, text = await service.fawn("audit", "verify")
    assert (code, "The audit is valid" in text) == (0, True), text
    [counted] = service.rows(used)
    assert counted[0] >= spent[0] > 0, "a budget does not begin anew"
    assert counted[1] == "-"
    kept = str(service.rows("SELECT text FROM transcript"))
    assert "the plan of Eve" in kept
    assert "a note of Eve" in kept
    await service.start()
    telegram.send("hello again")
    await telegram.wait(JANE, "hello again")
    telegram.send("@fawn_bot and on", chat=GROUP, user=EVE)
    await telegram.wait(GROUP, "and on")
    await service.quiet()


async def test_only_the_person_confirms_and_an_operator_forgets_on_the_host(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(sandbox={"provider": "none"})
    telegram.send("@fawn_bot marzipan", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "marzipan")
    telegram.send("/forget me", chat=GROUP, user=JANE)
    shown = await telegram.wait(GROUP, "Shall I forget you?")
    telegram.click(shown.buttons[0][1], shown.id, chat=GROUP, user=EVE)
    telegram.click(shown.buttons[1][1], shown.id, chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "I keep everything as it is.")
    await service.quiet()
    assert "marzipan" in found_words(service.data)
    code, text = await service.fawn("forget", "telegram", str(JANE), "--yes")
    assert (code, "within moments" in text) == (0, True), text
    await until(lambda: not service.rows("SELECT 1 FROM jobs WHERE kind='forget_person'"), what="the end of the job")
    await service.stop()
    assert found_words(service.data) == {}


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.usefixtures("bubblewrap")
async def test_a_person_gets_their_own_data_in_their_direct_chat(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    access = {"telegram": {"access": {"open": True, "operators": [str(EVE)]}}}
    service = await start(**settings(model) | {"sandbox": {}}, schedules={"least_minutes": 0}, channels=access)
    await plant(telegram, model, service)
    await plant_tasks(telegram, service)
    telegram.send("/language en")
    telegram.send("/model main me")
    telegram.send(f"/access grant member {JANE}", chat=EVE)
    await telegram.wait(EVE, "is member from now on.")
    telegram.send("/export me", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "in our direct chat only")
    telegram.send("/export me")
    await until(lambda: "my-data.jsonl" in [each.file_name for each in telegram.visible(JANE)], what="the file")
    await service.quiet()
    [shown] = [each for each in telegram.visible(JANE) if each.file_name == "my-data.jsonl"]
    assert shown.file is not None
    lines = lines_of(shown.file)
    kinds = {line["kind"] for line in lines}
    assert kinds >= {
        "message",
        "transcript",
        "call",
        "memory",
        "usage",
        "schedule",
        "task",
        "file",
        "person",
        "role",
        "language",
        "end",
    }
    assert {"kind": "agent", "agent": "", "model": "main", "effort": ""} in lines
    assert lines[-1] == {"kind": "end", "complete": True}
    text = json.dumps(lines)
    assert all(word in text for word in ("quetzal", "marzipan", "ocelot", "tangerine.csv", "zeppelin", "lychee"))
    assert not re.search("note of Eve|plan of Eve", text)
    assert not [*service.data.glob("spool/*")]
