"""Each way in which data can leave, in the whole service, with rules that allow everything by wildcards."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_mcp import server
from tests.e2e.test_outward import HOSTILE, NOTES, STOLEN, asking, collected, fetch, press, read, results, web
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask, said
from tests.support.web_server import WebSite, html, serve_site

SECRET = "Marlow"
WAYS: dict[str, dict[str, Any]] = {
    "web_search": {"query": f"who is {SECRET}"},
    "mcp__modern__paint": {"wall": SECRET},
    "mcp_read_resource": {"server": "modern", "uri": f"note://by/{SECRET}"},
    "expose": {"port": 8000},
    "bash": {"command": f"echo {SECRET}"},
}

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture
async def site() -> AsyncIterator[WebSite]:
    """A proxy that answers for every host."""
    async with serve_site() as found:
        found.pages |= {"/notes": html(HOSTILE), "/collect": html("<p>thanks</p>")}
        yield found


async def test_each_way_out_asks_whatever_wildcards_allow(
    telegram: FakeTelegram, model: FakeModel, start: Start, site: WebSite, tmp_path: Path
) -> None:
    service = await start(
        web=web(site, search=[{"provider": "searxng", "url": "http://search.test/"}]),
        mcpServers={"modern": server("modern", tmp_path)},
        mcp={"defer_tokens": 0},
        permissions={"allow": ["mcp__*", "mcp_*", "web_*", "bash", "bash(echo *)", "expose*"]},
        sandbox={
            "provider": "local",
            "preview": {"enabled": True, "listen": "127.0.0.1:0"},
            "network": {"mode": "allowlist", "hosts": ["pages.test"]},
        },
    )
    steps = [{"calls": [{"name": name, "args": args}]} for name, args in WAYS.items()]
    first = [fetch(NOTES), read(), {"calls": [{"name": "tool_search", "args": {"query": "paint a wall"}}]}]
    telegram.send_document("salaries.csv", f"{SECRET},4711\n".encode(), caption=f"{NOTES} see")
    await service.quiet()
    await until(lambda: model.requests(), what="the first call")
    await service.quiet()
    text = asking(*first, *steps, text="all done", id="ways").replace(SECRET, r"\u004darlow")
    telegram.send(f"{NOTES} {text}")
    for name, args in WAYS.items():
        shown = await telegram.wait(JANE, f"May I run {name}?")
        await service.quiet()
        shown = next(each for each in telegram.visible(JANE) if each.id == shown.id)
        assert f"would leave for {name}" in shown.text
        assert json.dumps(next(iter(args.values()))) in shown.text, "exactly what would leave"
        press(telegram, shown, "Deny")
    await telegram.wait(JANE, "all done")
    await service.quiet()
    refused = [each for each in results(model) if "did not approve this call" in each]
    assert len(refused) == len(WAYS)
    assert not [host for host, _ in site.requests if host == "search.test"]


async def test_what_follows_a_background_command_asks_as_its_request_would(
    telegram: FakeTelegram, model: FakeModel, start: Start, site: WebSite
) -> None:
    await start(web=web(site), permissions={"allow": ["web_fetch"]})
    then = f"go on {ask(id='then', steps=[fetch(STOLEN)], text='went on')}"
    command = {"calls": [{"name": "bash", "args": {"command": "true", "background": True, "then": then}}]}
    telegram.send_document(
        "salaries.csv", b"Eve,4711\n", caption=f"{NOTES} {asking(fetch(NOTES), read(), command, text='begun')}"
    )
    await until(lambda: "May I run web_fetch?" in str(said(telegram, JANE)), what="the question")
    assert collected(site) == []
