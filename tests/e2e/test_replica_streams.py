"""Two services on one PostgreSQL database: what a run at one of them shows is read at the other, as it grows."""

from __future__ import annotations

import asyncio

from tests.e2e.test_api import add_key, client_of, finished_run, get, post, wait_for
from tests.e2e.test_events import WORDS, slow, text_of_run
from tests.e2e.test_langgraph_sdk import ASK, sdk
from tests.e2e.test_langgraph_sdk import said as input_of
from tests.e2e.test_langgraph_threads import text_of
from tests.e2e.test_page import DONE, browser, make_link
from tests.e2e.test_replicas import Replica, pair, server
from tests.fakes.server import until
from tests.support.browser import Browser
from tests.support.event_client import Fold, follow
from tests.support.service_process import ask, bash

__all__ = ["browser", "pair", "server"]
PATH = "/v1/threads/t/messages"
Pair = tuple[Replica, Replica]


def deltas(fold: Fold) -> list[str]:
    return [event.data["delta"] for event in fold.seen if event.name == "text"]


async def test_a_stream_at_the_other_service_has_texts_as_they_grow_and_the_end(pair: Pair) -> None:
    one, two = pair
    key = await add_key(one, "ci", "telegram/7")
    async with client_of(one, key) as here, client_of(two, key) as there:
        for path in ("/v1/threads/t/events", "/v1/events", ""):
            text = ask(steps=[bash("echo step")], text=WORDS, tok_ms=50)
            _status, sent = await post(here, PATH, {"text": text})
            fold = Fold()
            await follow(there, path or f"/v1/messages/{sent['id']}/events", fold, lambda now: now.ends)
            [end] = fold.ends
            assert (end["state"], end["text"]) == ("done", WORDS)
            pieces = deltas(fold)
            assert len(pieces) > 1, "it grows: the run does not come as a whole at its end"
            shown = [event.name for event in fold.seen]
            assert shown.index("run") < shown.index("text") < shown.index("end")
            assert "step" in shown or "snapshot" in shown
            if "snapshot" not in shown:
                assert "".join(pieces) == WORDS, "nothing twice, nothing left out"
    for each in pair:
        assert "feed.damaged" not in each.log()


async def test_a_run_is_read_stopped_and_answered_at_the_other_service(pair: Pair) -> None:
    one, two = pair
    key = await add_key(one, "ci", "telegram/7")
    async with client_of(one, key) as here, client_of(two, key) as there:
        _status, sent = await post(here, PATH, {"text": slow(ms=200)})
        fold = Fold()
        reading = asyncio.create_task(follow(there, "/v1/threads/t/events", fold, lambda now: now.ends, "0"))
        await until(lambda: len(text_of_run(fold)) > 20, what="the first words")
        [run] = {event.data["run"] for event in fold.seen if event.name == "text"}
        _status, found = await get(there, f"/v1/runs/{run}")
        assert WORDS.startswith(found["text"])
        assert len(found["text"]) > 20, "the answer so far"
        assert (await post(there, f"/v1/runs/{run}/stop", {}))[0] == 202
        await asyncio.wait_for(reading, 60)
        assert [end["state"] for end in fold.ends] == ["stopped"]
        await finished_run(here, sent["id"], "stopped")

        _status, sent = await post(here, PATH, {"text": ask(steps=[{"calls": [ASK]}], text="thanks")})
        await follow(there, f"/v1/messages/{sent['id']}/events", asked := Fold(), lambda now: now.ends)
        [question] = asked.ends[0]["questions"]
        fold = Fold()
        reading = asyncio.create_task(follow(there, "/v1/threads/t/events", fold, lambda now: now.ends, "0"))
        assert (await post(there, f"/v1/questions/{question['id']}/answer", {"answer": "Blue"}))[0] == 202
        await wait_for(here, "/v1/threads/t", lambda now: "thanks" in [each["text"] for each in now["entries"]])
        await asyncio.wait_for(reading, 60)


async def test_a_stream_goes_on_when_the_run_moves_to_its_own_service(pair: Pair) -> None:
    one, two = pair
    key = await add_key(one, "ci", "telegram/7")
    fold = Fold()
    async with client_of(one, key) as here, client_of(two, key) as there:
        await post(here, PATH, {"text": slow(ms=150)})
        reading = asyncio.create_task(follow(there, "/v1/threads/t/events", fold, lambda now: now.ends, "0"))
        await until(lambda: len(text_of_run(fold)) > 20, what="the first words")
        await one.kill()
        await asyncio.wait_for(reading, 60)
    assert [(end["state"], end["text"]) for end in fold.ends] == [("done", WORDS)]
    assert len({event.data["attempt"] for event in fold.seen if event.name == "run"}) == 2


async def test_langgraphs_client_reads_a_run_of_the_other_service(pair: Pair) -> None:
    one, two = pair
    key = await add_key(one, "ci", "telegram/7")
    async with asyncio.timeout(60), sdk(one, key) as here, sdk(two, key) as there:
        thread = await here.threads.create()
        run = await here.runs.create(
            thread["thread_id"], "fawn", input=input_of(slow(ms=25)), stream_mode=["messages-tuple", "values"]
        )
        text, parts = "", 0
        modes = ["messages-tuple", "values"]
        stream = there.runs.join_stream(thread["thread_id"], run["run_id"], stream_mode=modes)
        async for part in stream:
            if part.event == "messages":
                text, parts = text + part.data[0]["content"], parts + 1
        assert text == WORDS
        assert parts > 10
        async with there.threads.stream(thread["thread_id"], assistant_id="fawn") as followed:
            begun = await here.runs.create(thread["thread_id"], "fawn", input=input_of(slow(ms=25)))
            tasks = [asyncio.create_task(text_of(message)) async for message in followed.messages]
            assert [await each for each in tasks][-1] == WORDS
        assert begun["run_id"] != run["run_id"]


async def test_the_page_of_the_other_service_shows_an_answer_as_it_grows(pair: Pair, browser: Browser) -> None:
    one, two = pair
    link = await make_link(two)
    key = await add_key(one, "ci", "telegram/7")
    async with client_of(one, key) as here:
        tab = await browser.tab(link)
        await tab.until("document.querySelector('#text')")
        await post(here, PATH, {"text": ask(word="forty-two-", tokens=60, tok_ms=300)})
        await tab.eval("location.hash = '#/t/t'")
        shown = "document.querySelector('main').innerText.split('forty-two-').length"
        await tab.until(f"{shown} > 5 && {shown} < 30", what="the begin of the answer")
        first = await tab.eval(shown)
        await tab.until(f"{shown} > {first} && {shown} < 40", what="more of it")
        await tab.reload()
        again = "performance.getEntriesByType('navigation')[0].type === 'reload' && document.querySelector('main')"
        await tab.until(f"{again} && {shown} > {first} && {shown} < 55", what="the same after a reload, still growing")
        await tab.until(f"{DONE} && {shown} > 60", 60)
        assert not tab.problems
