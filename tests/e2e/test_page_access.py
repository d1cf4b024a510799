"""Every screen of the page for eyes, screen readers and the keyboard alone, in a real Chromium with axe-core."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_page import DONE, HTTP, browser, make_link, shows
from tests.e2e.test_page_chat import tasks
from tests.e2e.test_page_operate import ACCESS, BOSS
from tests.fakes.node import MODULES
from tests.fakes.telegram import FakeTelegram
from tests.support.browser import Browser, Tab
from tests.support.service_process import ask, bash

__all__ = ["browser"]
AXE = MODULES / "axe-core/axe.min.js"
SERIOUS = (
    "axe.run(document).then((seen) => seen.violations.filter((each) => ['serious', 'critical'].includes(each.impact))"
    ".map((each) => [each.id, each.nodes.map((node) => node.html)]))"
)
SHAPES = ((1180, "light"), (1180, "dark"), (390, "light"), (390, "dark"))


async def looks_well(tab: Tab, screen: str) -> None:
    """Find no serious fault in both themes and at two widths, and nothing that is wider than the window.

    Nothing moves meanwhile: a colour that fades would be measured on its way.
    """
    if not await tab.eval("'axe' in window"):
        await tab.eval(f"{AXE.read_text()}; 0")
    for width, colours in SHAPES:
        await tab.prefer(prefers_color_scheme=colours, prefers_reduced_motion="reduce")
        await tab.resize(width, 820, mobile=width < 500)
        assert await tab.eval(SERIOUS) == [], (screen, width, colours)
        assert await tab.eval("document.documentElement.scrollWidth") == width, screen
    await tab.resize(1180, 820)


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: make dev, with Node.js")
async def test_no_screen_has_a_serious_fault(
    start: Start, browser: Browser, telegram: FakeTelegram, tmp_path: Path, bubblewrap: None
) -> None:
    service = await start(http=HTTP, channels={"telegram": {"access": ACCESS}})
    link = await make_link(service, f"telegram/{BOSS}")
    tab = await browser.tab(f"{link.partition('/login')[0]}/login", csp=False)
    await tab.until("document.querySelector('.signin')")
    await looks_well(tab, "signing in")
    await tab.go(link)
    await tab.until("document.querySelector('.hello')")
    await looks_well(tab, "an empty thread")
    make = bash("echo x >'/mnt/user-data/outputs/a file.txt'; echo '<p>hi</p>' >/mnt/user-data/outputs/made.html")
    plan = {"name": "write_todos", "args": {"todos": [{"content": "Look", "status": "in_progress"}]}}
    work = [{"calls": [plan]}, make, {"calls": tasks(ask(steps=[bash("exit 7")], text="found"))}]
    await tab.send(ask(steps=work, text="# Result\n\n> words\n\n- [ ] open\n\n$x$ and [a link](https://a.example)"))
    await tab.until(DONE, 60)
    await tab.eval("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    await looks_well(tab, "steps, a tree, a plan and files")
    await tab.click(".chip-pair button")
    await tab.until("document.querySelector('dialog iframe')")
    await looks_well(tab, "a page that was made")
    await tab.press("Escape")
    await tab.click("button[aria-label='This thread']")
    await looks_well(tab, "the menu of a thread")
    await tab.click(".menu-list .danger")
    await tab.until("document.querySelector('dialog')")
    await looks_well(tab, "a question before something is deleted")
    await tab.press("Escape")
    await tab.write("Result", ".search input")
    await tab.until("document.querySelector('.threads .snippet')")
    await looks_well(tab, "what a search found")
    await tab.resize(390, 820, mobile=True)
    await tab.click("button.menu")
    await tab.until("document.body.classList.contains('drawer')")
    assert await tab.eval(SERIOUS) == [], "the drawer"
    [(run,)] = service.rows("SELECT id FROM runs ORDER BY id LIMIT 1")
    await tab.press("Escape")
    await tab.eval("location.hash = '#/operate'")
    await tab.until("document.querySelector('.columns')")
    await tab.eval(f"document.querySelector('form.mini input').value = '{run}'")
    await tab.eval("document.querySelector('form.mini').requestSubmit()")
    await tab.until("document.querySelector('dialog .log-lines')?.innerText")
    await looks_well(tab, "the log of a turn")


async def test_a_thread_is_led_by_the_keyboard_alone(start: Start, browser: Browser, bubblewrap: None) -> None:
    service = await start(http=HTTP)
    tab = await browser.tab(await make_link(service))
    await tab.until("document.querySelector('#text')")
    call = {"name": "ask_clarification", "args": {"question": "Which one?", "options": ["csv", "xlsx"]}}
    steps = [{"calls": tasks(ask(steps=[bash("echo inside")], text="found"))}, {"calls": [call]}]

    async def reach(selector: str) -> None:
        for _press in range(60):
            if await tab.eval(f"document.activeElement.matches({selector!r})"):
                return
            await tab.press("Tab")
        raise AssertionError(f"the keyboard does not reach {selector}")

    await reach("#text")
    await tab.call("Input.insertText", text=ask(steps=steps, text="as you wish"))
    await tab.press("Enter")
    await tab.until("document.querySelectorAll('.question.open .buttons button').length === 2", 60)

    await tab.eval("document.querySelector('.log').focus()")
    await reach(".steps > summary")
    await tab.press("Enter")
    await tab.until("document.querySelector('.steps').open")
    await reach(".inner > summary")
    await tab.press("Enter")
    await tab.until("document.querySelector('.inner li')?.checkVisibility()")
    await reach(".question.open .buttons button")
    await tab.press("Tab")
    assert await tab.text(":focus") == "xlsx"
    await tab.press("Enter")
    await shows(tab, "as you wish")
    await tab.until(DONE)
    await reach(".foot button")
    assert await tab.eval("document.activeElement.matches(':focus-visible')")
