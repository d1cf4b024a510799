"""WhatsApp end to end: through the relay, kills of the process, and a window that is over."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.test_questions import question
from tests.fakes.server import until
from tests.fakes.whatsapp import JANE, UNDELIVERABLE, FakeWhatsApp
from tests.support.all_platforms import AllPlatforms
from tests.support.kills import KillRun, Plan
from tests.support.rigs.whatsapp import WhatsAppRig
from tests.support.service_process import ask, bash, said

DAY = 86_400
COPY = "cp /mnt/user-data/uploads/* /mnt/user-data/outputs/copy.csv"


def server_of(service: AllPlatforms) -> FakeWhatsApp:
    rig = service.rigs["whatsapp"]
    assert isinstance(rig, WhatsAppRig)
    return rig.server


def has_looked(service: AllPlatforms, before: int) -> bool:
    return service.log().count("outbox.later") > before


async def test_what_is_written_while_the_service_is_down_is_answered_once(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "whatsapp") as service:
        server = server_of(service)
        server.send(ask(text="the first answer"))
        await service.shows("whatsapp", "the first answer")
        await service.kill()
        server.send(ask(text="the second answer"))
        await service.start()
        await service.shows("whatsapp", "the second answer")
        await service.quiet()
        texts = [one.text for one in server.visible()]
        assert [text for text in texts if "answer" in text] == ["the first answer", "the second answer"]


async def test_an_answer_waits_for_the_window_over_a_restart(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "whatsapp") as service:
        server = server_of(service)
        server.send(ask(text="late answer", delay_ms=1500))
        await until(lambda: server.reads, what="the read mark")
        server.heard[JANE] = time.time() - DAY - 10  # the platform's day ends before the answer is ready
        await until(lambda: [call for call in server.calls_of("post") if call.code], what="a refusal")
        await service.kill()
        await service.start()
        assert "late answer" not in "".join(one.text for one in server.visible())
        server.send(ask(text="the next answer"))
        await service.shows("whatsapp", "late answer")
        await service.shows("whatsapp", "the next answer")
        await service.quiet()
        assert service.rows("SELECT count(*) FROM outbox WHERE state<>2") == [(0,)]


async def test_a_person_is_asked_to_write_once_also_over_restarts(tmp_path: Path) -> None:
    """A template costs money. What waits comes once they write."""
    template = {"channels": {"whatsapp": {"template": "fawn_answer_waits"}}}
    async with AllPlatforms.open(tmp_path, "whatsapp", **template) as service:
        server = server_of(service)
        server.send(ask(text="late answer", delay_ms=1500))
        await until(lambda: server.reads, what="the read mark")
        server.heard[JANE] = time.time() - DAY - 10
        await service.shows("whatsapp", "[fawn_answer_waits]")
        for _restart in range(2):
            refused, looked = len(server.calls_of("post")), service.log().count("outbox.later")
            await service.kill()
            await service.start()
            await until(partial(has_looked, service, looked), what="another look")
            assert len(server.calls_of("post")) == refused, "what Meta refused is known"
        server.send("here I am")
        await service.shows("whatsapp", "late answer")
        await service.quiet()
        assert [one.text for one in server.visible()].count("[fawn_answer_waits]") == 1


async def test_an_answer_that_meta_took_in_a_closed_window_waits_for_the_person(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "whatsapp") as service:
        server = server_of(service)
        server.send(ask(text="late answer", delay_ms=1500))
        await until(lambda: server.reads, what="the read mark")
        server.late, server.held = True, []
        server.heard[JANE] = time.time() - DAY - 10
        await until(lambda: server.held, what="the answer")
        await service.quiet()
        server.report_failures()
        await until(lambda: "outbox.again" in service.log(), what="the report")
        await service.kill()
        await service.start()
        server.send(ask(text="the next answer"))
        await service.shows("whatsapp", "the next answer")
        await service.shows("whatsapp", "late answer")
        await service.quiet()
        assert [one.text for one in server.visible()].count("late answer") == 1


async def test_operators_hear_of_an_answer_that_meta_took_and_did_not_deliver(tmp_path: Path) -> None:
    """It is a dead letter that counts, and can be sent again; they hear of it once a day for each chat."""
    boss = {"telegram": {"access": {"open": True, "operators": ["42"]}}}
    async with AllPlatforms.open(tmp_path, ("whatsapp", "telegram"), channels=boss) as service:
        server = server_of(service)
        service.telegram.send(ask(text="Hello boss."))
        await service.telegram.wait(42, "Hello boss.")
        server.held, server.failing = [], UNDELIVERABLE
        for number in (1, 2):
            server.send(ask(text=f"answer {number}"))
            await until(lambda: server.held, what="the answer")
            await service.quiet()
            server.report_failures()
            await until(lambda n=number: dead(service) == n, what="the report")  # type: ignore[misc]  # lambda
        told = await service.telegram.wait(42, "did not deliver what I wrote")
        assert "Message Undeliverable. (131026)" in told.text
        server.failing = 0
        code, listed = await service.fawn("dead", "list")
        assert (code, listed.count("131026")) == (0, 2)
        await service.fawn("dead", "requeue", listed.split()[0])
        await service.shows("whatsapp", "answer 1")
        await service.quiet()
        assert [one.text for one in server.visible()] == ["answer 1"]
        assert sum("did not deliver" in text for text in said(service.telegram, 42)) == 1


def dead(service: AllPlatforms) -> int:
    return len(service.rows("SELECT 1 FROM outbox WHERE state=3"))


@pytest.mark.usefixtures("bubblewrap")
async def test_buttons_lists_files_and_read_marks_over_kills(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "whatsapp", sandbox={}) as service:
        server = server_of(service)
        server.send(ask(steps=[{"calls": [question("Which format?", "csv", "xlsx")]}], text="as you like"))
        await service.shows("whatsapp", "Which format?")
        await service.quiet()
        await service.kill()
        server.press("xlsx")  # while nobody is there
        await service.start()
        await service.shows("whatsapp", "as you like")
        server.press("csv")  # of the same message
        await service.shows("whatsapp", "already answered")
        cities = ("Berlin", "Paris", "Rome", "Oslo", "a place that is not listed here")
        server.send(ask(steps=[{"calls": [question("Which city?", *cities)]}], text="a fine place"))
        await service.shows("whatsapp", "Which city?")
        server.press("Oslo")
        await service.shows("whatsapp", "a fine place")
        await service.quiet()
        sent = server.send(ask(text="marked"))
        await service.shows("whatsapp", "marked")
        assert (sent, True) in server.reads
        server.upload("table.csv", b"a,b\n1,2\n", ask(steps=[bash(COPY)], text="here it is"))
        await service.shows("whatsapp", "here it is")
        await until(lambda: [one for one in server.visible() if one.kind == "document"], what="the file")
        await service.quiet()
        [file] = [one for one in server.visible() if one.kind == "document"]
        assert (file.name, file.data) == ("copy.csv", b"a,b\n1,2\n")


@pytest.mark.usefixtures("bubblewrap")
async def test_each_message_is_answered_once_through_kills(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "whatsapp", sandbox={}) as service:
        figures = await KillRun(service, Plan(kills=3, life=(1.0, 3.0), unborn=0, talkers=1, gateway=0.5)).run()
        assert not figures.faults, f"{figures}\n" + "\n".join(figures.faults)
        assert figures.answered, "how many there was time for depends on the machine"
