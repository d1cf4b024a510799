"""The chat of the page in a real Chromium: what people do with an answer, and what it may contain.

The tests share one service: each signs in a person of its own.
"""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from agent.messages import Thread
from tests.e2e.test_page import DONE, HTTP, MARKUP, OpenPage, make_link, shows
from tests.e2e.test_probes import address_of
from tests.support.browser import Browser, Tab, shared_chromium
from tests.support.service_process import Service, ask, bash

pytestmark = pytest.mark.asyncio(loop_scope="module")
WORLD = {"http": HTTP, "sandbox": {}}
BUBBLES = "[...document.querySelectorAll('.bubble-text')].map((each) => each.textContent)"


@pytest_asyncio.fixture(loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with shared_chromium() as shared:
        yield shared


@pytest.fixture
def page(world: Service, browser: Browser, number: int) -> OpenPage:
    """`await page()` returns the service, and a tab in which the test's own person is signed in."""

    async def begin() -> tuple[Service, Tab]:
        tab = await browser.tab(await make_link(world, f"telegram/{number}"))
        await tab.until("document.querySelector('#text')")
        return world, tab

    return begin


async def shown_thread(tab: Tab, number: int) -> Thread:
    """Return the thread that the test's own person has open."""
    return Thread("web", "", f"telegram:{number}", await tab.eval("location.hash.split('/').at(-1)"))


async def test_a_message_is_answered_as_it_streams_and_a_reload_shows_the_same(page: OpenPage, number: int) -> None:
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
    assert len(service.rows_of(await shown_thread(tab, number), "1", "runs")) == 1
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


async def test_a_message_steers_and_stop_stops(page: OpenPage, number: int, bubblewrap: None) -> None:
    service, tab = await page()
    await tab.send(ask(steps=[bash("sleep 600")], text="never"))
    await tab.until("document.querySelector('.steps .mark.running')")
    await tab.send("and look at the weather")
    await tab.until("[...document.querySelectorAll('.bubble')].some((each) => each.innerText.includes('weather'))")
    await tab.press("Escape")
    await tab.until("!document.querySelector('.send.stop:not([hidden])')")
    await shows(tab, "Stopped")
    await service.quiet()
    assert min(service.rows_of(await shown_thread(tab, number), "id, state", "runs"))[1] == "stopped"


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


async def test_thumbs_are_kept_and_taken_back(page: OpenPage, number: int) -> None:
    service, tab = await page()
    given = f"SELECT value FROM feedback WHERE person='telegram:{number}'"  # noqa: S608 — a number
    await tab.send(ask(text="an opinion"))
    await tab.until(DONE)
    await tab.click(".foot button[aria-label='Good answer']")
    await tab.until("document.querySelector('.foot [aria-pressed=true]')")
    assert service.rows(given) == [(1,)]
    await tab.click(".foot button[aria-label='Good answer']")
    await tab.until("!document.querySelector('.foot [aria-pressed=true]')")
    assert service.rows(given) == [(0,)]


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


async def test_dropped_and_pasted_files_are_sent_and_pictures_come_back(
    page: OpenPage, number: int, bubblewrap: None
) -> None:
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
    assert len(service.rows_of(await shown_thread(tab, number), "1", "runs")) == 1


async def test_files_of_a_person_who_has_signed_out_are_gone_from_the_browser(page: OpenPage, bubblewrap: None) -> None:
    service, tab = await page()
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    await tab.send(ask(steps=[bash(f"echo {png} | base64 -d >/mnt/user-data/outputs/dot.png")], text="here it is"))
    await tab.until("document.querySelector('.preview img')?.naturalWidth === 1", what="the picture")
    picture = await tab.eval("document.querySelector('.preview img').src")

    async def status(**options: str) -> int:
        return int(await tab.eval(f"fetch({picture!r}, {json.dumps(options)}).then((answer) => answer.status)"))

    assert await status(cache="force-cache") == 200
    await tab.eval("fetch('/page/logout', {method: 'POST', body: '{}', headers: {'Content-Type': 'application/json'}})")
    assert [await status(), await status(cache="force-cache")] == [401, 401]
    await tab.go(await make_link(service, "telegram/8"))
    await tab.until("document.querySelector('#text')")
    assert [await status(), await status(cache="force-cache")] == [404, 404]


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


async def test_a_long_answer_at_speed_is_shown_whole(page: OpenPage) -> None:
    _service, tab = await page()
    await tab.send(ask(tokens=3000, tok_ms=2))
    await tab.until(f"{DONE} && document.querySelector('.agent .markdown')?.innerText.includes('w2999')", 90)
    assert await tab.eval("document.querySelector('.agent .markdown').innerText.trim().split(/\\s+/).length") == 3000


async def test_an_answer_is_tried_again_and_a_message_is_edited_and_sent_again(page: OpenPage, number: int) -> None:
    service, tab = await page()
    await tab.send(ask(text="the first try"))
    await tab.until(DONE)
    await tab.click(".foot button[aria-label='Try again']")
    await tab.until("document.querySelectorAll('.agent .markdown').length >= 2")
    await service.quiet()
    texts = service.rows_of(await shown_thread(tab, number), "kind, text", "transcript")
    assert [text for kind, text in texts if kind == "text"] == ["the first try", "the first try"]
    again = "document.querySelectorAll(\".foot button[aria-label='Try again']\").length === 1"
    await tab.until(again, what="only the latest answer to be tried again")
    await tab.click(".bubble-tools button[aria-label='Edit and send again']")
    written = await tab.eval("document.querySelector('#text').value")
    assert "the first try" in written
    await tab.eval("document.querySelector('#text').value = ''")
    await tab.write(written.replace("the first try", "the second wording"))
    await tab.press("Enter")
    await shows(tab, "the second wording")
    await tab.until(DONE)


async def test_one_click_copies_code_and_answers_and_wide_tables_scroll_inside(
    page: OpenPage, browser: Browser
) -> None:
    _service, tab = await page()
    await browser.grant("clipboardReadWrite", "clipboardSanitizedWrite")
    wide = "| " + " | ".join(f"column{number}" for number in range(40)) + " |"
    table = f"{wide}\n|{' --- |' * 40}\n{wide}"
    await tab.resize(390, 780, mobile=True)
    await tab.send(ask(text=f"```sh\necho 'one & two'\n```\n\n{table}\n\nThe end."))
    await tab.until(DONE)
    await tab.click(".code-head button")
    await tab.until("navigator.clipboard.readText().then((text) => text.trim() === \"echo 'one & two'\")")
    await tab.click(".foot button[aria-label='Copy the answer']")
    await tab.until("navigator.clipboard.readText().then((text) => text.includes('The end.'))")
    sizes = (
        "(() => { const place = document.querySelector('.table'); return [place.scrollWidth, place.clientWidth]; })()"
    )
    inner, outer = await tab.eval(sizes)
    assert inner > outer > 0
    assert await tab.eval("document.documentElement.scrollWidth") == 390
    assert await tab.eval("document.querySelector('.log').scrollWidth <= document.querySelector('.log').clientWidth")


async def test_diagrams_and_formulas_are_shown_as_they_are_written(page: OpenPage) -> None:
    _service, tab = await page()
    formulas = "Energy $E_a*b*c$ and \\(x_1 < y_2\\) cost $5 or $6.\n\n$$\n\\frac{a_b}{c_d}\n$$"
    words = f"{formulas}\n\n```mermaid\ngraph TD; A-->B;\n```"
    await tab.send(ask(text=words))
    await tab.until(DONE)
    codes = "[...document.querySelectorAll('.markdown code')].map((each) => each.textContent.trim())"
    assert await tab.eval(codes) == ["E_a*b*c", "x_1 < y_2", "\\frac{a_b}{c_d}", "graph TD; A-->B;"]
    assert "cost $5 or $6." in await tab.text(".markdown")
    heads = await tab.eval("[...document.querySelectorAll('.code-head span')].map((each) => each.textContent)")
    assert heads == ["latex", "mermaid"]


# Everything that a page may try from its frame; it says what it could do.
MADE_PAGE = """<!doctype html><title>made</title>
<link rel="preconnect" href="http://127.0.0.1:PORT"><link rel="dns-prefetch" href="//127.0.0.1:PORT">
<link rel="prefetch" href="http://127.0.0.1:PORT/a"><meta http-equiv="refresh" content="0;url=http://127.0.0.1:PORT/b">
<link rel="stylesheet" href="http://127.0.0.1:PORT/c"><body style="background: rgb(1, 2, 3)"><script>
const tried = {ran: true};
const attempt = (name, work) => { try { tried[name] = String(work()); } catch (error) { tried[name] = 'refused'; } };
attempt('parent', () => parent.document.title);
attempt('cookie', () => document.cookie);
attempt('storage', () => localStorage.length);
attempt('opened', () => String(window.open('/')));
attempt('origin', () => window.origin);
document.body.append('it ran');
Promise.all([
  fetch('/page/me').then(() => 'sent', () => 'refused'),
  new Promise((done) => { const image = new Image(); image.onload = image.onerror = (event) => done(event.type);
    image.src = '/page/static/icon.svg'; }),
]).then(([fetched, image]) => { parent.postMessage(JSON.stringify({...tried, fetched, image}), '*'); });
</script>"""


async def test_a_page_that_the_agent_made_runs_in_a_closed_frame_or_is_stored(page: OpenPage, bubblewrap: None) -> None:
    _service, tab = await page()
    calls: list[str] = []

    def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append("connected")
        writer.close()

    listener = await asyncio.start_server(note, "127.0.0.1", 0)
    made = MADE_PAGE.replace("PORT", str(listener.sockets[0].getsockname()[1]))
    await tab.send(ask(steps=[bash(f"cat >/mnt/user-data/outputs/made.html <<'END'\n{made}\nEND")], text="made it"))
    await tab.until("document.querySelector('.chip-pair button')", what="the button that shows it")
    await tab.eval(
        "window.told = ''; addEventListener('message', (event) => { window.told = [event.data, event.origin]; });"
        " document.addEventListener('load', (event) => { window.loaded = event.target.className; }, true); 0"
    )
    await tab.click(".chip-pair button")
    for _again in range(2):
        await tab.until("window.loaded === 'made-page'", what="the page without its scripts")
        await tab.press("Escape")
        await tab.until("!document.querySelector('dialog')")
        await tab.eval("window.loaded = ''; 0")
        await tab.click(".chip-pair button")
    assert [await tab.eval("window.told"), calls] == ["", []]
    assert "can then connect to other computers" in await tab.eval("document.querySelector('.run-scripts').title")
    await tab.click(".run-scripts")
    said, origin = await tab.until("window.told")
    assert origin == "null", "it has an origin of its own"
    told = json.loads(said)
    assert told["ran"] is True
    assert {told[name] for name in ("parent", "cookie", "storage", "fetched")} == {"refused"}
    assert (told["opened"], told["origin"], told["image"]) == ("null", "null", "error")
    listener.close()
    await tab.press("Escape")
    await tab.until("!document.querySelector('dialog')")
    address = await tab.eval("document.querySelector('.chip-pair a').href")
    ask_for = (
        "fetch({}).then((answer) => [answer.headers.get('Content-Disposition'), answer.headers.get('Content-Type')])"
    )
    for query in ("", "?page", "?inline"):
        how, kind = await tab.eval(ask_for.format(repr(address + query)))
        assert (how.partition(";")[0], kind) == ("attachment", "application/octet-stream"), query


async def test_a_thread_is_stored_as_markdown_with_its_files(page: OpenPage, bubblewrap: None) -> None:
    _service, tab = await page()
    await tab.send(ask(steps=[bash("echo inside >/mnt/user-data/outputs/'a b.txt'")], text="here is *the* file"))
    await shows(tab, "here is the file")
    await tab.until("document.querySelector('a.chip')")
    await tab.click("button[aria-label='This thread']")
    await tab.until("document.querySelector('.menu-list a[download]')")
    get = (
        "fetch(document.querySelector('.menu-list a[download]').href).then((answer) => answer.arrayBuffer())"
        ".then((bytes) => [...new Uint8Array(bytes)])"
    )
    archive = zipfile.ZipFile(io.BytesIO(bytes(await tab.eval(get))))
    [words, file] = [archive.read(name) for name in sorted(archive.namelist(), reverse=True)]
    assert file == b"inside\n"
    assert "here is *the* file" in words.decode()
    assert "a b.txt](<files/" in words.decode()


async def test_refusals_are_in_the_language_of_the_reader(page: OpenPage) -> None:
    _service, tab = await page()
    await tab.send(ask(text="one"))
    await tab.until(DONE)
    await tab.eval(
        "fetch('/page/v1/threads/x/commands', {method: 'POST', headers: {'Content-Type': 'application/json',"
        " 'Idempotency-Key': 'language'}, body: JSON.stringify({command: '/language zh'})})"
    )
    await tab.until("fetch('/page/me').then((answer) => answer.json()).then((me) => me.language === 'zh')")
    await tab.reload()
    await tab.until("document.documentElement.lang === 'zh' && document.querySelector('#text')")
    refused = (
        "import(document.querySelector('[type=module]').src.replace('app.js', 'api.js'))"
        ".then(({get}) => get('/threads/none-such').catch((problem) => problem.text))"
    )
    assert await tab.eval(refused) == "它已不存在，或从未存在。请重新加载页面。"
    assert await tab.eval("document.querySelector('#text').placeholder") != "Message Fawn…"


async def test_a_thread_is_deleted_after_a_question(page: OpenPage, number: int) -> None:
    service, tab = await page()
    await tab.send(ask(text="to be deleted"))
    await tab.until(f"{DONE} && document.querySelectorAll('.threads li').length === 1")
    await service.quiet()
    stored = f"SELECT 1 FROM transcript WHERE conversation='{service.conversation_of(await shown_thread(tab, number))}'"  # noqa: S608 — it is quoted
    assert service.rows(stored)
    await tab.click("button[aria-label='This thread']")
    await tab.click(".menu-list .danger")
    await tab.click("dialog .buttons .danger")
    await tab.until("document.querySelector('.hello') && document.querySelectorAll('.threads li').length === 0")
    await tab.reload()
    await tab.until(
        "performance.getEntriesByType('navigation')[0].type === 'reload' && document.querySelector('.hello')"
    )
    assert await tab.count(".threads li") == 0
    assert service.rows(stored) == []


async def test_the_model_is_chosen_from_the_menu_also_before_the_first_message(page: OpenPage, number: int) -> None:
    service, tab = await page()
    await tab.click(".pick")
    await tab.eval(
        "[...document.querySelectorAll('.menu-list button')].find((each) => each.innerText === 'high').click()"
    )
    await tab.send(ask(text="with effort"))
    await tab.until(f"{DONE} && document.body.innerText.includes('with the effort')")
    thread = await shown_thread(tab, number)
    assert ("main", "high", str(thread)) in service.rows("SELECT model, effort, thread FROM conversations")
    await tab.until("document.querySelectorAll('.bubble').length === 1", what="one message: nobody wrote a command")


def tasks(*works: str) -> list[dict[str, object]]:
    """Return calls that give each of these requests to a sub-agent."""
    names = ("left", "right")
    return [
        {"name": "task", "args": {"description": f"Look {name}", "prompt": work, "kind": "general-purpose"}}
        for name, work in zip(names, works, strict=False)
    ]


TREE = (  # each task with what is below it: title, whether it is open, the lines inside with their states
    "[...document.querySelectorAll('.steps > ul > li')].map((each) => [each.querySelector('.title').innerText,"
    " each.querySelector('.inner')?.open, [...each.querySelectorAll('.inner li')].map((line) =>"
    " line.className + ' ' + line.querySelector('.detail')?.textContent)])"
)


async def test_what_sub_agents_do_is_a_tree_live_and_after_a_reload(
    page: OpenPage, number: int, bubblewrap: None
) -> None:
    service, tab = await page()
    long = ask(steps=[bash("echo first"), bash("while ! test -e /mnt/user-data/workspace/go; do sleep 0.1; done")])
    await tab.send(ask(steps=[{"calls": tasks(long, ask(steps=[bash("exit 7")], text="found"))}], text="all done"))
    await tab.click(".steps > summary")
    await tab.until("document.querySelectorAll('.inner').length === 2", what="a part below each task")
    await tab.until("document.querySelectorAll('.steps > ul > li')[0].querySelectorAll('.inner li').length === 2")
    assert await tab.text(".inner > summary") == "Steps inside: 2"
    assert await tab.count(".inner[open]") == 0, "folded until somebody looks"
    await tab.click(".inner > summary")
    await tab.until("document.querySelector('.inner li.running')?.checkVisibility()")
    await tab.until("document.querySelectorAll('.steps > ul > li')[1].querySelector('.inner li.failed')")
    returned = "document.querySelectorAll('.steps > ul > li')[1].querySelector('.inner .returned pre').textContent"
    assert await tab.eval(returned) == "[exit code 7]"
    left, right = await tab.eval(TREE)
    assert left[2][0] == "done bash: echo first"
    assert left[2][1].startswith("running bash: while")
    assert right == ["Task: Look right", False, ["failed bash: exit 7"]]
    await tab.eval("window.kept = document.querySelector('.inner'); window.kept.querySelector('summary').focus()")
    (service.folder_of(await shown_thread(tab, number)) / "workspace" / "go").touch()
    await shows(tab, "all done")
    await tab.until(DONE)
    await tab.until("document.querySelector('.inner') === window.kept", what="the line stays, and with it the keyboard")
    assert await tab.eval("window.kept.open && document.activeElement === window.kept.querySelector('summary')")
    ended = await tab.eval(TREE)
    assert [[line.partition(" ")[0] for line in inside] for _title, _open, inside in ended] == [
        ["done", "done"],
        ["failed"],
    ]
    await tab.reload()
    await tab.until(f"performance.getEntriesByType('navigation')[0].type === 'reload' && {DONE}")
    await tab.click(".steps > summary")
    again = await tab.eval(TREE)
    assert [(title, inside) for title, _open, inside in again] == [(title, inside) for title, _open, inside in ended]
    assert not any(is_open for _title, is_open, _inside in again)
    assert tab.problems == []


async def test_a_tab_that_comes_later_sees_the_tree_of_what_still_works(
    page: OpenPage, browser: Browser, bubblewrap: None
) -> None:
    _service, tab = await page()
    await tab.send(ask(steps=[{"calls": tasks(ask(steps=[bash("echo first"), bash("sleep 600")]))}], text="never"))
    await tab.until("document.querySelectorAll('.inner li').length === 2")
    second = await browser.tab(await tab.eval("location.href"))
    await second.until("document.querySelectorAll('.inner li').length === 2")
    assert await second.eval(TREE) == await tab.eval(TREE)
    await second.press("Escape")
    await second.until("!document.querySelector('.send.stop:not([hidden])')")
    await second.until("document.querySelectorAll('.inner li')[1].className === 'stopped'")
    await tab.until("document.querySelectorAll('.inner li')[1].className === 'stopped'")


async def test_times_are_written_in_the_language_of_the_page(page: OpenPage) -> None:
    _service, tab = await page()
    write = (
        "import(document.querySelector('[type=module]').src.replace('app.js', 'dom.js'))"
        ".then(({timeText}) => { document.documentElement.lang = '%s';"
        " return timeText(Date.UTC(2026, 10, 26, 12), 'day'); })"
    )
    assert await tab.eval(write % "en") == "Nov 26, 2026"
    assert await tab.eval(write % "zh") == "2026年11月26日"
