"""The service with Docker sandboxes: kill and restart, and an engine that stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.docker.client import DockerEngine
from sandbox.docker.provider import DockerProvider
from sandbox.docker.spec import DockerSettings
from tests.e2e.conftest import Start
from tests.e2e.test_skills import run_skill, write_skill
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.engines import HOST, IMAGE, EngineSocket, need_docker
from tests.support.service_process import ask, bash, said
from tests.unit.sandbox.test_docker import theirs

DOCKER = {"provider": "docker", "image": IMAGE}
WORK = "/mnt/user-data/workspace"


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[DockerEngine]:
    """The engine; at the end, no container of the service is left."""
    need_docker()
    made = DockerEngine(HOST)
    yield made
    sweeper = DockerProvider(DockerSettings(tmp_path / "skills", state=tmp_path / "data" / "sandbox", image=IMAGE))
    await sweeper.reap(0)
    await sweeper.close()
    assert await theirs(made, tmp_path) == []
    await made.close()


def results(model: FakeModel) -> list[str]:
    """Return the tool results of the last turn, as the model got them."""
    return [str(message["content"]) for message in model.requests()[-1].messages if message["role"] == "tool"]


async def test_killed_during_a_command_the_next_turn_gets_a_new_container(
    telegram: FakeTelegram, model: FakeModel, start: Start, engine: DockerEngine, tmp_path: Path
) -> None:
    """The old container is removed with its background processes, and the folders are intact."""
    service = await start(sandbox=DOCKER)
    noise = f"echo begun >> {WORK}/log; (setsid sleep 7202 &); while :; do echo noise; sleep 0.01; done"
    telegram.send(ask(steps=[bash("sleep 7201 &"), bash(noise)], text="looked at it"))
    await until(lambda: list(service.data.glob("threads/*/workspace/log")), what="the command")
    (old,) = await theirs(engine, tmp_path)
    await service.kill()
    await service.start()
    await telegram.wait(JANE, "looked at it")
    assert "outcome" in results(model)[-1]
    left = "grep -lsz '720[12]' /proc/[0-9]*/cmdline; echo end"
    telegram.send(ask(steps=[bash(f"cat {WORK}/log; {left}")], text="there"))
    await telegram.wait(JANE, "there")
    await service.quiet()
    assert results(model)[-1] == "begun\nend"
    (new,) = await theirs(engine, tmp_path)
    assert new.id != old.id
    assert said(telegram, JANE) == ["looked at it", "there"]


# Case 76 of docs/cases.md
async def test_turns_survive_a_restart_of_the_engine(
    telegram: FakeTelegram, model: FakeModel, start: Start, engine: DockerEngine, tmp_path: Path
) -> None:
    """The current call and the next one fail clearly, the turn ends, and the next turn works in the same folders."""
    front = EngineSocket(tmp_path / "e.sock")
    await front.start()
    service = await start(sandbox={**DOCKER, "docker_host": front.host})
    steps = [bash(f"echo kept > {WORK}/kept; sleep 600"), bash("echo again")]
    telegram.send(ask(steps=steps, text="could not"))
    await until(lambda: list(service.data.glob("threads/*/workspace/kept")), what="the command")
    await front.stop()
    await telegram.wait(JANE, "could not")
    first, second = results(model)
    assert "The Docker engine stopped" in first
    assert "no Docker engine here" in second
    assert str(tmp_path) not in first + second
    await front.start()
    telegram.send(ask(steps=[bash(f"cat {WORK}/kept")], text="went on"))
    await telegram.wait(JANE, "went on")
    await service.quiet()
    assert "kept" in results(model)[-1]
    await service.stop()
    await front.stop()


async def test_log_check_and_status_report_the_sandbox_in_the_same_sentence(
    telegram: FakeTelegram, start: Start, engine: DockerEngine
) -> None:
    operated = {"telegram": {"access": {"open": True, "operators": [str(JANE)]}}}
    service = await start(sandbox=DOCKER, channels=operated)
    bounds = "without network, 4096 MB of files each (measured)"
    sentence = f"Docker, one isolated container of {IMAGE} per conversation, {bounds}."
    await until(lambda: sentence in service.log(), what="the line in the log")
    telegram.send("/status")
    await telegram.wait(JANE, sentence)
    code, shown = await service.fawn("check")
    assert sentence in shown, (code, shown)


async def test_docker_without_the_image_does_not_start(
    start: Start, engine: DockerEngine, telegram: FakeTelegram
) -> None:
    service = await start()
    await service.stop()
    service.configure({"sandbox": {"provider": "docker", "image": "fawn-sandbox:not-there"}})
    process = await service.spawn("run", "--config", "config.yaml")
    assert await asyncio.wait_for(process.wait(), 60) != 0
    assert "fawn sandbox build" in service.log()
    code, shown = await service.fawn("check")
    assert code != 0
    assert "fawn sandbox build" in shown


async def test_a_skill_runs_in_a_container(
    telegram: FakeTelegram, model: FakeModel, start: Start, engine: DockerEngine, tmp_path: Path
) -> None:
    """It is readable and not writable there, and its state is kept for the next turn."""
    write_skill(tmp_path)
    service = await start(sandbox=DOCKER)
    steps = [bash("ls /mnt/skills/add-numbers; touch /mnt/skills/add-numbers/x"), run_skill(numbers=[1, 2])]
    telegram.send("/add_numbers " + ask(steps=steps, text="it is 3"))
    await telegram.wait(JANE, "it is 3")
    listed, first = results(model)
    assert "SKILL.md\nrun.py" in listed
    assert "Read-only file system" in listed
    assert first == '{"sum": 3, "count": 1}'
    telegram.send(ask(steps=[run_skill(numbers=[5])], text="it is 5"))
    await telegram.wait(JANE, "it is 5")
    await service.quiet()
    assert results(model)[-1] == '{"sum": 5, "count": 2}'
