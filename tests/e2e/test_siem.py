"""The audit goes to a SIEM: all rows, in order, also across kills, cuts and refusals; commands name the user."""

from __future__ import annotations

import getpass
import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_audit import rows_of
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.siem import SiemReceiver, serve_siem
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask


def head_of(service: Service) -> int:
    return int(service.rows("SELECT max(seq) FROM audit")[0][0])


async def all_came(receiver: SiemReceiver, service: Service) -> None:
    await until(lambda: {*range(1, head_of(service) + 1)} <= {*receiver.sequences}, 60, "all rows")


@pytest.mark.parametrize("way", ["syslog", "https"])
async def test_every_row_comes_in_order_across_kills_cuts_and_refusals(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path, way: str
) -> None:
    async with serve_siem(tmp_path) as receiver:
        push: dict[str, Any] = {"syslog": f"127.0.0.1:{receiver.syslog_port}", "ca_file": receiver.ca_file}
        if way == "https":
            receiver.refusals = 1
            url = f"https://127.0.0.1:{receiver.https_port}/audit"
            push = {"url": url, "headers": {"Authorization": "Bearer right"}, "ca_file": receiver.ca_file}
        service = await start(audit={"push": push}, sandbox={"provider": "none"})
        telegram.send(ask(text="first"))
        await telegram.wait(JANE, "first")
        await all_came(receiver, service)
        if way == "syslog":
            receiver.cut()
        telegram.send(ask(text="second"))
        await telegram.wait(JANE, "second")
        await service.restart()
        await all_came(receiver, service)
        first_time = [*dict.fromkeys(receiver.sequences)]
        assert first_time == sorted(first_time), "each row comes for the first time in order"
        if way == "https":
            assert len(receiver.sequences) - len(first_time) <= 200, "at most what was not confirmed comes twice"
        anchor = f"{head_of(service)}:"
        await until(lambda: any(e.get("fawn.anchor", "").startswith(anchor) for e in receiver.events), what="an anchor")
    before = bytes(32)
    events = {event["event.sequence"]: event for event in receiver.events if "event.sequence" in event}
    for seq in sorted(events):
        body = events[seq]["event.original"].encode()
        before = hashlib.sha256(before + seq.to_bytes(8, "big") + body).digest()
        assert events[seq]["event.hash"] == before.hex(), "the receiver can check the chain"
    message = next(event for event in events.values() if event["event.action"] == "message")
    assert (message["user.id"], message["user.domain"], message["ecs.version"]) == (str(JANE), "telegram", "8.17.0")
    anchors = [event["fawn.anchor"] for event in receiver.events if "fawn.anchor" in event]
    code, text = await service.fawn("audit", "verify", "--anchor", anchors[-1])
    assert code == 0, text


async def test_a_receiver_with_a_foreign_certificate_gets_nothing(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    async with serve_siem(tmp_path) as receiver:
        service = await start(audit={"push": {"syslog": f"127.0.0.1:{receiver.syslog_port}"}})
        await until(lambda: "audit.push_later" in service.log(), what="the refusal")
        assert receiver.events == []
        code, text = await service.fawn("check")
        assert (code, "push of the audit" in text) == (2, True), text


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
