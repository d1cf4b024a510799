"""The audit of the whole service: the expected rows of a turn with an approval, without texts, through kill -9."""

from __future__ import annotations

import asyncio
import getpass
import json
import signal
from collections import Counter
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_permissions import ASK, asked, press, written
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.forked_services import program
from tests.support.service_process import Service, ask, said

EVE = 78
BOT_ID = 123456
SECRET = "hunter2"
OPERATOR = {"telegram": {"access": {"open": False, "allow": [str(JANE)], "operators": [str(JANE)], "pairing": True}}}


async def rows_of(service: Service, *words: str) -> list[dict[str, Any]]:
    """Return the exported rows, with names in place of pseudonyms."""
    code, text = await service.fawn("audit", "export", *words)
    assert code == 0, text
    rows = [json.loads(line) for line in text.splitlines()]
    return [{key: row["names"].get(str(value), value) for key, value in row["event"].items()} for row in rows]


def secret_calls() -> str:
    args = {"path": f"/mnt/user-data/workspace/{SECRET}", "content": SECRET}
    return ask(steps=[{"calls": [{"name": "write_file", "args": args}]}], text=f"done {SECRET}")


async def test_a_turn_with_an_approval_and_commands_has_its_rows(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(permissions=ASK, channels=OPERATOR)
    [question] = await asked(telegram, service, secret_calls())
    await service.restart()  # kill -9
    press(telegram, question, "Allow in this conversation")
    await telegram.wait(JANE, f"done {SECRET}")
    await service.quiet()
    assert written(service) == [SECRET]
    for command, answer in (
        ("/model main", "answers here"),
        (f"/{SECRET} {SECRET}", "I don't know"),
        (f"/skills enable {SECRET}", "The skill was not changed"),
        ("/permissions revoke 1", "Revoked"),
    ):
        telegram.send(command)
        await telegram.wait(JANE, answer)
    telegram.send(f"let me in {SECRET}", chat=EVE)
    await telegram.wait(EVE, "I don't know you yet")
    await service.quiet()
    code, text = await service.fawn("audit", "verify")
    assert (code, "The audit is valid" in text) == (0, True), text

    rows = await rows_of(service)
    [message] = [row for row in rows if row["kind"] == "message" and row["what"]["kind"] == "chat"]
    assert (message["who"], message["where"]) == (f"telegram:{JANE}", f"telegram/{BOT_ID}/{JANE}/")
    [asking], [answered] = ([row for row in rows if row["kind"] == f"approval.{end}"] for end in ("asked", "answered"))
    assert asking["what"] == answered["what"], "both name the exact call by its digest"
    assert answered["result"] == "allow in this conversation"
    [call], [result] = ([row for row in rows if row["kind"] == kind] for kind in ("tool.call", "tool.result"))
    assert (call["result"], call["what"]["tool"], call["what"]["approval"]) == (
        "approved", "write_file", asking["what"]["call"],
    )  # fmt: skip
    assert (result["result"], result["what"]) == ("success", {"tool": "write_file"})
    assert [row["result"] for row in rows if row["kind"] == "turn.ended"] == ["waiting", "done"]
    assert [row["result"] for row in rows if row["kind"] == "delivery"] == ["sent", "sent"]
    commands = [
        (row.get("what", {}).get("name"), row["result"]) for row in rows if row["kind"] == "command" and "who" in row
    ]
    assert commands == [("model", "done"), (None, "unknown"), ("skills", "done"), ("permissions", "done")]
    assert [row["what"]["model"] for row in rows if row["kind"] == "choice"] == ["main"]
    [skill] = [row for row in rows if row["kind"] == "skill"]
    assert (skill["what"]["action"], skill["result"]) == ("enable", "failed")
    kinds = Counter(row["kind"] for row in rows)
    once = ("grant.given", "grant.revoked", "pairing.asked", "access.denied")
    assert (kinds["service.started"], [kinds[kind] for kind in once]) == (2, [1, 1, 1, 1])
    assert f"telegram:{EVE}" in [row["who"] for row in await rows_of(service, "--kind", "access.denied")]
    stored = service.rows("SELECT CAST(body AS TEXT) FROM audit")
    assert SECRET not in str(stored), "neither texts nor arguments nor unknown words"
    assert "telegram" not in str(stored), "nor people and chats"


async def test_denials_are_recorded_with_their_reason(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(permissions={"deny": [f"write_file(*/{SECRET})"]})
    telegram.send(secret_calls())
    await telegram.wait(JANE, f"done {SECRET}")
    await service.quiet()
    [call] = await rows_of(service, "--kind", "tool.call")
    assert (call["result"], call["what"]["by"]) == ("denied", "rule")
    assert await rows_of(service, "--kind", "tool.result") == []


async def test_the_chain_stays_valid_when_the_service_is_killed_at_work(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    for number in range(3):
        telegram.send(ask(id=str(number), tokens=50, tok_ms=20, text=f"answer {number}"))
        await service.restart()
    await telegram.wait(JANE, "answer 2", seconds=60)
    await service.quiet()
    code, text = await service.fawn("audit", "verify")
    assert code == 0, text
    rows = await rows_of(service)
    assert Counter(row["kind"] for row in rows)["message"] == 3
    [(taken,)] = service.rows("SELECT count(*) FROM runs WHERE state='done'")
    assert len([row for row in rows if row["kind"] == "turn.ended"]) == taken
    assert len([row for row in rows if row["kind"] == "delivery"]) == taken


async def test_operators_read_the_audit_in_the_chat_and_in_a_group_only_on_purpose(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    group = -1001
    access = {"open": True, "operators": [str(JANE)]}
    service = await start(permissions={"deny": [f"write_file(*/{SECRET})"]}, channels={"telegram": {"access": access}})
    telegram.send(secret_calls(), chat=EVE)
    await telegram.wait(EVE, f"done {SECRET}")
    await service.quiet()

    telegram.send("/audit", chat=EVE)
    await telegram.wait(EVE, "doesn't let you use /audit")
    telegram.send(f"/audit {EVE}")  # two digits are a number of entries
    shown = await telegram.wait(JANE, "The newest entries of the audit")
    assert "access.denied command=audit" in shown.text
    telegram.send("/audit 5 tool.call")
    await until(lambda: len(said(telegram, JANE)) == 2, what="the second answer")
    assert "tool.call by=rule tool=write_file → denied" in (text := said(telegram, JANE)[-1])
    assert len(text.splitlines()) == 2
    assert SECRET not in text
    telegram.send("/audit @nobody-there")
    await telegram.wait(JANE, "I found nothing in the newest")
    telegram.send("/audit what is this")
    await telegram.wait(JANE, "The kinds are in docs/operations.md")

    telegram.send("/audit@fawn_bot 3", chat=group, user=JANE)
    await telegram.wait(group, "Everybody here would read who did what.")
    telegram.send("/audit@fawn_bot here 3", chat=group, user=JANE)
    shown = await telegram.wait(group, "The newest entries of the audit")
    assert len(shown.text.splitlines()) == 4


async def test_commands_of_the_command_line_are_rows_with_the_user_of_the_machine(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(sandbox={"provider": "none"})
    telegram.send(ask(text="hello"))
    await telegram.wait(JANE, "hello")
    for words in (["export", "telegram"], ["audit", "export"], ["backup", "copy.tar.gz"], ["egress"]):
        code, text = await service.fawn(*words)
        assert code == 0, text
    await service.stop()
    assert (await service.fawn("export", "telegram"))[0] == 0, "also beside no service"
    rows = [row["what"] for row in await rows_of(service) if row.get("what", {}).get("via") == "command line"]
    assert [row.get("name", "") for row in rows] == ["export", "audit export", "", "egress", "export", "audit export"]
    assert {row["user"] for row in rows} == {getpass.getuser()}


COMMANDS: dict[str, tuple[str, dict[str, object]]] = {  # words → the kind of its row, and what the row says of it
    "export telegram": ("command", {"name": "export"}),
    "audit export": ("command", {"name": "audit export"}),
    "egress": ("command", {"name": "egress"}),
    "mcp login web": ("command", {"name": "mcp login"}),
    "mcp logout web": ("command", {"name": "mcp logout"}),
    "setup telegram --token-stdin": ("command", {"name": "setup telegram"}),
    "init --answers missing.yaml": ("command", {"name": "init"}),
    "skills disable chart": ("skill", {"action": "disable", "skill": "chart"}),
    "backup copy.tar.gz": ("backup", {}),
    "key add ci --person telegram/42": ("key.added", {}),
    "key revoke ci": ("key.revoked", {}),
    "offboard telegram 42": ("person.offboarded", {}),
}


@pytest.mark.parametrize("running", [True, False])
async def test_each_command_is_a_row_with_the_user_of_the_machine(
    telegram: FakeTelegram, model: FakeModel, start: Start, running: bool
) -> None:
    """Also where it fails afterwards: what was tried counts."""
    service = await start(sandbox={"provider": "none"}, mcp={"servers": [{"name": "web", "url": "http://127.0.0.1:9"}]})
    telegram.send(ask(text="hello"))
    await telegram.wait(JANE, "hello")
    await service.quiet()
    if not running:
        await service.stop()
    said = {words: (await service.fawn(*words.split()))[1] for words in COMMANDS}
    rows = [row for row in await rows_of(service) if row.get("what", {}).get("via") == "command line"]
    exports = [row for row in rows if row["what"].get("name") == "audit export"]
    assert len(exports) == 2, "the one of the table, and the one that this test reads them with"
    for words, (kind, what) in COMMANDS.items():
        found = [row for row in rows if row["kind"] == kind and row["what"] | what == row["what"]]
        assert found, (words, said[words])
        assert {row["what"]["user"] for row in found} == {getpass.getuser()}


async def test_a_log_shipper_follows_the_audit_and_continues_where_it_was(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(sandbox={"provider": "none"})

    async def ship(word: str, after: int) -> list[dict[str, Any]]:
        """Follow the audit while a message is answered, until its end; then stop as a shipper does."""
        export = [*program(), "audit", "export", "--follow", "--after", str(after), "--config", "config.yaml"]
        shipper = await asyncio.create_subprocess_exec(
            *export, cwd=service.folder, env=service.environment(), stdout=asyncio.subprocess.PIPE
        )
        assert shipper.stdout
        rows = [json.loads(await shipper.stdout.readline())]
        telegram.send(ask(text=word))
        while rows[-1]["event"]["kind"] != "turn.ended":
            rows.append(json.loads(await shipper.stdout.readline()))
        shipper.send_signal(signal.SIGINT)
        assert await shipper.wait() == 0
        return rows

    first = await ship("first", after=0)
    second = await ship("second", after=first[-1]["seq"])
    numbers = [row["seq"] for row in [*first, *second]]
    assert numbers == [*range(1, len(numbers) + 1)], "each row once, in order"
    assert [row["event"]["kind"] for row in [*first, *second]].count("message") == 2
