"""Requests of sandboxes as rows of the audit."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.messages import Thread
from bot.database import audit
from bot.database.audit import AuditKind
from bot.service.audit_upkeep import MAX_DESTINATIONS, EgressRecords
from bot.storage import conversations
from sandbox.network.service import EgressService
from sandbox.rules import EgressRequest, NetworkRules
from tests.support.outside_world import HOST, Names, Outside, hosts
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.unit.sandbox.test_egress import ask

PLACE = Thread("telegram", "1", "42")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short path, because the path of a unix socket ends at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fawn-") as folder:
        yield Path(folder)


async def test_where_a_sandbox_connects_and_is_refused_is_in_the_audit(tmp_path: Path) -> None:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store, Outside(tmp_path) as outside:
        records = EgressRecords(store)
        key = await store.run(lambda execute: conversations.begin_conversation(execute, PLACE, 1.0))
        rules = NetworkRules("allowlist", hosts(outside.http))
        egress = EgressService(rules, tmp_path / "e", Names(), records.note)
        folder = await egress.open_proxy(key)
        serving = asyncio.create_task(records.serve())
        for _ in range(2):
            head = f"POST http://{HOST}:{outside.http}/echo HTTP/1.1\nHost: x\nContent-Length: 5"
            status, _headers, _body = await ask(folder, head, b"hello")
            assert status == "HTTP/1.1 200 OK"
        await ask(folder, "CONNECT salary-4711.evil.test:443 HTTP/1.1")
        await egress.aclose()
        serving.cancel()  # what is left is written at the end
        await asyncio.wait([serving])
        rows = await store.run(lambda execute: audit.read_page(execute, 0, 9))
        names = await store.run(audit.read_names)
    done, refused = (row.event for row in rows)
    assert {done["kind"], refused["kind"]} == {AuditKind.EGRESS}
    assert (done["result"], done["what"]["host"], done["what"]["port"]) == ("done", HOST, outside.http)
    assert done["what"]["requests"] == 2
    assert (done["what"]["sent"], done["what"]["received"]) == (10, 10)
    assert names[done["where"]][0] == str(PLACE)
    assert refused["result"] == "refused"
    assert refused["what"]["host"] == hashlib.sha256(b"salary-4711.evil.test").hexdigest()
    assert not [row for row in rows if b"salary" in row.body], "a refused name may be a text of somebody"


async def test_many_destinations_are_bounded(tmp_path: Path) -> None:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        records = EgressRecords(store)
        for number in range(MAX_DESTINATIONS + 20):
            records.note("gone", EgressRequest("done", f"host{number}.test", 443, 1, 2))
        serving = asyncio.create_task(records.serve())
        await asyncio.sleep(0)
        serving.cancel()
        await asyncio.wait([serving])
        rows = await store.run(lambda execute: audit.read_newest(execute, 1000))
    assert len(rows) == MAX_DESTINATIONS + 1
    [other] = [row.event["what"] for row in rows if row.event["result"] == "other"]
    assert (other["requests"], other["sent"], other["received"]) == (20, 20, 40)
