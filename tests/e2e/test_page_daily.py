"""The page from day to day: sessions that end, lists that change under one's hands, touch screens, and deep trees."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientSession, CookieJar

from tests.e2e.conftest import Start
from tests.e2e.test_page import DONE, HTTP, MARKUP, OpenPage, browser, make_link, page, shows
from tests.e2e.test_probes import address_of
from tests.e2e.test_subagents import WAIT, finish_work, task
from tests.fakes.server import until
from tests.support.browser import Browser
from tests.support.service_process import Service, ask, bash

__all__ = ["browser", "page"]
DRAFT = "document.querySelector('#text').value"


def end_sessions(service: Service) -> None:
    """Have all sessions of the page run out."""
    service.change("UPDATE page_sessions SET until=1 WHERE kind='session'")


async def test_a_session_that_ends_in_the_middle_of_a_draft_loses_nothing(page: OpenPage, browser: Browser) -> None:
    service, tab = await page()
    await tab.send(ask(text="the first answer"))
    await tab.until(DONE)
    await tab.eval(
        "(() => { const held = new DataTransfer(); held.items.add(new File(['kept'], 'kept.txt'));"
        " document.querySelector('#text').dispatchEvent(new ClipboardEvent('paste',"
        " {clipboardData: held, bubbles: true, cancelable: true})); })()"
    )
    written = ask(text="the second answer")
    await tab.write(written)
    end_sessions(service)
    await tab.press("Enter")
    await tab.until("document.querySelector('dialog .signin')", what="the question to sign in again")  # to any request
    await tab.until(f"{DRAFT} === {json.dumps(written)}", what="the draft, back from the refused message")
    assert await tab.count(".composer .chip") == 1
    await shows(tab, "the first answer")

    await browser.tab(await make_link(service))  # in another tab
    await tab.until("!document.querySelector('dialog')", what="this tab to go on")
    assert await tab.eval(DRAFT) == written
    await tab.eval("document.querySelector('#text').focus()")
    await tab.press("Enter")
    await shows(tab, "the second answer")
    await tab.until("document.querySelector('.bubble .chip')?.innerText.includes('kept.txt')")

    await tab.until(DONE)
    await tab.write("private words")
    end_sessions(service)
    other = await browser.tab(await make_link(service, "telegram/8"))
    await other.until("document.querySelector('#text')", what="the other person's page")
    await tab.eval("window.old = true; location.reload()")
    await tab.until("!window.old && document.querySelector('#text')?.value === ''", what="nothing of it for others")
    assert "private words" not in str(await tab.eval("JSON.stringify(sessionStorage)"))
    assert "second answer" not in await tab.text()


async def test_signing_out_leaves_nothing_in_the_other_tabs(page: OpenPage, browser: Browser) -> None:
    _service, tab = await page()
    await tab.send(ask(text="an answer"))
    await tab.until(DONE)
    other = await browser.tab(await tab.eval("location.href"))
    await shows(other, "an answer")
    await other.write("half a thought")
    await tab.click(".side-actions button[aria-label='Sign out']")
    for each in (tab, other):
        await each.until("document.querySelector('main.signin')")
        assert "an answer" not in await each.text()
        assert "half a thought" not in str(await each.eval("JSON.stringify(sessionStorage)"))


async def test_a_message_stands_above_its_work_from_the_first_moment(page: OpenPage) -> None:
    _service, tab = await page()
    await tab.eval(
        "window.wrong = []; new MutationObserver(() => { for (const turn of document.querySelectorAll('.turn.running'))"
        " if (!turn.querySelector('.bubble')) window.wrong.push(turn.innerText); })"
        ".observe(document.body, {subtree: true, childList: true, attributes: true}); 0"
    )
    for number in range(4):
        await tab.send(ask(text=f"answer {number}"))
        await tab.until(f"document.querySelectorAll('.agent .markdown').length === {number + 1} && {DONE}")
    assert await tab.eval("window.wrong") == []


async def test_a_list_that_is_drawn_anew_keeps_the_keyboard_and_a_drawer_keeps_the_screen(page: OpenPage) -> None:
    _service, tab = await page()
    await tab.send(ask(text="one"))
    await tab.until(f"{DONE} && document.querySelector('.threads a')")
    await tab.eval("window.before = document.querySelector('.threads a'); window.before.focus()")
    await tab.eval(
        "fetch(`/page/threads/${location.hash.split('/').at(-1)}/title`, {method: 'POST', headers: {'Content-Type':"
        " 'application/json'}, body: JSON.stringify({title: 'another'})})"
    )
    await tab.until("window.before !== document.querySelector('.threads a')", what="the list to be drawn anew")
    assert await tab.eval("document.activeElement === document.querySelector('.threads a')")
    await tab.call("Emulation.setTouchEmulationEnabled", enabled=True)
    await tab.resize(390, 780, mobile=True)
    gone = "getComputedStyle(document.querySelector('#sidebar')).visibility === 'hidden'"
    await tab.until(f"matchMedia('(pointer: coarse)').matches && {gone}", what="the list to have slid away")
    await tab.click(".menu")
    await tab.until("document.activeElement.id === 'sidebar'", what="the list without a keyboard over it")
    await tab.press("Escape")
    await tab.until("document.activeElement.matches('.menu')", what="the keyboard back where it was")
    assert await tab.eval("getComputedStyle(document.querySelector('.hint')).visibility") == "hidden"


async def test_a_tree_has_any_depth_and_one_thing_is_one_thing(page: OpenPage) -> None:
    _service, tab = await page()
    depth = 12
    steps = [
        {"type": "step", "id": f"s{n}", "title": f"level {n}", "state": "done", "parent": f"s{n - 1}" if n else ""}
        for n in range(depth)
    ]
    shown = {"run": 1, "at": 1, "state": "done", "said": [], "blocks": steps, "plan": [], "tokens": 1, "seconds": 60}
    await tab.eval(
        "Promise.all(['turn.js', 'fold.js'].map((name) =>"
        " import(document.querySelector('[type=module]').src.replace('app.js', name))))"
        ".then(([turn, fold]) => {"
        f" const view = new turn.TurnView({{}}); view.update(fold.turnOf({shown!r}), {{isLast: true, isMine: true}});"
        " document.querySelector('.log').replaceChildren(view.element);"
        " view.element.querySelectorAll('details').forEach((each) => { each.open = true; }); })"
    )
    levels = "[...document.querySelectorAll('.steps .step > div > .title')].map((each) => each.innerText)"
    assert await tab.eval(levels) == [f"level {n}" for n in range(depth)]
    assert await tab.count(".steps .inner") == depth - 1
    assert (await tab.text(".facts")).endswith("1 token")
    await tab.resize(390, 780, mobile=True)
    assert await tab.eval("document.documentElement.scrollWidth") == 390
    last = "document.querySelectorAll('.steps .step > div > .title')"
    assert await tab.eval(f"[...{last}].at(-1).getBoundingClientRect().width") > 40, "the deepest one can be read"


async def test_what_is_written_on_the_operators_screen_stays_when_something_else_comes(
    start: Start, browser: Browser, bubblewrap: None
) -> None:
    service = await start(http=HTTP, team={"default_role": "operator"})
    tab = await browser.tab(await make_link(service))
    await tab.until("document.querySelector('#text')")
    call = {"name": "ask_clarification", "args": {"question": "Which colour?", "options": []}}
    await tab.send(ask(steps=[{"calls": [call]}], text="painted"))
    await tab.until("document.querySelector('.question.open')")
    await tab.click(".begin")
    await tab.until("document.querySelector('.hello')")
    choice = {"name": "ask_clarification", "args": {"question": "Which size?", "options": ["small", "large"]}}
    await tab.send(ask(steps=[WAIT, {"calls": [choice]}], text="cut"))
    await tab.until("document.querySelector('.steps .mark.running')")
    await tab.eval("location.hash = '#/operate'")
    await tab.write("bright or", ".operate .question input")
    await finish_work(service)
    await tab.until("document.querySelectorAll('.operate .question').length === 2", what="the other question")
    await tab.call("Input.insertText", text="ange")
    assert await tab.eval("document.querySelector('.operate .question input').value") == "bright orange"
    looks = "[...document.querySelectorAll('.operate .question .buttons button')].map((each) => each.className)"
    assert await tab.eval(looks) == ["", ""], "no answer of a question is the right one, or a dangerous one"
    await tab.press("Enter")
    await tab.until("document.querySelectorAll('.operate .question').length === 1")
    await tab.click(".operate .question .buttons button", 1)
    await tab.until("document.querySelector('.operate .card.none #card-waiting')")
    await service.quiet()


async def test_what_belongs_to_another_person_is_not_there(start: Start, bubblewrap: None) -> None:
    """Whoever knows the ids of a thread, a run, a question and a file of another person can do nothing with them."""
    service = await start(http=HTTP)
    address = address_of(service)
    async with signed_in(service) as owner, signed_in(service, "telegram/8") as stranger:
        call = {"name": "ask_clarification", "args": {"question": "Which?", "options": ["a", "b"]}}
        steps = [bash("echo mine >/mnt/user-data/outputs/mine.txt"), {"calls": [call]}]
        body = {"text": ask(steps=steps, text="done")}
        own = {"Origin": address, "Idempotency-Key": "k1"}
        async with owner.post("/page/v1/threads/mine/messages", json=body, headers=own) as answer:
            assert answer.status == 202, await answer.text()
        await until(lambda: service.rows("SELECT 1 FROM questions WHERE state='open'"), what="the question")
        await service.quiet()
        [(question,)] = service.rows("SELECT id FROM questions")
        [(run,)] = service.rows("SELECT id FROM runs")
        async with owner.get("/page/threads/mine") as answer:
            shown = await answer.text()
        [file] = set(re.findall(r"/v1/files/[\w%.:-]+", shown))
        for method, path, sent in (
            ("GET", "/page/threads/mine", None),
            ("GET", "/page/threads/mine/download", None),
            ("DELETE", "/page/v1/threads/mine", None),
            ("GET", f"/page{file}", None),
            ("POST", f"/page/v1/runs/{run}/stop", {}),
            ("POST", f"/page/runs/{run}/thumb", {"thumb": "up"}),
            ("POST", f"/page/v1/questions/{question}/answer", {"answer": "a"}),
            ("POST", "/page/threads/mine/press", {"ask": question, "option": "a"}),
        ):
            async with stranger.request(method, path, json=sent, headers={"Origin": address}) as answer:
                assert answer.status in (403, 404), (method, path, await answer.text())
                assert "mine.txt" not in await answer.text()
        async with stranger.get("/page/search", params={"words": "please"}) as answer:
            assert await answer.json() == {"found": []}
        async with stranger.get("/page/v1/threads") as answer:
            assert (await answer.json())["threads"] == []
        assert service.rows("SELECT state FROM questions") == [("open",)]
        async with owner.get(f"/page{file}") as answer:
            assert await answer.text() == "mine\n"


async def test_markup_in_names_of_sub_agents_stays_text(page: OpenPage) -> None:
    service, tab = await page()
    await tab.eval("window.hits = 0; window.hit = () => { window.hits += 1; }; 0")
    calls = [task(f"{text} {n}", text=f"found {text}") for n, text in enumerate(MARKUP[:6])]
    await tab.send(ask(steps=[{"calls": calls}], text="all done"))
    await tab.until(DONE)
    await tab.eval("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    titles = "[...document.querySelectorAll('.steps .title')].map((each) => each.innerText).join(' ')"
    assert "<img" in str(await tab.eval(titles))
    assert await tab.count(".steps :is(img, script, iframe, object)") == 0
    assert await tab.eval("window.hits") == 0
    assert not [each for each in tab.problems if "Content Security Policy" in each or "Trusted" in each], tab.problems
    await service.quiet()


@asynccontextmanager
async def signed_in(service: Service, person: str = "telegram/7") -> AsyncIterator[ClientSession]:
    """Yield a client with the session of a person."""
    address, _hash, token = (await make_link(service, person)).replace("/login", "").partition("#")
    async with ClientSession(base_url=address, cookie_jar=CookieJar(unsafe=True)) as client:
        async with client.post("/page/login", json={"token": token}, headers={"Origin": address}) as answer:
            assert answer.status == 200
        yield client


PASTE = (
    "(() => { const held = new DataTransfer(); held.items.add(new File(['kept'], 'kept.txt'));"
    " document.querySelector('#text').dispatchEvent(new ClipboardEvent('paste',"
    " {clipboardData: held, bubbles: true, cancelable: true})); })()"
)
CHIP = "document.querySelector('.composer .chip')?.innerText.includes('kept.txt')"


async def test_back_leads_to_the_thread_before_and_empty_threads_leave_no_trace(page: OpenPage) -> None:
    _service, tab = await page()
    before = await tab.eval("history.length")
    for _press in range(3):
        await tab.click(".begin")
    assert await tab.eval("history.length") == before
    await tab.send(ask(text="the first answer"))
    await tab.until(DONE)
    await tab.click(".begin")
    await tab.until("document.querySelector('.hello')", what="an empty thread")
    await tab.eval("history.back()")
    await shows(tab, "the first answer")
    assert tab.problems == []


async def test_what_is_not_sent_looks_so_and_is_sent_by_itself_with_its_files_also_after_a_reload(
    page: OpenPage,
) -> None:
    service, tab = await page()
    await tab.eval(PASTE)
    await tab.until(CHIP)
    await tab.reload()
    await tab.until(CHIP, what="the file that was chosen, after a reload")
    await tab.offline(cut=True)
    await tab.send(ask(text="the answer"))
    await tab.until("document.querySelector('.turn.unsent .passing')?.innerText.includes('Not sent yet')")
    assert float(await tab.eval("getComputedStyle(document.querySelector('.turn.unsent .bubble')).opacity")) < 1
    await tab.offline(cut=False)
    await tab.go("about:blank")
    await tab.go(address_of(service))
    await tab.until("document.querySelector('#text')")
    await until(lambda: service.rows("SELECT 1 FROM runs WHERE state='done'"), what="the message, by itself")
    assert len(service.rows("SELECT 1 FROM runs")) == 1
    await tab.click(".threads a")
    await shows(tab, "the answer")
    assert await tab.count(".bubble .chip") == 1
    assert await tab.count(".composer .chip, .turn.unsent") == 0


async def test_files_that_a_person_chose_are_nobody_elses(page: OpenPage, browser: Browser) -> None:
    service, tab = await page()
    await tab.eval(PASTE)
    await tab.until(CHIP)
    place = await tab.eval("location.hash")
    await tab.click(".side-actions [aria-label='Sign out']")
    await tab.until("document.querySelector('.signin')")
    other = await browser.tab(await make_link(service, "telegram/8"))
    await other.until("document.querySelector('#text')")
    await other.go(f"{address_of(service)}/{place}")
    await other.until("document.querySelector('#text')")
    kept = "indexedDB.databases().then((all) => Promise.all(all.map(({name}) => new Promise((done) => {"
    kept += (
        "const asked = indexedDB.open(name); asked.onsuccess = () => { const store = asked.result.transaction('files')"
    )
    kept += ".objectStore('files').getAll(); store.onsuccess = () => done(JSON.stringify(store.result)); }; }))))"
    assert await other.eval(kept) == ['["telegram:8"]']
    assert await other.count(".composer .chip") == 0


async def test_words_run_their_own_way_and_paper_shows_the_whole_thread(page: OpenPage) -> None:
    _service, tab = await page()
    await tab.send(ask(text="\u05e9\u05dc\u05d5\u05dd, x\n\n" + "a line\n\n" * 100))
    await tab.until(DONE)
    await tab.write("\u05e9\u05dc\u05d5\u05dd")
    assert await tab.eval("document.querySelector('#text').matches(':dir(rtl)')")
    at_right = (
        "(() => { const p = document.querySelector('.agent .markdown p'), range = document.createRange();"
        " range.selectNodeContents(p); const right = (each) => each.getBoundingClientRect().right;"
        " return right(p) - right(range); })()"
    )
    assert await tab.eval(at_right) < 1
    await tab.call("Emulation.setEmulatedMedia", media="print")
    left_out = "document.querySelectorAll('.sidebar, .composer-place, .foot, .bubble-tools')"
    shown = await tab.eval(f"[...{left_out}].map((each) => each.checkVisibility())")
    assert not any(shown)
    assert await tab.eval("((log) => log.scrollHeight <= log.clientHeight)(document.querySelector('.log'))")
    assert await tab.eval("document.documentElement.scrollHeight > 3000")


async def test_the_browser_tells_of_the_end_of_long_work_where_nobody_looks(page: OpenPage, browser: Browser) -> None:
    _service, tab = await page(limits={"notify_seconds": 0.001})
    await browser.grant("notifications")
    await tab.eval(  # a note is seen by a person only, and each tab of a headless Chromium has the focus
        "window.told = []; window.Notification = class extends Notification {"
        " constructor(title, options) { super(title, options); told.push(options.body); } }; 0"
    )
    await tab.send(ask(text="an answer before anybody asked for notes"))
    await tab.until(DONE)
    button = (
        "[...document.querySelectorAll('.operate button')].find((each) => each.innerText.includes('in this browser'))"
    )
    await tab.click("[data-view=me]")
    await tab.until(f"{button}?.innerText.startsWith('Tell me')")
    await tab.eval(f"{button}.click()")
    await tab.until(f"{button}?.innerText.startsWith('Stop telling')")
    await tab.eval("history.back()")
    await tab.send(ask(text="an answer that is looked at"))
    await tab.until(f"{DONE} && document.querySelectorAll('.turn').length === 2")
    await tab.eval("document.hasFocus = () => false; 0")
    await tab.send(ask(text="an answer that nobody sees"))
    await tab.until("told.length")
    assert await tab.eval("told") == ["Your answer is ready."]
    assert tab.problems == []
