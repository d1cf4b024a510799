"""`read_file` in a sandbox of a sub-agent's own, of a file that is larger than the model's window."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_subagents import task
from tests.fakes.model import FakeModel
from tests.fakes.model_dialects import Dialect
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask, bash

WINDOW_BYTES = 32_000 * 4  # of a request: 32k tokens
BIG = "/mnt/user-data/workspace/big.txt"


def read(start_line: int) -> dict[str, object]:
    return {"name": "read_file", "args": {"path": BIG, "start_line": start_line, "lines": 5000}}


@pytest.mark.usefixtures("bubblewrap")
async def test_a_file_larger_than_the_window_is_read_in_a_sandbox_of_its_own(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    model.dialect, model.window_bytes = Dialect(), WINDOW_BYTES
    kinds = [{"name": "alone", "sandbox": "own"}]
    service = await start(subagents={"kinds": kinds}, context={"trigger_tokens": 200_000})
    make = bash(f"seq -f 'line %06g of a long report' 9000 > {BIG}")  # 270 KB
    again = bash("cat /mnt/user-data/workspace/.outputs/* | grep -c 'of a long report'")
    steps = [make, {"calls": [read(1), read(2500)]}, again]
    telegram.send(ask(steps=[{"calls": [task("report", "alone", steps=steps, text="read")]}], text="all done"))
    await telegram.wait(JANE, "all done", seconds=90)
    await service.quiet()
    last = model.requests("report")[-1]
    results = [str(message["content"]) for message in last.messages if message["role"] == "tool"]
    whole = [result for result in results if "The whole output of " in result]
    assert len(whole) == 2
    assert all("line 00" in result and len(result) < 40_000 for result in whole)
    assert int(results[-1].split()[0]) >= 4000, "the whole results are in files of that sandbox"
    assert last.bytes <= WINDOW_BYTES
    assert any(request.bytes > WINDOW_BYTES for request in model.requests("report")), "it was refused once"
    assert service.rows("SELECT state FROM runs") == [("done",)]
