"""The HTTP API of a running service: keys, messages, runs and questions, also over kill -9."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import yarl

from agent.blocks import HINT_MARK, command_hint
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


async def test_commands_in_texts_are_those_of_http(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with client_of(service, key) as client:
        text = f"Write `{command_hint('plan packing')}` or {command_hint('status')}."
        _status, sent = await post(client, "/v1/threads/t/messages", {"text": ask(text=text)})
        run = await finished_run(client, sent["id"])
        assert run["text"] == "Write `/plan packing` or /status."
        paths = [f"/v1/messages/{sent['id']}/events", f"/v1/runs/{run['id']}", "/v1/threads/t"]
        for path in (*paths, "/v1/search?q=packing", "/threads/t/state"):
            async with client.get(path) as answer:
                body = await answer.read()
            assert HINT_MARK.encode() not in body, path
            assert b"/plan packing" in body, path


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
    kinds = [json.loads(bytes(body))["kind"] for (body,) in service.rows("SELECT body FROM audit ORDER BY seq")]
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
        assert (status, again["code"]) == (409, "answered")
        status, unknown = await post(client, "/v1/questions/unknown/answer", {"answer": "Red"})
        assert (status, unknown["code"]) == (404, "not_found")
        _status, sent = await post(client, "/v1/threads/s/messages", {"text": ask(text="late", delay_ms=60000)})
        taken = await wait_for(client, f"/v1/messages/{sent['id']}", lambda found: found["run"])
        status, _stopping = await post(client, f"/v1/runs/{taken['run']}/stop", {})
        assert status == 202
        await finished_run(client, sent["id"], "stopped")


JSON_TYPE = {"Content-Type": "application/json"}
MESSAGES = "/v1/threads/t/messages"
WORST: dict[str, tuple[str, str, bytes, dict[str, str], int, str]] = {
    "a list": ("POST", MESSAGES, b'["text"]', JSON_TYPE, 422, "bad_body"),
    "a number as text": ("POST", MESSAGES, b'{"text": 1}', JSON_TYPE, 422, "bad_body"),
    "no text": ("POST", MESSAGES, b"{}", JSON_TYPE, 422, "bad_body"),
    "another thread in the body": ("POST", MESSAGES, b'{"text": "a", "thread": "b"}', JSON_TYPE, 422, "bad_body"),
    "blanks": ("POST", MESSAGES, b'{"text": " \\n"}', JSON_TYPE, 422, "empty_text"),
    "a NUL": ("POST", MESSAGES, b'{"text": "a\\u0000"}', JSON_TYPE, 422, "empty_text"),
    "half a character": ("POST", MESSAGES, b'{"text": "\\ud800"}', JSON_TYPE, 400, "bad_json"),
    "no JSON": ("POST", MESSAGES, b"{", JSON_TYPE, 400, "bad_json"),
    "deep JSON": ("POST", MESSAGES, b"[" * 100_000, JSON_TYPE, 400, "bad_json"),
    "10 MB": ("POST", MESSAGES, b'{"text": "' + b"a" * (10 << 20) + b'"}', JSON_TYPE, 413, "too_large"),
    "a form": ("POST", MESSAGES, b"text=a", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "not_json"),
    "an empty Idempotency-Key": ("POST", MESSAGES, b'{"text": "a"}', {**JSON_TYPE, "Idempotency-Key": ""}, 400,
                                 "bad_idempotency_key"),
    "a long Idempotency-Key": ("POST", MESSAGES, b'{"text": "a"}', {**JSON_TYPE, "Idempotency-Key": "a" * 256}, 400,
                               "bad_idempotency_key"),
    "a thread that climbs": ("POST", "/v1/threads/..%2Fx/messages", b'{"text": "a"}', JSON_TYPE, 400, "bad_thread"),
    "a long thread": ("POST", f"/v1/threads/{'a' * 65}/messages", b'{"text": "a"}', JSON_TYPE, 400, "bad_thread"),
    "a thread with a quote": ("GET", "/v1/threads/a'--", b"", {}, 400, "bad_thread"),
    "an unknown thread": ("GET", "/v1/threads/nothing", b"", {}, 404, "not_found"),
    "a cursor that is none": ("GET", "/v1/threads?before=a", b"", {}, 400, "bad_cursor"),
    "a number that is none": ("GET", "/v1/threads/t?after=-1", b"", {}, 400, "bad_cursor"),
    "an unknown run": ("GET", "/v1/runs/999", b"", {}, 404, "not_found"),
    "a run of words": ("GET", "/v1/runs/one", b"", {}, 404, "not_found"),
    "a run of foreign digits": ("GET", "/v1/runs/%D9%A1", b"", {}, 404, "not_found"),
    "a run beyond numbers": ("GET", f"/v1/runs/{'9' * 30}", b"", {}, 404, "not_found"),
    "an unknown message": ("GET", "/v1/messages/999", b"", {}, 404, "not_found"),
    "an unknown question": ("POST", "/v1/questions/a/answer", b'{"answer": "a"}', JSON_TYPE, 404, "not_found"),
    "a stop of nothing": ("POST", "/v1/runs/999/stop", b"", {}, 404, "not_found"),
    "another method": ("PUT", "/v1/threads/t", b"", {}, 405, "method_not_allowed"),
    "no key": ("GET", "/v1/threads", b"", {"Authorization": ""}, 401, "no_key"),
    "another scheme": ("GET", "/v1/threads", b"", {"Authorization": "Basic KEY"}, 401, "no_key"),
    "half a key": ("GET", "/v1/threads", b"", {"Authorization": "Bearer HALF"}, 401, "no_key"),
    "a made-up key": ("GET", "/v1/threads", b"", {"Authorization": f"Bearer fawn_{'a' * 43}"}, 401, "no_key"),
    "a cookie": ("GET", "/v1/threads", b"", {"Authorization": "", "Cookie": "key=KEY"}, 401, "no_key"),
    "a key in the address": ("GET", "/v1/threads?key=KEY", b"", {"Authorization": ""}, 401, "no_key"),
    "a page": ("GET", "/v1/threads", b"", {"Origin": "https://evil.example"}, 403, "foreign_page"),
    "a page of a sandboxed frame": ("POST", MESSAGES, b'{"text": "a"}', {**JSON_TYPE, "Origin": "null"}, 403,
                                    "foreign_page"),
    "another port of this machine": ("POST", MESSAGES, b'{"text": "a"}',
                                     {**JSON_TYPE, "Origin": "http://localhost:1", "Sec-Fetch-Site": "same-site"}, 403,
                                     "foreign_page"),
    "a foreign name": ("GET", "/v1/threads", b"", {"Host": "evil.example"}, 421, "foreign_host"),
    "a name that is rebound": ("POST", MESSAGES, b'{"text": "a"}', {**JSON_TYPE, "Host": "evil.example:80"}, 421,
                               "foreign_host"),
    "a page asks whether it may": ("OPTIONS", MESSAGES, b"", {"Origin": "https://evil.example",
                                   "Access-Control-Request-Method": "POST"}, 403, "foreign_page"),
    "blanks as a key": ("GET", "/v1/threads", b"", {"Authorization": "Bearer  "}, 401, "no_key"),
    "a key with more behind it": ("GET", "/v1/threads", b"", {"Authorization": "Bearer KEY KEY"}, 401, "no_key"),
    "a key in other letters": ("GET", "/v1/threads", b"", {"Authorization": "Bearer FAWN_KEY"}, 401, "no_key"),
    "the hash of a key": ("GET", "/v1/threads", b"", {"Authorization": f"Bearer {'0' * 64}"}, 401, "no_key"),
    "a key of LangGraph": ("GET", "/v1/threads", b"", {"Authorization": "", "X-Api-Key": "KEY"}, 401, "no_key"),
    "an operator's path": ("GET", "/v1/operate/turns", b"", {}, 403, "no_scope"),
    "an operator's deed": ("POST", "/v1/operate/runs/1/stop", b"", {}, 403, "no_scope"),
    "a text of null": ("POST", MESSAGES, b'{"text": null}', JSON_TYPE, 422, "bad_body"),
    "a text as a list": ("POST", MESSAGES, b'{"text": ["a"]}', JSON_TYPE, 422, "bad_body"),
    "null": ("POST", MESSAGES, b"null", JSON_TYPE, 422, "bad_body"),
    "two values": ("POST", MESSAGES, b'{"text": "a"}{"text": "b"}', JSON_TYPE, 400, "bad_json"),
    "no UTF-8": ("POST", MESSAGES, b'{"text": "\xff\xfe"}', JSON_TYPE, 400, "bad_json"),
    "NaN": ("POST", MESSAGES, b'{"text": NaN}', JSON_TYPE, 400, "bad_json"),
    "nothing": ("POST", MESSAGES, b"", JSON_TYPE, 400, "bad_json"),
    "no type": ("POST", MESSAGES, b'{"text": "a"}', {"Content-Type": ""}, 415, "not_json"),
    "XML": ("POST", MESSAGES, b"<text>a</text>", {"Content-Type": "application/xml"}, 415, "not_json"),
    "the person in the body": ("POST", MESSAGES, b'{"text": "a", "person": "telegram:8"}', JSON_TYPE, 422, "bad_body"),
    "a line break in an Idempotency-Key": ("POST", MESSAGES, b'{"text": "a"}',
                                           {**JSON_TYPE, "Idempotency-Key": "\u00e9"}, 400, "bad_idempotency_key"),
    "a thread with a NUL": ("GET", "/v1/threads/a%00b", b"", {}, 400, "bad_thread"),
    "a thread of another alphabet": ("GET", "/v1/threads/%D1%82", b"", {}, 400, "bad_thread"),
    "a thread of SQL": ("GET", "/v1/threads/a%27%20OR%201=1", b"", {}, 400, "bad_thread"),
    "the end of a thread that is none": ("DELETE", "/v1/threads/nothing", b"", {}, 404, "not_found"),
    "a name for no thread": ("PATCH", "/v1/threads/nothing", b'{"title": "a"}', JSON_TYPE, 404, "not_found"),
    "a thread that is begun with a path": ("POST", "/v1/threads", b'{"id": "../x"}', JSON_TYPE, 400, "bad_thread"),
    "a file that climbs": ("GET", "/v1/files/..%2F..%2Fetc%2Fpasswd", b"", {}, 404, "not_found"),
    "a file with a NUL": ("GET", "/v1/files/a%00", b"", {}, 404, "not_found"),
    "a file of a run that is none": ("GET", "/v1/files/r999-0", b"", {}, 404, "not_found"),
    "a command that is none": ("POST", "/v1/threads/t/commands", b'{"command": "hello"}', JSON_TYPE, 422, "no_command"),
    "a negative run": ("GET", "/v1/runs/-1", b"", {}, 404, "not_found"),
    "a run with a fraction": ("POST", "/v1/runs/1.5/stop", b"", {}, 404, "not_found"),
    "a retry of nothing": ("POST", "/v1/runs/999/retry", b"", {}, 404, "not_found"),
    "another's schedule": ("POST", "/v1/schedules/1/pause", b"", {}, 404, "not_found"),
    "another's task": ("POST", "/v1/tasks/1/cancel", b"", {}, 404, "not_found"),
    "another's memory": ("DELETE", "/v1/memory/1", b"", {}, 404, "not_found"),
    "a cursor of another list": ("GET", "/v1/memory?cursor=WyJhIl0", b"", {}, 400, "bad_cursor"),
    "a cursor of rubbish": ("GET", "/v1/memory?cursor=%00%ff", b"", {}, 400, "bad_cursor"),
    "a year and a day": ("GET", "/v1/usage?days=367", b"", {}, 400, "bad_query"),
    "days in foreign digits": ("GET", "/v1/usage?days=%D9%A1", b"", {}, 400, "bad_query"),
    "usage by what is none": ("GET", "/v1/usage?by=person", b"", {}, 400, "bad_query"),
    "a search for nothing": ("GET", "/v1/search?q=", b"", {}, 400, "bad_query"),
    "an event from nowhere": ("GET", "/v1/events?after=x", b"", {}, 400, "bad_cursor"),
    "TRACE": ("TRACE", "/v1/threads", b"", {}, 405, "method_not_allowed"),
}  # fmt: skip


async def test_the_worst_requests_are_refused_and_store_nothing(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    wrong: dict[str, tuple[int, Json]] = {}
    async with client_of(service, key) as client:
        while (await client.get(f"{address_of(service)}/readyz")).status != 200:  # until then, a few say that it starts
            await asyncio.sleep(0.05)
        for name, (method, path, body, headers, status, code) in WORST.items():
            sent = {each: text.replace("KEY", key).replace("HALF", key[:20]) for each, text in headers.items()}
            url = yarl.URL(f"{address_of(service)}{path.replace('KEY', key)}", encoded=True)
            async with client.request(method, url, data=io.BytesIO(body), headers=sent) as answer:
                problem = await answer.json(content_type=None)
                if (answer.status, problem["code"]) != (status, code) or not (problem.get("detail") or status == 405):
                    wrong[name] = answer.status, problem
    assert wrong == {}
    assert service.rows("SELECT 1 FROM inbox UNION ALL SELECT 1 FROM conversations") == []


async def test_an_expired_key_is_not_good(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "old", "telegram/7", "--expires", "1d")
    service.change("UPDATE api_keys SET expires=1.0")
    async with client_of(service, key) as client:
        assert (await get(client, "/v1/threads"))[0] == 401
