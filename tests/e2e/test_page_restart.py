"""The page over a service that dies in the middle of a turn: what was done before is shown again, once."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.test_page import DONE, OpenPage, browser, page
from tests.e2e.test_probes import address_of
from tests.e2e.test_subagents import WAIT, task
from tests.fakes.model import FakeModel
from tests.fakes.model_script import Answer, directive_of
from tests.fakes.server import Json, until
from tests.support.service_process import ask, bash

__all__ = ["browser", "page"]
OPEN_ALL = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
INNER = (
    "[...document.querySelectorAll('.steps .inner li')].map((each) =>"
    " [each.className, each.querySelector('code')?.textContent])"
)
BEGUN = (
    "SELECT 1 FROM run_steps WHERE parent<>'' AND state='running' AND EXISTS (SELECT 1 FROM run_steps WHERE"
    " parent<>'' AND state='done')"
)


@pytest.mark.usefixtures("bubblewrap")
async def test_steps_of_sub_agents_before_a_crash_are_shown_again_and_go_on(page: OpenPage, model: FakeModel) -> None:
    service, tab = await page()
    port = address_of(service).rpartition(":")[2]
    steps, was_seen = [bash("echo first"), WAIT], asyncio.Event()

    def hold_last(body: Json) -> Answer | None:
        directive, done = directive_of(body["messages"])
        is_last = (directive or {}).get("id") == "works" and done == len(steps)
        return Answer("worked", held=lambda: not was_seen.is_set()) if is_last else None

    model.script = hold_last
    await tab.send(ask(steps=[{"calls": [task("works", steps=steps)]}], text="all"))
    await until(lambda: service.rows(BEGUN), what="both steps of the sub-agent")
    service.configure({"http": {"listen": f"127.0.0.1:{port}"}})
    await service.restart()
    await tab.reload()
    await tab.until("document.querySelector('.steps .inner li.failed')", 60)
    assert service.rows("SELECT count(*) FROM transcript WHERE parent<>''") == [(0,)], "the turn goes on"
    await tab.eval(OPEN_ALL)
    waited = WAIT["calls"][0]["args"]["command"].replace("/mnt/user-data/", "")
    done = [["done", "bash: echo first"], ["failed", f"bash: {waited}"]]  # of which nobody knows what it did
    assert await tab.eval(INNER) == done
    was_seen.set()
    await tab.until(DONE)
    assert await tab.eval(INNER) == done
    await service.quiet()
    await tab.reload()
    await tab.until("document.querySelectorAll('.steps .inner li').length === 2")
    assert await tab.eval(INNER) == done, "as it is stored"
    assert service.rows("SELECT count(*) FROM run_steps") == [(0,)]
    assert service.rows("SELECT count(*) FROM transcript WHERE parent<>''") == [(2,)]
