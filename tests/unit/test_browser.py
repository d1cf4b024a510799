"""The browser of the tests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.browser import PageError, chromium


async def test_a_wait_survives_a_navigation(tmp_path: Path) -> None:
    async with chromium(tmp_path / "profile") as browser:
        tab = await browser.tab("data:text/html,<title>first</title>")
        never_on_the_first = "location.href.includes('second') || new Promise(() => { window.waits = true; })"
        waiting = asyncio.create_task(tab.until(never_on_the_first))
        await tab.until("window.waits")
        await tab.call("Page.navigate", url="data:text/html,<title>second</title>")
        assert await waiting is True


async def test_what_is_not_waited_for_any_more_does_not_end_the_answers_to_others(tmp_path: Path) -> None:
    async with chromium(tmp_path / "profile") as browser:
        tab = await browser.tab("data:text/html,<title>first</title>")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await tab.eval("new Promise((done) => { window.done = done; })")
        async with asyncio.timeout(20):
            await tab.eval("window.done(), 0")  # now the first one is answered
            assert await tab.eval("document.title") == "first"


async def test_the_end_of_the_browser_ends_what_it_was_asked(tmp_path: Path) -> None:
    async with chromium(tmp_path / "profile") as browser:
        tab = await browser.tab()
        asked = asyncio.create_task(tab.eval("new Promise(() => {})"))
        await tab.eval("0")
        await browser.call("Browser.close")
        with pytest.raises(PageError, match="Chromium ended"):
            await asyncio.wait_for(asked, 20)
