"""The ping at the end of a long task: once, to the requester, in the same place."""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Start
from tests.e2e.test_audit import rows_of
from tests.fakes.model import FakeModel
from tests.fakes.push import serve_push
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask, said

SLOW = {"delay_ms": 700}


async def test_a_long_task_pings_once_at_its_end_as_each_person_chose(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(limits={"notify_seconds": 0.5})

    telegram.send(ask(text="the long answer", **SLOW))
    await telegram.wait(JANE, "Done after")
    await service.quiet()
    answer, ping = telegram.visible(JANE)[-2:]
    assert answer.text == "the long answer"
    assert re.fullmatch(r"Done after \d s\.", ping.text)

    telegram.send("/notify 60")  # a quick turn is a slow one on a busy machine
    await telegram.wait(JANE, "longer than 60 s")
    telegram.send(ask(text="a quick one"))
    await telegram.wait(JANE, "a quick one")
    await service.quiet()
    assert said(telegram, JANE)[-1] == "a quick one"

    telegram.send("/notify off")
    await telegram.wait(JANE, "I don't ping you")
    telegram.send(ask(text="long and silent", **SLOW))
    await telegram.wait(JANE, "long and silent")
    await service.quiet()
    assert said(telegram, JANE)[-1] == "long and silent"

    telegram.send("/notify 0.6")
    await telegram.wait(JANE, "longer than 0.6 s")
    telegram.send("/notify soon")
    await telegram.wait(JANE, "/notify 120")
    question = {"name": "ask_clarification", "args": {"question": "Which colour?", "options": ["red", "blue"]}}
    telegram.send(ask(steps=[{"calls": [question]}], text="red it is", **SLOW))
    await telegram.wait(JANE, "I need your answer to continue")
    await service.quiet()
    assert len([text for text in said(telegram, JANE) if "after" in text and "s." in text and "Done" in text]) == 1


async def test_a_ping_survives_a_crash_and_is_sent_once(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(limits={"notify_seconds": 0.5})
    telegram.send(ask(text="worth waiting for", delay_ms=1500))
    await until(lambda: model.requests(), what="the model call")
    await service.restart()
    await telegram.wait(JANE, "Done after")
    await service.restart()
    await service.quiet()
    texts = said(telegram, JANE)
    assert len([text for text in texts if text.startswith("Done after")]) == 1
    assert texts.count("worth waiting for") == 1


async def test_pings_go_to_the_private_chat_to_bark_and_to_webhooks_and_wait_for_the_end_of_quiet_hours(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    group = -1001

    async def work(answer: str) -> None:
        telegram.send(f"@fawn_bot {ask(text=answer, **SLOW)}", chat=group, user=JANE)
        await telegram.wait(group, answer)
        await service.quiet()

    async with serve_push("key7") as servers:
        hook = {"name": "ops", "url": f"{servers.base_url}/hook", "secret": "secret", "events": ["done"]}
        push = {"bark_servers": [servers.base_url], "private_addresses": True, "targets": [hook]}
        service = await start(limits={"notify_seconds": 0.5}, push=push, sandbox={"provider": "none"})
        telegram.send("/notify dm", chat=group, user=JANE)
        await telegram.wait(group, "I don't know our private chat yet.")
        telegram.send("/notify dm")
        await telegram.wait(JANE, "Pings go to our private chat.")
        await work("first answer")
        await telegram.wait(JANE, "Done after")
        assert not any("Done after" in text for text in said(telegram, group))
        await until(lambda: len(servers.hooks) == 1, what="the webhook")

        telegram.send(f"/notify bark {servers.base_url}/key7", chat=group, user=JANE)
        await telegram.wait(group, "Write it to me in a private chat")
        telegram.send("/notify bark https://example.org/key7")
        await telegram.wait(JANE, "isn't allowed here")
        telegram.send(f"/notify bark {servers.base_url}/key7")
        await telegram.wait(JANE, "Pings go to your Bark.")
        servers.failures = 0
        await work("second answer")
        await until(lambda: len(servers.shown) == 1, what="the push")

        telegram.send("/notify here")
        telegram.send("/notify quiet 00:00-23:59")
        await telegram.wait(JANE, "I don't know your time zone.")
        telegram.send("/zone Europe/Berlin")
        await telegram.wait(JANE, "Your time zone is")
        telegram.send("/notify quiet 00:00-23:59")
        await telegram.wait(JANE, "Quiet hours: 00:00-23:59.")
        await work("third answer")
        await service.restart()
        await service.quiet()
        assert not any("Done after" in text for text in said(telegram, group))
        telegram.send("/notify quiet off")
        await telegram.wait(group, "Done after")
        assert len(servers.shown) == 1
        assert "key7" not in service.log()
        known = {*servers.hooks}
        telegram.send(ask(text="the private answer", **SLOW))
        await telegram.wait(JANE, "the private answer")
        await until(lambda: len(servers.hooks) > len(known), what="the webhook")
        [text] = [hook["data"]["text"] for id, hook in servers.hooks.items() if id not in known]
        assert re.fullmatch(r"Done after \d s\.", text), "no title of a direct chat"
        await service.quiet()
        pushed = await rows_of(service, "--kind", "push")
        assert {(row["subject"], row["what"]["event"], row["result"]) for row in pushed} == {
            (f"telegram:{JANE}", "done", "sent")
        }
        assert Counter(row["what"]["to"] for row in pushed) == {"own": 1, "target": len(servers.hooks)}


async def test_the_key_of_a_bark_device_is_in_no_message_export_or_backup(
    telegram: FakeTelegram, start: Start, tmp_path: Path
) -> None:
    server = "https://bark.test"
    service = await start(push={"bark_servers": [server]}, sandbox={"provider": "none"})
    telegram.send(f"/notify bark {server}/FIRSTKEY")
    await telegram.wait(JANE, "Pings go to your Bark.")
    telegram.send(f"@fawn_bot /notify bark {server}/GROUPKEY", chat=-1001, user=JANE)
    await telegram.wait(-1001, "Write it to me in a private chat")
    await service.quiet()
    stored = [payload.decode() for (payload,) in service.rows("SELECT payload FROM inbox")]
    assert [payload for payload in stored if "bark …" in payload] == stored
    assert "KEY" not in str(stored)
    telegram.send("/export me")
    await until(lambda: "my-data.jsonl" in [each.file_name for each in telegram.visible(JANE)], what="the file")
    [shown] = [each for each in telegram.visible(JANE) if each.file_name == "my-data.jsonl"]
    assert shown.file is not None
    assert b'"has_bark":1' in shown.file
    assert b"KEY" not in shown.file
    code, text = await service.fawn("backup", str(tmp_path / "saved.tar.gz"))
    assert code == 0, text
    assert "the Bark address of 1 person, which contains their key" in text
    with tarfile.open(tmp_path / "saved.tar.gz") as archive:
        files = [file.read() for member in archive if member.isfile() and (file := archive.extractfile(member))]
    assert any("bark …".encode() in content for content in files)
    assert not any(b"FIRSTKEY" in content or b"GROUPKEY" in content for content in files)
    assert "FIRSTKEY" in str(service.rows("SELECT push_url FROM people")), "the service itself still has it"


async def test_a_bark_key_is_stored_under_a_key_that_can_be_replaced(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    old, new = "an-old-key-of-32-characters-or-more", "a-new-key-of-32-characters-or-more!"

    def stored(service: Service) -> str:
        return str(service.rows("SELECT push_url FROM people")[0][0])

    async with serve_push("DEVICEKEY") as servers:
        push = {"bark_servers": [servers.base_url], "private_addresses": True}
        more: dict[str, Any] = {"push": push, "limits": {"notify_seconds": 0.5}, "sandbox": {"provider": "none"}}
        service = await start(**more)
        telegram.send(f"/notify bark {servers.base_url}/DEVICEKEY")
        await telegram.wait(JANE, "Pings go to your Bark.")
        assert "DEVICEKEY" in stored(service), "without a key it is stored as it is"
        await service.stop()
        seen = []
        for section in ({"key": old}, {"key": new, "old_keys": [old]}, {"key": new}):
            service.configure({**more, "encryption": section})
            await service.start()
            seen.append(stored(service))
            telegram.send(ask(text=f"long {len(seen)}", **SLOW))
            await until(lambda: len(servers.shown) == len(seen), what="the push")
            await service.stop()
        assert all("DEVICEKEY" not in text and text.startswith("sealed:1:") for text in seen)
        assert seen[0] != seen[1] == seen[2], "a start seals anew what another key sealed"
        assert b"DEVICEKEY" not in (service.data / "fawn.db").read_bytes()
        service.configure({**more, "encryption": {"key": "$NO_SUCH_VARIABLE"}})
        code, text = await service.fawn("backup", "copy.tar.gz")
        assert (code, "the key of `encryption` is not known here" in text) == (1, True), text
        service.configure({**more, "encryption": {"key": new}})
        assert (await service.fawn("backup", "copy.tar.gz"))[0] == 0
        assert not tarfile.is_tarfile(service.folder / "copy.tar.gz")
        service.configure({**more, "data_dir": str(service.folder / "again")})
        code, text = await service.fawn("restore", "copy.tar.gz")
        assert (code, "encrypted under another key" in text) == (1, True), text
        service.configure({**more, "data_dir": str(service.folder / "again"), "encryption": {"key": new}})
        assert (await service.fawn("restore", "copy.tar.gz"))[0] == 0
