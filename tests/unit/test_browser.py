"""The browser of the tests."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.browser import chromium


async def test_a_wait_survives_a_navigation(tmp_path: Path) -> None:
    async with chromium(tmp_path / "profile") as browser:
        tab = await browser.tab("data:text/html,<title>first</title>")
        never_on_the_first = "document.title === 'second' || new Promise(() => { window.waits = true; })"
        waiting = asyncio.create_task(tab.until(never_on_the_first))
        await tab.until("window.waits")
        await tab.call("Page.navigate", url="data:text/html,<title>second</title>")
        assert await waiting is True
