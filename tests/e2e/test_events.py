"""The events of a running service: no gap and no double, over cut connections, kill -9 and a graceful restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from agent.blocks import Step
from tests.e2e.conftest import Start
from tests.e2e.test_api import HTTP, add_key, client_of, finished_run, get, post
from tests.e2e.test_probes import address_of
from tests.fakes.model import FakeModel
from tests.fakes.model_script import answer_of
from tests.fakes.server import until
from tests.support.event_client import Event, Fold, follow, read_events
from tests.support.service_process import Service, ask, bash

WORDS = " ".join(f"word{number}" for number in range(60))


def slow(text: str = WORDS, ms: int = 25) -> str:
    """Return a request that is answered in pieces."""
    return ask(text=text, tok_ms=ms)


async def begin(start: Start, **settings: Any) -> tuple[Service, str]:
    service = await start(http=HTTP, **settings)
    return service, await add_key(service, "ci", "telegram/7")


def text_of_run(fold: Fold) -> str:
    return "".join(text for texts in fold.live.values() for text in texts.values())


async def test_a_message_streams_to_its_end_and_asks_no_more(model: FakeModel, start: Start) -> None:
    service, key = await begin(start)
    async with client_of(service, key) as client:
        deltas = Fold()
        # What was said before a client came is a snapshot, not pieces: here it comes first, however slow all is.
        model.script = lambda body: replace(answer_of(body, {}), held=lambda: not deltas.seen)
        _status, sent = await post(client, "/v1/threads/t/messages", {"text": slow(ms=5)})
        path = f"/v1/messages/{sent['id']}/events"
        await follow(client, path, deltas, lambda fold: fold.ends)
        pieces = [event.data["delta"] for event in deltas.seen if event.name == "text"]
        assert ("".join(pieces), len(pieces) > 3) == (WORDS, True)
        assert deltas.seen[0].name == "run"
        [end] = deltas.ends
        assert (end["state"], end["text"], end["thread"]) == ("done", WORDS, "t")
        ids = [event.id for event in deltas.seen]
        assert len({*ids}) == len(ids) > 3, "each event has an id of its own"
        async with client.get(path, headers={"Last-Event-ID": deltas.last}) as answer:
            assert answer.status == 204
        again = await follow(client, f"/v1/runs/{end['id']}/events", Fold(), lambda fold: fold.ends)
        assert [event.name for event in again.seen] == ["snapshot", "end"]
        assert [each["text"] for each in again.seen[0].data["texts"]] == [WORDS]


def named(fold: Fold) -> int:
    """Return how many events came: comments of an idle stream are none."""
    return sum(1 for each in fold.seen if each.name)


def ended_or_more_than(count: int) -> Callable[[Fold], object]:
    return lambda now: now.ends or named(now) > count


@pytest.mark.parametrize("kind", ["run", "thread", "all"])
async def test_a_cut_connection_goes_on_exactly_where_it_was(model: FakeModel, start: Start, kind: str) -> None:
    service, key = await begin(start)
    async with client_of(service, key) as client:
        path = {"thread": "/v1/threads/t/events", "all": "/v1/events"}.get(kind, "")
        fold, after = Fold(), "0" if path else ""
        model.script = lambda body: replace(answer_of(body, {}), held=lambda: not fold.seen)  # as above
        _status, sent = await post(client, "/v1/threads/t/messages", {"text": slow()})
        path = path or f"/v1/messages/{sent['id']}/events"
        cuts = 0
        while not fold.ends:
            await follow(client, path, fold, ended_or_more_than(named(fold) + 2), fold.last or after)
            cuts += 1
        assert cuts > 3
        streamed = "".join(event.data["delta"] for event in fold.seen if event.name == "text")
        assert WORDS.startswith(streamed), "nothing twice, nothing left out"
        assert len(streamed) > len(WORDS) / 2
        working = [event for event in fold.seen if event.name == "snapshot" and streamed != WORDS]
        assert len(working) <= 1, "only the end is told as a whole, where the client was away for it"
        assert fold.ends[0]["text"] == WORDS
        assert kind == "run" or fold.texts() == [WORDS]


@pytest.mark.parametrize("path", ["/v1/threads/t/events", "/v1/events"])
async def test_who_is_cut_between_the_last_entry_and_the_end_is_told_the_end_once(start: Start, path: str) -> None:
    service, key = await begin(start)
    async with client_of(service, key) as client:
        for text in ("one", "two"):
            _status, sent = await post(client, "/v1/threads/t/messages", {"text": ask(text=text)})
            await follow(client, f"/v1/messages/{sent['id']}/events", Fold(), lambda fold: fold.ends)
        fold, seen = Fold(last="0"), list[str]()
        while len(fold.ends) < 2:
            await follow(client, path, fold, lambda now: now.seen[-1].name in ("entry", "end"), fold.last)
            seen.append(fold.seen[-1].name)
        assert seen == ["entry", "entry", "end", "entry", "entry", "end"]
        assert [each["text"] for each in fold.ends] == ["one", "two"]
        assert fold.texts() == ["one", "two"]
        await post(client, "/v1/threads/t/messages", {"text": ask(text="three")})
        await follow(client, path, fold, lambda now: len(now.ends) == 3, fold.last)
        assert [each["text"] for each in fold.ends] == ["one", "two", "three"], "no end comes twice"


@pytest.mark.parametrize("path", ["/v1/threads/t/events", "/v1/events"])
async def test_who_comes_back_when_all_is_said_and_is_cut_at_the_last_entry_is_told_the_end(
    model: FakeModel, start: Start, path: str
) -> None:
    """Nothing of the run is told on the connection to which its last entry comes: the id names the run all the same."""
    service, key = await begin(start)
    model.script = lambda body: replace(answer_of(body, {}), held=lambda: True)
    async with client_of(service, key) as client:
        await post(client, "/v1/threads/t/messages", {"text": "work"})
        fold = Fold(last="0")
        await follow(client, path, fold, lambda now: now.seen[-1].name == "run", fold.last)
        run = fold.seen[-1].data["id"]  # the answer to the post names none while the service still starts
        fold.seen.clear()
        last = asyncio.create_task(follow(client, path, fold, lambda now: len(now.entries) == 2, fold.last))
        await until(lambda: fold.seen, what="the second connection")
        status, _stopped = await post(client, f"/v1/runs/{run}/stop", {})
        assert status == 202
        await last
        await follow(client, path, fold, lambda now: now.ends, fold.last)
        assert [end["state"] for end in fold.ends] == ["stopped"]


@pytest.mark.parametrize(("kind", "end"), [("run", "kill"), ("thread", "stop"), ("all", "kill")])
async def test_a_restart_of_the_service_leaves_no_gap_and_no_double(start: Start, kind: str, end: str) -> None:
    service, key = await begin(start, limits={"grace_seconds": 0})
    fold = Fold()
    async with client_of(service, key) as client:
        path = {"thread": "/v1/threads/t/events", "all": "/v1/events"}.get(kind, "")
        _status, sent = await post(client, "/v1/threads/t/messages", {"text": slow(ms=40)})
        path = path or f"/v1/messages/{sent['id']}/events"
        await follow(client, path, fold, lambda now: len(text_of_run(now)) > 40, "" if kind == "run" else "0")
    assert WORDS.startswith(text_of_run(fold))
    await (service.kill() if end == "kill" else service.stop())
    await service.start()
    async with client_of(service, key) as client:
        while not fold.ends:
            with suppress(aiohttp.ClientError):
                await follow(client, path, fold, lambda now: now.ends, fold.last)
        assert [each["text"] for each in fold.ends] == [WORDS]
        if kind != "run":
            assert fold.texts() == [WORDS]
            assert fold.live == {}


async def test_a_client_that_was_away_for_the_end_gets_the_stored_entries(start: Start) -> None:
    service, key = await begin(start)
    fold = Fold()
    async with client_of(service, key) as client:
        _status, sent = await post(client, "/v1/threads/t/messages", {"text": slow(ms=10)})
        await follow(client, "/v1/events", fold, lambda now: len(text_of_run(now)) > 40, "0")
        await finished_run(client, sent["id"])
        _status, other = await post(client, "/v1/threads/u/messages", {"text": ask(text="two")})
        await finished_run(client, other["id"])
        await follow(client, "/v1/events", fold, lambda now: len(now.ends) == 2 and "u" in now.threads, fold.last)
        _status, thread = await get(client, "/v1/threads/t")
        last = [each["id"] for each in fold.entries if each["thread"] == "t"][-1]
        assert thread["events"] == f"{last}", "a stream from there has what follows this page"
    assert sorted(fold.texts()) == sorted([WORDS, "two"])
    assert (fold.live, fold.threads["t"]["state"], fold.threads["u"]["run"]) == ({}, "idle", None)


async def test_another_client_sees_messages_runs_titles_questions_and_notices(start: Start) -> None:
    service, key = await begin(start)
    async with client_of(service, key) as watcher, client_of(service, key) as client:
        fold = Fold()

        async def watch() -> None:
            await follow(watcher, "/v1/events", fold, lambda now: False)

        watching = asyncio.create_task(watch(), name="watcher")
        question = {"name": "ask_clarification", "args": {"question": "Which?", "options": ["Red", "Blue"]}}
        text = ask(steps=[{"calls": [question]}], text="thanks")
        await post(client, "/v1/threads/q/messages", {"text": text})
        await until(lambda: bool(fold.threads.get("q", {}).get("questions")), what="the question")
        assert [each["text"] for each in fold.entries if each["kind"] == "message"] == [text]
        [asked] = fold.threads["q"]["questions"]
        assert (fold.threads["q"]["state"], asked["options"]) == ("waiting", ["Red", "Blue"])
        assert [event for event in fold.seen if event.name == "question"], "live, before the run ended"
        messages = [event.data["messages"] for event in fold.seen if event.name == "thread"]
        assert any(each and each[0]["text"] == text for each in messages), "shown before the run stored it"
        await post(client, f"/v1/questions/{asked['id']}/answer", {"answer": "Blue"})
        await until(lambda: "thanks" in fold.texts(), what="the answer")
        await until(lambda: fold.threads["q"]["state"] == "idle", what="the end")
        assert fold.threads["q"]["questions"] == []
        assert fold.threads["q"]["title"]
        status, _taken = await post(client, "/v1/threads/q/commands", {"command": "/whoami"})
        assert status == 202
        await until(lambda: any(each["kind"] == "notice" for each in fold.entries), what="the notice")
        [notice] = [each for each in fold.entries if each["kind"] == "notice"]
        assert (notice["run"], notice["thread"], notice["by"]) == (None, "q", "agent")
        _status, thread = await get(client, "/v1/threads/q")
        assert notice["text"] in [each["text"] for each in thread["entries"]]
        await service.restart()
        with suppress(aiohttp.ClientError):
            await watching
        async with client_of(service, key) as again:
            await post(again, "/v1/threads/q/messages", {"text": ask(text="more")})
            await follow(again, "/v1/events", fold, lambda now: "more" in now.texts() and not now.live, fold.last)
    assert service.rows("SELECT count(*) FROM transcript WHERE item LIKE 'post:%'") == [(1,)]


async def test_a_revoked_key_ends_its_streams_within_a_second(start: Start) -> None:
    service, key = await begin(start)
    other = await add_key(service, "other", "telegram/8")
    async with (
        client_of(service, key) as client,
        client_of(service, other) as stays,
        client.get("/v1/events") as answer,
        stays.get("/v1/events") as kept,
    ):
        assert (answer.status, kept.status) == (200, 200)
        code, _text = await service.fawn("key", "revoke", "ci")
        assert code == 0
        async with asyncio.timeout(60):
            assert [event async for event in read_events(answer)] == []
        await post(stays, "/v1/threads/t/messages", {"text": ask(text="goes on")})
        fold = Fold()
        async for event in read_events(kept):
            fold.add(event)
            if fold.ends:
                break
        assert fold.ends[0]["text"] == "goes on"


@pytest.mark.parametrize("how", ["its key expires", "its person loses every right"])
async def test_a_stream_ends_when(start: Start, how: str) -> None:
    service, key = await begin(start)
    async with client_of(service, key) as client, client.get("/v1/events") as answer:
        assert answer.status == 200
        if how == "its key expires":
            service.change("UPDATE api_keys SET expires=1.0")
        else:
            access = {"open": True, "roles": [{"role": "viewer", "who": ["7"]}]}
            service.configure({"http": HTTP, "channels": {"telegram": {"access": access}}})
            assert (await service.fawn("reload"))[0] == 0
        async with asyncio.timeout(60):
            assert [event async for event in read_events(answer)] == []


async def test_another_persons_events_are_not_there(start: Start) -> None:
    service, key = await begin(start)
    other = await add_key(service, "other", "telegram/8")
    async with (
        client_of(service, key) as client,
        client_of(service, other) as stranger,
        stranger.get("/v1/threads/t/events") as same,
        stranger.get("/v1/events") as everything,
    ):
        _status, sent = await post(client, "/v1/threads/t/messages", {"text": ask(text="secret")})
        run = await finished_run(client, sent["id"])
        for path in (f"/v1/runs/{run['id']}/events", f"/v1/messages/{sent['id']}/events"):
            assert (await get(stranger, path))[0] == 404
        await post(stranger, "/v1/threads/mine/messages", {"text": ask(text="mine")})
        seen = list[Event]()
        async for event in read_events(everything):
            seen.append(event)
            if event.name == "end":
                break
        assert {event.data["thread"] for event in seen if event.name != "thread"} == {"mine"}
        assert same.content.total_bytes <= len("retry: 1000\n\n")


async def test_no_more_streams_than_a_person_needs_and_none_from_nowhere(start: Start) -> None:
    service, key = await begin(start)
    connector, headers = aiohttp.TCPConnector(limit=0), {"Authorization": f"Bearer {key}"}
    await until(lambda: bool(address_of(service)), what="the listener")
    async with aiohttp.ClientSession(address_of(service), connector=connector, headers=headers) as client:
        for path in ("/v1/events?after=x", "/v1/threads/t/events?after=1-2", "/v1/events?after=-1"):
            status, problem = await get(client, path)
            assert (status, problem["code"]) == (400, "bad_cursor"), path
        answers = [await client.get("/v1/events") for _ in range(100)]
        assert {each.status for each in answers} == {200}
        status, problem = await get(client, "/v1/events")
        assert (status, problem["code"]) == (429, "too_many_streams")
        answers[0].close()
        async with asyncio.timeout(60):
            while (again := await client.get("/v1/events")).status != 200:
                again.release()
                await asyncio.sleep(0.05)
        answers[0] = again
        for each in answers:
            each.close()


@pytest.mark.usefixtures("bubblewrap")
async def test_an_ended_run_is_told_with_whole_steps(start: Start) -> None:
    service = await start(http=HTTP, sandbox={"provider": "local"})
    key = await add_key(service, "ci", "telegram/7")
    async with client_of(service, key) as client:
        _status, sent = await post(client, "/v1/threads/t/messages", {"text": ask(steps=[bash("true")], text="done")})
        run = await finished_run(client, sent["id"])
        async with client.get(f"/v1/runs/{run['id']}/events") as answer:
            events = [event async for event in read_events(answer)]
    [snapshot] = [event.data for event in events if event.name == "snapshot"]
    [step] = snapshot["steps"]
    assert step.keys() == {*Step.__slots__}
    assert (step["detail"], step["state"]) == ("bash: true", "done")
    assert step["title"] not in ("", step["detail"])
