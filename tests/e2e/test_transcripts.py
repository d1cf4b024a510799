"""Search in the chat, export on the command line: after a conversation with steps, a file and a question."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.model_script import words
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask

SETTINGS = {"sandbox": {"provider": "none"}}
REPORT = {"name": "write_file", "args": {"path": "/mnt/user-data/outputs/report.txt", "content": "a"}}
QUESTION = {"name": "ask_clarification", "args": {"question": "Which quarter?", "options": ["first", "second"]}}


async def export(service: Service, *arguments: str) -> list[dict[str, Any]]:
    code, text = await service.fawn("export", *arguments, "--format", "jsonl")
    assert code == 0, text
    return [json.loads(line) for line in text.splitlines()]


def outline(entries: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Return kind, first words and state of each entry."""
    return [(entry["kind"], entry["text"].partition(" ::")[0], entry["state"]) for entry in entries]


async def test_a_conversation_is_found_and_exported(telegram: FakeTelegram, start: Start) -> None:
    service = await start(**SETTINGS)
    steps = [{"calls": [REPORT], "text": "I write 預算 first"}, {"calls": [QUESTION]}]
    telegram.send_document("numbers.csv", b"1", caption=ask(steps=steps, text="The budget is done"))
    asked = await telegram.wait(JANE, "Which quarter?")
    await service.quiet()
    telegram.click(next(data for label, data in asked.buttons if label == "second"), asked.id)
    await telegram.wait(JANE, "The budget is done")
    await service.quiet()
    telegram.react("👍", telegram.visible(JANE)[-1].id)
    telegram.send("/search BUDGET done")
    found = await telegram.wait(JANE, "Found in this chat")
    assert "I: The budget is done" in found.text
    telegram.send("/search 預算")
    assert "I write 預算 first" in (await telegram.wait(JANE, "預算 first")).text
    telegram.send("/search nothing like it")
    await telegram.wait(JANE, "I found nothing in this chat with “nothing”, “like”, “it”.")
    telegram.send("/search budget", chat=1000)
    await telegram.wait(1000, "I found nothing in this chat")
    await service.quiet()

    entries = await export(service, "telegram/123456/42")
    assert outline(entries) == [
        ("message", "please", ""),
        ("file", "numbers.csv", ""),
        ("text", "I write 預算 first", ""),
        ("step", "write_file: outputs/report.txt", "done"),
        ("question", "Which quarter?\n- first\n- second", ""),
        ("file", "report.txt", ""),
        ("answer", "second", ""),
        ("text", "The budget is done", ""),
        ("feedback", "👍", ""),
    ]
    assert {entry["name"] for entry in entries if entry["kind"] in ("message", "answer")} == {"Jane"}
    assert all(entry["seconds"] >= 0 for entry in entries if entry["kind"] == "step")
    thread = entries[0]["conversation"].partition("#")[0]
    code, markdown = await service.fawn("export", thread)
    assert code == 0
    assert markdown.startswith(f"# {thread}\n")
    assert "- write_file: outputs/report.txt (done, " in markdown
    assert markdown.endswith("- 👍 Jane\n\n")
    assert "Feedback in 30 days: 1 👍, 0 👎." in (await service.fawn("status"))[1]

    code, refused = await service.fawn("export", "telegram/nowhere")
    assert code == 1
    assert thread in refused
    await service.stop()
    assert await export(service, thread) == entries
    assert (await service.fawn("export", thread, "-o", "t.md")) == (0, "")
    assert (service.folder / "t.md").read_text() == markdown


STEERED = [
    ("message", "please", ""),
    ("message", "please", ""),
    ("text", "First I write it.", ""),
    ("step", "write_file: outputs/report.txt", "done"),
]


async def steer(telegram: FakeTelegram, model: FakeModel, **second: Any) -> None:
    """Ask for something, and for something else while the model thinks."""
    telegram.send(ask(steps=[{"calls": [REPORT], "text": "First I write it."}], delay_ms=1500))
    await until(lambda: model.requests(), what="the first model call")
    telegram.send(ask(steps=[], **second))
    await telegram.wait(JANE, f"{second['word']}1")


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_the_transcript_of_a_resumed_run_is_whole(
    telegram: FakeTelegram, model: FakeModel, start: Start, end: str
) -> None:
    service = await start(**SETTINGS, limits={"grace_seconds": 0})
    await steer(telegram, model, tokens=60, tok_ms=50, word="w")
    await (service.kill() if end == "kill" else service.stop())
    await service.start()
    await telegram.wait(JANE, "w59")
    await service.quiet()
    entries = await export(service, "telegram/")
    assert len({entry["run"] for entry in entries}) == 1
    assert sorted(outline(entries)[:4]) == sorted(STEERED)
    assert outline(entries)[4:] == [("text", words(60), ""), ("file", "report.txt", "")]


async def test_a_stopped_turn_keeps_what_steered_it_and_its_text(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**SETTINGS)
    await steer(telegram, model, tokens=1000, tok_ms=50, word="long")
    telegram.send("/stop")
    await telegram.wait(JANE, "Stopped")
    await service.quiet()
    entries = outline(await export(service, "telegram/"))
    assert entries[:4] == STEERED
    assert entries[4][1].startswith("long0 long1")
    assert entries[5:] == [("file", "report.txt", ""), ("notice", "Stopped.", "")]


async def test_a_run_that_resumes_an_answered_question_repeats_nothing(telegram: FakeTelegram, start: Start) -> None:
    service = await start(**SETTINGS)
    telegram.send(
        ask(steps=[{"calls": [REPORT], "text": "First I write it."}, {"calls": [QUESTION]}], tokens=60, tok_ms=50)
    )
    await telegram.wait(JANE, "Which quarter?")
    await service.quiet()
    telegram.send("second")
    await telegram.wait(JANE, "w1")
    await service.restart()
    await telegram.wait(JANE, "w59")
    await service.quiet()
    entries = await export(service, "telegram/")
    first = [entry for entry in entries if entry["run"] == entries[0]["run"]]
    assert [entry["kind"] for entry in first] == ["message", "text", "step", "question", "file"]
    assert outline(entries[len(first) :]) == [("answer", "second", ""), ("text", words(60), "")]


async def test_a_search_in_a_topic_finds_the_other_topics_of_its_chat_only(
    telegram: FakeTelegram, start: Start
) -> None:
    service = await start(**SETTINGS)
    forum, group = -1005, -100
    telegram.forum(forum, 11, 12)
    telegram.send("@fawn_bot " + ask(text="the plan of eleven"), chat=forum, topic=11)
    await telegram.wait(forum, "plan of eleven", topic=11)
    telegram.send(ask(text="the plan of Jane alone"))
    await telegram.wait(JANE, "Jane alone")
    await service.quiet()
    telegram.send("/search@fawn_bot plan", chat=forum, topic=12)
    found = await telegram.wait(forum, "Found in this chat", topic=12)
    assert "the plan of eleven" in found.text
    assert "alone" not in found.text
    telegram.send("/search@fawn_bot plan", chat=group)
    await telegram.wait(group, "I found nothing in this chat")
    telegram.send("/search plan")
    assert "eleven" not in (await telegram.wait(JANE, "Found in this chat")).text
