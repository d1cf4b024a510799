"""The push of the audit with receivers that are slow or lead elsewhere, and with rows that were damaged."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent.setting import Secret
from bot.config.audit import AuditConfig, AuditPushConfig
from bot.config.loader import ConfigError, load_config
from bot.config.schema import Config
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.database.migrate import migrate_database
from bot.rights.current import Current
from bot.siem.feature import check_receiver
from bot.siem.pushing import AuditPush
from bot.storage.audit_push import move_cursor, read_cursor
from tests.fakes.server import until
from tests.fakes.siem import SiemReceiver, serve_siem
from tests.support.rehearsed_database import RehearsedDatabase

ROWS = 300


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    migrate_database(tmp_path / "fawn.db")
    async with RehearsedDatabase(tmp_path / "fawn.db") as made:
        await made.run(record_rows)
        yield made


def record_rows(execute: Execute) -> None:
    for number in range(ROWS):
        audit.record(execute, AuditEvent(AuditKind.COMMAND, who=str(number), channel="telegram", what={"n": number}))


@asynccontextmanager
async def pushing(
    store: Database, receiver: SiemReceiver, send_seconds: float = 30.0
) -> AsyncIterator[AuditPushConfig]:
    push = AuditPushConfig(
        url=f"https://127.0.0.1:{receiver.https_port}/audit",
        headers={"Authorization": Secret("Bearer right")},
        ca_file=receiver.ca_file,
    )
    current = Current(replace(Config(), audit=AuditConfig(push=push)))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(AuditPush(store, current, send_seconds, retry_seconds=0.05).serve(), name="push")
        yield push
        task.cancel()


async def test_a_receiver_that_needs_long_for_many_rows_gets_fewer_at_once(store: Database, tmp_path: Path) -> None:
    async with serve_siem(tmp_path) as receiver:
        receiver.seconds_a_row = 0.02  # 200 rows take four seconds
        async with pushing(store, receiver, send_seconds=1.5) as push:
            await until(lambda: {*range(1, ROWS + 1)} <= {*receiver.sequences}, 60, "all rows")
            first = [*dict.fromkeys(receiver.sequences)]
            assert first == sorted(first)

            async def is_stored() -> bool:
                return await store.run(partial(read_cursor, target=push.target)) == ROWS

            async with asyncio.timeout(60):
                while not await is_stored():
                    await asyncio.sleep(0.02)


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_redirect_is_not_followed(store: Database, tmp_path: Path, status: int) -> None:
    """It would lead to the same host, with the certificate that is trusted: nothing else stops it."""
    async with serve_siem(tmp_path) as receiver:
        receiver.redirects = status
        async with pushing(store, receiver):
            await until(lambda: receiver.posts > 1 or receiver.strayed > 0, what="another try")
        assert (receiver.events, receiver.strayed) == ([], 0)


async def test_a_damaged_row_goes_out_as_it_is_and_what_follows_it_too(store: Database, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "fawn.db")) as connection:
        broken = ("no JSON", "[]", '{"at":"x","kind":"command"}', '{"at":1,"kind":"command","where":{}}')
        for seq, body in enumerate(broken, start=7):
            connection.execute("UPDATE audit SET body=? WHERE seq=?", (body.encode(), seq))
        connection.commit()
    async with serve_siem(tmp_path) as receiver:
        async with pushing(store, receiver):
            await until(lambda: ROWS in receiver.sequences, what="the last row")
        found = {event.get("event.sequence"): event for event in receiver.events}
        assert [found[seq]["event.action"] for seq in range(6, 12)] == ["command", *["audit.damaged"] * 4, "command"]
        assert found[7]["event.original"] == "no JSON"
        assert found[7]["event.hash"] == (await store.run(partial(audit.read_page, after=6, limit=1)))[0].hash.hex()


async def test_a_check_greets_a_receiver_and_sends_it_nothing(tmp_path: Path) -> None:
    async with serve_siem(tmp_path) as receiver:
        url = f"https://127.0.0.1:{receiver.https_port}/audit"
        assert (await check_receiver(AuditPushConfig(url=url, ca_file=receiver.ca_file))).state == "ok"
        foreign = await check_receiver(AuditPushConfig(url=url))
        assert receiver.posts == 0
    gone = await check_receiver(AuditPushConfig(url=url, ca_file=receiver.ca_file))
    for found, why in ((foreign, "self-signed certificate"), (gone, "Connect call failed")):
        assert (found.state, why in found.text, "ca_file" in found.fix) == ("fault", True, True), found


@pytest.mark.parametrize("url", ["http://siem.example/audit", "siem.example", "ftp://siem.example"])
def test_an_address_that_others_can_read_is_a_fault(tmp_path: Path, url: str) -> None:
    (tmp_path / "config.yaml").write_text(f"config_version: 1\naudit: {{push: {{url: '{url}'}}}}\n")
    with pytest.raises(ConfigError, match=r"audit\.push\.url: is not encrypted → write it as https://"):
        load_config(tmp_path / "config.yaml", {})


async def test_rows_that_go_out_again_do_not_move_the_cursor_back(store: Database) -> None:
    await store.run(partial(move_cursor, target="syslog:a", seq=300))
    await store.run(partial(move_cursor, target="syslog:a", seq=150))
    assert await store.run(partial(read_cursor, target="syslog:a")) == 300
