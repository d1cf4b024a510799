"""The operator's screen and what is one's own, in a real Chromium."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_page import HTTP, MARKUP, browser, make_link, shows
from tests.fakes.node import MODULES
from tests.fakes.server import until
from tests.fakes.telegram import FakeTelegram
from tests.support.browser import Browser, Tab
from tests.support.service_process import Service, ask, bash

__all__ = ["browser"]
BOSS, EVE, BOB = 7, 8, 9
ACCESS = {"open": False, "operators": [str(BOSS)], "allow": [str(EVE)]}


async def operated(start: Start, browser: Browser, **settings: object) -> tuple[Service, Tab]:
    """Return a service and the operator's screen of it."""
    service = await start(http=HTTP, channels={"telegram": {"access": ACCESS}}, **settings)
    tab = await browser.tab(await make_link(service, f"telegram/{BOSS}"))
    await tab.until("document.querySelector('#text')")
    await tab.click("[data-view=operate]")
    await tab.until("document.querySelector('.verdict')")
    return service, tab


def section(name: str) -> str:
    """Return the selector of a part of the screen."""
    return f".card[aria-labelledby=card-{name}]"


async def says(tab: Tab, name: str, words: str) -> None:
    """Wait until a part of the screen says this."""
    find = f"document.querySelector({json.dumps(section(name))})?.innerText.includes({json.dumps(words)})"
    await tab.until(find, what=f"{name}: {words}")


def audited(service: Service, kind: str) -> list[dict[str, object]]:
    rows = [json.loads(row) for (row,) in service.rows("SELECT CAST(body AS TEXT) FROM audit ORDER BY seq")]
    return [row for row in rows if row["kind"] == kind]


def dead_letters(service: Service, count: int) -> bool:
    return len(service.rows("SELECT 1 FROM outbox WHERE state=3")) == count


async def test_the_screen_shows_who_works_on_what_and_stops_it(
    telegram: FakeTelegram, start: Start, browser: Browser, bubblewrap: None
) -> None:
    service, tab = await operated(start, browser, limits={"live_turns": 1})
    await tab.until("document.querySelector('.verdict.good')")
    lights = await tab.text(".lights")
    assert all(name in lights for name in ("telegram", "main", "Disk", "Sandboxes", "Queue"))
    telegram.send(ask(steps=[bash("sleep 600")], text="late"), chat=EVE)
    await says(tab, "turns", "Working")  # and not on what: that is Eve's
    telegram.send("hello", chat=BOSS)
    await says(tab, "queue", "all places are taken")
    await tab.until(f"/^\\d+ s$/.test(document.querySelector('{section('turns')} .counts').innerText)")
    await tab.click(f"{section('turns')} td .plain")
    await tab.until("document.querySelector('dialog .log-lines')?.innerText.includes('turn')", what="the log")
    await tab.press("Escape")
    await tab.until("!document.querySelector('dialog')")
    await tab.click(f"{section('turns')} .plain.danger")
    await says(tab, "turns", "Nothing.")
    await service.quiet()
    assert ("stopped",) in service.rows("SELECT state FROM runs")
    [stop] = [row for row in audited(service, "command") if row["what"] == {"name": "stop", "via": "http"}]
    assert stop["result"] == "done"
    assert tab.problems == []


async def test_the_screen_is_there_while_the_agent_loads(start: Start, browser: Browser, tmp_path: Path) -> None:
    """An engine that takes a connection and says nothing holds the start where the service listens already."""
    held = asyncio.Event()

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held.wait()
        writer.close()

    engine = str(tmp_path / "engine.sock")
    async with await asyncio.start_unix_server(hold, engine):
        service = await start(
            http=HTTP, channels={"telegram": {"access": ACCESS}}, sandbox={"docker_host": f"unix://{engine}"}
        )
        tab = await browser.tab(await make_link(service, f"telegram/{BOSS}"))
        await tab.until("document.querySelector('#text')")
        await tab.click("[data-view=operate]")
        await tab.until("document.querySelector('.trouble')?.innerText.includes('The agent is loading.')")
        assert "telegram" in await tab.text(".lights")
        held.set()
        await tab.until("document.querySelector('.verdict.good')")
        assert tab.problems == []


async def test_what_waits_is_answered_there_and_strangers_are_let_in(
    telegram: FakeTelegram, start: Start, browser: Browser, bubblewrap: None
) -> None:
    service, tab = await operated(start, browser, permissions={"ask": ["bash"]})
    telegram.send(ask(steps=[bash("echo once >>/mnt/user-data/workspace/proof")], text="did it"), chat=BOSS)
    await says(tab, "waiting", "echo once >>/mnt/user-data/workspace/proof")
    await says(tab, "asked", "an approval")
    await tab.click(f"{section('waiting')} .buttons .primary")
    await telegram.wait(BOSS, "did it")
    await says(tab, "waiting", "Nothing.")
    assert (service.folder_of() / "workspace/proof").read_text() == "once\n"
    telegram.send("may I come in?", chat=BOB)
    await telegram.wait(BOB, "Send this code")
    await tab.until(f"document.querySelector('{section('waiting')} .buttons .primary')?.innerText === 'Let in'")
    await tab.click(f"{section('waiting')} .buttons .primary")
    await telegram.wait(BOB, "You're in!")
    await says(tab, "waiting", "Nothing.")
    assert len(audited(service, "approval.answered")) == 1
    assert len(audited(service, "pairing.accepted")) == 1


async def test_dead_letters_are_sent_again_or_dropped_after_a_question(
    telegram: FakeTelegram, start: Start, browser: Browser
) -> None:
    service, tab = await operated(start, browser)
    for method in ("sendMessage", "editMessageText"):
        telegram.fault("error", method, code=400, description="Bad Request: nope", times=-1, contains="poison")
    for number in ("1", "2"):
        telegram.send(ask(text=f"poison {number}"), chat=EVE)
        await until(partial(dead_letters, service, int(number)), what="a dead letter")
    rows = f"document.querySelectorAll('{section('dead')} tbody tr').length"
    await tab.until(f"{rows} === 2")
    telegram.clear_faults()
    await tab.click(f"{section('dead')} .row-buttons .plain")
    await telegram.wait(EVE, "poison 1")
    await tab.until(f"{rows} === 1")
    await tab.click(f"{section('dead')} .row-buttons .danger")
    await tab.until("document.querySelector('dialog')")
    assert await tab.text(":focus") == "Cancel"
    await tab.press("Enter")
    await tab.until(f"!document.querySelector('dialog') && {rows} === 1")
    await tab.click(f"{section('dead')} .row-buttons .danger")
    await tab.click("dialog .buttons .danger")
    await says(tab, "dead", "Nothing.")
    assert len(audited(service, "dead.requeued")) == len(audited(service, "dead.dropped")) == 1


async def test_spend_is_drawn_the_audit_read_and_verified_and_rights_are_shown(
    telegram: FakeTelegram, start: Start, browser: Browser
) -> None:
    service, _tab = await operated(start, browser, budgets=[{"scope": "person", "tokens": "2M"}])
    for person in (BOSS, EVE):
        telegram.send(ask(text="an answer"), chat=person)
        await telegram.wait(person, "an answer")
    await service.quiet()
    tab = await browser.tab(await make_link(service, f"telegram/{BOSS}"))
    await tab.until("document.querySelector('#text')")
    await tab.eval("location.hash = '#/operate'")
    await tab.until("document.querySelectorAll('.columns svg rect').length === 31")
    assert "the most on" in await tab.eval("document.querySelector('.columns svg').getAttribute('aria-label')")
    for name in ("By person", "By chat", "By model"):
        assert name in await tab.text(section("spend"))
    await says(tab, "audit", "turn.ended")
    await tab.write("tool", f"{section('audit')} input")
    await tab.eval("document.querySelector('.card-head input[placeholder^=kind]').dispatchEvent(new Event('change'))")
    await says(tab, "audit", "Nothing.")
    await tab.click(f"{section('audit')} .card-head .plain")
    await tab.until("document.querySelector('#toast').innerText.startsWith('The audit is whole')")
    await says(tab, "team", "approve_others")
    await says(tab, "team", "the configuration")
    await says(tab, "team", "2,000,000 tokens a month")


async def test_it_asks_only_while_somebody_looks(start: Start, browser: Browser) -> None:
    _service, tab = await operated(start, browser)
    count = "performance.getEntriesByName(location.origin + '/page/operate').length"
    asked = await tab.eval(count)
    await tab.until(f"{count} >= {asked + 2}")
    hidden = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => HIDDEN});"
    tell = "document.dispatchEvent(new Event('visibilitychange')); 0"
    quiet = (
        "new Promise((done) => setTimeout(() => { const before = COUNT;"
        " setTimeout(() => done(COUNT - before), 5000); }, 1000))"
    ).replace("COUNT", count)
    await tab.eval(hidden.replace("HIDDEN", "true") + tell)
    assert await tab.eval(quiet) == 0, "a hidden tab asks"
    asked = await tab.eval(count)
    await tab.eval(hidden.replace("HIDDEN", "false") + tell)
    await tab.until(f"{count} > {asked}")
    await tab.click(".begin")
    assert await tab.eval(quiet) == 0, "the chat asks"


async def test_who_is_no_operator_neither_sees_nor_does_anything_there(
    telegram: FakeTelegram, start: Start, browser: Browser
) -> None:
    service, _tab = await operated(start, browser)
    telegram.send(ask(text="late", delay_ms=60_000), chat=BOSS)
    await until(lambda: service.rows("SELECT 1 FROM runs WHERE state='running'"), what="a turn")
    [(run,)] = service.rows("SELECT id FROM runs WHERE state='running'")
    tab = await browser.tab(await make_link(service, f"telegram/{EVE}"))
    await tab.call("Network.clearBrowserCookies")
    await tab.go(await make_link(service, f"telegram/{EVE}"))
    await tab.until("document.querySelector('[data-view=me]')")
    assert await tab.count("[data-view=operate]") == 0
    status = (
        "fetch('/page{}', {{method: '{}', headers: {{'Content-Type': 'application/json'}}, body: {}}})"
        ".then((answer) => answer.status)"
    )
    reads = (
        "operate",
        "operate/usage",
        "operate/team",
        "operate/skills/0",
        f"operate/runs/{run}/log",
        "v1/operate/audit",
    )
    for path in reads:
        assert await tab.eval(status.format(f"/{path}", "GET", "undefined")) == 403, path
    for path in (f"/v1/operate/runs/{run}/stop", "/v1/operate/waiting/1/answer", "/v1/operate/dead/1/requeue"):
        assert await tab.eval(status.format(path, "POST", "'{}'")) == 403, path
    assert (run, "running") in service.rows("SELECT id, state FROM runs")
    denied = [str(row["what"]["path"]) for row in audited(service, "access.denied")]  # type: ignore[index]  # JSON
    assert len({*denied}) == 9, denied  # some twice: a tab of before, which is another person's now, asks too
    assert "/page/operate" in denied
    assert "/page/v1/operate/runs/{run}/stop" in denied


async def test_no_markup_of_others_becomes_markup_on_the_operators_screen(
    telegram: FakeTelegram, start: Start, browser: Browser
) -> None:
    service, tab = await operated(start, browser)
    await tab.eval("window.hits = 0; window.hit = () => { window.hits += 1; }; 0")
    everything = "\n\n".join(MARKUP)
    telegram.person(BOB, first_name=MARKUP[1])
    telegram.send(everything, chat=BOB)
    await telegram.wait(BOB, "Send this code")
    text = f"---\nname: evil\ndescription: {json.dumps(' '.join(MARKUP[:12]))}\n---\n\n{everything}\n"
    files = [{"path": "SKILL.md", "content": text}]
    telegram.send(ask(text="hello"), chat=BOSS)
    await telegram.wait(BOSS, "hello")
    telegram.send(
        ask(steps=[{"calls": [{"name": "propose_skill", "args": {"name": "evil", "files": files}}]}]), chat=EVE
    )
    await says(tab, "waiting", "evil")
    question = {"name": "ask_clarification", "args": {"question": everything, "options": [*MARKUP[:3]]}}
    telegram.send(ask(steps=[{"calls": [question]}]), chat=BOSS)
    await says(tab, "waiting", "hit()")
    await tab.eval("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Show the change').click()")
    await tab.until("document.querySelector('dialog .log-lines')?.innerText.includes('hit()')")
    attributes = (
        "[...document.querySelectorAll('*')].flatMap((each) => [...each.attributes])"
        ".filter((each) => /^on/i.test(each.name) || /^\\s*(javascript|vbscript|data):/i.test(each.value))"
        ".map((each) => each.name + '=' + each.value)"
    )
    assert await tab.eval(attributes) == []
    assert await tab.count(".operate img, .operate iframe, .operate script, dialog img") == 0
    assert await tab.eval("window.hits") == 0
    assert not [each for each in tab.problems if "Content Security Policy" in each or "Trusted" in each], tab.problems
    await service.quiet()


@pytest.mark.skipif(not (MODULES / "axe-core").is_dir(), reason="axe-core is not installed: make dev, with Node.js")
async def test_screen_readers_and_eyes_find_no_serious_fault_in_the_new_views(
    telegram: FakeTelegram, start: Start, browser: Browser
) -> None:
    service = await start(http=HTTP, channels={"telegram": {"access": ACCESS}})
    telegram.send(ask(text="an answer"), chat=EVE)
    await telegram.wait(EVE, "an answer")
    telegram.send("may I?", chat=BOB)
    await telegram.wait(BOB, "Send this code")
    tab = await browser.tab(await make_link(service, f"telegram/{BOSS}"), csp=False)
    await tab.until("document.querySelector('#text')")
    await tab.eval(f"{(MODULES / 'axe-core/axe.min.js').read_text()}; 0")
    found = (
        "axe.run(document).then((seen) => seen.violations"
        ".filter((each) => ['serious', 'critical'].includes(each.impact))"
        ".map((each) => [each.id, each.nodes.map((node) => node.html)]))"
    )
    for view, ready in (
        ("operate", "document.querySelector('.columns')"),
        ("me", "document.querySelector('.bars, .card')"),
    ):
        await tab.eval(f"location.hash = '#/{view}'")
        await tab.until(ready)
        for colours in ("light", "dark"):
            await tab.prefer(prefers_color_scheme=colours, prefers_reduced_motion="reduce")
            for width in (1180, 390):
                await tab.resize(width, 820, mobile=width < 500)
                assert await tab.eval(found) == [], (view, colours, width)
                assert await tab.eval("document.documentElement.scrollWidth") == width
    await tab.resize(1180, 820)
    await tab.eval("document.querySelector('.begin').click()")
    await tab.click(".pick")
    await tab.until("document.querySelector('.menu-list:popover-open')")
    assert await tab.eval(found) == []


async def test_everything_is_reached_by_the_keyboard(start: Start, browser: Browser) -> None:
    _service, tab = await operated(start, browser)
    await tab.eval("document.body.focus(); location.hash = ''; 0")
    await tab.until("document.querySelector('.hello')")
    await tab.eval("document.activeElement.blur()")
    reached = set[str]()
    for _press in range(60):
        await tab.press("Tab")
        seen = "document.activeElement.matches(':focus-visible') && document.activeElement !== document.body"
        of = "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
        name = await tab.eval(f"{seen} ? {of} : ''")
        reached.add(name)
    wanted = {"New chat", "Search all your threads", "Service", "You", "Sign out", "Model: main", "This thread"}
    assert wanted <= reached, wanted - reached
    await tab.eval("document.querySelector('.pick').focus()")
    await tab.press("Enter")
    await tab.until("document.activeElement.closest('.menu-list')")
    await tab.press("ArrowDown")
    await tab.press("Escape")
    await tab.until("!document.querySelector('.menu-list:popover-open')")


async def test_a_person_sees_and_changes_what_is_theirs(telegram: FakeTelegram, start: Start, browser: Browser) -> None:
    service = await start(http=HTTP, channels={"telegram": {"access": ACCESS}}, memory={"enabled": True})
    words = "I like <b>tea</b>"
    remember = {"name": "memory", "args": {"action": "save", "text": words, "quote": words}}
    telegram.send(ask(steps=[{"calls": [remember]}], text="kept"), chat=EVE)
    await telegram.wait(EVE, "kept")
    tab = await browser.tab(await make_link(service, f"telegram/{EVE}"))
    await tab.until("document.querySelector('#text')")
    await tab.click("[data-view=me]")
    await tab.until("document.querySelector('.rows li')?.innerText.includes('I like <b>tea</b>')")
    await tab.click(".rows li button")
    await tab.until("document.querySelectorAll('.rows li').length === 0")
    assert service.rows("SELECT 1 FROM memory WHERE text LIKE '%tea%'") == []
    await tab.until("document.querySelector('.card[aria-labelledby=mine-spend] .bars')")
    await tab.eval("[...document.querySelectorAll('button')].find((each) => each.innerText === 'Export').click()")
    await tab.until("document.querySelector('a.chip')", what="the export")
    await tab.click("[data-view=me]")
    await tab.eval("[...document.querySelectorAll('button')].find((each) => each.innerText === 'Forget me').click()")
    await shows(tab, "Shall I forget you?")
    await tab.click(".question.open .buttons button")
    await tab.until('document.body.innerText.includes("You\'re not signed in")', 60)
