"""The browser of the tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.browser import PageError, chromium, shared_chromium


async def test_a_wait_survives_a_navigation() -> None:
    async with shared_chromium() as browser:
        tab = await browser.tab("data:text/html,<title>first</title>")
        never_on_the_first = "location.href.includes('second') || new Promise(() => { window.waits = true; })"
        waiting = asyncio.create_task(tab.until(never_on_the_first))
        await tab.until("window.waits")
        await tab.call("Page.navigate", url="data:text/html,<title>second</title>")
        assert await waiting is True


async def test_what_is_not_waited_for_any_more_does_not_end_the_answers_to_others() -> None:
    async with shared_chromium() as browser:
        tab = await browser.tab("data:text/html,<title>first</title>")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await tab.eval("new Promise((done) => { window.done = done; })")
        async with asyncio.timeout(60):
            await tab.eval("window.done(), 0")  # now the first one is answered
            assert await tab.eval("document.title") == "first"


async def test_the_end_of_the_browser_ends_what_it_was_asked(tmp_path: Path) -> None:
    async with chromium(tmp_path / "profile") as browser:
        tab = await browser.tab()
        asked = asyncio.create_task(tab.eval("new Promise(() => {})"))
        await tab.eval("0")
        await browser.call("Browser.close")
        with pytest.raises(PageError, match="Chromium ended"):
            await asyncio.wait_for(asked, 60)


async def test_a_click_on_a_part_that_moves_away_under_the_mouse_comes_again() -> None:
    """It moves once it was looked for, as when a text comes above it; another part takes its place."""
    page = (
        "<body style='margin: 0'><button id='other'>Other</button><button id='wanted'>Wanted</button><script>"
        "window.heard = []; onclick = (event) => heard.push(event.target.id);"
        "document.onmousedown = () => { const wanted = document.querySelector('#wanted');"
        " if (!window.moved) document.body.prepend(wanted); window.moved = true; };</script>"
    )
    async with shared_chromium() as browser:
        tab = await browser.tab(f"data:text/html,{quote(page)}")
        await tab.click("#wanted")
        assert await tab.eval("window.heard") == ["wanted"]
        assert await tab.eval("window.moved")


async def test_contexts_of_one_browser_share_nothing() -> None:
    address = "data:text/html,<title>a page</title>"
    async with shared_chromium() as one, shared_chromium() as other:
        tabs = [await one.tab(address), await other.tab(address)]
        assert one.context != other.context
        pages = (await one.call("Target.getTargets"))["targetInfos"]
        found = {each["browserContextId"] for each in pages if each["title"] == "a page"}
        assert found == {one.context, other.context}
        await tabs[0].close()
    async with shared_chromium() as third:
        pages = (await third.call("Target.getTargets"))["targetInfos"]
        assert not [each for each in pages if each["title"] == "a page"], "the tabs end with their context"
