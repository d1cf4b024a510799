"""Calls that are cut off or broken, in the whole service: nothing of them runs, and nobody is asked about them."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_permissions import labels, written
from tests.fakes.model import FakeModel
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask

REPORT = json.dumps({"path": "/mnt/user-data/workspace/report.md", "content": "Figures. " * 200})
REMOVE = json.dumps({"command": "rm -rf /mnt/user-data/workspace/tmp"})
BROKEN = {
    "a file cut in its content": ("write_file", REPORT[:900], "length"),
    "a shortened command": ("bash", REMOVE[:-6], ""),
    "a shortened command, filtered": ("bash", REMOVE[:-6] + '"}', "content_filter"),
    "brackets without end": ("write_file", "[" * 200_000, ""),
    "nested brackets": ("write_file", '{"path": ' + "[" * 400 + "]" * 400 + "}", ""),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_broken_call_does_nothing_and_is_not_asked_about(
    telegram: FakeTelegram, model: FakeModel, start: Start, case: str
) -> None:
    name, arguments, finish = BROKEN[case]
    service = await start(permissions={"ask": ["write_file", "bash"]})
    step = {
        "calls": [{"name": name, "args": arguments}],
        "finish": finish,
        "piece": 40 if len(arguments) < 9999 else 9999,
    }
    telegram.send(ask(steps=[step], text="I see"))
    await telegram.wait(JANE, "I see")
    await service.quiet()
    assert not written(service)
    assert not any("Approve" in labels(shown) for shown in telegram.visible(JANE))
    [result] = [message for message in model.requests()[-1].messages if message["role"] == "tool"]
    assert "did not run" in result["content"]
