"""`fawn drill`: a passing one, one of a service that forgets, and that nothing outside is touched."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import yaml

from agent.blocks import Final
from bot.config.loader import load_config
from bot.config.operations import DrillConfig
from bot.database import audit
from bot.drill import report
from bot.drill.times import DRILL_JOB, LOOK_JOB, DrillJobs, DrillOrder, next_drill, run_drill
from bot.rights.current import Current
from bot.storage.jobs import BackgroundJob
from tests.support.forked_services import ROOT
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

FORGETFUL = """
import sqlite3, sys
from pathlib import Path
import yaml
from bot.drill.isolation import end_with_parent
end_with_parent()
from bot.__main__ import main
data = Path(yaml.safe_load(Path("config.yaml").read_text())["data_dir"])
if sys.argv[1] == "run" and (data / "fawn.db").exists():
    with sqlite3.connect(data / "fawn.db") as connection:
        for table in ("inbox", "outbox", "runs", "conversations"):
            connection.execute(f"DELETE FROM {table}")
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def watched_address() -> Iterator[tuple[str, list[str]]]:
    """Listen on another address of this machine; the list has who connected."""
    came: list[str] = []
    with socket.create_server(("127.0.0.2", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, peer = server.accept()
                except OSError:
                    return
                came.append(str(peer))
                connection.close()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.2:{server.getsockname()[1]}", came


def write_configuration(folder: Path, address: str, **more: object) -> Path:
    """Write a configuration whose every address is the watched one."""
    sections = {
        "config_version": 1,
        "data_dir": str(folder / "real"),
        "models": [
            {"name": "big", "model": "x", "base_url": f"http://{address}/v1", "api_key": "k"},
            {"name": "small", "model": "y", "base_url": f"http://{address}/v1", "api_key": "k"},
        ],
        "roles": {"lead": "big", "title": "small", "fallback": ["small"]},
        "channels": {
            "telegram": {
                "token": "123456789:AAHAAHAAHAAHAAHAAHAAHAAH", "base_url": f"http://{address}",
                "access": {"allow": ["42"]},
            }
        },
        "team": {"default_role": "viewer", "roles": [{"name": "auditor", "ask": ["bash"]}]},
        "limits": {"attempts": 4},
        "mcp": {"servers": [{"name": "tickets", "url": f"http://{address}/mcp"}]},
        "traces": {"endpoint": f"http://{address}/v1/traces"},
        "audit": {"days": 30},
        "backup": {"to": str(folder / "archives"), "every_hours": 6},
        **more,
    }  # fmt: skip
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(sections))
    return file


async def test_a_drill_passes_and_touches_nothing_outside(tmp_path: Path) -> None:
    with watched_address() as (address, came):
        file = write_configuration(tmp_path, address)
        (tmp_path / "real").mkdir(mode=0o700)
        make_empty_database(tmp_path / "real" / "fawn.db")
        before = sorted(str(each) for each in tmp_path.rglob("*"))
        words = ["-m", "bot", "drill", "--json", "--kills", "3", "--config", str(file)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        said, errors = await process.communicate()
    assert process.returncode == 0, (said, errors)
    found = json.loads(said)
    rows = {row["fault"]: row for row in found["rows"]}
    assert found["passed"], found
    assert rows.keys() >= {"kills", "gateway", "deaf", "restore"}
    assert rows["kills"]["times"] == 3
    assert all(
        row["exact"] == row["messages"] and not row["lost"] for row in rows.values() if row["fault"] != "gateway"
    )
    assert rows["gateway"]["times"] == 6, "each post was answered 504 after its effect"
    assert rows["deaf"]["times"] == 1, "one connection was dead: it was given up, and another one heard"
    assert rows["restore"]["rpo"] == 6 * 3600
    assert set(found["sections"]) == {"backup", "mcp", "traces"}
    assert came == [], "a drill connects to nothing that the configuration names"
    assert sorted(str(each) for each in tmp_path.rglob("*") if each.name != "lock") == before
    with closing(sqlite3.connect(tmp_path / "real" / "fawn.db")) as connection:
        [(body,)] = connection.execute("SELECT body FROM audit").fetchall()
    event = json.loads(body)
    assert (event["kind"], event["result"]) == ("drill", "ok")
    assert event["what"] | {"lost": 0, "messages": sum(row["messages"] for row in rows.values())} == event["what"]
    assert event["what"]["user"]


async def test_a_drill_shows_what_a_service_loses(tmp_path: Path) -> None:
    """The service forgets at each start what it had not done: red as long as the count is true."""
    with watched_address() as (address, _came):
        config = load_config(write_configuration(tmp_path, address))
        (tmp_path / "forgetful.py").write_text(FORGETFUL)
        order = DrillOrder(kills=2, answer_seconds=8.0, program=(sys.executable, str(tmp_path / "forgetful.py")))
        found = await run_drill(config, order)
    assert not found.is_good
    rows = {row.fault: row for row in found.rows}
    assert rows["kills"].lost + rows["restore"].lost >= 1, found
    assert rows["restore"].lost, "the answer under way at the backup is gone, or the record is"
    assert "NOT PASSED" in report.render_table(found)


async def test_a_drill_at_its_time_is_recorded_and_posted(tmp_path: Path) -> None:
    with watched_address() as (address, _came):
        config = load_config(write_configuration(tmp_path, address))
        config = replace(config, drill=DrillConfig("weekly", "telegram:123456789/42"))
        jobs = DrillJobs(Current(config), DrillOrder(kills=1))
        make_empty_database(tmp_path / "fawn.db")
        async with rehearsed_database(tmp_path / "fawn.db") as store:
            looked = await jobs.look(BackgroundJob(LOOK_JOB, LOOK_JOB, 0.0, b"{}", 1, "", ""))
            assert looked
            await store.run(looked)
            [planned] = await store.run(lambda execute: execute("SELECT * FROM jobs", {}))
            assert (planned["kind"], planned["key"]) == (DRILL_JOB, "drill.run:weekly")
            assert planned["due"] == next_drill("weekly", time.time(), "")
            effect = await jobs.run(BackgroundJob(planned["key"], DRILL_JOB, 0.0, planned["payload"], 1, "", ""))
            assert effect
            await store.run(effect)
            [post] = await store.run(lambda execute: execute("SELECT thread, payload FROM outbox", {}))
            [row] = await store.run(lambda execute: audit.read_page(execute, 0, 9))
    text = Final.load(post["payload"]).text
    assert post["thread"] == "telegram/123456789/42/"
    assert "passed in" in text
    assert "killed while it works (1): 1 exact, 0 repeated, 0 lost; RPO 0 s, RTO " in text
    assert (row.event["kind"], row.event["result"], row.event["what"]["by"]) == ("drill", "ok", "set times")
    assert row.event["what"]["lost"] == 0
