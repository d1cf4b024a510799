"""The address of hooks, over a real listener: what is taken, stored once and answered, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector

from agent.messages import Author, Message, Origin, Thread
from agent.setting import Secret
from bot.commands.feature import Door
from bot.config.hooks import MAX_BODY_BYTES, HookConfig, Signature
from bot.config.http import HttpConfig
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.database.database import Database, Execute
from bot.hooks.endpoint import HookEndpoint
from bot.hooks.posting import HookPoster
from bot.http.listener import listening
from bot.http.route import MAX_UNSIGNED_BYTES
from bot.rights.access import AccessPolicy
from bot.rights.current import Current
from bot.storage import inbox, people
from tests.fakes import hook_payloads
from tests.fakes.hook_payloads import Payload, headers_of
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

TOKEN = "the-token-of-the-hook"
SIGNATURES: Mapping[str, Signature] = {
    "alertmanager": "bearer",
    "grafana": "grafana",
    "github": "github",
    "gitlab": "gitlab",
    "other": "gitlab",
    "sentry": "sentry",
    "script": "standard",
}
HOOKS = {
    name: HookConfig("slack:T1/C1", "@U7", Secret(TOKEN), signature, gather_seconds=0)
    for name, signature in SIGNATURES.items()
}
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
OPEN = AccessPolicy({"slack": AccessConfig(open=True)})
CLOSED = AccessPolicy({"slack": AccessConfig(operators=("U1",))})


async def stranger(address: str, hook: str, size: int, begun: bytes) -> Stream:
    """Return a connection that says a body of this size comes, and sends how it begins."""
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /hooks/{hook} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n"
    writer.write(head.encode() + begun)
    await writer.drain()
    return reader, writer


class Bench:
    """The endpoint, its database, and a client."""

    def __init__(self, store: Database, client: ClientSession, address: str) -> None:
        self.store, self.client, self.address = store, client, address

    async def post(
        self, name: str, payload: Payload, *, headers: Mapping[str, str] | None = None, raw: bytes | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Post as this sender; return the status and the answer."""
        body = json.dumps(payload[1]).encode() if raw is None else raw
        signed = headers_of(HOOKS[name], payload[0], body) if name in HOOKS else payload[0]
        async with self.client.post(f"/hooks/{name}", data=BytesIO(body), headers=headers or signed) as answer:
            kind = "application/problem+json" if answer.status >= 400 else "application/json"
            assert answer.content_type == kind
            return answer.status, json.loads(await answer.read())

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.store.run(lambda execute: execute(sql, {}))]

    async def look(self, name: str, at: float, access: AccessPolicy = OPEN, **changes: Any) -> None:
        """Post what is due at this time."""
        values = {field: getattr(HOOKS[name], field) for field in HookConfig.__slots__} | changes
        hook = HookConfig(**values)
        await self.store.run(HookPoster(access, name, hook, hook.target, at).post_due)

    async def messages(self) -> list[Message]:
        def read(execute: Execute) -> list[Message]:
            keys = [str(row["conversation"]) for row in execute("SELECT DISTINCT conversation FROM inbox", {})]
            rows = [row for key in keys for row in inbox.pending_rows(execute, key, 100)]
            return [row.message for row in sorted(rows, key=lambda row: row.id)]

        return await self.store.run(read)

    async def notices(self) -> list[str]:
        return [json.loads(row[0])["text"] for row in await self.rows("SELECT payload FROM outbox ORDER BY id")]

    async def latest(self) -> float:
        [(at,)] = await self.rows("SELECT max(received) FROM hook_deliveries")
        return float(at)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        config = Config(hooks=HOOKS, channels=(ChannelConfig("slack", None, AccessConfig(open=True)),))
        door = Door(store, Current(config), *[None] * 8)  # type: ignore[arg-type]  # the route needs no more
        listen = HttpConfig(listen="127.0.0.1:0")
        async with (
            listening(listen, HookEndpoint(door).routes()) as address,
            ClientSession(base_url=address, connector=TCPConnector(force_close=True)) as client,
        ):
            yield Bench(store, client, address)


@pytest.mark.parametrize("name", hook_payloads.ALL)
async def test_each_sender_is_taken_and_stored_once(bench: Bench, name: str) -> None:
    payload = hook_payloads.ALL[name]()
    status, first = await bench.post(name, payload)
    assert (status, first["state"]) == (202, "stored")
    assert await bench.rows("SELECT key, kind FROM jobs") == [(f"hook:{name}", "hook")]
    assert await bench.post(name, payload) == (200, {"id": first["id"], "state": "stored before"})
    assert await bench.rows("SELECT hook, state FROM hook_deliveries") == [(name, "waiting")]


async def test_a_body_that_a_signature_covers_whole_is_never_new_whatever_its_headers_say(bench: Bench) -> None:
    """GitHub signs the body only: who records a delivery could send it again under another id."""
    status, _answer = await bench.post("github", hook_payloads.github(delivery="one"))
    assert status == 202
    status, _answer = await bench.post("github", hook_payloads.github(delivery="two"))
    assert status == 200


async def test_an_alert_that_goes_on_is_new_after_a_while(bench: Bench) -> None:
    """Alertmanager gives no id, and sends what still fires again as it was (repeat_interval)."""
    await bench.post("alertmanager", hook_payloads.alertmanager())
    await bench.store.run(lambda execute: execute("UPDATE hook_deliveries SET received=received-400", {}))
    status, _answer = await bench.post("alertmanager", hook_payloads.alertmanager())
    assert status == 202


async def test_an_attempt_of_grafana_that_is_signed_anew_is_the_same_delivery(bench: Bench) -> None:
    """It sends an answer that was lost again with another time, and so another signature."""
    _headers, content = hook_payloads.grafana()
    body = json.dumps(content).encode()
    for ago, status in ((5, 202), (0, 200)):
        signed = headers_of(HOOKS["grafana"], hook_payloads.JSON, body, ago=ago)
        assert (await bench.post("grafana", ({}, content), headers=signed))[0] == status
    await bench.store.run(lambda execute: execute("UPDATE hook_deliveries SET received=received-400", {}))
    assert (await bench.post("grafana", ({}, content)))[0] == 202


async def test_a_ping_and_a_kind_that_nobody_wants_are_acknowledged(bench: Bench) -> None:
    payload: Payload = ({**hook_payloads.JSON, "x-github-event": "ping"}, {"zen": "Keep it logically awesome."})
    status, answer = await bench.post("github", payload)
    assert (status, answer["state"]) == (200, "ignored")
    assert await bench.rows("SELECT 1 FROM hook_deliveries") == []


async def test_bodies_of_strangers_take_a_bounded_place_and_keep_no_sender_out(bench: Bench) -> None:
    begun = b"x" * 950_000
    strangers = [await stranger(bench.address, "github", MAX_BODY_BYTES, begun) for _each in range(40)]
    hears = [asyncio.create_task(reader.readline()) for reader, _writer in strangers]
    assert (await bench.post("github", hook_payloads.github()))[0] == 202
    refused = 40 - MAX_UNSIGNED_BYTES // len(begun)
    while sum(each.done() for each in hears) < refused:
        await asyncio.wait([each for each in hears if not each.done()], return_when=asyncio.FIRST_COMPLETED)
    assert {each.result().split()[1] for each in hears if each.done()} == {b"503"}
    for each, (_reader, writer) in zip(hears, strangers, strict=True):
        each.cancel()
        writer.close()


async def test_a_delivery_of_unknown_shape_is_posted_as_it_came(bench: Bench) -> None:
    body = {"msg": "disk full"}
    status, answer = await bench.post("script", ({}, body))
    assert (status, answer["state"]) == (202, "stored")
    await bench.look("script", await bench.latest())
    [message] = await bench.messages()
    assert "disk full" in message.quotes[0].text


@pytest.mark.parametrize(
    ("name", "raw", "headers", "status", "code"),
    [
        ("nothing", b"{}", {}, 404, "unknown_hook"),
        ("..%2Fv1", b"{}", {}, 404, "unknown_hook"),
        *((name, b"{}", {"content-type": "application/json"}, 401, "not_signed") for name in SIGNATURES),
        ("alertmanager", b"{}", {"authorization": "Bearer another"}, 401, "bad_signature"),
        ("github", b"{}", {"x-hub-signature-256": "sha256=00", "x-github-event": "push"}, 401, "bad_signature"),
        ("alertmanager", b"{", {"authorization": f"Bearer {TOKEN}"}, 400, "bad_body"),
        ("alertmanager", b"[1]", {"authorization": f"Bearer {TOKEN}"}, 400, "bad_body"),
        ("alertmanager", b"[" * 5_000, {"authorization": f"Bearer {TOKEN}"}, 400, "bad_body"),
        ("alertmanager", b" " * (MAX_BODY_BYTES + 1), {"authorization": f"Bearer {TOKEN}"}, 413, "too_large"),
    ],
)  # fmt: skip
async def test_what_is_refused_says_what_to_do_and_stores_nothing(
    bench: Bench, name: str, raw: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    found, problem = await bench.post(name, ({}, {}), headers=headers or {"x": "y"}, raw=raw)
    assert (found, problem["code"]) == (status, code)
    assert problem["detail"]
    assert TOKEN not in str(problem)
    assert await bench.rows("SELECT 1 FROM hook_deliveries") == []
    known = name if name in HOOKS else ""
    assert await bench.rows("SELECT hook, reason, count FROM hook_refusals") == [(known, code, 1)]
    [(row,)] = await bench.rows("SELECT body FROM audit")
    told = json.loads(row)
    assert (told["kind"], told["what"]) == ("access.denied", {"hook": known, "reason": code, "count": 1})


ODD = b"\xff\xfe\x80"  # no UTF-8


async def post_raw(bench: Bench, name: str, payload: hook_payloads.Payload, headers: Mapping[str, bytes]) -> int:
    """Post bytes as headers; return the status."""
    base, body = bench.client._base_url, json.dumps(payload[1]).encode()
    assert base
    reader, writer = await asyncio.open_connection(base.host, base.port)
    lines = [b"%b: %b\r\n" % (key.encode(), value) for key, value in headers.items()]
    head = f"POST /hooks/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    writer.write(head.encode() + b"".join(lines) + b"\r\n" + body)
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


@pytest.mark.parametrize("name", [name for name, signature in SIGNATURES.items() if signature in ("bearer", "gitlab")])
async def test_a_stranger_is_refused_before_the_body_whose_end_never_comes(bench: Bench, name: str) -> None:
    base = bench.client._base_url
    assert base
    reader, writer = await asyncio.open_connection(base.host, base.port)
    head = f"POST /hooks/{name} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(60):
        answer = await reader.readuntil(b"\r\n")
    writer.close()
    assert answer.split()[1] == b"401"  # 408, if it had waited for the body


@pytest.mark.parametrize("name", hook_payloads.ALL)
async def test_headers_that_are_no_text_are_no_fault(bench: Bench, name: str) -> None:
    payload = hook_payloads.ALL[name]()
    signed = headers_of(HOOKS[name], payload[0], json.dumps(payload[1]).encode())
    proof = (
        "authorization",
        "x-gitlab-token",
        "x-hub-signature-256",
        "sentry-hook-signature",
        "x-grafana-alerting",
        "webhook-",
    )
    odd = {key: value.encode() if key.lower().startswith(proof) else ODD for key, value in signed.items()}
    more = {"Idempotency-Key": ODD, "X-GitHub-Delivery": ODD, "X-Gitlab-Event-UUID": ODD, "Request-ID": ODD}
    assert await post_raw(bench, name, payload, {**odd, **more}) in (200, 202)
    for key in signed:
        status = await post_raw(bench, name, payload, {**{each: signed[each].encode() for each in signed}, key: ODD})
        assert status == 401 if key.lower().startswith(proof) else status in (200, 202)


async def test_whoever_guesses_does_not_fill_the_audit(bench: Bench) -> None:
    for _ in range(20):
        await bench.post("alertmanager", ({}, {}), headers={"authorization": "Bearer guess"})
    assert await bench.rows("SELECT count(*) FROM audit") == [(1,)]


async def test_of_many_attempts_at_once_one_is_stored(bench: Bench) -> None:
    answers = await asyncio.gather(*(bench.post("gitlab", hook_payloads.gitlab()) for _ in range(10)))
    assert sorted(status for status, _answer in answers) == [200] * 9 + [202]
    assert len({answer["id"] for _status, answer in answers}) == 1


async def test_a_delivery_is_a_message_of_its_person_whose_quote_is_data(bench: Bench) -> None:
    await bench.post("alertmanager", hook_payloads.alertmanager())
    await bench.look("alertmanager", await bench.latest() + 1)
    [message] = await bench.messages()
    assert (message.author.id, message.origin, str(message.thread)) == ("U7", "hook", "slack/T1/C1/")
    assert not message.is_by_person
    [quote] = message.quotes
    assert (quote.kind, quote.author) == ("hook", "Alertmanager")
    assert "HighLatency: slow requests" in quote.text
    assert "https://runbooks.example/latency" in quote.text
    assert "HighLatency" not in message.text
    assert await bench.notices() == []


async def test_a_group_goes_on_where_it_began_and_its_end_is_said_there(bench: Bench) -> None:
    await bench.post("alertmanager", hook_payloads.alertmanager())
    await bench.look("alertmanager", began := await bench.latest() + 1)
    await bench.post("alertmanager", hook_payloads.alertmanager(status="resolved"))
    await bench.look("alertmanager", began + 10)
    [notice] = await bench.notices()
    assert "✅ **critical** HighLatency" in notice
    assert await bench.rows("SELECT conversation FROM outbox") == [("hook:1",)]
    assert len(await bench.rows("SELECT 1 FROM side_posts WHERE conversation='hook:1'")) == 1
    await bench.post("alertmanager", hook_payloads.alertmanager("HighLatency", "Another"))
    await bench.look("alertmanager", began + 20)
    _first, again = await bench.messages()
    assert "- resolved, critical: HighLatency" in again.quotes[0].text, "the conversation learns of the end"
    assert "- firing, critical: Another" in again.quotes[0].text
    assert await bench.rows("SELECT DISTINCT conversation FROM inbox") == [("hook:1",)]
    assert await bench.rows("SELECT state FROM hook_deliveries") == [("posted",)] * 3


async def test_an_end_that_comes_with_new_alerts_is_told_while_they_are_worked_on(bench: Bench) -> None:
    await bench.post("alertmanager", hook_payloads.alertmanager("Begins", group="a"))
    await bench.post("alertmanager", hook_payloads.alertmanager("Ends", group="a", status="resolved"))
    await bench.look("alertmanager", await bench.latest() + 1)
    [message] = await bench.messages()
    assert "Begins:" in message.quotes[0].text
    [notice] = await bench.notices()
    assert "Ends:" in notice
    assert "Begins" not in notice


async def test_an_end_that_comes_before_its_beginning_is_said_and_the_beginning_is_worked_on(bench: Bench) -> None:
    await bench.post("alertmanager", hook_payloads.alertmanager(status="resolved"))
    await bench.look("alertmanager", began := await bench.latest() + 1)
    assert await bench.messages() == []
    [notice] = await bench.notices()
    assert "✅ **critical** HighLatency" in notice
    await bench.post("alertmanager", hook_payloads.alertmanager())
    await bench.look("alertmanager", began + 10)
    [message] = await bench.messages()
    assert message.quotes[0].text.index("- resolved, critical") < message.quotes[0].text.index("- firing, critical")
    assert await bench.rows("SELECT conversation FROM inbox") == [("hook:1",)]


async def test_the_id_of_a_delivery_counts_at_its_own_hook_only(bench: Bench) -> None:
    assert await bench.post("other", hook_payloads.gitlab()) == (202, {"id": 1, "state": "stored"})
    assert await bench.post("gitlab", hook_payloads.gitlab()) == (202, {"id": 2, "state": "stored"})
    assert await bench.post("gitlab", hook_payloads.gitlab("reopen")) == (200, {"id": 2, "state": "stored before"})


async def test_who_loses_the_rights_while_a_delivery_waits_has_no_work_done(bench: Bench) -> None:
    jane = Message(Thread("slack", "T1", "D7"), "k", "1", Author("U7", "Jane"), "hi", 1.0, origin=Origin.PERSON)
    await bench.store.run(lambda execute: people.store_address(execute, jane))
    for number in range(2):
        await bench.post("alertmanager", hook_payloads.alertmanager(f"Alert{number}", group=f"g{number}"))
        await bench.look("alertmanager", await bench.latest() + number, OPEN if number == 0 else CLOSED)
    [message] = await bench.messages()
    assert "Alert0" in message.quotes[0].text
    [notice] = await bench.notices()
    assert "Alert1" in notice
    assert "I don't work on it: Jane" in notice


async def test_a_storm_is_one_message_with_all_its_items(bench: Bench) -> None:
    for number in range(50):
        await bench.post("alertmanager", hook_payloads.alertmanager(f"Alert{number}", group=f"g{number}"))
    await bench.look("alertmanager", at := await bench.latest() + 1)
    [message] = await bench.messages()
    assert all(f"Alert{number}:" in message.quotes[0].text for number in range(50))
    assert "50 new items" in message.text
    await bench.post("alertmanager", hook_payloads.alertmanager("Later", group="g7"))
    await bench.look("alertmanager", at + 100)
    assert await bench.rows("SELECT DISTINCT conversation FROM inbox") == [("hook:1",)], "each group goes on there"


@pytest.mark.parametrize(
    ("access", "changes", "words"),
    [(CLOSED, {}, "I don't work on it: Jane"), (OPEN, {"prompt": ""}, "")],
)
async def test_what_nobody_may_work_on_is_posted_as_it_is(
    bench: Bench, access: AccessPolicy, changes: dict[str, Any], words: str
) -> None:
    jane = Message(Thread("slack", "T1", "D7"), "k", "1", Author("U7", "Jane"), "hi", 1.0, origin=Origin.PERSON)
    await bench.store.run(lambda execute: people.store_address(execute, jane))
    await bench.post("alertmanager", hook_payloads.alertmanager())
    await bench.look("alertmanager", await bench.latest() + 1, access, **changes)
    assert await bench.messages() == []
    [notice] = await bench.notices()
    assert "🔴 **critical** HighLatency" in notice
    assert "[Runbook](https://runbooks.example/latency)" in notice
    assert words in notice


async def test_what_is_only_posted_has_its_text_and_what_the_agent_sums_up_has_not(bench: Bench) -> None:
    for number, prompt in enumerate(("", "Look into it.")):
        report = {"title": "Backup failed", "text": "No space left on *db1*", "group": f"{number}"}
        await bench.post("script", ({}, report))
        await bench.look("script", await bench.latest() + 1, OPEN, prompt=prompt)
    posted, *_worked_on = await bench.notices()
    assert posted.endswith("Backup failed\n> No space left on db1")
    assert not any("No space left" in each for each in _worked_on)


async def test_what_was_damaged_does_not_hold_up_the_rest(bench: Bench) -> None:
    await bench.post("alertmanager", hook_payloads.alertmanager(group="a"))
    await bench.store.run(lambda execute: execute("UPDATE hook_deliveries SET event='{'", {}))
    await bench.post("alertmanager", hook_payloads.alertmanager(group="b"))
    await bench.look("alertmanager", await bench.latest() + 1)
    assert await bench.rows("SELECT state FROM hook_deliveries ORDER BY id") == [("damaged",), ("posted",)]
