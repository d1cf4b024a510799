"""kill -9 at every point of a turn: no effect twice, no answer lost, with a real process."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.model import FakeModel, words
from tests.fakes.server import until
from tests.support.forked_services import PYTHON, ROOT, fork_on

CONVERSATIONS, TURNS, KILLS = 4, 3, 6


def script(name: str) -> str:
    """Two parallel effects, a third one, and an answer that names the turn."""
    pair = [{"name": "effect", "args": {"text": f"{name}-{side}"}} for side in "ab"]
    last = [{"name": "effect", "args": {"text": f"{name}-c"}}]
    directive = {"steps": [{"calls": pair}, {"calls": last}], "word": f"{name}.", "tokens": 6, "tok_ms": 8, "id": name}
    return "::" + json.dumps({**directive, "delay_ms": 20})


class Worker:
    """The process under test, restarted after each kill."""

    def __init__(self, folder: Path, url: str, turns: list[tuple[str, str, str]]) -> None:
        self.words = [PYTHON, "-m", "tests.support.agent_worker", str(folder), url, json.dumps(turns)]
        self.answers: dict[str, str] = {}

    async def start(self) -> None:
        reading, writing = os.pipe()
        with Path(os.devnull).open("rb") as nothing, os.fdopen(writing, "wb") as out:
            self.process = await fork_on((nothing.fileno(), out.fileno(), 2), self.words, ROOT, os.environ)
        self.out = asyncio.StreamReader()
        connect = asyncio.get_running_loop().connect_read_pipe
        await connect(lambda: asyncio.StreamReaderProtocol(self.out), os.fdopen(reading, "rb"))
        assert await self.out.readline() == b"ready\n"
        self.reader = asyncio.create_task(self._read(), name="worker's answers")

    async def _read(self) -> None:
        while line := await self.out.readline():
            key, text = json.loads(line)
            assert self.answers.setdefault(key, text) == text

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()
        await self.reader

    async def finish(self) -> None:
        await asyncio.wait_for(self.process.wait(), 60)
        await self.reader
        assert self.process.returncode == 0


def effects(folder: Path) -> Counter[str]:
    path = folder / "files/workspace/effects"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def owned_up(model: FakeModel) -> set[str]:
    """Return the tool calls whose outcome the model was told to be unknown."""
    results = (m for request in model.requests() for m in request.messages if m["role"] == "tool")
    return {m["tool_call_id"] for m in results if "outcome is unknown" in m["content"]}


@pytest.mark.slow
async def test_killed_at_random_every_effect_happens_at_most_once(model: FakeModel, tmp_path: Path) -> None:
    names = [f"c{c}t{t}" for c in range(CONVERSATIONS) for t in range(TURNS)]
    worker = Worker(tmp_path, f"{model.base_url}/v1", [(name[:2], name, script(name)) for name in names])
    for _ in range(KILLS):
        await worker.start()
        await asyncio.sleep(random.uniform(0.05, 0.5))
        await worker.kill()
    await worker.start()
    await worker.finish()
    assert worker.answers == {name: words(6, f"{name}.") for name in names}
    assert not any(request.rejected for request in model.requests())
    done = effects(tmp_path)
    assert max(done.values()) == 1
    wanted = {f"{name}-{side}" for name in names for side in "abc"}
    assert set(done) <= wanted
    assert len(wanted - set(done)) <= len(owned_up(model))  # the model was told to check missing effects


@pytest.mark.slow
async def test_killed_after_the_second_effect(model: FakeModel, tmp_path: Path) -> None:
    worker = Worker(tmp_path, f"{model.base_url}/v1", [("c", "k", script("x"))])
    await worker.start()
    await until(lambda: sum(effects(tmp_path).values()) >= 2, what="the effect")
    await worker.kill()
    asked = len([r for r in model.requests("x") if r.end])
    await worker.start()
    await worker.finish()
    assert worker.answers == {"k": words(6, "x.")}
    done = effects(tmp_path)
    assert max(done.values()) == 1
    assert len({"x-a", "x-b", "x-c"} - set(done)) <= len(owned_up(model))
    assert len(model.requests("x")) <= asked + 3


@pytest.mark.slow
async def test_killed_in_the_middle_of_an_answer(model: FakeModel, tmp_path: Path) -> None:
    text = '::{"tokens": 40, "tok_ms": 20, "id": "x"}'
    worker = Worker(tmp_path, f"{model.base_url}/v1", [("c", "k", text)])
    await worker.start()
    await until(lambda: any(request.first for request in model.requests("x")), what="the first words")
    await worker.kill()
    assert worker.answers == {}
    await worker.start()
    await worker.finish()
    assert worker.answers == {"k": words(40)}
    assert all(len(request.messages) == 2 for request in model.requests("x"))  # the question once
