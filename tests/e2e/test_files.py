"""Files in both directions between the chat and the sandbox."""

from __future__ import annotations

import pytest

from agent.policies.tool_calls import REST_FILE
from tests.e2e.conftest import Start
from tests.fakes.model import Answer, FakeModel
from tests.fakes.server import Json, until
from tests.fakes.telegram import JANE, TOKEN, FakeTelegram
from tests.support.service_process import ask, bash, said

OUT = "/mnt/user-data/outputs"
pytestmark = pytest.mark.usefixtures("bubblewrap")


def files(telegram: FakeTelegram, chat: int = JANE) -> list[str]:
    """Return the names of the files that the bot sent, in order."""
    return [shown.file_name or shown.kind for shown in telegram.visible(chat) if shown.by_bot and shown.file]


async def test_a_document_reaches_the_sandbox_and_an_output_is_sent(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    command = f"tr a-z A-Z < /mnt/user-data/uploads/notes.csv > {OUT}/loud.csv"
    telegram.send_document("notes.csv", b"a,b\n1,2\n", caption=ask(steps=[bash(command)], text="made it loud"))
    await telegram.wait(JANE, "made it loud")
    await service.quiet()
    sent = [shown for shown in telegram.visible(JANE) if shown.by_bot and shown.file]
    assert [(shown.file_name, shown.file) for shown in sent] == [("loud.csv", b"A,B\n1,2\n")]
    assert "/mnt/user-data/uploads/notes.csv" in str(model.requests()[0].messages[-1]["content"])


# Cases 21 and 25 of docs/cases.md
async def test_an_album_is_one_turn_with_all_its_files(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    telegram.send_album([b"one" * 9, b"two" * 9, b"six" * 9], caption="what is this?")
    await until(lambda: model.requests())
    await service.quiet()
    assert len(model.requests()) == 1
    uploads = sorted(path.read_bytes() for path in (service.folder_of() / "uploads").iterdir())
    assert uploads == [b"one" * 9, b"six" * 9, b"two" * 9]
    assert str(model.requests()[0].messages[-1]["content"]).count("/mnt/user-data/uploads/") == 3


async def test_what_follows_an_answer_at_its_limit_is_a_file(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    model.script = lambda body: Answer("b" * 1_000, repeat=201) if body.get("tools") else None
    service = await start()
    telegram.send("write a book")
    await telegram.wait(JANE, "rest-of-the-answer.md")
    await service.quiet()
    [sent] = [shown for shown in telegram.visible(JANE) if shown.by_bot and shown.file_name == REST_FILE]
    assert sent.file == b"b" * 1_000


# Case 22 of docs/cases.md
async def test_a_document_over_the_limit_is_named_and_the_rest_works(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """The refusal does not wait for the answer. If it takes long, a placeholder of the answer stands above it."""
    refusal, answer = "I could not take huge.bin: exceeds the 20 MB download limit.", "the rest works"

    def script(body: Json) -> Answer | None:
        return Answer(answer, held=lambda: refusal not in said(telegram, JANE)) if body.get("tools") else None

    model.script = script
    service = await start()
    telegram.send_document("huge.bin", b"x", size=21 << 20, caption="what is it?")
    await telegram.wait(JANE, answer)
    asked = str(model.requests()[0].messages[-1]["content"])
    assert "huge.bin" in asked
    assert "20 MB" in asked
    await service.quiet()
    assert sorted(said(telegram, JANE)) == [refusal, answer]
    assert TOKEN.partition(":")[2] not in service.log()


# Case 73 of docs/cases.md
async def test_unsafe_upload_names_are_replaced(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    album = telegram.new_album()
    for name, data in (("../../evil.txt", b"1"), ("a.txt", b"2"), ("a.txt", b"3"), ("报告.csv", b""), ("..", b"5")):
        telegram.send_document(name, data, caption="files" if data == b"1" else "", album=album)
    await until(lambda: model.requests())
    await service.quiet()
    names = sorted(path.name for path in (service.folder_of() / "uploads").iterdir())
    assert len(names) == 5
    assert {"evil.txt", "a.txt", "a-2.txt", "报告.csv"} < set(names)
    assert not list(service.data.parent.glob("evil*"))


# Cases 40 and 43 of docs/cases.md
async def test_only_regular_files_of_outputs_are_presented(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """The model gets the names of refused files, and a reply without text still appears."""
    service = await start()
    paths = [{"path": f"{OUT}/b.csv", "caption": "second"}, {"path": f"{OUT}/a.csv", "caption": "first"}]
    paths += [{"path": "/etc/passwd"}, {"path": f"{OUT}/../workspace/x"}]
    steps = [
        bash(f"echo a > {OUT}/a.csv; echo b > {OUT}/b.csv; echo x > /mnt/user-data/workspace/x"),
        {"calls": [{"name": "present_files", "args": {"files": paths}}]},
    ]
    telegram.send(ask(steps=steps, text="here they are"))
    await telegram.wait(JANE, "here they are")
    await service.quiet()
    assert files(telegram) == ["b.csv", "a.csv"]
    captions = [shown.text.rpartition(": ")[2] for shown in telegram.visible(JANE) if shown.by_bot and shown.file]
    assert captions == ["second", "first"]  # perhaps behind a mark that one may have been seen before
    told = [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "tool"][-1]
    assert "/etc/passwd" in told


# Cases 51 and 75 of docs/cases.md
async def test_an_output_is_sent_once_and_again_after_a_change(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.send(ask(steps=[bash(f"echo 1 > {OUT}/a.csv; echo 1 > {OUT}/b.csv")], text="two files"))
    await telegram.wait(JANE, "two files")
    await service.quiet()
    assert files(telegram) == ["a.csv", "b.csv"]
    telegram.send(ask(steps=[bash("ls")], text="nothing new"))
    await telegram.wait(JANE, "nothing new")
    await service.quiet()
    assert files(telegram) == ["a.csv", "b.csv"]
    present = {"calls": [{"name": "present_files", "args": {"files": [{"path": f"{OUT}/b.csv"}]}}]}
    telegram.send(ask(steps=[bash(f"echo 2 > {OUT}/a.csv"), present], text="one changed"))
    await telegram.wait(JANE, "one changed")
    await service.quiet()
    assert files(telegram) == ["a.csv", "b.csv", "a.csv"]


# Cases 74 and 52 of docs/cases.md
async def test_irregular_outputs_are_not_sent_and_are_reported(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    secret = service.folder / "secret"
    secret.write_text("HOST-SECRET")
    command = (
        f"cd {OUT}; ln -s {secret} report.txt; ln -s /etc shadow; mkfifo pipe; truncate -s 5T sparse.bin;"
        ' echo x > "$(printf "a\\nb")"; echo fine > fine.txt'
    )
    telegram.send(ask(steps=[bash(command)], text="left strange things"))
    shown = await telegram.wait(JANE, "left strange things")
    await service.quiet()
    assert files(telegram) == ["fine.txt"]
    shown = next(message for message in telegram.visible(JANE) if "left strange things" in message.text)
    for name in ("report.txt", "pipe", "and 1 more"):  # the fourth is the other link
        assert name in shown.text
    everything = b"".join(message.file for message in telegram.visible(JANE))
    assert b"HOST-SECRET" not in everything
    assert str(service.folder) not in str(said(telegram, JANE))


# Case 41 of docs/cases.md
async def test_when_one_upload_fails_the_other_is_sent_and_the_failure_is_reported(
    telegram: FakeTelegram, start: Start
) -> None:
    service = await start()
    telegram.fault("error", "sendMediaGroup", code=400, description="Bad Request: wrong file")
    telegram.fault("error", "sendDocument", code=400, description="Bad Request: wrong file", contains="bad", times=-1)
    steps = [
        bash(f"echo 1 > {OUT}/bad.csv; echo 1 > {OUT}/good.csv"),
        {"calls": [{"name": "present_files", "args": {"files": [{"path": f"{OUT}/bad.csv", "caption": "bad"}]}}]},
    ]
    telegram.send(ask(steps=steps, text="two files"))
    await telegram.wait(JANE, "could not send bad.csv")
    await service.quiet()
    assert files(telegram) == ["good.csv"]


# Case 42 of docs/cases.md
async def test_files_are_sent_after_a_delayed_text(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.send(ask(steps=[bash(f"echo 1 > {OUT}/a.csv")], text="the words first", id="42"))
    telegram.fault("error", "editMessageText", code=502, times=3)
    telegram.fault("error", "sendMessage", code=502, times=3)
    await telegram.wait(JANE, "the words first")
    await service.quiet(40)
    assert said(telegram, JANE) == ["the words first", "a.csv"]


async def test_a_crash_keeps_the_order_and_captions_of_files(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    paths = [{"path": f"{OUT}/b.csv", "caption": "second"}, {"path": f"{OUT}/a.csv", "caption": "first"}]
    steps = [
        bash(f"echo a > {OUT}/a.csv; echo b > {OUT}/b.csv"),
        {"calls": [{"name": "present_files", "args": {"files": paths}}]},
        bash("sleep 3"),
    ]
    telegram.send(ask(steps=steps, text="here they are"))
    await telegram.wait(JANE, "sleep 3")
    await service.restart()
    await telegram.wait(JANE, "here they are")
    await service.quiet()
    assert [*dict.fromkeys(files(telegram))] == ["b.csv", "a.csv"]
    captions = [shown.text.rpartition(": ")[2] for shown in telegram.visible(JANE) if shown.by_bot and shown.file]
    assert [*dict.fromkeys(captions)] == ["second", "first"]  # perhaps behind a mark that one may have been seen before


async def test_without_a_sandbox_nothing_is_run_and_no_document_is_parsed(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """Documents are parsed in the sandbox only: without one the model gets the bytes of a table, and no command."""
    service = await start(sandbox={"provider": "none"})
    read = {"calls": [{"name": "read_file", "args": {"path": "/mnt/user-data/uploads/notes.ods"}}]}
    telegram.send_document("notes.ods", b"PK\x03\x04 nothing", caption=ask(steps=[read], text="read it"))
    await telegram.wait(JANE, "read it")
    await service.quiet()
    request = model.requests()[-1]
    offered = {tool["function"]["name"] for tool in request.tools}
    assert not offered & {"bash", "run_skill", "expose"}
    [result] = [str(m["content"]) for m in request.messages if m["role"] == "tool"]
    assert "its text is in" not in result, "no program has read it"
