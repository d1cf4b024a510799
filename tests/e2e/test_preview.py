"""Sandbox settings end to end: preview links, a disk limit, messages about the network."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask, bash

pytestmark = pytest.mark.usefixtures("bubblewrap")
SERVE = (
    "echo hi there > index.html; python3 -m http.server 8000 >log 2>&1 & "
    "until curl -s http://localhost:8000/; do sleep 0.1; done"
)


def results(model: FakeModel) -> str:
    """Return the tool results, as the model last saw them."""
    return "\n".join(str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "tool")


# Case 83 of docs/cases.md
async def test_a_preview_link_works_and_the_server_still_runs_in_the_next_turn(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    preview = {"enabled": True, "listen": "127.0.0.1:0"}
    await start(sandbox={"provider": "local", "preview": preview})
    expose = {"calls": [{"name": "expose", "args": {"port": 8000}}]}
    telegram.send(ask(steps=[bash(SERVE), expose], text="there it is"))
    await telegram.wait(JANE, "there it is")
    link = re.search(r"http://127\.0\.0\.1:\d+/p/[0-9a-f-]+/", results(model))
    assert link, results(model)
    telegram.send(ask(steps=[bash("curl -s http://localhost:8000/")], text="still there"))
    await telegram.wait(JANE, "still there")
    assert results(model).endswith("hi there")
    async with aiohttp.ClientSession() as person, person.get(link[0]) as answer:
        assert (answer.status, await answer.text()) == (200, "hi there\n")
    async with aiohttp.ClientSession() as person, person.get(link[0].replace("/p/", "/p/0")) as answer:
        assert answer.status == 403
        assert await answer.text() == "This link is not valid or has expired.\n"
    chinese = {"Accept-Language": "fr, en;q=0.5, zh-CN;q=0.8"}
    async with aiohttp.ClientSession(headers=chinese) as person, person.get(link[0].replace("/p/", "/p/0")) as answer:
        assert (answer.reason, await answer.text()) == (
            "This link is not valid or has expired.",
            "这个链接无效或已过期。\n",
        )


async def test_a_command_that_fills_the_disk_is_stopped_with_a_reason(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    await start(sandbox={"provider": "local", "disk_mb": 20})
    fill = "for i in $(seq 3000); do head -c 1M /dev/zero >> big; sleep 0.02; done"
    telegram.send(ask(steps=[bash(fill), bash("rm big; echo deleted")], text="cleaned up"))
    await telegram.wait(JANE, "cleaned up")
    stopped = r"The sandbox was stopped with all its processes: .* 20 MB are allowed \(sandbox\.disk_mb\)"
    assert re.search(stopped, results(model))
    assert results(model).endswith("deleted")


async def test_without_a_network_the_model_learns_which_setting_to_change(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(sandbox={"provider": "local"})
    telegram.send(ask(steps=[bash("pip install surely-not-there")], text="no network"))
    await telegram.wait(JANE, "no network")
    assert "The sandbox has no network (sandbox.network.mode is off); an operator can allow" in results(model)
    assert "egress.refused" in service.log()


async def test_the_service_raises_its_descriptor_limit_to_the_maximum(
    telegram: FakeTelegram, model: FakeModel, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    service = Service(tmp_path, telegram, model, {})
    service.forked = False
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))  # as systemd and most shells give it
    try:
        await service.start()
        assert service.process
        assert resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await service.kill()
