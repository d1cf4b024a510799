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


async def test_a_message_is_answered_as_it_streams_and_a_reload_shows_the_same(page: OpenPage) -> None:
    service, tab = await page()
    await tab.eval(
        "window.grew = new Promise((seen) => new MutationObserver(() => {"
        " if (document.querySelector('.markdown.grows') && document.querySelector('.send.stop:not([hidden])'))"
        " seen(true);"
        " }).observe(document.body, {subtree: true, childList: true, attributes: true})); 0"
    )
    await tab.send(
        ask(text="## Result\n\n| a | b |\n| --- | ---: |\n| 1 | **2** |\n\n```python\nx = 1\n```", tok_ms=100)
    )
    await tab.until("window.grew", what="a text that grows, and the button to stop it")
    await tab.until(DONE)
    assert await tab.text(".markdown h2") == "Result"
    assert await tab.text("td strong") == "2"
    await tab.until("document.querySelector('.code .hljs-number')", what="colours")
    before = await tab.eval("[...document.querySelectorAll('.turn')].map((turn) => turn.innerText)")
    await tab.reload()
    await tab.until(f"performance.getEntriesByType('navigation')[0].type === 'reload' && {DONE}")
    assert await tab.eval("[...document.querySelectorAll('.turn')].map((turn) => turn.innerText)") == before
    assert await tab.text(".threads a[aria-current]") == await tab.text(".title")
    assert tab.problems == []
    assert len(service.rows("SELECT 1 FROM runs")) == 1
    assert all(url.startswith(address_of(service)) for url in tab.requests if not url.startswith("blob:"))


async def test_steps_fold_into_one_line_and_open(page: OpenPage, bubblewrap: None) -> None:
    _service, tab = await page()
    await tab.send(ask(steps=[bash("echo one"), bash("exit 3"), bash("echo three")], text="finished"))
    await tab.until(DONE, 60)
    await tab.until("document.querySelector('.steps summary')?.innerText.startsWith('3 steps')")
    assert not await tab.eval("document.querySelector('.steps li').checkVisibility()")
    await tab.click(".steps summary")
    assert await tab.eval("document.querySelectorAll('.steps li').length") == 3
    assert "echo one" in await tab.text(".steps")


async def test_a_message_steers_and_stop_stops(page: OpenPage, bubblewrap: None) -> None:
    service, tab = await page()
    await tab.send(ask(steps=[bash("sleep 600")], text="never"))
    await tab.until("document.querySelector('.steps .mark.running')")
    await tab.send("and look at the weather")
    await tab.until("[...document.querySelectorAll('.bubble')].some((each) => each.innerText.includes('weather'))")
    await tab.press("Escape")
    await tab.until("!document.querySelector('.send.stop:not([hidden])')")
    await shows(tab, "Stopped")
    await service.quiet()
    assert service.rows("SELECT state FROM runs ORDER BY id LIMIT 1") == [("stopped",)]


async def test_a_question_is_answered_by_its_button_and_a_second_tab_sees_it(page: OpenPage, browser: Browser) -> None:
    _service, tab = await page()
    call = {"name": "ask_clarification", "args": {"question": "Which **format**?", "options": ["csv", "xlsx"]}}
    await tab.send(ask(steps=[{"calls": [call]}], text="as you wish"))
    await tab.until("document.querySelectorAll('.question.open .buttons button').length === 2")
    second = await browser.tab(await tab.eval("location.href"))
    await second.until("document.querySelectorAll('.question.open .buttons button').length === 2")
    await second.click(".question.open .buttons button", 1)
    for each in (tab, second):
        await shows(each, "as you wish")
        await each.until("document.querySelector('.question:not(.open) .outcome')?.innerText === 'xlsx'")
        assert await each.count(".question") == 1
        await each.until(DONE)


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


async def test_commands_are_completed_and_answered_in_the_thread(page: OpenPage) -> None:
    _service, tab = await page()
    await tab.send(ask(text="ready"))  # until then, it says that it starts
    await tab.until(DONE)
    await tab.write("/sta")
    await tab.until("document.querySelector('#commands li[aria-selected=true]')?.innerText.startsWith('/status')")
    await tab.press("Enter")
    assert await tab.eval("document.querySelector('#text').value") == "/status"
    await tab.press("Enter")
    await shows(tab, "All is well.")
    await tab.until("document.querySelector('.bubble.command')?.innerText.includes('/status')")


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


async def test_a_thread_is_named_found_and_opened_again(page: OpenPage) -> None:
    _service, tab = await page()
    await tab.send(ask(text="the budget of the zebra"))
    await shows(tab, "the budget of the zebra")
    await tab.until(DONE)
    await tab.click(".begin")
    await tab.until("document.querySelector('.hello')")
    await tab.send(ask(text="something else"))
    await tab.until(f"document.querySelectorAll('.threads li').length === 2 && {DONE}")
    await tab.write("zebra budget", ".search input")
    await tab.until("document.querySelector('.threads .snippet')?.innerText.includes('zebra')")
    await tab.click(".threads a")
    await shows(tab, "the budget of the zebra")
    await tab.eval("document.querySelector('.rename').click()")
    await tab.eval("document.querySelector('.title-field').select()")
    await tab.write("Zoo & money", ".title-field")
    await tab.press("Enter")
    await tab.until("document.querySelector('.title')?.innerText === 'Zoo & money'")


async def test_thumbs_are_kept_and_taken_back(page: OpenPage) -> None:
    service, tab = await page()
    await tab.send(ask(text="an opinion"))
    await tab.until(DONE)
    await tab.click(".foot button[aria-label='Good answer']")
    await tab.until("document.querySelector('.foot [aria-pressed=true]')")
    assert service.rows("SELECT value FROM feedback") == [(1,)]
    await tab.click(".foot button[aria-label='Good answer']")
    await tab.until("!document.querySelector('.foot [aria-pressed=true]')")
    assert service.rows("SELECT value FROM feedback") == [(0,)]


async def test_twelve_tabs_share_one_stream_and_another_one_takes_it_over(page: OpenPage, browser: Browser) -> None:
    _service, tab = await page()
    await tab.send(ask(text="for all"))
    await tab.until(DONE)
    address = await tab.eval("location.href")
    tabs = [tab, *[await browser.tab(address) for _ in range(11)]]
    for each in tabs:
        await shows(each, "for all")
    await tabs[-1].send(ask(text="again for all"))
    for each in tabs:
        await each.until("document.querySelectorAll('.agent .markdown').length === 2")
    assert sum(1 for each in tabs if any("/v1/events" in url for url in each.requests)) == 1
    await tab.close()
    await tabs[5].send(ask(text="the holder is gone"))
    for each in tabs[1:]:
        await each.until("document.querySelectorAll('.agent .markdown').length === 3")


async def test_dropped_and_pasted_files_are_sent_and_pictures_come_back(page: OpenPage, bubblewrap: None) -> None:
    service, tab = await page()
    for kind, event in (("drop", "DragEvent"), ("paste", "ClipboardEvent")):
        data = "dataTransfer" if kind == "drop" else "clipboardData"
        await tab.eval(
            "(() => { const held = new DataTransfer();"
            f" held.items.add(new File(['what came by {kind}'], '{kind}ed <b>.txt'));"
            f" document.querySelector('#text').dispatchEvent(new {event}('{kind}',"
            f" {{{data}: held, bubbles: true, cancelable: true}})); }})()"
        )
    assert await tab.count(".composer .chip") == 2
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    make = f"cd /mnt/user-data; cat uploads/* >outputs/all.txt; echo {png} | base64 -d >outputs/dot.png"
    await tab.send(ask(steps=[bash(make)], text="here they are"))
    await shows(tab, "here they are")
    await tab.until("document.querySelector('.preview img')?.naturalWidth === 1", what="the picture")
    links = await tab.eval("[...document.querySelectorAll('.turn a.chip')].map((each) => each.download)")
    assert sorted(links) == ["all.txt", "dot.png", "droped _b_.txt", "pasteed _b_.txt"]
    link = "[...document.querySelectorAll('a.chip')].find((each) => each.download === 'all.txt').href"
    assert await tab.eval(f"fetch({link}).then((answer) => answer.text())") == "what came by dropwhat came by paste"
    assert tab.problems == []
    assert len(service.rows("SELECT 1 FROM runs")) == 1


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


async def test_no_markup_of_others_becomes_markup_anywhere(page: OpenPage, bubblewrap: None) -> None:
    assert len(MARKUP) >= 50
    service, tab = await page()
    await tab.eval("window.hits = 0; window.hit = () => { window.hits += 1; }; 0")
    everything = "\n\n".join(MARKUP)
    question = {"name": "ask_clarification", "args": {"question": everything, "options": [*MARKUP[:4]]}}
    work = [bash(f"echo {MARKUP[0]!r} >'/mnt/user-data/outputs/<img src=x onerror=hit()>.txt' # {MARKUP[1]}")]
    await tab.send(ask(steps=[*work, {"calls": [question]}], text=everything))
    await tab.until("document.querySelector('.question.open .buttons button')", what="the question")
    await tab.eval("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    await tab.click(".question.open .buttons button")
    await shows(tab, "hit()")
    await tab.until(DONE)
    await tab.eval("document.querySelector('.rename').click()")
    await tab.eval("document.querySelector('.title-field').select()")
    await tab.write(MARKUP[1], ".title-field")
    await tab.press("Enter")
    await tab.until(f"document.querySelector('.title')?.innerText === {MARKUP[1]!r}")
    await tab.send(everything)  # which the model echoes
    await tab.until("document.querySelectorAll('.turn').length >= 3 && !document.querySelector('.turn.running')")
    allowed = (
        "a p br hr em strong del code pre blockquote ul ol li h1 h2 h3 h4 h5 h6 table thead tbody tr th td span div"
    )
    odd = (
        "[...document.querySelectorAll('.markdown *')].filter((each) => !each.closest('.icon-button') &&"
        f" !'{allowed} button svg path'.split(' ').includes(each.localName)).map((each) => each.outerHTML)"
    )
    assert await tab.eval(odd) == []
    attributes = (
        "[...document.querySelectorAll('*')].flatMap((each) => [...each.attributes])"
        ".filter((each) => /^on/i.test(each.name) || /^\\s*(javascript|vbscript|data):/i.test(each.value))"
        ".map((each) => each.name + '=' + each.value)"
    )
    assert await tab.eval(attributes) == []
    assert await tab.eval("window.hits") == 0
    assert not [each for each in tab.problems if "Content Security Policy" in each or "Trusted" in each], tab.problems
    assert not [url for url in tab.requests if not url.startswith((address_of(service), "blob:", "data:"))]


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


async def test_a_long_answer_at_speed_is_shown_whole(page: OpenPage) -> None:
    _service, tab = await page()
    await tab.send(ask(tokens=3000, tok_ms=2))
    await tab.until(f"{DONE} && document.querySelector('.agent .markdown')?.innerText.includes('w2999')", 90)
    assert await tab.eval("document.querySelector('.agent .markdown').innerText.trim().split(/\\s+/).length") == 3000
