"""The HTTP API of a running service: keys, messages, runs and questions, also over kill -9."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.e2e.conftest import Start
from tests.e2e.test_probes import address_of
from tests.fakes.server import until
from tests.support.service_process import Service, ask

HTTP = {"listen": "127.0.0.1:0"}
Json = dict[str, Any]


async def add_key(service: Service, name: str, person: str, *more: str) -> str:
    code, text = await service.fawn("key", "add", name, "--person", person, *more)
    assert code == 0, text
    [key] = re.findall(r"^fawn_[\w-]{43}$", text, re.MULTILINE)
    return str(key)


@asynccontextmanager
async def client_of(service: Service, key: str) -> AsyncIterator[aiohttp.ClientSession]:
    await until(lambda: bool(address_of(service)), what="the listener")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with aiohttp.ClientSession(address_of(service), headers=headers) as client:
        yield client


async def post(client: aiohttp.ClientSession, path: str, body: Any, **headers: str) -> tuple[int, Json]:
    async with client.post(path, json=body, headers=headers) as answer:
        return answer.status, await answer.json(content_type=None)


async def get(client: aiohttp.ClientSession, path: str) -> tuple[int, Json]:
    async with client.get(path) as answer:
        return answer.status, await answer.json(content_type=None)


async def wait_for(client: aiohttp.ClientSession, path: str, good: Callable[[Json], object]) -> Json:
    async with asyncio.timeout(60):
        while True:
            status, found = await get(client, path)
            assert status == 200, found
            if good(found):
                return found
            await asyncio.sleep(0.05)


async def finished_run(client: aiohttp.ClientSession, message: int, state: str = "done") -> Json:
    taken = await wait_for(client, f"/v1/messages/{message}", lambda found: found["run"])
    return await wait_for(client, f"/v1/runs/{taken['run']}", lambda found: found["state"] == state)


async def test_a_posted_message_is_answered_and_read(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with client_of(service, key) as client:
        body = {"text": ask(text="forty-two")}
        status, sent = await post(client, "/v1/threads/t1/messages", body, **{"Idempotency-Key": "a"})
        assert (status, sent["thread"]) == (202, "t1")
        run = await finished_run(client, sent["id"])
        assert (run["text"], run["thread"], run["questions"]) == ("forty-two", "t1", [])
        assert run["finished"] >= run["started"]
        status, again = await post(client, "/v1/threads/t1/messages", body, **{"Idempotency-Key": "a"})
        assert (status, again) == (202, {**sent, "run": run["id"]})
        status, other = await post(client, "/v1/threads/t1/messages", {"text": "x"}, **{"Idempotency-Key": "a"})
        assert (status, other["code"]) == (422, "key_reused")
        status, thread = await get(client, "/v1/threads/t1")
        assert [(each["by"], each["kind"]) for each in thread["entries"]] == [("person", "message"), ("agent", "text")]
        assert thread["next"] is None
        status, listed = await get(client, "/v1/threads")
        assert ([each["id"] for each in listed["threads"]], listed["next"]) == (["t1"], None)
    assert len(service.rows("SELECT 1 FROM runs")) == 1
    await service.quiet()
    assert service.rows("SELECT DISTINCT person FROM usage WHERE kind='turn'") == [("telegram:7",)]
    assert key not in service.log()
    assert await service.stop() == 0


async def test_a_kill_after_the_202_leaves_one_answer(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    body, once = {"text": ask(text="once", delay_ms=2000)}, {"Idempotency-Key": "deploy-1"}
    async with client_of(service, key) as client:
        status, sent = await post(client, "/v1/threads/t/messages", body, **once)
    assert status == 202
    await service.restart()
    async with client_of(service, key) as client:
        status, again = await post(client, "/v1/threads/t/messages", body, **once)
        assert (status, again["id"]) == (202, sent["id"])
        run = await finished_run(client, sent["id"])
        assert run["text"] == "once"
        _status, thread = await get(client, "/v1/threads/t")
        assert [each["text"] for each in thread["entries"] if each["kind"] == "text"] == ["once"]
    assert len(service.rows("SELECT 1 FROM runs")) == 1


async def test_another_person_finds_nothing_and_a_revoked_key_opens_nothing(start: Start) -> None:
    service = await start(http=HTTP)
    mine = await add_key(service, "mine", "telegram/7", "--expires", "90d")
    theirs = await add_key(service, "theirs", "telegram/8")
    reads = await add_key(service, "reads", "telegram/7", "--scopes", "read")
    async with client_of(service, mine) as client:
        _status, sent = await post(client, "/v1/threads/t/messages", {"text": ask(text="secret")})
        run = await finished_run(client, sent["id"])
    async with client_of(service, theirs) as client:
        for path in ("/v1/threads/t", f"/v1/messages/{sent['id']}", f"/v1/runs/{run['id']}"):
            status, found = await get(client, path)
            assert (status, found["code"]) == (404, "not_found")
        status, found = await post(client, f"/v1/runs/{run['id']}/stop", {})
        assert (status, found["code"]) == (404, "not_found")
        assert (await get(client, "/v1/threads"))[1]["threads"] == []
    async with client_of(service, reads) as client:
        assert (await get(client, "/v1/threads/t"))[0] == 200
        status, found = await post(client, "/v1/threads/t/messages", {"text": "x"})
        assert (status, found["code"]) == (403, "no_scope")
    code, text = await service.fawn("key", "list")
    assert (code, [line.split("\t")[0] for line in text.splitlines()]) == (0, ["mine", "reads", "theirs"])
    assert "fawn_" not in text
    assert (await service.fawn("key", "revoke", "mine"))[0] == 0
    async with client_of(service, mine) as client:
        status, found = await get(client, "/v1/threads")
        assert (status, found["code"]) == (401, "no_key")
    kinds = [row[0] for row in service.rows("SELECT json_extract(CAST(body AS TEXT), '$.kind') FROM audit")]
    assert (kinds.count("key.added"), kinds.count("key.revoked")) == (3, 1)
    code, text = await service.fawn("offboard", "telegram", "8")
    assert code == 0
    assert "1 key of the API was revoked" in text
    async with client_of(service, theirs) as client:
        assert (await get(client, "/v1/threads"))[0] == 401


async def test_a_key_may_no_more_than_its_person(start: Start) -> None:
    access = {"open": True, "roles": [{"role": "viewer", "who": ["7"]}]}
    service = await start(http=HTTP, channels={"telegram": {"access": access}})
    key = await add_key(service, "viewer", "telegram/7")
    async with client_of(service, key) as client:
        status, found = await post(client, "/v1/threads/t/messages", {"text": "hello"})
        assert (status, found["code"]) == (403, "no_access")
    assert service.rows("SELECT 1 FROM inbox") == []


async def test_a_question_is_answered_once_and_a_run_is_stopped(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with client_of(service, key) as client:
        question = {"name": "ask_clarification", "args": {"question": "Which?", "options": ["Red", "Blue"]}}
        text = ask(steps=[{"calls": [question]}], text="thanks")
        _status, sent = await post(client, "/v1/threads/q/messages", {"text": text})
        run = await finished_run(client, sent["id"], "waiting")
        [asked] = run["questions"]
        path = f"/v1/questions/{asked['id']}/answer"
        status, answered = await post(client, path, {"answer": "Blue"})
        assert (status, answered["answer"]) == (202, "Blue")
        await wait_for(client, "/v1/threads/q", lambda found: "thanks" in [each["text"] for each in found["entries"]])
        status, again = await post(client, path, {"answer": "Red"})
        assert (status, again["code"]) == (404, "not_found")
        _status, sent = await post(client, "/v1/threads/s/messages", {"text": ask(text="late", delay_ms=60000)})
        taken = await wait_for(client, f"/v1/messages/{sent['id']}", lambda found: found["run"])
        status, _stopping = await post(client, f"/v1/runs/{taken['run']}/stop", {})
        assert status == 202
        await finished_run(client, sent["id"], "stopped")
