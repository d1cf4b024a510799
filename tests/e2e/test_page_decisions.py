"""What operators and people decide on the page, in a real Chromium: schedules, tasks, skills, archives, the audit."""

from __future__ import annotations

import io
import json
import time
import zipfile
from typing import Any

from tests.e2e.conftest import Start
from tests.e2e.test_page import HTTP, browser, make_link
from tests.e2e.test_page_operate import ACCESS, BOSS, EVE, audited, operated, says, section
from tests.e2e.test_skills import skill_text
from tests.fakes.model import FakeModel
from tests.fakes.server import Fault, until
from tests.fakes.telegram import FakeTelegram
from tests.support.browser import Browser, Tab
from tests.support.service_process import Service, ask, bash

__all__ = ["browser"]
GROUP = -1001
HOUR = 3600.0


def change(service: Service, sql: str, **values: Any) -> None:
    service.change(sql, **values)


def add_schedules(service: Service, count: int = 1, owner: int = EVE) -> None:
    """Store reminders of a person in their direct chat, of which each runs every hour."""
    now = time.time()
    change(
        service,
        "INSERT INTO schedules(channel, owner, name, language, guest, private, thread, kind, what, url, form,"
        " expression, zone, since, missed, state, next_at, created) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL"
        " SELECT i+1 FROM n WHERE i<:count) SELECT 'telegram', :owner, 'Eve', '', 0, 1, :thread, 'reminder',"
        " 'Stretch '||i, '', 'every',"
        " '3600', 'UTC', :now, 'once', 'active', :next, :now FROM n",
        count=count,
        owner=str(owner),
        thread=f"telegram/123456/{owner}/",
        now=now,
        next=now + HOUR,
    )


def add_tasks(service: Service, count: int) -> None:
    """Store background tasks of a person that have ended."""
    change(
        service,
        "INSERT INTO tasks(key, kind, state, channel, person, name, language, guest, private, thread, conversation,"
        " title, what, follow_up, created, started, ended) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n"
        " WHERE i<:count) SELECT 'old:'||i, 'command', 'done', 'telegram', '8', 'Eve', '', 0, 0,"
        " 'telegram/123456/-1001/', 'c', 'Task '||i, '', '', :now, :now, :now FROM n",
        count=count,
        now=time.time(),
    )


async def sign_in(service: Service, browser: Browser, person: int, view: str) -> Tab:
    """Return a tab in which a person alone is signed in, with one of the views."""
    tab = await browser.tab()
    await tab.call("Network.clearBrowserCookies")
    await tab.go(await make_link(service, f"telegram/{person}"))
    await tab.until("document.querySelector('#text')")
    await tab.click(f"[data-view={view}]")
    return tab


async def press(tab: Tab, place: str, word: str, index: int = 0) -> None:
    """Click the button with this word in a part of the screen, once it is there."""
    find = f"[...document.querySelectorAll('{place} button')].filter((each) => each.innerText === '{word}')"
    await tab.until(f"{find}[{index}] && !{find}[{index}].disabled", what=f"{place}: {word}")
    await tab.eval(f"{find}[{index}].click()")


async def test_what_is_broken_is_said_with_its_time_and_passes(
    telegram: FakeTelegram, model: FakeModel, start: Start, browser: Browser
) -> None:
    _service, tab = await operated(start, browser)
    model.fault("error", "chat", code=503, times=-1)
    telegram.send(ask(text="never"), chat=EVE)
    trouble = "[...document.querySelectorAll('.trouble')].find((each) => each.innerText.includes('{}'))"
    await tab.until(trouble.format("No server of a model answers."), 60)
    assert "times in a row" in await tab.text(".lights .bad")
    began = time.time()
    telegram.faults.append(Fault("error", "getUpdates", times=-1, code=502))
    telegram.wake()
    deaf = trouble.format("telegram")
    await tab.until(f"{deaf} && document.querySelector('.verdict.bad')")
    assert await tab.text(".verdict b") == "Not working: 2"
    since = await tab.eval(f"Date.parse({deaf}.querySelector('time').dateTime) / 1000")
    assert began - 2 <= since <= time.time() + 1, "since when"
    assert "since" in await tab.eval(f"{deaf}.innerText")
    telegram.faults.clear()
    model.faults.clear()
    await tab.until(f"!{deaf}", 60)


async def test_schedules_are_run_paused_and_deleted_by_their_owner_and_by_an_operator(
    telegram: FakeTelegram, start: Start, browser: Browser
) -> None:
    service = await start(http=HTTP, channels={"telegram": {"access": ACCESS}})
    telegram.send(ask(text="hello"), chat=EVE)
    await telegram.wait(EVE, "hello")
    add_schedules(service, 2)
    tab = await sign_in(service, browser, EVE, "me")
    mine = ".card[aria-labelledby=mine-schedules]"
    shown = f"document.querySelector('{mine}')?.innerText"
    await tab.until(f"{shown}?.includes('Stretch 1') && {shown}.includes('Next')")
    await press(tab, mine, "Run now")
    await telegram.wait(EVE, "Stretch 1")
    await press(tab, mine, "Pause")
    await tab.until(f"{shown}.includes('paused')")
    assert service.rows("SELECT state FROM schedules ORDER BY id") == [("paused",), ("active",)]
    await press(tab, mine, "Resume")
    await tab.until(f"!{shown}.includes('paused')")
    await press(tab, mine, "Delete")
    await press(tab, "dialog", "Delete")
    await tab.until(f"!{shown}.includes('Stretch 1')")
    assert service.rows("SELECT what FROM schedules WHERE state<>'ended'") == [("Stretch 2",)]

    tab = await sign_in(service, browser, BOSS, "operate")
    await says(tab, "schedules", "(of a direct chat)")
    assert "Stretch" not in await tab.text(section("schedules")), "the words of a direct chat are its person's"
    cells = f"[...document.querySelectorAll('{section('schedules')} tbody td')].map((each) => each.innerText)"
    what, who, due, _last, _cost, _buttons = await tab.eval(cells)
    assert "3600" in what
    assert who
    assert due != "paused"
    await press(tab, section("schedules"), "Pause")
    await says(tab, "schedules", "paused")
    assert service.rows("SELECT state FROM schedules WHERE what='Stretch 2'") == [("paused",)]
    await press(tab, section("schedules"), "Resume")
    await tab.until(f"{cells}[2] !== 'paused'")
    await press(tab, section("schedules"), "Delete")
    await press(tab, "dialog", "Delete")
    await says(tab, "schedules", "Nothing.")
    assert service.rows("SELECT 1 FROM schedules WHERE state<>'ended'") == []
    changed = [row for row in audited(service, "schedule.changed") if row["what"]["schedule"] == 2]  # type: ignore[index]  # JSON
    assert [row["what"]["action"] for row in changed] == ["pause", "resume", "delete"]  # type: ignore[index]  # JSON
    assert len({row["who"] for row in changed}) == 1
    assert tab.problems == []
    await service.quiet()


async def test_background_tasks_are_cancelled_by_their_person_and_by_an_operator(
    telegram: FakeTelegram, start: Start, browser: Browser, bubblewrap: None
) -> None:
    service = await start(http=HTTP, channels={"telegram": {"access": ACCESS}})
    call = {"name": "bash", "args": {"command": "sleep 600", "background": True}}
    telegram.send(ask(steps=[{"calls": [call]}, {"calls": [call]}], text="started"), chat=EVE)
    await telegram.wait(EVE, "started")
    await until(lambda: service.rows("SELECT state FROM tasks") == [("running",)] * 2, what="both commands")
    tab = await sign_in(service, browser, EVE, "me")
    mine = ".card[aria-labelledby=mine-tasks]"
    await press(tab, mine, "Cancel")
    await until(lambda: ("cancelled",) in service.rows("SELECT state FROM tasks"), what="the end of one")
    tab = await sign_in(service, browser, BOSS, "operate")
    assert await tab.until(f"document.querySelectorAll('{section('tasks')} tbody tr').length === 2")
    await press(tab, section("tasks"), "Cancel")
    await until(lambda: service.rows("SELECT state FROM tasks") == [("cancelled",)] * 2, what="the end of the other")
    await tab.until(f"document.querySelectorAll('{section('tasks')} button').length === 0")
    assert [row["result"] for row in audited(service, "task.changed")].count("cancelled") >= 2
    assert tab.problems == []


async def test_a_skill_is_looked_at_as_a_difference_and_accepted(
    telegram: FakeTelegram, start: Start, browser: Browser
) -> None:
    service, tab = await operated(start, browser)
    telegram.send(ask(text="hello"), chat=BOSS)
    await telegram.wait(BOSS, "hello")
    propose = {"name": "propose_skill", "args": {"name": "add-numbers"}}
    propose["args"]["files"] = [{"path": "SKILL.md", "content": skill_text()}]  # type: ignore[index]  # JSON
    telegram.send(ask(steps=[{"calls": [propose]}], text="proposed"), chat=EVE)
    await telegram.wait(EVE, "proposed")
    await press(tab, section("waiting"), "Show the change")
    await tab.until("document.querySelector('dialog .hljs-addition')?.innerText.startsWith('+')")
    assert "+Add the numbers with run_skill." in await tab.text("dialog .log-lines")
    await tab.press("Escape")
    await press(tab, section("waiting"), "Accept")
    await says(tab, "skills", "add-numbers")
    await says(tab, "waiting", "Nothing.")
    assert (service.folder / "skills").exists()
    assert tab.problems == []


async def test_long_lists_come_in_pages_of_fifty_and_stay_open(start: Start, browser: Browser) -> None:
    service, _tab = await operated(start, browser)
    add_tasks(service, 120)
    add_schedules(service, 60)
    tab = await sign_in(service, browser, BOSS, "operate")
    for name, sizes in (("tasks", (50, 100, 120)), ("schedules", (50, 60))):
        rows = f"document.querySelectorAll('{section(name)} tbody tr').length"
        for size in sizes:
            await tab.until(f"{rows} === {size}", what=f"{name}: {size}")
            if size != sizes[-1]:
                await press(tab, section(name), "Show more")
        assert await tab.count(f"{section(name)} .more") == 0
    titles = f"[...document.querySelectorAll('{section('tasks')} tbody tr')].map((each) => each.firstChild.innerText)"
    assert len({*await tab.eval(titles)}) == 120, "none twice"
    asked = "performance.getEntriesByName(location.origin + '/page/operate').length"
    before = await tab.eval(asked)
    await tab.until(f"{asked} >= {before + 2}")
    assert len(await tab.eval(titles)) == 120, "the next look keeps what was opened"


async def test_an_operator_stores_a_conversation_of_a_shared_chat_but_no_direct_one(
    telegram: FakeTelegram, start: Start, browser: Browser, bubblewrap: None
) -> None:
    service = await start(http=HTTP, channels={"telegram": {"access": ACCESS}})
    make = bash("echo inside >/mnt/user-data/outputs/'a b.txt'; ln -s /etc/passwd /mnt/user-data/outputs/link")
    telegram.send(f"@fawn_bot {ask(steps=[make], text='here is *the* file')}", chat=GROUP, user=EVE)
    await telegram.wait(GROUP, "here is")
    telegram.send(ask(text="a secret"), chat=EVE)
    await telegram.wait(EVE, "a secret")
    await service.quiet()
    tab = await sign_in(service, browser, BOSS, "operate")
    links = f"[...document.querySelectorAll('{section('threads')} a')]"
    await tab.until(f"{links}.length === 1", what="the shared conversation alone")
    get = f"fetch({links}[0].href).then((answer) => answer.arrayBuffer()).then((bytes) => [...new Uint8Array(bytes)])"
    archive = zipfile.ZipFile(io.BytesIO(bytes(await tab.eval(get))))
    assert sorted(archive.namelist()) == ["files/outputs/a b.txt", "thread.md"]
    assert archive.read("files/outputs/a b.txt") == b"inside\n"
    words = archive.read("thread.md").decode()
    assert "here is *the* file" in words
    assert "a secret" not in words
    [row] = [row for row in audited(service, "command") if row["what"] == {"name": "download", "via": "http"}]
    assert row["result"] == "done"
    [(direct,)] = service.rows("SELECT key FROM conversations WHERE thread LIKE 'telegram/%/8/'")
    refused = f"fetch('/page/operate/threads/download?key=' + encodeURIComponent('{direct}'))"
    assert await tab.eval(f"{refused}.then((answer) => answer.status)") == 404


async def test_the_audit_is_there_for_an_operator_who_never_wrote_and_says_that_it_was_changed(
    telegram: FakeTelegram, start: Start, browser: Browser
) -> None:
    service, _tab = await operated(start, browser)
    telegram.send(ask(text="an answer"), chat=EVE)
    await telegram.wait(EVE, "an answer")
    await service.quiet()
    tab = await sign_in(service, browser, BOSS, "operate")
    await says(tab, "audit", "turn.ended")
    [(run,)] = service.rows("SELECT id FROM runs")
    await tab.write(str(run), f"{section('turns')} form input")
    await tab.press("Enter")
    await tab.until(f"document.querySelector('dialog .log-lines')?.innerText.includes('run={run}')", what="the log")
    await tab.press("Escape")
    await tab.until("!document.querySelector('dialog')")
    await tab.write("9999", f"{section('turns')} form input")
    await tab.press("Enter")
    await tab.until("document.querySelector('dialog .log-lines')?.innerText.includes('There is no such turn.')")
    await tab.press("Escape")
    [(seq, body)] = service.rows("SELECT seq, CAST(body AS TEXT) FROM audit WHERE seq=2")
    change(service, "UPDATE audit SET body=:body WHERE seq=:seq", seq=seq, body=json.dumps({"kind": "x"}).encode())
    await press(tab, section("audit"), "Verify")
    await tab.until("document.querySelector('#toast').innerText.startsWith('The audit was changed')")
    assert body
