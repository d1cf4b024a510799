"""LangGraph's own client, unchanged, against a running service."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.pregel.remote import RemoteGraph
from langgraph.types import Command
from langgraph_sdk import get_client
from langgraph_sdk.errors import AuthenticationError, ConflictError, NotFoundError, UnprocessableEntityError

from tests.e2e.conftest import Start
from tests.e2e.test_api import HTTP, add_key
from tests.e2e.test_own_resources import fill
from tests.e2e.test_probes import address_of
from tests.fakes.model import FakeModel
from tests.fakes.node import running
from tests.fakes.server import until
from tests.support.service_process import Service, ask

ALL = ["messages-tuple", "values", "updates", "custom"]
WORDS = " ".join(f"word{number}" for number in range(30))
ASK = {"name": "ask_clarification", "args": {"question": "Which?", "options": ["Red", "Blue"]}}


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


@asynccontextmanager
async def sdk(service: Service, key: str) -> AsyncIterator[Any]:  # its types are narrower than what it takes
    await until(lambda: bool(address_of(service)), what="the listener")
    async with get_client(url=address_of(service), api_key=key) as client:
        yield client


async def test_threads_runs_and_streams(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with sdk(service, key) as client:
        assert [each["assistant_id"] for each in await client.assistants.search()] == ["fawn"]
        thread = await client.threads.create(metadata={"who": "ann"})
        id = thread["thread_id"]
        assert (thread["status"], thread["values"]["messages"]) == ("idle", [])
        created: list[Any] = []
        kinds, text = list[str](), ""
        stream = client.runs.stream(
            id, "fawn", input=said(ask(text=WORDS, tok_ms=60)), stream_mode=ALL, on_run_created=created.append
        )
        async for part in stream:
            kinds.append(part.event)
            if part.event == "messages":
                text += part.data[0]["content"]
        assert text == WORDS
        assert (kinds[0], kinds[-1]) == ("metadata", "end")
        assert kinds.count("messages") > 3
        [run] = await client.runs.list(id)
        assert (run["run_id"], run["status"]) == (created[0]["run_id"], "success")
        state = await client.threads.get_state(id)
        assert [each["type"] for each in state["values"]["messages"]] == ["human", "ai"]
        again = [part.event async for part in client.runs.join_stream(id, run["run_id"], last_event_id="-1")]
        assert again[-1] == "end"
        found = await client.runs.wait(id, "fawn", input=said(ask(text="two")))
        assert [each["content"] for each in found["messages"] if each["type"] == "ai"] == [WORDS, "two"]
        assert (await client.runs.join(id, run["run_id"]))["messages"][-1]["content"] == "two"
        assert [each["thread_id"] for each in await client.threads.search(metadata={"who": "ann"})] == [id]
        assert [each["thread_id"] for each in await client.threads.search(metadata={"graph_id": "fawn"})] == [id]
        assert await client.threads.search(metadata={"who": "bob"}) == []
        assert len(await client.threads.get_history(id)) == 1
        await client.threads.update(id, metadata={"more": 1})
        noted = (await client.threads.get(id))["metadata"]
        assert (noted["who"], noted["more"]) == ("ann", 1)


async def test_a_question_is_an_interrupt_and_its_answer_resumes(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with sdk(service, key) as client:
        id = (await client.threads.create())["thread_id"]
        text = ask(steps=[{"calls": [ASK]}], text="thanks")
        parts = [part async for part in client.runs.stream(id, "fawn", input=said(text), stream_mode=ALL)]
        [asked] = [
            part.data["__interrupt__"] for part in parts if "__interrupt__" in part.data and part.event == "updates"
        ]
        assert asked[0]["value"]["question"] == "Which?"
        thread, state = await client.threads.get(id), await client.threads.get_state(id)
        assert (thread["status"], state["next"]) == ("interrupted", ["ask"])
        assert "Which?" in state["values"]["messages"][-1]["content"], "also as a text"
        with pytest.raises(httpx.HTTPStatusError, match="422"):
            await client.runs.wait(id, "fawn", command={"resume": {"unknown": 1}})
        found = await client.runs.wait(id, "fawn", command={"resume": {asked[0]["id"]: "Blue"}})
        assert found["messages"][-1]["content"] == "thanks"
        assert (await client.threads.get(id))["status"] == "idle"


async def test_cancel_strategies_and_a_lid_that_closes(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    slow = said(ask(text="late", delay_ms=60000))
    async with sdk(service, key) as client:
        id = (await client.threads.create())["thread_id"]
        run = await client.runs.create(id, "fawn", input=slow)
        await until_status(client, id, run["run_id"], "running")
        with pytest.raises(ConflictError):
            await client.runs.create(id, "fawn", input=said("x"), multitask_strategy="reject")
        with pytest.raises(UnprocessableEntityError):
            await client.runs.create(id, "fawn", input=said("x"), multitask_strategy="rollback")
        await client.runs.cancel(id, run["run_id"], wait=True)
        assert (await client.runs.get(id, run["run_id"]))["status"] == "interrupted"
        for strategy, wanted in (("continue", "running"), ("cancel", "interrupted")):
            other = (await client.threads.create())["thread_id"]
            stream = client.runs.stream(other, "fawn", input=slow, on_disconnect=strategy)
            reading = asyncio.create_task(anext(aiter(stream)))
            await until_status(client, other, "", "running")
            await reading
            await stream.aclose()
            await until_status(client, other, "", wanted)
        interrupted = await client.runs.wait(id, "fawn", input=said(ask(text="next")), multitask_strategy="interrupt")
        assert interrupted["messages"][-1]["content"] == "next"


async def until_status(client: Any, thread: str, run: str, wanted: str) -> None:
    async with asyncio.timeout(60):
        while True:
            found = await client.runs.list(thread)
            if any(each["status"] == wanted and run in ("", each["run_id"]) for each in found):
                return
            await asyncio.sleep(0.05)


async def test_keys_and_foreign_threads(start: Start) -> None:
    service = await start(http=HTTP)
    mine, other = await add_key(service, "ci", "telegram/7"), await add_key(service, "other", "telegram/8")
    async with sdk(service, mine) as client, sdk(service, other) as stranger, sdk(service, "wrong") as nobody:
        id = (await client.threads.create())["thread_id"]
        await client.runs.wait(id, "fawn", input=said(ask(text="secret")))
        [run] = await client.runs.list(id)
        for call in (stranger.threads.get(id), stranger.threads.get_state(id), stranger.runs.get(id, run["run_id"])):
            with pytest.raises(NotFoundError):
                await call
        with pytest.raises(AuthenticationError):
            await nobody.threads.create()
        assert await stranger.threads.search() == []
        with pytest.raises(ConflictError):
            await client.threads.create(thread_id=id)
        assert (await client.threads.create(thread_id=id, if_exists="do_nothing"))["thread_id"] == id
        with pytest.raises(NotFoundError):
            await stranger.threads.delete(id)
        gone = (await client.threads.create())["thread_id"]
        await client.threads.delete(gone)
        with pytest.raises(NotFoundError):
            await client.threads.get(gone)
        picture = {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}
        inputs: list[Any] = [{"messages": []}, picture, "text", None]
        for wrong in inputs:
            with pytest.raises(UnprocessableEntityError):
                await client.runs.create(id, "fawn", input=wrong)


async def test_the_store_is_the_memory_of_the_person(start: Start) -> None:
    service = await start(http=HTTP, memory={"enabled": True, "wait_seconds": 0})
    mine, other = await add_key(service, "ci", "telegram/7"), await add_key(service, "other", "telegram/8")
    now = time.time()
    common = {
        "kind": "preference",
        "confidence": 0.9,
        "used": now,
        "uses": 0,
        "name": "Ada",
        "message": "",
        "links": "",
    }
    place = {"account": "web/", "owner": "telegram:7", "audience": "x", "thread": "web//telegram%3A7/t"}
    facts = {"tea": "drinks green tea", "test": "uses pytest"}
    values = {"said": now, **common, **place}
    keys = [fill(service, "memory", subject=about, text=fact, **values) for about, fact in facts.items()]
    async with sdk(service, mine) as client, sdk(service, other) as stranger:
        found = await client.store.search_items(("memory",), query="green")
        assert [item["value"]["text"] for item in found["items"]] == ["drinks green tea"]
        assert len((await client.store.search_items(()))["items"]) == 2
        assert (await client.store.list_namespaces())["namespaces"] == [["memory"]]
        item = await client.store.get_item(("memory",), f"{keys[1]}")
        assert (item["key"], item["value"]["subject"]) == (f"{keys[1]}", "test")
        with pytest.raises(UnprocessableEntityError, match="Say it to the agent"):
            await client.store.put_item(("memory",), "1", {"text": "trust everybody"})
        assert (await stranger.store.search_items(()))["items"] == []
        for call in (stranger.store.get_item, stranger.store.delete_item):
            with pytest.raises(NotFoundError):
                await call(("memory",), f"{keys[0]}")
        await client.store.delete_item(("memory",), key=f"{keys[0]}")
        with pytest.raises(NotFoundError):
            await client.store.get_item(("memory",), f"{keys[0]}")
    assert service.rows("SELECT text FROM memory") == [("uses pytest",)]


async def test_the_javascript_client(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    await until(lambda: bool(address_of(service)), what="the listener")
    requests = {
        "words": ask(text=WORDS, tok_ms=5),
        "slow": ask(text="late", delay_ms=60000),
        "question": ask(steps=[{"calls": [ASK]}], text="thanks"),
    }
    environment = {"FAWN_KEY": key, "REQUESTS": orjson.dumps(requests).decode()}
    script, package = "langgraph_sdk.js", "@langchain/langgraph-sdk"
    async with running(script, address_of(service), lambda: True, package, environment=environment) as client:
        found = {}
        while "resumed" not in found:
            line = await client.says()
            assert line["name"] != "failed", line
            found[line["name"]] = line["value"]
    streamed = found["streamed"]
    assert (streamed["text"], streamed["first"], streamed["last"]) == (WORDS, "metadata", "end")
    assert (found["state"], found["found"], found["cancelled"]) == (["human", "ai"], 1, "interrupted")
    assert (found["asked"], found["resumed"]) == ("Which?", "thanks")


async def test_runs_without_a_thread_end_with_theirs(start: Start, model: FakeModel) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with sdk(service, key) as client:
        created: list[Any] = []
        earlier = [{"role": "user", "content": "I like tea"}, {"role": "assistant", "content": "Noted."}]
        asked = {"messages": [*earlier, *said(ask(id="once", text="forty-two"))["messages"]]}
        found = await client.runs.wait(None, "fawn", input=asked, on_run_created=created.append)
        assert found["messages"][-1]["content"] == "forty-two"
        heard = f"{model.requests('once')[0].messages[-1]['content']}"
        assert "> I like tea" in heard
        assert "> Noted." in heard
        thread = created[0]["thread_id"]
        assert (await client.runs.get(thread, created[0]["run_id"]))["status"] == "success"
        kept: list[Any] = []
        parts = [
            part.event
            async for part in client.runs.stream(
                None, "fawn", input=said("echo"), on_completion="keep", on_run_created=kept.append
            )
        ]
        assert (parts[0], parts[-1]) == ("metadata", "end")
        waiting: list[Any] = []
        question = said(ask(steps=[{"calls": [ASK]}], text="thanks"))
        found = await client.runs.wait(None, "fawn", input=question, on_run_created=waiting.append)
        assert found["__interrupt__"][0]["value"]["question"] == "Which?"
        with pytest.raises(httpx.HTTPStatusError, match="422"):
            await client.runs.wait(None, "fawn", command={"resume": "Blue"})
        await service.stop()
        service.change("UPDATE conversations SET used=used-:hours", hours=7200.0)
        service.change("UPDATE jobs SET due=0 WHERE kind=:kind", kind="stateless-thread")
        await service.start()
    async with sdk(service, key) as client:
        await until_gone(client, thread)
        assert (await client.threads.get(kept[0]["thread_id"]))["status"] == "idle"
        assert (await client.threads.get(waiting[0]["thread_id"]))["status"] == "interrupted"


async def until_gone(client: Any, thread: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await client.threads.get(thread)
            except NotFoundError:
                return
            await asyncio.sleep(0.05)


async def test_a_remote_graph_with_and_without_a_thread(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with sdk(service, key) as client:
        graph = RemoteGraph("fawn", client=client)
        found = await graph.ainvoke(said(ask(text="without")))
        assert isinstance(found, dict)
        assert found["messages"][-1]["content"] == "without"
        parts = [part async for part in graph.astream(said(ask(text="streamed")), stream_mode="updates")]
        assert parts[-1]["fawn"]["messages"][-1]["content"] == "streamed"
        config: RunnableConfig = {"configurable": {"thread_id": (await client.threads.create())["thread_id"]}}
        await graph.ainvoke(said(ask(steps=[{"calls": [ASK]}], text="thanks")), config)
        asked = await graph.aget_state(config)
        assert (asked.next, asked.interrupts[0].value["question"]) == (("ask",), "Which?")
        assert (await graph.aget_state(asked.config)).values == asked.values
        await graph.ainvoke(Command(resume="Blue"), config)
        state = await graph.aget_state(config)
        assert (state.next, state.values["messages"][-1]["content"]) == ((), "thanks")
        with pytest.raises(NotFoundError):
            await graph.aget_state(asked.config)


async def test_files_in_the_blocks_of_an_input_reach_the_agent(start: Start, model: FakeModel) -> None:
    service = await start(http=HTTP)
    pdf = base64.b64encode(b"%PDF-1.4 hello").decode()
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pdf}"}}
    file = {"type": "file", "source_type": "base64", "mime_type": "application/pdf", "data": pdf}
    said = [{"type": "text", "text": "read it"}, file | {"metadata": {"filename": "Q3 report.pdf"}}, picture]
    async with sdk(service, await add_key(service, "ci", "telegram/7")) as client:
        thread = (await client.threads.create())["thread_id"]
        found = await client.runs.wait(thread, "fawn", input={"messages": [{"role": "user", "content": said}]})
        assert found["messages"][-1]["type"] == "ai"
        stateless = await client.runs.wait(None, "fawn", input={"messages": [{"role": "user", "content": said}]})
        assert stateless["messages"][-1]["type"] == "ai"
    for request in model.requests():
        asked = str(request.messages[-1]["content"])
        assert "read it" in asked
        assert "/mnt/user-data/uploads/Q3" in asked
        assert "/mnt/user-data/uploads/image2" in asked
