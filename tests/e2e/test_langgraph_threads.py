"""LangGraph's own clients, unchanged, on the protocol of thread streams: Python, JavaScript, and React in Chromium."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import orjson
import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_api import HTTP, add_key, client_of
from tests.e2e.test_langgraph_sdk import ASK, WORDS, said, sdk
from tests.e2e.test_plan import TODOS
from tests.e2e.test_probes import address_of
from tests.fakes.model import FakeModel
from tests.fakes.node import CLIENTS, MODULES, need_packages, running
from tests.fakes.server import until
from tests.support.browser import Tab, shared_chromium
from tests.support.event_client import read_events
from tests.support.run_folder import run_folder, shared
from tests.support.service_process import Service, ask, bash
from tests.support.web_server import ClonedResponse, html, serve_site

SECONDS = 60
Json = dict[str, Any]


async def text_of(message: Any) -> str:
    return str(await message.text)


async def output_of(thread: Any) -> Any:
    return await thread.output


async def texts_of(thread: Any, count: int) -> list[str]:
    """Read messages until there are so many. Nothing is read while only one of them is waited for."""
    tasks: list[asyncio.Task[str]] = []
    async for message in thread.messages:
        tasks.append(asyncio.create_task(text_of(message)))
        if len(tasks) == count:
            break
    return [*await asyncio.gather(*tasks)]


async def test_a_stream_of_a_thread_in_python(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with asyncio.timeout(SECONDS * 2), sdk(service, key) as client:
        async with client.threads.stream(assistant_id="fawn") as thread:
            begun = await thread.run.start(input=said(ask(text=WORDS, tok_ms=3)))
            texts = []
            async for message in thread.messages:
                texts.append(asyncio.create_task(text_of(message)))
            assert [await each for each in texts] == [WORDS]
            assert (await thread.output)["messages"][-1]["content"] == WORDS
            id = thread.thread_id
        run = await client.runs.get(id, begun["run_id"])
        assert run["status"] == "success"
        async with client.threads.stream(id, assistant_id="fawn") as thread:  # the end of the first run is told
            await thread.run.start(input=said(ask(text="two", delay_ms=300)))
            events = [event async for event in first_events(thread)]
            assert (await thread.output)["messages"][-1]["content"] == "two"
        kinds = [event["method"] for event in events]
        assert kinds[0] == "lifecycle"
        assert kinds[-1] == "lifecycle"
        assert {"messages", "values", "updates"} <= {*kinds}
        numbers = [event["seq"] for event in events]
        assert numbers == sorted({*numbers})
        assert len({event["event_id"] for event in events}) == len(events)


async def first_events(thread: Any) -> Any:
    async for event in thread.events:
        yield event
        if event["method"] == "lifecycle" and event["params"]["data"]["event"] != "running":
            return


async def test_a_question_in_a_stream_of_a_thread(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with asyncio.timeout(SECONDS * 2), sdk(service, key) as client:
        async with client.threads.stream(assistant_id="fawn") as thread:
            await thread.run.start(input=said(ask(steps=[{"calls": [ASK]}], text="thanks")))
            await until(lambda: thread.interrupted, what="the question")
            assert thread.interrupts[0]["value"]["question"] == "Which?"
            thread.interrupts.append({"interrupt_id": "of-another", "value": None, "namespace": []})
            with pytest.raises(RuntimeError, match="no_such_interrupt"):
                await thread.run.respond("Blue", interrupt_id="of-another")
            await thread.run.respond("Blue", interrupt_id=thread.interrupts[0]["interrupt_id"])
            assert (await output_of(thread))["messages"][-1]["content"] == "thanks"
        state = await client.threads.get_state(thread.thread_id)
        assert (state["next"], state["tasks"]) == ([], [])


async def test_a_run_that_fails_raises(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with (
        asyncio.timeout(SECONDS * 2),
        sdk(service, key) as client,
        client.threads.stream(assistant_id="fawn") as thread,
    ):
        await thread.run.start(input=said(ask(errors=[400] * 9)))
        with pytest.raises(RuntimeError, match="Run errored"):
            await thread.output
        with pytest.raises(RuntimeError, match="invalid_argument"):
            await thread.run.start(input=None)


async def test_a_stream_of_a_thread_in_javascript(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")
    requests = {"words": ask(text=WORDS, tok_ms=3), "question": ask(steps=[{"calls": [ASK]}], text="thanks")}
    environment = {"FAWN_KEY": key, "REQUESTS": orjson.dumps(requests).decode()}
    script, package = "langgraph_threads.js", "@langchain/langgraph-sdk"
    async with running(script, address_of(service), lambda: True, package, environment=environment) as client:
        found = {}
        while "answered" not in found:
            line = await client.says()
            assert line["name"] != "failed", line
            found[line["name"]] = line["value"]
    assert found["output"] == [requests["words"], WORDS]
    assert (found["texts"], found["status"]) == ([WORDS], "success")
    assert (found["asked"], found["answered"]) == ("Which?", "thanks")


# ------------------------------------------------------------ @langchain/react in Chromium


OpenChat = Callable[..., Awaitable[tuple[Service, Tab]]]


@asynccontextmanager
async def chats(page: str, start: Start) -> AsyncIterator[OpenChat]:
    """Yield a function that returns a running service, and a tab with a chat."""
    script = await bundle(page)
    async with serve_site() as site, shared_chromium() as browser:
        site.pages["/"] = html(
            '<!doctype html><meta charset="utf-8"><div id="root"></div><script src="/app.js"></script>'
        )
        site.pages["/app.js"] = ClonedResponse(text=script, content_type="text/javascript")
        site.pages["/favicon.ico"] = ClonedResponse(text="")
        origin = f"http://127.0.0.1:{site.port}"

        async def begin(**settings: object) -> tuple[Service, Tab]:
            service = await start(http={**HTTP, "origins": [origin]}, **settings)
            key = await add_key(service, "ci", "telegram/7")
            await until(lambda: bool(address_of(service)), what="the listener")
            tab = await browser.tab(f"{origin}/?{urlencode({'api': address_of(service), 'key': key})}")
            await tab.until("document.querySelector('#text')")
            return service, tab

        yield begin


@pytest.fixture
async def react(start: Start) -> AsyncIterator[OpenChat]:
    """`await react(section={…})` returns a running service, and a tab with a chat of `useStream`."""
    async with chats("react_page.jsx", start) as begin:
        yield begin


@pytest.fixture
async def classic(start: Start) -> AsyncIterator[OpenChat]:
    """The same with the older `useStream`, on which agent-chat-ui is built."""
    async with chats("classic_react_page.jsx", start) as begin:
        yield begin


@pytest.mark.usefixtures("bubblewrap")
async def test_what_agent_chat_ui_asks_for(classic: OpenChat, model: FakeModel) -> None:
    """It sends, approves, denies with a reason, answers by a message, and shows all of it after a reload."""
    _service, tab = await classic(sandbox={"provider": "local"}, permissions={"ask": ["bash"]})
    await tab.send(ask(text="A first answer."))
    await last_answer(tab, "A first answer.")
    for button, result in (("#approve", "made"), ("#deny", "did not approve")):
        await tab.send(ask(steps=[bash(f"echo ma''de {button}")], text=f"finished {button}"))
        await tab.until("document.querySelector('#question')?.innerText.includes(\"echo ma''de\")", what="the call")
        await idle(tab)  # until then, messages above the buttons may come
        await tab.click(button)
        await tab.until("!document.querySelector('#question')")
        await idle(tab)
        assert result in tool_results(model)
    await until(lambda: "not this one" in str(model.requests()[-1].messages), what="the reason")
    await tab.send(ask(steps=[{"calls": [ASK]}], text="thanks"))
    await tab.until("document.querySelector('#question')?.innerText === 'Which?'")
    await tab.send("Blue")
    await last_answer(tab, "thanks")
    before = await shown(tab)
    assert len({text for _kind, text in before}) == len(before), "each message once"
    address = await tab.eval("location.href")
    await tab.go(f"{address}&thread={await tab.text('#thread')}")
    await last_answer(tab, "thanks")
    assert await shown(tab) == before
    assert tab.problems == []


def tool_results(model: FakeModel) -> str:
    return str([m["content"] for each in model.requests() for m in each.messages if m["role"] == "tool"])


async def last_answer(tab: Tab, text: str) -> None:
    await tab.until(f"[...document.querySelectorAll('.ai')].at(-1)?.innerText === {json.dumps(text)}", what=text)
    await idle(tab)


async def test_a_chat_of_react_shows_text_as_it_comes(react: Any) -> None:
    _service, tab = await react()
    await tab.send(ask(steps=[{"calls": [TODOS]}], text=WORDS, tok_ms=40))
    await tab.until("document.querySelector('.ai')?.innerText.includes('word3')", what="the first words")
    assert await tab.text("#state") == "loading"
    await idle(tab)
    assert await shown(tab) == [("human", ask(steps=[{"calls": [TODOS]}], text=WORDS, tok_ms=40)), ("ai", WORDS)]
    await tab.send(ask(text="two"))
    await tab.until("document.querySelectorAll('.ai').length === 2")
    await idle(tab)
    before = await shown(tab)
    assert [kind for kind, _text in before] == ["human", "ai", "human", "ai"]
    address = await tab.eval("location.href")
    await tab.go(f"{address}&thread={await tab.text('#thread')}")
    await tab.until("document.querySelectorAll('.ai').length === 2", what="the thread after a reload")
    assert await shown(tab) == before
    await tab.send(ask(text="three"))
    await tab.until("document.querySelectorAll('.ai').length === 3", what="an answer after a reload")
    await idle(tab)
    assert (await shown(tab))[-1] == ("ai", "three")
    assert tab.problems == []


async def test_a_reload_of_react_follows_the_run_in_progress(react: Any) -> None:
    _service, tab = await react()
    await tab.send(ask(text=WORDS, tok_ms=150))
    await tab.until("document.querySelector('.ai')?.innerText.includes('word2')")
    address = await tab.eval("location.href")
    await tab.go(f"{address}&thread={await tab.text('#thread')}")
    await tab.until(f"document.querySelector('.ai')?.innerText === {json.dumps(WORDS)}", what="the rest")
    await idle(tab)
    assert [kind for kind, _text in await shown(tab)] == ["human", "ai"]


async def test_a_question_and_a_stop_in_react(react: Any) -> None:
    _service, tab = await react()
    await tab.send(ask(steps=[{"calls": [ASK]}], text="thanks"))
    await tab.until("document.querySelector('#question')?.innerText === 'Which?'")
    await idle(tab)
    reads = "performance.getEntriesByType('resource').filter((each) => each.name.endsWith('/state')).length"
    earlier = await tab.eval(reads)
    await tab.click("#answer")
    await tab.until("[...document.querySelectorAll('.ai')].at(-1)?.innerText === 'thanks'")
    await idle(tab)
    assert await tab.count("#question") == 0
    # The SDK reads the thread again after an answer. What it reads must not come in the middle of the next run.
    await tab.until(f"{reads} > {earlier}", what="the end of the answer")
    before = await tab.text("#run")
    await tab.send(ask(text="late", delay_ms=60000))
    # The SDK stops a run whose id it knows, and forgets a stop that comes before.
    await tab.until(f"document.querySelector('#run').innerText !== {json.dumps(before)}", what="the run's id")
    await tab.click("#stop")
    await idle(tab)
    assert await tab.text("#error") == ""
    await tab.send(ask(text="after"))
    await tab.until("[...document.querySelectorAll('.ai')].at(-1)?.innerText === 'after'")


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize(("button", "result"), [("#approve", "made"), ("#deny", "did not approve")])
async def test_an_approval_in_react(react: Any, model: FakeModel, button: str, result: str) -> None:
    _service, tab = await react(sandbox={"provider": "local"}, permissions={"ask": ["bash"]})
    await tab.send(ask(steps=[bash("echo ma''de")], text="finished"))
    await tab.until("document.querySelector('#question')?.innerText.includes(\"echo ma''de\")", what="the exact call")
    await idle(tab)
    await tab.click(button)
    await tab.until("[...document.querySelectorAll('.ai')].at(-1)?.innerText === 'finished'")
    await idle(tab)
    assert await tab.count("#question") == 0
    [shown_to_model] = [m["content"] for m in model.requests()[-1].messages if m["role"] == "tool"]
    assert result in str(shown_to_model).lower()


async def idle(tab: Tab) -> None:
    await tab.until("document.querySelector('#state').innerText === 'idle'", what="the end of the run")


async def shown(tab: Tab) -> list[tuple[str, str]]:
    found = await tab.eval("[...document.querySelectorAll('p')].map((p) => [p.className, p.innerText])")
    return [(kind, text) for kind, text in found]


async def bundle(name: str) -> str:
    """Return a page's script, in one file with what it imports. Skips where esbuild is missing."""
    need_packages("esbuild", "@langchain/react", "react-dom")
    return Path(await asyncio.to_thread(shared, name, partial(_make_bundle, name))).read_text()


def _make_bundle(name: str) -> str:
    out = run_folder() / f"{name}.bundle.js"
    subprocess.run(
        [f"{MODULES}/.bin/esbuild", str(CLIENTS / name), "--bundle", f"--outfile={out}", "--jsx=automatic",
         '--define:process.env.NODE_ENV="production"'],
        env={"NODE_PATH": str(MODULES), "PATH": os.environ["PATH"]}, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return str(out)


# ------------------------------------------------------------ the wire itself


async def read_frames(
    client: aiohttp.ClientSession,
    body: Json,
    frames: list[Json],
    until: Callable[[Json], bool],
    opened: Callable[[], None] = lambda: None,
) -> None:
    """Read frames of the thread t until one is as wanted, or the stream ends."""
    async with client.post("/threads/t/stream/events", json=body) as answer:
        opened()
        async for event in read_events(answer):
            if event.name:
                assert (event.data["method"], event.id) == (event.name, f"{event.data['seq']}")
                frames.append(event.data)
                if until(event.data):
                    return


def is_end(frame: Json) -> bool:
    return bool(frame["method"] == "lifecycle" and frame["params"]["data"]["event"] != "running")


def shown_texts(frames: Sequence[Json]) -> dict[str, str]:
    """Return what a client shows of the messages."""
    texts, current = dict[str, str](), ""
    for data in [frame["params"]["data"] for frame in frames if frame["method"] == "messages"]:
        if data["event"] == "message-start":
            current = data["id"]
            texts[current] = ""
        elif data["event"] == "content-block-delta":
            texts[current] += data["delta"]["text"]
    return texts


async def start_run(client: aiohttp.ClientSession, text: str) -> Json:
    params = {"assistant_id": "fawn", "input": said(text)}
    async with client.post("/threads/t/commands", json={"id": 1, "method": "run.start", "params": params}) as answer:
        found: Json = await answer.json()
        assert (answer.status, found["type"]) == (200, "success"), found
        return found


async def test_a_cut_stream_goes_on_and_a_late_one_has_the_same_frames_once(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")
    body: Json = {"channels": ["messages", "lifecycle"]}
    frames, late, next_ones = list[Json](), list[Json](), list[Json]()
    async with client_of(service, key) as client, asyncio.timeout(SECONDS):
        await start_run(client, ask(text=WORDS, tok_ms=20))
        await read_frames(client, body, frames, lambda _frame: "word5 " in "".join(shown_texts(frames).values()))
        await read_frames(client, {**body, "since": frames[-1]["seq"]}, frames, is_end)
        numbers = [frame["seq"] for frame in frames]
        assert numbers == sorted({*numbers})
        assert [*shown_texts(frames).values()] == [WORDS]
        assert [frame["params"]["data"].get("event") for frame in frames].count("content-block-delta") > 3, (
            "as it comes"
        )
        await read_frames(client, {"channels": ["messages", "lifecycle", "tools"]}, late, is_end)  # for a new stream
        assert [frame["event_id"] for frame in late] == [frame["event_id"] for frame in frames]
        opened = asyncio.Event()
        reading = asyncio.create_task(
            read_frames(client, body, next_ones, is_end, opened.set)
        )  # it knows the first run
        await opened.wait()
        found = await start_run(client, ask(text="two"))
        await reading
        assert min(frame["seq"] for frame in next_ones) > found["meta"]["applied_through_seq"] > numbers[-1]
        assert [*shown_texts(next_ones).values()] == ["two"]


async def test_a_page_that_is_loaded_anew_has_the_run_that_its_old_stream_read_to_the_end(start: Start) -> None:
    """Browsers close the stream of a page that was left when they like, with the same channels as the new one."""
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")
    body: Json = {"channels": ["messages", "lifecycle"]}
    old, new = list[Json](), list[Json]()
    async with client_of(service, key) as client, asyncio.timeout(SECONDS):
        await start_run(client, ask(text="one"))
        reading = asyncio.create_task(read_frames(client, body, old, lambda _frame: False))
        await until(lambda: len([each for each in old if is_end(each)]) == 1, what="the first end")
        await start_run(client, ask(text="two"))
        await until(lambda: len([each for each in old if is_end(each)]) == 2, what="the second end")
        await read_frames(client, body, new, is_end)
        reading.cancel()
        await asyncio.wait([reading])
    assert [*shown_texts(new).values()] == ["two"]


async def test_a_stream_of_a_thread_goes_on_over_a_restart(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")
    body: Json = {"channels": ["messages", "lifecycle"]}
    frames: list[Json] = []
    async with client_of(service, key) as client:
        await start_run(client, ask(text=WORDS, tok_ms=40))
        await read_frames(client, body, frames, lambda _frame: "word5 " in "".join(shown_texts(frames).values()))
    await service.restart()
    await until(lambda: bool(address_of(service)), what="the listener")
    async with client_of(service, key) as client, asyncio.timeout(SECONDS):
        await read_frames(client, {**body, "since": frames[-1]["seq"]}, frames, is_end)
        numbers = [frame["seq"] for frame in frames]
        assert numbers == sorted(numbers)
        assert [*shown_texts(frames).values()][-1] == WORDS
        assert frames[-1]["params"]["data"]["event"] == "completed"
        again: list[Json] = []
        await read_frames(client, {**body, "since": 0}, again, is_end)  # from what is stored
        assert [*shown_texts(again).values()][-1] == WORDS
        assert again[-1]["event_id"] == frames[-1]["event_id"]


@pytest.mark.usefixtures("bubblewrap")
async def test_two_streams_of_a_client_have_the_same_frames_and_a_revoked_key_ends_them(start: Start) -> None:
    service = await start(http=HTTP, sandbox={"provider": "local"})
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")
    many, few = list[Json](), list[Json]()
    async with client_of(service, key) as client, asyncio.timeout(SECONDS):
        await start_run(client, ask(steps=[bash("echo made")], text="two streams", tok_ms=20))
        channels = ["messages", "lifecycle", "tools", "custom:step", "values"]
        await asyncio.gather(
            read_frames(client, {"channels": channels}, many, is_end),
            read_frames(client, {"channels": ["lifecycle", "tools"], "namespaces": [[]]}, few, is_end),
        )
        kinds = {frame["event_id"]: frame["params"]["data"] for frame in many}
        assert [kinds[frame["event_id"]] for frame in few] == [frame["params"]["data"] for frame in few]
        assert {"tools", "custom", "values"} <= {frame["method"] for frame in many}
        ended = asyncio.create_task(read_frames(client, {"channels": ["values"]}, [], lambda _frame: False))
        code, _text = await service.fawn("key", "revoke", "ci")
        assert code == 0
        await ended


BAD_STREAMS: list[Any] = [
    {},
    {"channels": []},
    {"channels": "values"},
    {"channels": ["nothing"]},
    {"channels": ["values"], "since": -1},
    {"channels": ["values"], "since": True},
    {"channels": ["values"], "since": "1"},
    {"channels": ["values"], "namespaces": "x"},
    {"channels": ["values"] * 100},
    [],
]
INVALID = "invalid_argument"
BAD_COMMANDS: list[Any] = [
    ({"id": 1, "method": "run.start", "params": {"input": {"messages": []}}}, INVALID),
    (
        {"id": 1, "method": "run.start", "params": {"input": said("x"), "multitaskStrategy": "rollback"}},
        "invalid_argument",
    ),
    ({"id": 1, "method": "input.respond", "params": {"interrupt_id": "x", "response": "y"}}, "no_such_interrupt"),
    ({"id": 1, "method": "input.respond", "params": {"responses": [{}]}}, INVALID),
    ({"id": 1, "method": "input.respond", "params": {"responses": 7}}, INVALID),
    ({"id": 1, "method": "state.fork", "params": {}}, "unknown_command"),
    ({"id": "1", "method": "run.start"}, INVALID),
    ({}, INVALID),
]


async def test_what_cannot_be_asked_for_is_refused_and_nothing_is_stored(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")
    async with client_of(service, key) as client, client_of(service, "wrong") as nobody:
        for body in BAD_STREAMS:
            async with client.post("/threads/t/stream/events", json=body) as answer:
                assert answer.status == 422, body
        for command, error in BAD_COMMANDS:
            async with client.post("/threads/t/commands", json=command) as answer:
                found = await answer.json()
                assert (answer.status, found["type"], found["error"]) == (200, "error", error), command
        for path in ("stream/events", "commands"):
            async with nobody.post(f"/threads/t/{path}", json={"channels": ["values"]}) as answer:
                assert answer.status == 401
    assert service.rows("SELECT count(*) FROM inbox") == [(0,)]
