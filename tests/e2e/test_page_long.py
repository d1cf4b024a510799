"""The page with many threads and a long one: nothing of it is lost, jumps, or has to be looked for by hand."""

from __future__ import annotations

from tests.e2e.test_page import DONE, OpenPage, browser, page, shows
from tests.support.browser import CTRL
from tests.support.service_process import Service, ask, bash

__all__ = ["browser", "page"]
TURNS = 300  # more than one page of a thread
TURN = (
    "INSERT INTO transcript (conversation, run, item, kind, author, name, text, state, at, asks, parent, step_title)"
    " WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i+1<:turns), parts(kind) AS"
    " (SELECT 'message' UNION ALL SELECT 'text')"
    " SELECT c.key, 900000+i, kind || ':seeded' || i, kind, CASE kind WHEN 'message' THEN :author ELSE '' END, '',"
    " kind || ' number ' || i || CASE i WHEN 3 THEN ' with a Needle' ELSE '' END, '', c.created-1000+i, '', '', ''"
    " FROM n, parts, conversations c ORDER BY i, kind"
)
THREADS = (
    "INSERT INTO conversations (key, thread, title, model, state, created, used)"
    " WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i+1<:threads)"
    " SELECT substr(c.thread, 1, :prefix) || 'seeded' || i || '#1', substr(c.thread, 1, :prefix) || 'seeded' || i,"
    " CASE i WHEN 0 THEN 'The Zephyr plan' ELSE 'Seeded ' || i END, '', 'idle', c.created-1000+i, c.created-1000+i"
    " FROM n, conversations c"
)
ADDRESSES = (
    "INSERT INTO addresses (thread, conversation, count)"
    " SELECT thread, key, 1 FROM conversations WHERE key LIKE '%seeded%'"
)
FIRST = "document.querySelector('.log .turn')"
SEARCH = "document.querySelector('.search input')"
REST = "((log) => log.scrollHeight - log.scrollTop - log.clientHeight)(document.querySelector('.log'))"
NUMBER = "document.querySelectorAll('tbody tr')[4].cells[3]"


def seed_turns(service: Service) -> None:
    """Add many turns to the only thread, which stand before what was said."""
    [(author,)] = service.rows("SELECT author FROM transcript WHERE kind='message' LIMIT 1")
    service.change(TURN, turns=TURNS, author=author)


def seed_threads(service: Service, count: int) -> None:
    """Add threads beside the only one, each older than it."""
    [(thread,)] = service.rows("SELECT thread FROM conversations")
    service.change(THREADS, threads=count, prefix=thread.rindex("/") + 1)
    service.change(ADDRESSES)


async def test_what_stood_on_the_page_stays_while_a_long_thread_goes_on(page: OpenPage) -> None:
    service, tab = await page()
    await tab.send(ask(text="the first answer"))
    await tab.until(DONE)
    seed_turns(service)
    await tab.reload()
    await tab.until("document.querySelectorAll('.log .turn').length > 100 && document.querySelector('.log .more')")
    shown = await tab.count(".log .turn")
    first = await tab.eval(f"window.first = {FIRST}; window.first.innerText")
    await tab.eval(
        "window.touched = 0; new MutationObserver((seen) => { window.touched += seen.length; })"
        ".observe(window.first, {subtree: true, childList: true, characterData: true, attributes: true}); 0"
    )
    for number in range(2):
        await tab.send(ask(text=f"another answer {number}"))
        await shows(tab, f"another answer {number}")
        await tab.until(DONE)
    await tab.until(f"document.querySelectorAll('.log .turn').length === {shown + 2}", what="all of it and two more")
    assert await tab.eval(f"{FIRST} === window.first && {FIRST}.innerText") == first
    assert await tab.eval("window.touched") == 0, "a turn that is over is not drawn anew with each word of another"
    assert await tab.eval("getComputedStyle(window.first).contain") == "content"
    await tab.eval("document.querySelector('.log').scrollTop = 0")
    place = await tab.eval("window.first.getBoundingClientRect().top")
    await tab.click(".log .more")
    await tab.until(f"document.querySelectorAll('.log .turn').length === {TURNS + 3}", what="what was said earlier")
    assert abs(await tab.eval("window.first.getBoundingClientRect().top") - place) < 60  # the button above it has gone
    said = "[...document.querySelectorAll('.log .bubble-text')].map((each) => each.innerText)"
    numbers = [int(each.split()[2]) for each in await tab.eval(said) if each.startswith("message number")]
    assert numbers == list(range(TURNS))


async def test_a_search_finds_titles_of_all_threads_and_opens_what_was_said(page: OpenPage) -> None:
    service, tab = await page()
    await tab.send(ask(text="the first answer"))
    await tab.until(DONE)
    seed_turns(service)
    seed_threads(service, 70)
    await tab.reload()
    await tab.until("document.querySelectorAll('.threads a').length === 50")
    await tab.write("zephyr", ".search input")
    await tab.until("document.querySelectorAll('.threads li').length === 1")
    assert await tab.text(".threads li") == "The Zephyr plan"
    await tab.press("Escape")
    await tab.until(f"{SEARCH}.value === '' && document.querySelectorAll('.threads a').length === 50")
    await tab.write("needle 3", ".search input")
    await tab.until("document.querySelectorAll('.threads .snippet').length === 2")
    assert await tab.eval("CSS.highlights.get('listed').size") == 4
    await tab.press("ArrowDown")
    await tab.press("Enter")
    found = "document.activeElement.matches('.turn') && document.activeElement"
    await tab.until(f"{found}?.innerText.includes('number 3 with a Needle')", what="the turn that was found")
    top, bottom = await tab.eval("(({top, bottom}) => [top, bottom])(document.activeElement.getBoundingClientRect())")
    assert 0 < top < bottom < 820
    assert await tab.eval("CSS.highlights.get('found').size") >= 4
    assert await tab.eval("/^#.t.[^/]+$/.test(location.hash)"), "a reload shows the end again"


async def test_the_keyboard_goes_through_the_list_and_escape_in_the_search_stops_no_work(
    page: OpenPage, bubblewrap: None
) -> None:
    service, tab = await page()
    await tab.send(ask(text="the first answer"))
    await tab.until(DONE)
    seed_threads(service, 70)
    await tab.reload()
    await tab.until("document.querySelectorAll('.threads a').length === 50")
    await tab.press("k", CTRL)
    await tab.press("ArrowDown")
    assert await tab.eval("document.activeElement === document.querySelectorAll('.threads a')[0]")
    await tab.press("ArrowDown")
    assert await tab.eval("document.activeElement === document.querySelectorAll('.threads a')[1]")
    for _each in range(2):
        await tab.press("ArrowUp")
    assert await tab.eval(f"document.activeElement === {SEARCH}")
    await tab.eval("document.querySelector('.threads .more').focus()")
    await tab.press("Enter")
    await tab.until("document.querySelectorAll('.threads a').length === 71")
    await tab.until("document.activeElement === document.querySelectorAll('.threads a')[50]", what="the next thread")

    await tab.send(ask(steps=[bash("sleep 60")], text="never"))
    await tab.until("document.querySelector('.send.stop:not([hidden])')")
    await tab.press("k", CTRL)
    await tab.write("plan", ".search input")
    for _each in range(2):
        await tab.press("Escape")
    await tab.until("document.activeElement.id === 'text'", what="the keyboard back in the message")
    assert service.rows("SELECT state FROM runs ORDER BY id DESC LIMIT 1") == [("running",)]
    await tab.press("Escape")
    await tab.until("!document.querySelector('.send.stop:not([hidden])')")
    assert service.rows("SELECT state FROM runs ORDER BY id DESC LIMIT 1") == [("stopped",)]


async def test_the_end_stays_in_view_on_another_screen_and_numbers_in_one_line(page: OpenPage) -> None:
    _service, tab = await page()
    names = "| Region | " + " | ".join(f"Q{number}" for number in range(9)) + " | Note |"
    rows = "\n".join(
        f"| Number {row} | " + " | ".join(f"{row * 10 + number}" for number in range(9)) + " | words that need room |"
        for row in range(1, 9)
    )
    await tab.send(ask(text=f"{names}\n|{'---|' * 11}\n{rows}\n\nthe last line"))
    await tab.until(DONE)
    line = "parseFloat(getComputedStyle(document.querySelector('td')).lineHeight) * 1.5"
    lines = "((range) => { range.selectNodeContents(%s); return range.getBoundingClientRect().height; })(new Range())"
    for width, height in ((1180, 820), (390, 844), (390, 420), (844, 390), (1180, 820)):
        await tab.resize(width, height, mobile=width < 900)
        await tab.until(f"{REST} < 2", what=f"the end at {width} by {height}")
        assert await tab.eval(f"{lines % NUMBER} < {line}"), "a number is not taken apart"
        assert await tab.eval("document.documentElement.scrollWidth") == width
    await tab.write("one\ntwo\nthree\nfour\nfive\nsix\nseven")
    await tab.until(
        f"document.querySelector('#text').clientHeight > 100 && {REST} < 2", what="the end above the message"
    )
