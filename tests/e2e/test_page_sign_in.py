"""Signing the bot in to WeChat on the page, in a real Chromium, and what operators hear when a login ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import segno

from tests.e2e.conftest import Start
from tests.e2e.test_page import HTTP, browser, make_link, visitor
from tests.e2e.test_page_operate import ACCESS, BOSS, EVE, audited
from tests.e2e.test_probes import address_of
from tests.fakes.node import MODULES
from tests.fakes.server import until
from tests.fakes.telegram import FakeTelegram
from tests.fakes.wechat import JANE, KIM, FakeWeChat
from tests.support.browser import Browser, Tab, shared_chromium
from tests.support.service_process import Service, said

__all__ = ["browser"]
BUTTON, WORDS, CODE = ".light .sign-in", ".sign-in-code .words", ".code-to-scan path"
SERIOUS = (
    "axe.run(document).then((seen) => seen.violations"
    ".filter((each) => ['serious', 'critical'].includes(each.impact))"
    ".map((each) => [each.id, each.nodes.map((node) => node.html)]))"
)
COLOURS = (
    "((code) => [getComputedStyle(code).backgroundColor, getComputedStyle(code.firstChild).fill])"
    "(document.querySelector('.code-to-scan'))"
)
PATH = "/page/operate/channels/wechat/sign-in"
ODD: tuple[Any, ...] = ({}, {"number": 1}, {"number": " "}, [])  # bodies


@pytest.fixture
async def friends() -> AsyncIterator[FakeWeChat]:
    async with FakeWeChat() as server:
        yield server


@pytest.fixture
async def elsewhere() -> AsyncIterator[Browser]:
    """The browser of another person."""
    async with shared_chromium() as other:
        yield other


def sections(friends: FakeWeChat) -> dict[str, Any]:
    wechat = {"person": JANE, "base_url": friends.base_url, "cdn_url": f"{friends.base_url}/c2c", "per_person": 50.0}
    return {"telegram": {"access": ACCESS}, "wechat": {**wechat, "access": {"open": True}}}


async def operator_tab(service: Service, browser: Browser, person: int = BOSS) -> Tab:
    """Return a tab with the operator's screen."""
    tab = await browser.tab(await make_link(service, f"telegram/{person}"))
    await tab.until("document.querySelector('#text')")
    await tab.click("[data-view=operate]")
    await tab.until("document.querySelector('.verdict')")
    return tab


async def shown_code(tab: Tab, friends: FakeWeChat, count: int = 1) -> str:
    """Return the newest code, once the page draws it: the modules are those of its link."""
    await until(lambda: len(friends.codes) >= count, what="a code")
    newest = [*friends.codes][-1]
    made = segno.make(f"https://liteapp.weixin.qq.com/q/{newest}", micro=False)
    dark = {(x, y) for y, row in enumerate(made.matrix_iter(border=4)) for x, cell in enumerate(row) if cell}
    look = f"document.querySelector('{CODE}')?.getAttribute('d')"
    path = str(await tab.until(f"{look} !== window.lastCode && {look}", what="the code on the page"))
    await tab.eval(f"window.lastCode = {look}")
    drawn: set[tuple[int, int]] = set()
    for run in path.removeprefix("M").split("M"):
        place, _h, rest = run.partition("h")
        x, y = map(int, place.split())
        drawn |= {(x + step, y) for step in range(int(rest.partition("v")[0]))}
    assert drawn == dark
    return newest


async def says(tab: Tab, words: str) -> None:
    await tab.until(f"document.querySelector('{WORDS}')?.innerText.includes({words!r})", what=words)


async def test_an_operator_signs_the_bot_in_and_it_answers_without_a_restart(
    friends: FakeWeChat, start: Start, browser: Browser
) -> None:
    service = await start(http=HTTP, channels=sections(friends))
    tab = await operator_tab(service, browser)
    await tab.until("document.querySelector('.lights')?.innerText.includes('nobody is signed in')")
    await tab.click(BUTTON)
    first = await shown_code(tab, friends)
    friends.codes[first]["status"] = "expired"  # nobody scans it: another one is shown in its place
    second = await shown_code(tab, friends, 2)
    assert second != first
    friends.codes[second]["status"] = "scaned"
    await says(tab, "Scanned. Confirm it on your telephone")
    assert await tab.count(CODE) == 0
    friends.scan(second)
    await tab.until("!document.querySelector('dialog')", what="the window to close")
    await tab.until(f"!document.querySelector('{BUTTON}') && document.querySelector('.verdict.good')")
    friends.send("hello")
    await until(friends.visible, what="an answer")
    assert [row["result"] for row in audited(service, "channel.sign_in")].count("begun") == 1
    assert all(second not in text for text in (service.log(), str(audited(service, "channel.sign_in"))))
    kept = service.rows("SELECT value FROM channel_state WHERE channel='wechat' AND item LIKE 'login%'")
    assert len(kept) == 1
    assert tab.problems == []
    await service.restart()
    friends.send("hello again")
    await until(lambda: len(friends.visible()) == 2, what="an answer after a restart")


async def test_two_operators_a_reload_and_a_second_press_see_one_code(
    friends: FakeWeChat, start: Start, browser: Browser, elsewhere: Browser
) -> None:
    two = {"open": False, "operators": [str(BOSS), str(EVE)]}
    service = await start(http=HTTP, channels={**sections(friends), "telegram": {"access": two}})
    tab, other = await operator_tab(service, browser), await operator_tab(service, elsewhere, EVE)
    await asyncio.gather(tab.click(BUTTON), other.click(BUTTON))
    code = await shown_code(tab, friends)
    assert await shown_code(other, friends) == code
    await tab.go(address_of(service))
    await tab.click("[data-view=operate]")
    await tab.click(BUTTON)
    assert await shown_code(tab, friends) == code
    friends.want_number(code, "2468")
    await says(tab, "Type the number that WeChat shows")
    await tab.write("1357", ".sign-in-code input")
    await tab.press("Enter")
    await says(other, "That is not the number")
    await other.write("2468", ".sign-in-code input")
    await other.press("Enter")
    await says(tab, "Scanned.")
    friends.scan(code)
    for each in (tab, other):
        await each.until("!document.querySelector('dialog')", what="the window to close")
    assert len(friends.codes) == 1
    assert [row["result"] for row in audited(service, "channel.sign_in")].count("begun") == 1
    assert tab.problems == other.problems == []


async def test_a_stranger_who_scans_it_changes_nothing_and_a_kill_in_the_middle_begins_anew(
    friends: FakeWeChat, start: Start, browser: Browser
) -> None:
    service = await start(http=HTTP, channels=sections(friends))
    tab = await operator_tab(service, browser)
    await tab.click(BUTTON)
    friends.scan(await shown_code(tab, friends), KIM)
    await says(tab, f"{KIM} scanned the code, but the robot belongs to {JANE}")
    assert service.rows("SELECT 1 FROM channel_state WHERE item LIKE 'login%'") == []
    await tab.click(".sign-in-code .buttons button")
    left = await shown_code(tab, friends, 2)
    await service.restart()
    friends.scan(left)  # of a sign-in that has ended with the process
    tab = await operator_tab(service, browser)
    await tab.click(BUTTON)
    friends.scan(await shown_code(tab, friends, 3))
    await tab.until(f"!document.querySelector('dialog') && !document.querySelector('{BUTTON}')")
    friends.send("hello")
    await until(friends.visible, what="an answer")


async def test_operators_are_told_once_that_a_login_ended_and_what_to_do(
    telegram: FakeTelegram, friends: FakeWeChat, start: Start, browser: Browser
) -> None:
    service = await start(http=HTTP, channels=sections(friends))
    telegram.send("hello", chat=BOSS)  # or nobody knows where to tell them
    tab = await operator_tab(service, browser)
    await tab.click(BUTTON)
    friends.scan(await shown_code(tab, friends))
    await tab.until(f"!document.querySelector('{BUTTON}')")
    friends.login(JANE)  # a scan elsewhere
    told = await telegram.wait(BOSS, "signed out of wechat")
    assert "under Service" in told.text
    assert "fawn setup wechat" in told.text
    await service.quiet()  # or the kill comes between the post and its receipt, and it is repeated
    downs = service.log().count("wechat.down")
    await service.restart()
    await until(lambda: service.log().count("wechat.down") > downs, what="the same after a restart")
    tab = await operator_tab(service, browser)
    await tab.click(BUTTON)
    friends.scan(await shown_code(tab, friends, 2))
    await until(lambda: [row["result"] for row in audited(service, "channel.sign_in")][-1] == "signed_in")
    results = [row["result"] for row in audited(service, "channel.sign_in")]
    assert results == ["begun", "ended", "begun", "signed_in"]
    assert len([text for text in said(telegram, BOSS) if "signed out" in text]) == 1


async def test_only_operators_sign_in_and_no_other_page_does(friends: FakeWeChat, start: Start) -> None:
    service = await start(http=HTTP, channels=sections(friends))
    links = {who: await make_link(service, f"telegram/{who}") for who in (BOSS, EVE)}
    own = {"Origin": address_of(service), "Sec_Fetch_Site": "same-origin"}
    async with visitor(service) as send:
        cookies = {}
        for who, link in links.items():
            _status, cookie = await send("POST", "/page/login", {"token": link.partition("#")[2]}, **own)
            cookies[who] = {"Cookie": cookie.partition(";")[0]}
        for method, path in (("GET", PATH), ("POST", PATH), ("POST", f"{PATH}/number")):
            assert await send(method, path, **own) == (401, "no_session")
            assert await send(method, path, **own, **cookies[EVE]) == (403, "no_access")
        boss = cookies[BOSS]
        for foreign in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            assert await send("POST", PATH, **foreign, **boss) == (403, "foreign_page")
        assert friends.codes == {}
        assert await send("POST", PATH.replace("wechat", "telegram"), **own, **boss) == (404, "not_found")
        assert await send("POST", f"{PATH}/number", {"number": "1"}, **own, **boss) == (409, "answered")
        for odd in ODD:
            assert (await send("POST", f"{PATH}/number", odd, **own, **boss))[1] == "bad_body"
        both = await asyncio.gather(*(send("POST", PATH, **own, **boss) for _press in range(5)))
        assert [status for status, _code in both] == [200] * 5
        await until(lambda: friends.codes, what="a code")
        friends.scan(next(iter(friends.codes)))
        await until(lambda: service.rows("SELECT 1 FROM channel_state WHERE item LIKE 'login%'"), what="a login")
        await until_signed_in(send, {**own, **boss})
        assert await send("POST", PATH, **own, **boss) == (409, "signed_in")
    assert len(friends.codes) == 1
    assert len(audited(service, "channel.sign_in")) == 1
    assert len(audited(service, "access.denied")) == 3


async def until_signed_in(send: Any, headers: dict[str, str]) -> None:
    async with asyncio.timeout(60):
        while (await send("POST", PATH, **headers))[0] != 409:
            await asyncio.sleep(0.1)


@pytest.mark.skipif(not (MODULES / "axe-core").is_dir(), reason="axe-core is not installed: make dev, with Node.js")
async def test_the_window_can_be_read_and_the_code_stays_black_on_white(
    friends: FakeWeChat, start: Start, browser: Browser
) -> None:
    service = await start(http=HTTP, channels=sections(friends))
    tab = await browser.tab(await make_link(service, f"telegram/{BOSS}"), csp=False)
    await tab.until("document.querySelector('#text')")
    await tab.eval(f"{(MODULES / 'axe-core/axe.min.js').read_text()}; 0")
    await tab.click("[data-view=operate]")
    await tab.click(BUTTON)
    code = await shown_code(tab, friends)
    for asks in (False, True):
        if asks:
            friends.want_number(code, "2468")
            await tab.until("document.querySelector('.sign-in-code input')")
        for colours in ("light", "dark"):
            await tab.prefer(prefers_color_scheme=colours, prefers_reduced_motion="reduce")
            for width in (1180, 390):
                await tab.resize(width, 820, mobile=width < 500)
                assert await tab.eval(SERIOUS) == [], (asks, colours, width)
                assert await tab.eval("document.documentElement.scrollWidth") == width
                if not asks:
                    assert await tab.eval(COLOURS) == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"], colours
