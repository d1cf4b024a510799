"""The program: start, shutdown, status, configuration errors, lock, schema, backup."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import tarfile
from pathlib import Path

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask, said


# Case 78 of docs/cases.md
async def test_every_configuration_error_is_reported_at_once(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = Service(tmp_path, telegram, model, {})
    (tmp_path / "config.yaml").write_text(
        "config_version: 1\n"
        "modles: []\n"
        "limits: {live_turns: many}\n"
        "channels:\n"
        "  telegram: {token: $NOT_SET_ANYWHERE, access: {opne: true}}\n"
        "  pigeon: {}\n"
    )
    code, words = await service.fawn("run")
    assert code == 2
    for fault in ("modles", "live_turns", "NOT_SET_ANYWHERE", "opne", "pigeon"):
        assert fault in words
    for line in ("2", "3", "5", "6"):
        assert f":{line}" in words


# Cases 79 and 50 of docs/cases.md
async def test_sigterm_suspends_running_turns(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    """It stops listening at once, suspends the turns and exits with 0. A graceful shutdown does not count as an
    attempt, and nothing is lost."""
    service = await start(limits={"grace_seconds": 1, "attempts": 1})
    chats = range(700, 710)
    for chat in chats:
        telegram.send(ask(tokens=100, tok_ms=60, word=f"c{chat}-"), chat=chat)
    await asyncio.gather(*(telegram.wait(chat, f"c{chat}-0") for chat in chats))
    assert await service.stop() == 0
    telegram.send(ask(text="while it was away"), chat=711)
    await service.start()
    await asyncio.gather(*(telegram.wait(chat, f"c{chat}-99") for chat in chats))
    await telegram.wait(711, "while it was away")
    await service.quiet()
    for chat in chats:
        assert said(telegram, chat) == [" ".join(f"c{chat}-{n}" for n in range(100))]


async def test_sigterm_lets_a_short_turn_finish(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    service.forked = False
    await service.restart()
    telegram.send(ask(text="just made it", delay_ms=1000))
    await until(lambda: model.requests(), what="the model call")  # a turn that has only been claimed is suspended
    assert await service.stop() == 0
    assert said(telegram, JANE) == ["just made it"]


# Case 90 of docs/cases.md
async def test_a_second_process_on_the_same_data_dir_exits(telegram: FakeTelegram, start: Start) -> None:
    service = await start()
    code, words = await service.fawn("run")
    assert code == 3
    assert "already" in words
    telegram.send(ask(text="unharmed"))
    await telegram.wait(JANE, "unharmed")


# Case 89 of docs/cases.md
async def test_a_newer_database_is_refused_and_an_older_one_is_backed_up_first(
    telegram: FakeTelegram, start: Start
) -> None:
    service = await start()
    assert await service.stop() == 0
    database = sqlite3.connect(service.data / "fawn.db")
    database.execute("UPDATE alembic_version SET version_num='9999'")
    database.commit()
    database.close()
    code, words = await service.fawn("run")
    assert code == 1
    assert "newer version" in words


async def test_an_unusable_database_or_folder_is_reported_in_one_sentence(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = Service(tmp_path, telegram, model, {})
    service.data.mkdir(mode=0o700)
    for name, commands in (("fawn.db", (["run"], ["dead", "list"])), ("checkpoints.db", (["run"],))):
        (service.data / name).write_bytes(b"this is no database" * 1000)
        for command in commands:
            code, words = await service.fawn(*command)
            assert code == 1
            assert words.startswith("fawn: the databases in data_dir cannot be used: file is not a database.")
            assert words.count("\n") == 1
        (service.data / name).unlink()
    service.data.rename(tmp_path / "away")
    service.data.write_text("a file")
    code, words = await service.fawn("run")
    assert (code, "data_dir: is a file, not a folder" in words) == (2, True), words


async def test_status_and_check_report_the_actual_state(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start()
    telegram.send("wake up")
    await telegram.wait(JANE, "wake up")
    await service.quiet()
    code, words = await service.fawn("status")
    assert code == 0, words
    assert "telegram: ready" in words
    assert f"data_dir: {service.data}, configuration: config.yaml" in words
    assert "people who wait to be paired: 0\n" in words
    assert "last model error" not in words
    model.fault("error", "chat", code=401)
    telegram.send("one more")
    await telegram.wait(JANE, "401")
    report = json.loads((await service.fawn("status", "--json"))[1])
    assert service.process
    assert report["pid"] == service.process.pid
    assert (report["model_error"]["model"], "401" in report["model_error"]["text"]) == ("main", True)
    assert report["model_error"]["age"] >= 0
    assert "Background jobs: " in words
    assert " 0 given up." in words
    code, words = await service.fawn("check")
    assert code == 0, words
    assert await service.stop() == 0
    assert (await service.fawn("status"))[0] == 4


async def test_backup_works_while_the_service_runs(telegram: FakeTelegram, start: Start, tmp_path: Path) -> None:
    service = await start()
    telegram.send_document("notes.csv", b"kept", caption=ask(text="stored"))
    await telegram.wait(JANE, "stored")
    await service.quiet()
    code, words = await service.fawn("backup", "saved.tar.gz")
    assert code == 0, words
    with tarfile.open(tmp_path / "saved.tar.gz") as tar:
        names = tar.getnames()
        assert "fawn.db" in names
        assert any(name.endswith("uploads/notes.csv") for name in names)
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's own Python does not have it
        tar.extractall(tmp_path / "restored")  # noqa: S202  # the service wrote it
    rows = sqlite3.connect(tmp_path / "restored" / "fawn.db").execute("SELECT count(*) FROM runs").fetchall()
    assert rows == [(1,)]
    written = [path for path in service.data.iterdir() if not path.is_socket()]
    assert {path.name for path in [tmp_path / "saved.tar.gz", *written] if path.stat().st_mode & 0o077} == set()


async def test_permissions_of_other_users_on_data_are_removed(
    telegram: FakeTelegram, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    service = await start()
    assert service.data.stat().st_mode & 0o777 == 0o700
    assert "data_dir.closed" in service.log()
    await service.restart()
    assert service.log().count("data_dir.closed") == 1


async def test_systemd_is_notified_of_start_and_shutdown(telegram: FakeTelegram, start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as received:
        received.bind(str(tmp_path / "notify"))
        received.setblocking(False)
        service = await start()
        await service.stop()
        service.more_environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        await service.start()
        loop = asyncio.get_running_loop()
        states = {await loop.sock_recv(received, 100) for _ in range(2)}
        while not {b"READY=1", b"WATCHDOG=1"} <= states:
            states.add(await loop.sock_recv(received, 100))
        assert await service.stop() == 0
        while b"STOPPING=1" not in states:
            states.add(await loop.sock_recv(received, 100))
    assert states == {b"READY=1", b"WATCHDOG=1", b"STOPPING=1"}


async def test_chat_answers_piped_text_and_exits(tmp_path: Path, telegram: FakeTelegram, model: FakeModel) -> None:
    service = Service(tmp_path, telegram, model, {})
    code, words = await service.fawn("chat", stdin=ask(text="piped and answered").encode())
    assert code == 0, words
    assert "piped and answered" in words


async def test_an_agent_that_cannot_be_built_is_a_configuration_error(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = Service(tmp_path, telegram, model, {"prompt": {"file": "missing.md"}})
    code, words = await service.fawn("run")
    assert code == 2
    assert "missing.md" in words
