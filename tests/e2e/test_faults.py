"""Faults of the outside world: the platform, the model, the disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sqlite3
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask, bash, said

REPEAT = re.compile(r"^↻[^\n]*:\s*", re.MULTILINE)


# Case 61 of docs/cases.md
async def test_a_flood_wait_in_one_chat_does_not_delay_other_chats(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.fault("flood", "sendMessage", chat=500, seconds=600)
    telegram.send(ask(text="late"), chat=500)
    await until(lambda: telegram.calls_of("sendMessage", 500))
    telegram.send(ask(text="at once"), chat=501)
    await telegram.wait(501, "at once")
    assert said(telegram, 500) == []
    assert len(telegram.calls_of("sendMessage", 500)) == 1
    assert await service.stop() == 0


# Case 62 of docs/cases.md
async def test_a_permanent_refusal_is_reported_once(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.fault(
        "error", "sendMessage", code=400, description="Bad Request: TOPIC_CLOSED", times=-1, contains="poison"
    )
    telegram.fault("error", "editMessageText", code=400, description="Bad Request: nope", times=-1, contains="poison")
    telegram.send(ask(text="poison pill"))
    await telegram.wait(JANE, "can't post it here")
    telegram.send(ask(text="the lane goes on"))
    await telegram.wait(JANE, "the lane goes on")
    await service.quiet()
    assert sum("can't post it here" in text for text in said(telegram, JANE)) == 1
    code, listed = await service.fawn("dead", "list")
    assert code == 0
    assert "poison pill" in listed
    telegram.clear_faults()
    assert (await service.fawn("dead", "requeue", listed.split("\t")[0]))[0] == 0
    await telegram.wait(JANE, "poison pill")
    assert (await service.fawn("dead", "list"))[1].strip() == "No dead letters."


# Case 63 of docs/cases.md
@pytest.mark.parametrize("after", [False, True])
async def test_a_dropped_connection_causes_no_unmarked_duplicate(
    telegram: FakeTelegram, start: Start, after: bool
) -> None:
    service = await start()
    telegram.fault("drop", "sendMessage", after=after)
    telegram.send(ask(text="said once"))
    await until(lambda: service.rows("SELECT 1 FROM outbox WHERE state=2"), what="the delivery")
    texts = said(telegram, JANE)
    assert REPEAT.sub("", texts[-1]) == "said once"
    assert len(texts) <= 2
    assert all(REPEAT.match(text) for text in texts[1:])
    if not after:
        assert len(texts) == 1


# Case 64 of docs/cases.md
async def test_a_hanging_poll_makes_the_channel_unready_until_it_recovers(telegram: FakeTelegram, start: Start) -> None:
    service = await start(channels={"telegram": {"poll_seconds": 1}})
    telegram.fault("hang", "getUpdates", times=1)
    telegram.send("hello while silent")
    await telegram.wait(JANE, "hello while silent")
    assert (await service.fawn("status"))[0] == 0


# Case 54 of docs/cases.md
async def test_messages_are_answered_after_an_outage_of_the_api(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.fault("error", "*", code=502, times=6)
    telegram.send(ask(text="after the outage"))
    await telegram.wait(JANE, "after the outage")
    await service.quiet(30)
    assert said(telegram, JANE) == ["after the outage"]


async def test_a_malformed_update_does_not_block_later_ones(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.poison()
    telegram.send(ask(text="not blocked"))
    await telegram.wait(JANE, "not blocked")
    assert "in" in (await service.fawn("dead", "list"))[1]


# Case 72 of docs/cases.md
@pytest.mark.parametrize("errors", [[500, 500, 500], [429, 503]])
async def test_a_failing_model_call_is_retried_with_a_visible_notice(
    telegram: FakeTelegram, model: FakeModel, start: Start, errors: list[int]
) -> None:
    service = await start()
    telegram.send(ask(text="fine in the end", errors=errors))
    await telegram.wait(JANE, "again")  # the notice
    await telegram.wait(JANE, "fine in the end")
    await service.quiet()
    assert said(telegram, JANE) == ["fine in the end"]
    assert len(model.requests()) == len(errors) + 1


# Case 72 of docs/cases.md
async def test_a_truncated_model_stream_is_answered_once(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.send(ask(tokens=30, tok_ms=20, abort_at=15))
    await telegram.wait(JANE, "w29")
    await service.quiet()
    assert said(telegram, JANE) == [" ".join(f"w{n}" for n in range(30))]


# Cases 72 and 47 of docs/cases.md
async def test_a_model_refusal_ends_in_a_clear_failure(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.send(ask(text="never", errors=[401] * 9))
    shown = await telegram.wait(JANE, "⚠️")
    assert "key" in shown.text.lower()
    await service.quiet()
    assert len(said(telegram, JANE)) == 1
    telegram.send(ask(text="works now"))
    await telegram.wait(JANE, "works now")


# Case 72 of docs/cases.md
@pytest.mark.parametrize("code", [500, 401])
async def test_a_fallback_answers_and_the_person_is_told(
    telegram: FakeTelegram, model: FakeModel, start: Start, code: int
) -> None:
    async with FakeModel() as backup:
        models = [
            {"name": name, "model": name, "base_url": f"{server.base_url}/v1", "retries": 0}
            for name, server in (("main", model), ("backup", backup))
        ]
        service = await start(models=models, roles={"lead": "main", "fallback": ["backup"]})
        model.fault("error", "chat", code=code, times=-1)
        telegram.send(ask(text="from the backup"))
        await telegram.wait(JANE, "backup answers instead")
        await service.quiet()
        (reply,) = said(telegram, JANE)
        assert reply.startswith("from the backup")
        assert "backup answers instead." in reply
        assert (len(model.requests()), len(backup.requests())) == (1, 1)
        model.clear_faults()
        telegram.send(ask(text="as before"))
        await telegram.wait(JANE, "as before")
        await service.quiet()
        assert len(backup.requests()) == 1, "the next turn begins with the first model"
        assert service.rows("SELECT run, model FROM usage ORDER BY run") == [(1, "backup"), (2, "main")]
        assert await service.stop() == 0


# Case 71 of docs/cases.md
async def test_an_empty_answer_ends_in_a_visible_sentence(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    telegram.send(ask(text="   \n "))
    await until(lambda: service.rows("SELECT 1 FROM outbox WHERE state=2"))
    assert len(said(telegram, JANE)) == 1
    assert len(said(telegram, JANE)[0]) > 20


# Case 77 of docs/cases.md
async def test_with_a_locked_database_nothing_is_acknowledged_and_the_user_is_notified(
    telegram: FakeTelegram, start: Start
) -> None:
    service = await start()
    await service.quiet()
    holder = sqlite3.connect(service.data / "fawn.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    telegram.send(ask(text="stored in the end"))
    await until(lambda: said(telegram, JANE), what="the word about it")
    assert telegram.waiting() == 1, "not acknowledged"
    holder.execute("ROLLBACK")
    holder.close()
    await telegram.wait(JANE, "stored in the end")
    await service.quiet()
    assert len(said(telegram, JANE)) == 2


def fill(file: Path) -> None:
    """Write until the disk is full."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 4096)


# Case 77 of docs/cases.md
@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk needs root: mount -t tmpfs")
async def test_with_a_full_disk_nothing_is_acknowledged_or_lost(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    await service.quiet()
    assert await service.stop() == 0
    mount = await asyncio.create_subprocess_exec(
        "mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(service.data), stderr=asyncio.subprocess.DEVNULL
    )
    if await mount.wait():
        pytest.skip("this machine lets root mount nothing")
    try:
        await service.start()
        ballast = service.data / "ballast"
        fill(ballast)
        telegram.send(ask(text="stored at last"))
        await until(lambda: said(telegram, JANE), what="the word about it")
        assert telegram.waiting() == 1
        ballast.unlink()
        await telegram.wait(JANE, "stored at last")
        assert await service.stop() == 0
    finally:
        await service.kill()
        await (await asyncio.create_subprocess_exec("umount", "-l", str(service.data))).wait()


# Case 70 of docs/cases.md
async def test_a_long_complex_reply_is_complete_despite_random_faults(telegram: FakeTelegram, start: Start) -> None:
    service = await start(channels={"telegram": {"per_chat": 20, "overall": 200}})
    telegram.fault("flood", "*", chat=JANE, seconds=1, times=-1, chance=0.25)
    telegram.fault("error", "*", chat=JANE, code=500, times=-1, chance=0.15)
    lines = [f"- item {n} 你好 <@U1> @everyone" for n in range(150)]
    code = "\n".join(f"    line_{n} = {n}" for n in range(150))
    table = "| a | b |\n| --- | --- |\n" + "\n".join(f"| row{n} | 值{n} |" for n in range(60))
    text = "# Head\n\n" + "\n".join(lines) + f"\n\n```py\n{code}\n```\n\n{table}\n\nthe very end"
    telegram.send(ask(text=text))
    await telegram.wait(JANE, "the very end", seconds=60)
    await service.quiet(90)
    whole = "\n".join(REPEAT.sub("", part) for part in said(telegram, JANE))
    for n in range(150):
        assert len(re.findall(rf"item {n}\b", whole)) == 1
        assert len(re.findall(rf"line_{n} ", whole)) == 1
    for n in range(60):
        assert len(re.findall(rf"row{n}\b", whole)) == 1
    assert whole.count("@everyone") == 150


# Case 60 of docs/cases.md
async def test_messages_sent_during_downtime_are_each_answered_once(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """Telegram keeps updates while the bot is offline; messages answered before are not answered again."""
    service = await start()
    telegram.send(ask(text="before"), chat=500)
    await telegram.wait(500, "before")
    await service.quiet()
    await service.kill()
    for chat in (500, 501, 502):
        telegram.send(ask(text=f"away {chat}"), chat=chat)
    await service.start()
    for chat in (500, 501, 502):
        await telegram.wait(chat, f"away {chat}")
    await service.quiet()
    assert said(telegram, 500) == ["before", "away 500"]
    assert said(telegram, 501) == ["away 501"]
    assert len(model.requests()) == 4


# Case 76 of docs/cases.md
@pytest.mark.usefixtures("bubblewrap")
async def test_a_sandbox_that_dies_during_a_command_is_replaced(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """The call fails clearly, the turn continues in a new sandbox, the folders are intact."""
    service = await start()
    steps = [
        bash("echo kept > /mnt/user-data/workspace/kept"),
        bash("touch /mnt/user-data/workspace/ready; sleep 614"),
        bash("cat /mnt/user-data/workspace/kept"),
    ]
    telegram.send(ask(steps=steps, text="went on"))
    await until(lambda: list(service.data.glob("threads/*/workspace/ready")), what="the command")
    assert service.process
    for pid in children(service.process.pid):
        os.kill(pid, 9)
    await telegram.wait(JANE, "went on")
    results = [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "tool"]
    assert "kept" in results[-1]
    await service.quiet()


def children(pid: int) -> list[int]:
    """Return the direct children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_gateway_that_never_confirms_gets_the_answer_twice(telegram: FakeTelegram, start: Start) -> None:
    """People see two messages, and one that says that nothing confirmed them; operators find the answer."""
    service = await start()
    telegram.fault("error", "sendMessage", code=504, times=-1, after=True)
    telegram.send(ask(text="the answer"))
    await until(lambda: service.rows("SELECT 1 FROM outbox WHERE kind='reply' AND state=3"), 100, "the dead letter")
    await service.quiet()
    first, second, notice = said(telegram, JANE)
    assert first == "the answer"
    assert "no confirmation" in notice
    assert REPEAT.sub("", second) == "the answer"
    assert REPEAT.match(second), "the repeat is marked"
    assert "the answer" in (await service.fawn("dead", "list"))[1]
    count = len(telegram.calls_of("sendMessage", JANE))
    await service.restart()
    telegram.clear_faults()
    telegram.send(ask(text="the next"))
    await telegram.wait(JANE, "the next")
    assert len(telegram.calls_of("sendMessage", JANE)) == count + 1
