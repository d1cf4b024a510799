"""`fawn relay` as a process, and the service that fetches from it: both are killed while a sender posts."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import random
import signal
import sqlite3
from functools import partial
from pathlib import Path

import aiohttp
import yaml

from bot.base.exit_codes import TAKEN
from tests.fakes.server import until
from tests.support.forked_services import PYTHON, ROOT, Running, fork, program
from tests.support.ports import free_port
from tests.support.rehearsed_database import make_empty_database

KEY, SECRET = "k" * 40, "the secret of the sender"
ROUNDS, TOGETHER = 3, 40


class Processes:
    """The relay and the receiver, each in its folder."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.relay, self.receiver = folder / "relay.yaml", folder / "fawn.yaml"
        signed = {"secret": SECRET, "signature": "github"}
        for file, settings in {
            self.relay: {
                "http": {"listen": f"127.0.0.1:{self.port}"},
                "relay": {"key": KEY, "sources": {"deploys": signed}, "per_minute": 100_000},
            },
            self.receiver: {
                "relay": {"key": KEY, "url": self.address},
                "hooks": {"deploys": {**signed, "to": "slack:T1/C1", "as": "@U7"}},
                "channels": {"slack": {"bot_token": "xoxb-1", "app_token": "xapp-1"}},
            },
        }.items():
            data = str(folder / file.stem)
            file.write_text(yaml.safe_dump({"config_version": 1, "data_dir": data, **settings}))
        self.database = folder / "fawn" / "fawn.db"
        self.database.parent.mkdir()
        make_empty_database(self.database)
        self.running: dict[Path, Running] = {}

    async def start(self, file: Path) -> None:
        receives = [PYTHON, "-m", "tests.support.relay_receiver", str(file)]
        words = ["relay", "--config", str(file)] if file is self.relay else receives
        self.running[file] = await fork(words, ROOT, os.environ, Path(os.devnull))

    async def kill(self, file: Path) -> None:
        self.running[file].kill()
        await self.running[file].wait()

    async def __aenter__(self) -> Processes:
        for file in (self.relay, self.receiver):
            await self.start(file)
        return self

    async def __aexit__(self, *_: object) -> None:
        for file in self.running:
            if self.running[file].returncode is None:
                await self.kill(file)

    def has_stored(self, count: int) -> bool:
        return len(self.stored()) >= count

    def stored(self) -> list[str]:
        """The titles of the stored deliveries."""
        with sqlite3.connect(self.database) as connection:
            rows = connection.execute("SELECT event FROM hook_deliveries ORDER BY id").fetchall()
        return [json.loads(event)["items"][0]["title"] for (event,) in rows]


async def post_until_taken(address: str, number: int) -> None:
    """Post as a sender does that repeats what is not acknowledged."""
    body = json.dumps({"title": f"deploy {number}", "group": str(number)}).encode()
    headers = {"X-Hub-Signature-256": f"sha256={hmac.digest(SECRET.encode(), body, 'sha256').hex()}"}
    async with aiohttp.ClientSession() as client:
        while True:
            try:
                async with client.post(f"{address}/hooks/deploys", data=body, headers=headers) as answer:
                    if answer.status == 202:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def test_nothing_is_lost_or_doubled_when_both_sides_are_killed_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(33)
    async with Processes(tmp_path) as processes:
        await until(lambda: processes.database.with_suffix(".db-wal").exists(), 120, "the receiver")
        for round in range(ROUNDS):
            await processes.kill(processes.receiver)
            numbers = range(round * TOGETHER, (round + 1) * TOGETHER)
            posting = asyncio.gather(*(post_until_taken(processes.address, number) for number in numbers))
            await asyncio.sleep(chance.uniform(0.0, 0.2))  # some of them are kept
            await processes.kill(processes.relay)
            await processes.start(processes.relay)
            await posting
            before = len(processes.stored())
            await processes.start(processes.receiver)  # it fetches all of them together, and is killed in between
            enough = before + chance.randrange(1, TOGETHER // 2)
            await until(partial(processes.has_stored, enough), 120, "a part of them")
        await processes.kill(processes.receiver)
        await processes.start(processes.receiver)
        waiting = tmp_path / "relay" / "relay"
        await until(lambda: not [*waiting.iterdir()], 240, "an empty relay")
        assert sorted(processes.stored()) == sorted(f"deploy {number}" for number in range(ROUNDS * TOGETHER))
        processes.running[processes.relay].send_signal(signal.SIGTERM)
        assert await processes.running[processes.relay].wait() == 0


async def test_a_relay_without_sources_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"config_version: 1\ndata_dir: {tmp_path}\n")
    command = [*program(), "relay", "--config", str(tmp_path / "config.yaml")]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _out, error = await process.communicate()
    assert process.returncode == 2
    assert b"relay: {sources" in error


async def test_two_relays_do_not_share_a_folder(tmp_path: Path) -> None:
    """The second one ends, whatever its address: each would hand over what the other one keeps."""
    async with Processes(tmp_path) as processes:
        await until(lambda: (tmp_path / "relay" / "relay").exists(), 120, "the first relay")
        second = tmp_path / "second.yaml"
        second.write_text(processes.relay.read_text().replace(str(processes.port), str(free_port())))
        command = [*program(), "relay", "--config", str(second)]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _out, error = await process.communicate()
        assert process.returncode == TAKEN, error.decode()
        linked = tmp_path / "linked"
        linked.symlink_to(tmp_path / "relay")  # the same folder under another name
        second.write_text(second.read_text().replace(f"{tmp_path}/relay\n", f"{linked}\n"))
        assert str(linked) in second.read_text()
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        await process.communicate()
        assert process.returncode == TAKEN
        await post_until_taken(processes.address, 1)
        await until(lambda: processes.stored() == ["deploy 1"], 120, "the delivery")
