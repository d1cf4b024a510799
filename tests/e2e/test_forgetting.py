"""Forgetting reaches what others quoted, what was not delivered and what only the agent's state named."""

from __future__ import annotations

import io
import json

import pytest
from PIL import Image

from tests.e2e.conftest import Start
from tests.e2e.test_memory import settings
from tests.e2e.test_privacy import BARK, TASK_WORDS, lines_of, plant, plant_tasks
from tests.e2e.test_privacy import WORDS as FIRST_WORDS
from tests.e2e.test_schedules import SETTINGS, press, propose, soon
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.left_words import found_in
from tests.support.service_process import Service, ask, bash

EVE, STRANGER, GROUP = 78, 91, -1001
MARKS = (
    *(*FIRST_WORDS, *TASK_WORDS),
    *("aardvark", "begonia", "cormorant", "dahlia", "echidna", "fuchsia", "gibbon", "hyacinth", "iguana"),
    *("jonquil", "kestrel", "larkspur", "meerkat", "narwhal", "oleander", "pangolin", "rosella"),
)
assert len(MARKS) >= 30


def lines_with(word: str, text: str) -> list[str]:
    return [line for line in text.lower().splitlines() if word in line]


def picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (60, 40), "red").save(file, "PNG")
    return file.getvalue()


async def forget(telegram: FakeTelegram, service: Service, *, seconds: float = 60) -> None:
    telegram.send("/forget me")
    shown = await telegram.wait(JANE, "Shall I forget you?")
    telegram.click(shown.buttons[0][1], shown.id)
    await telegram.wait(JANE, "Done: I have forgotten you.", seconds=seconds)
    await service.quiet()


async def plant_more(telegram: FakeTelegram, service: Service) -> None:
    """Say words by the paths that the first test of privacy does not take."""
    overheard = telegram.send("the aardvark sleeps", chat=GROUP, user=JANE)  # not for the bot
    telegram.send(f"@fawn_bot {ask(text='what of this?')}", chat=GROUP, user=EVE, reply_to=overheard["message_id"])
    await telegram.wait(GROUP, "what of this?")
    partly = telegram.send("begonia and cormorant", chat=GROUP, user=JANE)
    telegram.send(
        f"@fawn_bot {ask(text='and of this?')}", chat=GROUP, user=EVE, reply_to=partly["message_id"], quote="cormorant"
    )
    await telegram.wait(GROUP, "and of this?")
    await service.quiet()
    answer = telegram.send("@fawn_bot my dahlia", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "my dahlia")
    await service.quiet()
    telegram.send(f"@fawn_bot {ask(text='say it again')}", chat=GROUP, user=EVE, reply_to=answer["message_id"])
    await telegram.wait(GROUP, "say it again")
    await service.quiet()
    telegram.send_photo(picture(), caption="@fawn_bot an echidna", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "an echidna")
    await service.quiet()
    long = bash("for i in $(seq 9000); do echo fuchsia $i; done")
    telegram.send(f"@fawn_bot {ask(steps=[long], text='that was long')}", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "that was long")
    await service.quiet()
    write = {"name": "write_file", "args": {"path": "/mnt/user-data/outputs/oleander.txt", "content": "oleander"}}
    telegram.fault("error", "sendDocument", code=400, times=-1, description="Bad Request: FILE_REFUSED")
    telegram.send(ask(steps=[{"calls": [write]}], text="my file"))
    await until(lambda: service.rows("SELECT 1 FROM transcript WHERE text='my file'"), what="the end of the run")
    before = telegram.send("a kestrell")
    telegram.edit("a kestrel", before["message_id"])
    await service.quiet()
    telegram.send("pangolin, begonia, kumquat")
    await telegram.wait(JANE, "pangolin")
    await service.quiet()
    for line in ("/plan a gibbon", "/goal a hyacinth", "/schedule every day an iguana", "/search jonquil"):
        telegram.send(line)
        await service.quiet()
        telegram.send("/new")
        await service.quiet()
    telegram.paste("larkspur " * 700)
    await service.quiet()
    telegram.send("narwhal")
    await service.quiet()
    telegram.send("/retry")
    await service.quiet()
    telegram.send("/new")
    await service.quiet()
    telegram.send(ask(errors=[400], text="meerkat"))
    await service.quiet()
    telegram.send("/export me")
    await until(lambda: [*service.data.glob("spool/export-*")], what="the export")
    await until(lambda: not service.rows("SELECT 1 FROM outbox WHERE state IN (0, 1)"), what="the refusal")
    telegram.send(f"@fawn_bot rosella {'x' * 50}", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "rosella")
    await service.quiet()


@pytest.mark.usefixtures("bubblewrap")
async def test_thirty_marks_of_a_person_by_every_path_are_gone_from_every_file(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    config = settings(model)
    config["models"] = [{**each, "vision": True} for each in config["models"]]
    more = {"sandbox": {}, "schedules": {"least_minutes": 0}, "push": {"bark_servers": [BARK]}}
    service = await start(**{**config, **more})
    await plant(telegram, model, service)
    await plant_tasks(telegram, service)
    await plant_more(telegram, service)
    (service.data / "backups").mkdir()
    (service.data / "backups" / "fawn-0025-20260101-000000.db").write_bytes(b"an aardvark of an older version")
    planted = set(found_in(service.data, MARKS))
    assert planted >= {*MARKS} - {"walrus", "jonquil"}, {*MARKS} - planted
    assert [*service.data.glob("threads/*/workspace/.outputs/*")]
    telegram.clear_faults()
    await forget(telegram, service)
    await service.stop()
    assert found_in(service.data, MARKS) == {}
    assert {mark: lines for mark in MARKS if (lines := lines_with(mark, service.log()))} == {}, "nor were they logged"
    assert not [path for path in service.data.glob("spool/*") if path.name.startswith("export")]
    assert not [*service.data.glob("threads/*/workspace/.pictures/*")]
    kept = str(service.rows("SELECT payload FROM inbox"))
    assert "what of this?" in kept, "what others wrote around a quote stays"


async def test_the_name_in_the_question_about_a_stranger_is_gone(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(
        channels={"telegram": {"access": {"open": False, "operators": [str(JANE)]}}}, sandbox={"provider": "none"}
    )
    telegram.send("/status")
    await telegram.wait(JANE, "Background jobs")
    telegram.person(STRANGER)["first_name"] = "Ocelotta"
    telegram.send("let me in", chat=STRANGER)
    shown = await telegram.wait(JANE, "wants to talk to me")
    assert "Ocelotta" in shown.text
    await service.quiet()
    assert "ocelotta" in found_in(service.data, ("ocelotta",))
    code, text = await service.fawn("forget", "telegram", str(STRANGER), "--yes")
    assert code == 0, text
    await until(lambda: not service.rows("SELECT 1 FROM jobs WHERE kind='forget_person'"), what="the end of the job")
    await service.stop()
    assert found_in(service.data, ("ocelotta",)) == {}


async def test_others_whose_question_is_closed_are_told_to_ask_again(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(sandbox={"provider": "none"})
    telegram.send("@fawn_bot good morning", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "good morning")
    await service.quiet()
    question = {"calls": [{"name": "ask_clarification", "args": {"question": "Which?", "options": ["a"]}}]}
    telegram.send(f"@fawn_bot {ask(steps=[question], text='thanks')}", chat=GROUP, user=EVE)
    await telegram.wait(GROUP, "Which?")
    await service.quiet()
    await forget(telegram, service)
    await telegram.wait(GROUP, "Please ask me again.")
    assert service.rows("SELECT state FROM runs WHERE state='waiting'") == []
    telegram.send("/forget me")
    await telegram.wait(JANE, "I do that once a day")
    assert service.rows("SELECT 1 FROM jobs WHERE kind='forget_person'") == []
    telegram.send("@fawn_bot I ask again", chat=GROUP, user=EVE)
    await telegram.wait(GROUP, "I ask again")


async def test_what_others_wrote_to_a_schedule_in_a_group_is_theirs(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**SETTINGS)
    press(telegram, await propose(telegram, GROUP, at=soon(3)), chat=GROUP)
    posted = await telegram.wait(GROUP, "You said: ")
    await service.quiet()
    telegram.send("tangerines for Eve", chat=GROUP, user=EVE, reply_to=posted.id)
    await telegram.wait(GROUP, "tangerines for Eve")
    await service.quiet()
    telegram.send("/export me")
    await until(lambda: "my-data.jsonl" in [each.file_name for each in telegram.visible(JANE)], what="the file")
    [shown] = [each for each in telegram.visible(JANE) if each.file_name == "my-data.jsonl"]
    assert shown.file is not None
    assert "tangerines" not in json.dumps(lines_of(shown.file))
    await forget(telegram, service)
    kept = str(service.rows("SELECT text FROM transcript"))
    assert "tangerines for Eve" in kept
    assert "Read the news" not in kept


async def test_a_schedule_that_moves_to_other_readers_begins_a_new_conversation(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**SETTINGS)
    press(telegram, await propose(telegram, what="my zeppelin", every_minutes=600))
    await telegram.wait(JANE, "Schedule 1 is active.")
    telegram.send("/schedule run 1")
    await until(lambda: service.rows("SELECT 1 FROM transcript WHERE conversation='schedule:1'"), what="a private run")
    await service.quiet()
    telegram.send("@fawn_bot hello", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "hello")
    telegram.send("/schedule here 1", chat=GROUP, user=JANE)
    await telegram.wait(GROUP, "From now on, schedule 1 posts here.")
    telegram.send("/schedule run 1", chat=GROUP, user=JANE)
    await until(lambda: service.rows("SELECT 1 FROM transcript WHERE conversation='schedule:1.1'"), what="a run here")
    await service.quiet()
    request = model.requests()[-1]
    assert str(request.messages).count("[Schedule 1, due") == 1, "the past of the private runs stays there"
    assert str(GROUP) not in str(service.rows("SELECT thread FROM conversations WHERE key='schedule:1'"))
    telegram.send("/schedule here 1", chat=GROUP, user=JANE)
    await service.quiet()
    assert service.rows("SELECT moves FROM schedules") == [(1,)], "the same place is no move"
