"""The page of a running service in a real Chromium: signing in, and the chat."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_probes import address_of
from tests.fakes.node import MODULES
from tests.fakes.server import until
from tests.support.browser import Browser, Tab, shared_chromium
from tests.support.service_process import Service, ask, bash

HTTP = {"listen": "127.0.0.1:0"}
LINK = re.compile(r"^http://\S+/login#([\w-]{22})$", re.MULTILINE)
OpenPage = Callable[..., Awaitable[tuple[Service, Tab]]]


async def make_link(service: Service, person: str = "telegram/7") -> str:
    """Return a link with which a person signs in."""
    await until(lambda: bool(address_of(service)), what="the listener")
    code, text = await service.fawn("web", "link", "--person", person)
    assert code == 0, text
    found = LINK.search(text)
    assert found, text
    return found[0]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with shared_chromium() as shared:
        yield shared


@pytest.fixture
async def page(start: Start, browser: Browser) -> OpenPage:
    """`await page(section={…})` returns a running service, and a tab in which its page is signed in."""

    async def begin(**settings: object) -> tuple[Service, Tab]:
        service = await start(http=HTTP, **settings)
        tab = await browser.tab(await make_link(service))
        await tab.until("document.querySelector('#text')")
        return service, tab

    return begin


# ------------------------------------------------------------ signing in


@asynccontextmanager
async def visitor(service: Service) -> AsyncIterator[Callable[..., Awaitable[tuple[int, str]]]]:
    """Yield a function that sends a request as a program can forge it, and returns status and code."""
    address = address_of(service)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:

        async def send(method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            async with client.request(method, f"{address}{path}", json=body, headers=named) as answer:
                found = await answer.json(content_type=None) if "json" in answer.content_type else {}
                return answer.status, found.get("code", "") or answer.headers.get("Set-Cookie", "")

        yield send


async def test_a_link_signs_in_once_and_its_cookie_opens_the_page_alone(start: Start) -> None:
    service = await start(http=HTTP)
    link = await make_link(service)
    token, address = link.partition("#")[2], address_of(service)
    own = {"Origin": address, "Sec_Fetch_Site": "same-origin"}
    async with visitor(service) as send:
        assert await send("POST", "/page/login", {"token": token}) == (403, "foreign_page")  # no Origin
        status, cookie = await send("POST", "/page/login", {"token": token}, **own)
        assert status == 200
        name, shown = re.match(
            r"(fawn-\d+)=([\w-]{43}); HttpOnly; Max-Age=43200; Path=/; SameSite=Strict$", cookie
        ).groups()  # type: ignore[union-attr]  # a test
        assert name == f"fawn-{address.rpartition(':')[2]}"
        assert await send("POST", "/page/login", {"token": token}, **own) == (401, "bad_link")
        mine = {"Cookie": f"{name}={shown}"}
        assert (await send("GET", "/page/me", **mine))[0] == 200
        assert (await send("GET", "/page/v1/threads", **mine))[0] == 200
        assert await send("GET", "/v1/threads", **mine) == (401, "no_key")
        assert await send("GET", "/page/me", Cookie=f"{name}={shown[::-1]}") == (401, "no_session")
        for foreign in ("http://evil.example", "http://127.0.0.1:9", "null"):
            assert await send("POST", "/page/v1/threads/t/messages", {"text": "x"}, Origin=foreign, **mine) == (
                403,
                "foreign_page",
            )
        assert await send("POST", "/page/v1/threads/t/messages", {"text": "x"}, **mine) == (403, "foreign_page")
        for site in ("cross-site", "same-site"):
            assert await send("GET", "/page/v1/threads", Sec_Fetch_Site=site, **mine) == (403, "foreign_page")
        assert await send("GET", "/page/me", Host="evil.example", **mine) == (421, "foreign_host")
        assert (await send("POST", "/page/logout", {}, **own, **mine))[0] == 200
        assert await send("GET", "/page/me", **mine) == (401, "no_session")
    assert service.rows("SELECT count(*) FROM inbox") == [(0,)]
    kinds = [json.loads(bytes(body))["kind"] for (body,) in service.rows("SELECT body FROM audit ORDER BY seq")]
    assert [kind for kind in kinds if kind.startswith("page.")] == ["page.link", "page.signed_in", "page.signed_out"]
    assert token not in service.log()
    assert shown not in service.log()


async def test_each_tab_names_its_person_and_a_link_replaces_nobody_unasked(start: Start) -> None:
    service = await start(http=HTTP)
    links = [await make_link(service, f"telegram/{id}") for id in (7, 8, 7)]
    jane, ann, again = (link.partition("#")[2] for link in links)
    async with visitor(service) as send:
        own = {"Origin": address_of(service), "Sec_Fetch_Site": "same-origin"}
        _status, cookie = await send("POST", "/page/login", {"token": jane}, **own)
        mine = {"Cookie": cookie.partition(";")[0], **own}
        assert await send("POST", "/page/login", {"token": ann}, **mine) == (409, "signed_in_here")
        assert (await send("POST", "/page/login", {"token": again}, **mine))[0] == 200
        status, cookie = await send("POST", "/page/login", {"token": ann, "replace": True}, **mine)
        assert status == 200, "the refused link was not used"
        anns = {"Cookie": cookie.partition(";")[0], **own}
        said = {"text": "x"}
        janes, named = {**anns, "Fawn_Person": "telegram%3A7"}, {**anns, "Fawn_Person": "telegram%3A8"}
        assert await send("POST", "/page/v1/threads/t/messages", said, **janes) == (401, "other_person")
        assert await send("GET", "/page/v1/events?person=telegram%253A7", **anns) == (401, "other_person")
        assert await send("POST", "/page/logout", {}, **janes) == (401, "other_person")
        assert (await send("GET", "/page/me", **named))[0] == 200
        assert (await send("POST", "/page/logout", {}, **named))[0] == 200


async def test_a_link_asks_before_it_takes_the_place_of_another_person_and_other_tabs_follow(
    start: Start, browser: Browser
) -> None:
    service = await start(http=HTTP)
    first = await browser.tab(await make_link(service))
    await first.until("document.querySelector('#text')")
    link = await make_link(service, "telegram/8")
    second = await browser.tab(link)
    await second.until("document.querySelector('dialog .buttons')")
    assert "Another person is signed in here." in await second.text("dialog")
    await second.click("dialog .buttons button:not(.danger)")
    await second.until("document.querySelector('#text')")
    me = "fetch('/page/me').then((answer) => answer.json()).then((me) => me.person)"
    assert await second.eval(me) == "telegram:7"
    third = await browser.tab(link)
    await third.click("dialog .buttons .danger")
    await third.until("document.querySelector('#text')")
    assert await third.eval(me) == "telegram:8"
    await first.eval("window.isOld = true; 0")
    await first.send("for whom is this?")
    await first.until("!window.isOld && document.querySelector('#text')", what="the page of the other person")
    assert service.rows("SELECT count(*) FROM inbox") == [(0,)]


async def test_a_link_that_another_page_leads_to_asks_first(start: Start, browser: Browser) -> None:
    service = await start(http=HTTP)
    tab = await browser.tab()
    link = (await make_link(service)).replace("/login#", "/login?asks#")  # where /login leads whom another page sends
    async with visitor(service) as send, aiohttp.ClientSession() as client:
        assert (await send("GET", "/login", Sec_Fetch_Site="none"))[0] == 200
        asked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        async with client.get(f"{address_of(service)}/login", headers=asked, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/login?asks")
    await tab.go(link)
    await tab.until("document.querySelector('dialog .buttons')")
    assert service.rows("SELECT count(*) FROM page_sessions WHERE kind='session'") == [(0,)]
    await tab.click("dialog .buttons .danger")
    await tab.until("document.querySelector('#text')")


async def test_a_session_survives_a_restart_and_ends_with_its_person(start: Start) -> None:
    service = await start(http=HTTP)
    link = await make_link(service)
    async with visitor(service) as send:
        own = {"Origin": address_of(service), "Sec_Fetch_Site": "same-origin"}
        _status, cookie = await send("POST", "/page/login", {"token": link.partition("#")[2]}, **own)
    port, shown = re.match(r"fawn-(\d+)=([\w-]+)", cookie).groups()  # type: ignore[union-attr]  # a test
    service.configure({"http": {"listen": f"127.0.0.1:{port}"}})
    await service.restart()
    await until(lambda: service.log().count("http.listening") == 2, what="the listener")
    async with visitor(service) as send:
        assert (await send("GET", "/page/me", Cookie=f"fawn-{port}={shown}"))[0] == 200
        assert (await service.fawn("offboard", "telegram", "7"))[0] == 0
        assert await send("GET", "/page/me", Cookie=f"fawn-{port}={shown}") == (401, "no_session")


async def test_a_key_signs_in_and_ends_its_session(start: Start) -> None:
    service = await start(http=HTTP)
    await until(lambda: bool(address_of(service)), what="the listener")
    _code, text = await service.fawn("key", "add", "mine", "--person", "telegram/7", "--scopes", "read")
    [key] = re.findall(r"^fawn_[\w-]{43}$", text, re.MULTILINE)
    own = {"Origin": address_of(service), "Sec_Fetch_Site": "same-origin"}
    async with visitor(service) as send:
        assert await send("POST", "/page/login", {"key": "fawn_" + "x" * 43}, **own) == (401, "bad_key")
        _status, cookie = await send("POST", "/page/login", {"key": key}, **own)
        mine = {"Cookie": cookie.partition(";")[0]}
        assert (await send("GET", "/page/v1/threads", **mine))[0] == 200
        assert await send("POST", "/page/v1/threads/t/messages", {"text": "x"}, **own, **mine) == (403, "no_scope")
        assert (await service.fawn("key", "revoke", "mine"))[0] == 0
        assert await send("GET", "/page/v1/threads", **mine) == (401, "no_session")


async def test_a_used_link_is_explained_in_the_browser(start: Start, browser: Browser) -> None:
    service = await start(http=HTTP)
    link = await make_link(service)
    first = await browser.tab(link)
    await first.until("document.querySelector('#text')")
    assert await first.eval("location.href") != link  # the token is gone from the address
    assert await first.eval("document.cookie") == ""
    await first.eval(
        "fetch('/page/logout', {method: 'POST', body: '{}', headers: {'Content-Type': 'application/json'}})"
    )
    second = await browser.tab(link)
    await second.until("document.body.innerText.includes('This link was used before')")
    assert "fawn web link" in await second.text()


# ------------------------------------------------------------ the chat

DONE = "!document.querySelector('.turn.running') && document.querySelector('.turn .foot button') !== null"


async def shows(tab: Tab, words: str) -> None:
    """Wait until the agent, or a notice, says this."""
    said = "[...document.querySelectorAll('.agent')].some((each) => each.innerText.includes({}))"
    await tab.until(said.format(repr(words)), what=words)


async def test_an_approval_shows_the_exact_call_and_runs_it_once(page: OpenPage, bubblewrap: None) -> None:
    service, tab = await page(permissions={"ask": ["bash"]})
    await tab.send(ask(steps=[bash("echo '<b>exact</b>' >/mnt/user-data/workspace/proof")], text="did it"))
    await tab.until("document.querySelector('.question.approval.open .buttons button')")
    assert "echo '<b>exact</b>' >/mnt/user-data/workspace/proof" in await tab.text(".call")
    assert await tab.eval(
        "[...document.querySelectorAll('.buttons button')].slice(0, 2).map((each) => each.innerText)"
    ) == [
        "Approve",
        "Deny",
    ]
    await tab.click(".question.open .buttons button")
    await shows(tab, "did it")
    await tab.until("!document.querySelector('.question.open')")
    assert (service.folder_of() / "workspace/proof").read_text() == "<b>exact</b>\n"


async def test_a_cut_connection_and_a_killed_service_lose_and_double_nothing(page: OpenPage) -> None:
    service, tab = await page()
    port = address_of(service).rpartition(":")[2]
    await tab.send(ask(text="first answer"))
    await tab.until(DONE)
    await service.quiet()
    service.configure({"http": {"listen": f"127.0.0.1:{port}"}})
    await service.kill()
    await tab.until("document.querySelector('.state').classList.contains('bad')")
    await tab.send(ask(text="second answer"))  # while nobody listens
    await tab.until("document.querySelectorAll('.bubble').length === 2")
    await service.start()
    await shows(tab, "second answer")
    await tab.until("document.querySelectorAll('.agent .markdown').length === 2", 60)
    await tab.until(f"{DONE} && !document.querySelector('.state').classList.contains('bad')")
    assert await tab.count(".turn") == await tab.count(".bubble") == 2
    assert len(service.rows("SELECT 1 FROM runs")) == 2


# ------------------------------------------------------------ foreign text

MARKUP = (  # each would run `hit()` where it became markup, or were followed
    "<script>hit()</script>",
    "<img src=x onerror=hit()>",
    "<img/src/onerror=hit()>",
    "<svg onload=hit()>",
    "<svg><script>hit()</script></svg>",
    "<svg><animate onbegin=hit() attributeName=x>",
    "<body onload=hit()>",
    "<iframe src=javascript:top.hit()></iframe>",
    "<iframe srcdoc='<script>top.hit()</script>'></iframe>",
    "<object data=javascript:hit()></object>",
    "<embed src=javascript:hit()>",
    "<details open ontoggle=hit()>x</details>",
    "<input autofocus onfocus=hit()>",
    "<video><source onerror=hit()></video>",
    "<audio src=x onerror=hit()>",
    "<marquee onstart=hit()>x</marquee>",
    "<style>@import 'javascript:hit()'</style>",
    "<link rel=stylesheet href=javascript:hit()>",
    "<meta http-equiv=refresh content='0;url=javascript:hit()'>",
    "<base href=javascript:hit()//>",
    "<form action=javascript:hit()><button>x</button></form>",
    "<button onclick=hit()>x</button>",
    "<a href=javascript:hit()>x</a>",
    "<a href='java\tscript:hit()'>x</a>",
    "<math><mtext><table><mglyph><style><img src=x onerror=hit()>",
    "<template><script>hit()</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=hit()>'>",
    "<textarea><img title='</textarea><img src=x onerror=hit()>'>",
    "<xmp><img src=x onerror=hit()></xmp>",
    "<!--><img src=x onerror=hit()>-->",
    "<![CDATA[<img src=x onerror=hit()>]]>",
    "<p style=background:url(javascript:hit())>x</p>",
    "<div id=text class=send>x</div>",
    "</title><script>hit()</script>",
    "</div></article><script>hit()</script>",
    "\"><script>hit()</script>",
    "'><img src=x onerror=hit()>",
    "[x](javascript:hit())",
    "[x](JaVaScRiPt:hit())",
    "[x](javascript&colon;hit())",
    "[x](&#106;avascript:hit())",
    "[x](data:text/html,<script>hit()</script>)",
    "[x](vbscript:hit())",
    "![x](javascript:hit())",
    "![x](x\" onerror=\"hit())",
    "![\" onerror=hit() x=\"](http://127.0.0.1/x)",
    "<javascript:hit()>",
    "[x]: javascript:hit()\n\n[x]",
    "`<img src=x onerror=hit()>`",
    "| <img src=x onerror=hit()> | b |\n| --- | --- |\n| <svg onload=hit()> | [x](javascript:hit()) |",
    "```html\n<script>hit()</script>\n```",
    "```\"><img/src=x/onerror=hit()>\nx\n```",
)  # fmt: skip


# ------------------------------------------------------------ for everybody


@pytest.mark.skipif(not (MODULES / "axe-core").is_dir(), reason="axe-core is not installed: make dev, with Node.js")
async def test_screen_readers_and_eyes_find_no_serious_fault_in_either_colours(start: Start, browser: Browser) -> None:
    service = await start(http=HTTP)
    tab = await browser.tab(await make_link(service), csp=False)
    await tab.until("document.querySelector('#text')")
    call = {"name": "ask_clarification", "args": {"question": "Which **format**?", "options": ["csv", "xlsx"]}}
    await tab.send(ask(steps=[{"calls": [call]}], text="| a | b |\n| - | - |\n| 1 | 2 |\n\n```python\nx = 'one'\n```"))
    await tab.click(".question.open .buttons button")
    await tab.until(f"{DONE} && document.querySelector('.code .hljs-string')")
    await tab.eval(f"{(MODULES / 'axe-core/axe.min.js').read_text()}; 0")
    found = (
        "axe.run(document).then((seen) => seen.violations"
        ".filter((each) => ['serious', 'critical'].includes(each.impact))"
        ".map((each) => [each.id, each.nodes[0].html]))"
    )
    for colours in ("light", "dark"):
        await tab.prefer(prefers_color_scheme=colours, prefers_reduced_motion="reduce")
        assert await tab.eval(found) == [], colours
    await tab.write("/")
    await tab.until("document.querySelector('#commands li')")
    await tab.resize(390, 780, mobile=True)
    assert await tab.eval(found) == []
