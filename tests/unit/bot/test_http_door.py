"""The seam of the HTTP door: what routes may rely on, whoever asks and whatever they send."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession, TCPConnector, web
from multidict import CIMultiDict

from bot.api.shared.caller import Caller, find_caller
from bot.api.shared.keys import DAY_SECONDS, end_key, make_key_of
from bot.commands.feature import Door
from bot.config.http import DemoHttpConfig, HttpConfig
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.config.team import MEMBER_RIGHTS, OPERATOR_RIGHTS, Right, RoleAssignment
from bot.database.database import Database, Execute, StorageError
from bot.http.listener import listening
from bot.http.route import HttpProblem, Route, json_response, read_body, read_json
from bot.http.visitors import may_connect, refuse_unencrypted
from bot.main.features import FEATURES
from bot.rights.current import Current
from bot.rights.deeds import SEE_SERVICE
from bot.storage.api_access import OPERATE, READ, THREADS
from channels.base import NotStored
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

CHAT = "https://chat.example"  # whose pages may call
LARGE = 32 << 20  # more than all buffers of a connection hold


class Handlers:
    """Routes as a feature gives them."""

    def __init__(self) -> None:
        self.taken: list[object] = []

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/json", self._json, body_bytes=1000, body_seconds=0.3),
            Route("POST", "/raw", self._raw, body_bytes=1000, body_seconds=0.3),
            Route("GET", "/names/{name}", self._name),
            Route("GET", "/fails/{how}", self._fail),
            Route("GET", "/large", self._large),
        ]

    async def _json(self, request: web.Request) -> web.StreamResponse:
        self.taken.append(await read_json(request))
        return json_response(202, {"taken": self.taken[-1]})

    async def _raw(self, request: web.Request) -> web.StreamResponse:
        self.taken.append(await read_body(request))
        return json_response(202, {})

    async def _name(self, request: web.Request) -> web.StreamResponse:
        return json_response(200, {"name": request.match_info["name"]})

    async def _fail(self, request: web.Request) -> web.StreamResponse:
        failures = {
            "problem": HttpProblem(409, "busy", "It is busy.", "Wait.", headers={"Retry-After": "7"}),
            "storage": StorageError("disk full"),
            "inbox": NotStored("disk full"),
            "bug": ValueError("the secret reason"),
            "aiohttp": web.HTTPUnauthorized(text="the secret reason"),
        }
        raise failures[request.match_info["how"]]

    async def _large(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=bytes(LARGE))


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@asynccontextmanager
async def served(handlers: Handlers, write_seconds: float = 30.0) -> AsyncIterator[ClientSession]:
    config = HttpConfig(listen="127.0.0.1:0", hosts=("fawn.example",), origins=(CHAT,))
    async with (
        listening(config, handlers.routes(), write_seconds=write_seconds) as address,
        ClientSession(base_url=address, connector=TCPConnector(force_close=True)) as client,
    ):
        yield client


async def send_raw(client: ClientSession, text: bytes) -> bytes:
    base = client._base_url
    assert base
    reader, writer = await asyncio.open_connection(base.host, base.port)
    writer.write(text)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_route_gets_its_body_and_the_names_of_its_path(handlers: Handlers) -> None:
    async with served(handlers) as client:
        async with client.post("/json", json={"a": [1, None, "é"]}) as answer:
            assert (answer.status, await answer.json()) == (202, {"taken": {"a": [1, None, "é"]}})
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Server"] == "Fawn"
        async with client.get("/names/..%2F..%2Fetc") as answer:
            assert await answer.json() == {"name": "../../etc"}
        async with client.head("/names/a") as answer:
            assert (answer.status, await answer.read()) == (200, b"")


async def test_pages_of_a_named_origin_may_call_and_no_others(handlers: Handlers) -> None:
    asks = {"Access-Control-Request-Method": "POST", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    async with served(handlers) as client:
        async with client.options("/json", headers={"Origin": CHAT, **asks}) as answer:
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, CHAT)
            assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
            assert answer.headers["Access-Control-Allow-Methods"] == "POST"
            assert "Access-Control-Allow-Credentials" not in answer.headers
        async with client.post("/json", json=1, headers={"Origin": CHAT, "Sec-Fetch-Site": "cross-site"}) as answer:
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (202, CHAT)
            assert answer.headers["Vary"] == "Origin"
        for origin in ("https://evil.example", "http://chat.example", "null"):
            async with client.options("/json", headers={"Origin": origin, **asks}) as answer:
                assert (answer.status, "Access-Control-Allow-Origin" in answer.headers) == (403, False)
            async with client.post("/json", json=2, headers={"Origin": origin}) as answer:
                assert (answer.status, "Access-Control-Allow-Origin" in answer.headers) == (403, False)
    assert handlers.taken == [1]


@pytest.mark.parametrize(
    ("peer", "headers", "code"),
    [
        ("127.0.0.1", {}, ""),
        ("10.0.0.7", {"X-Forwarded-Proto": "https"}, ""),
        ("10.0.0.7", {}, "no_tls"),
        ("10.0.0.7", {"X-Forwarded-Proto": "http"}, "no_tls"),
        ("10.9.0.7", {"X-Forwarded-Proto": "https"}, "no_proxy"),
    ],
)
async def test_other_machines_send_keys_only_through_a_proxy_with_tls(
    peer: str, headers: dict[str, str], code: str
) -> None:
    config, found = HttpConfig(listen="127.0.0.1:0", peers=("10.9.0.0/16",), proxies=("10.0.0.7",)), []

    async def look(request: web.Request) -> web.StreamResponse:
        try:
            refuse_unencrypted(config, request.clone(remote=peer))
            found.append("")
        except HttpProblem as problem:
            found.append(problem.code)
        return json_response(200, {})

    async with (
        listening(config, [Route("GET", "/look", look)]) as address,
        ClientSession(address) as client,
        client.get("/look", headers=headers) as answer,
    ):
        assert answer.status == 200
    assert found == [code]
    assert may_connect(config, peer)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/fails/problem", 409, "busy"), ("/fails/storage", 503, "not_stored"), ("/fails/inbox", 503, "not_stored"),
        ("/fails/bug", 500, "fault"), ("/fails/aiohttp", 401, "refused"), ("/nothing", 404, "not_found"),
        ("/json", 405, "method_not_allowed"),
    ],
)  # fmt: skip
async def test_each_failure_is_a_problem_with_an_id_that_the_log_repeats(
    handlers: Handlers, caplog: pytest.LogCaptureFixture, path: str, status: int, code: str
) -> None:
    caplog.set_level(logging.INFO, "bot.http")
    async with served(handlers) as client, client.get(path) as answer:
        problem = orjson.loads(await answer.read())
    assert (answer.status, problem["status"], problem["code"]) == (status, status, code)
    assert answer.content_type == "application/problem+json"
    assert problem["request"] == answer.headers["X-Request-Id"]
    assert len(problem["request"]) == 16
    assert "secret reason" not in str(problem)
    route = "/fails/{how}" if path.startswith("/fails") else ""
    assert f"http.answered method=GET path={route} status={status} " in caplog.text
    assert ("the secret reason" in caplog.text) is (path == "/fails/bug")


async def test_a_problem_keeps_its_headers(handlers: Handlers) -> None:
    async with served(handlers) as client:
        async with client.get("/fails/problem") as answer:
            assert answer.headers["Retry-After"] == "7"
        async with client.get("/json") as answer:
            assert answer.headers["Allow"] == "POST"


BAD_BODIES: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "no JSON": (b"{", {}, 400, "bad_json"),
    "nothing": (b"", {}, 400, "bad_json"),
    "no UTF-8": (b'"\xff"', {}, 400, "bad_json"),
    "half a character": (b'"\\ud800"', {}, 400, "bad_json"),
    "deep": (b"[" * 900 + b"\0", {}, 400, "bad_json"),
    "no number": (b"NaN", {}, 400, "bad_json"),
    "two values": (b"1 2", {}, 400, "bad_json"),
    "too large": (b"1" * 1001, {}, 413, "too_large"),
    "much too large": (b"1" * (10 << 20), {}, 413, "too_large"),
    "a form": (b"a=1", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "not_json"),
    "a text, as a page may send it": (b"{}", {"Content-Type": "text/plain"}, 415, "not_json"),
    "no gzip": (b"{}", {"Content-Encoding": "gzip"}, 400, "broken_body"),
}


@pytest.mark.parametrize(("body", "headers", "status", "code"), BAD_BODIES.values(), ids=BAD_BODIES)
async def test_a_bad_body_is_refused_before_the_handler_has_it(
    handlers: Handlers, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    async with served(handlers) as client:
        async with client.post(
            "/json", data=BytesIO(body), headers={"Content-Type": "application/json"} | headers
        ) as answer:
            problem = orjson.loads(await answer.read())
            assert (answer.status, problem["code"]) == (status, code)
            assert problem["detail"]
        async with client.post("/json", json=1) as answer:
            assert answer.status == 202
    assert handlers.taken == [1]


@pytest.mark.parametrize(
    ("length", "encoding", "closes"), [(2, "gzip", True), (10 << 20, "identity", True), (2, "identity", False)]
)
async def test_a_connection_whose_body_is_not_read_says_that_it_closes(
    handlers: Handlers, length: int, encoding: str, closes: bool
) -> None:
    head = f"Content-Length: {length}\r\nContent-Type: text/plain\r\nContent-Encoding: {encoding}\r\n"
    async with served(handlers) as client:
        base = client._base_url
        assert base
        reader, writer = await asyncio.open_connection(base.host, base.port)
        writer.write(f"POST /raw HTTP/1.1\r\nHost: localhost\r\n{head}\r\n{{}}".encode())
        async with asyncio.timeout(60):
            answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
    assert (b"connection: close" in answer.lower()) is closes


async def test_a_body_in_pieces_is_bounded_too(handlers: Handlers) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(2000):
            yield b"x" * 10

    async with served(handlers) as client, client.post("/raw", data=pieces()) as answer:
        assert answer.status == 413
    assert handlers.taken == []


async def test_a_body_that_does_not_come_is_not_waited_for(handlers: Handlers) -> None:
    head = b"POST /raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab"
    async with served(handlers) as client:
        answer = await send_raw(client, head)  # ends, because the connection is closed
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert handlers.taken == []


async def test_too_many_headers_are_refused(handlers: Handlers) -> None:
    many = b"".join(b"X-%d: a\r\n" % n for n in range(100))
    async with served(handlers) as client:
        answer = await send_raw(client, b"GET /names/a HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n")
    assert answer.split()[1] == b"400"


@pytest.mark.parametrize(
    "name", [b"\xff\xfe", b"localhost:99999999", b"localhost:x", b"a" * 300, b"", b"xn--\xc3\xa9", b"a@"]
)
async def test_a_name_that_is_none_is_foreign(handlers: Handlers, name: bytes) -> None:
    async with served(handlers) as client:
        answer = await send_raw(client, b"GET /names/a HTTP/1.1\r\nHost: " + name + b"\r\nConnection: close\r\n\r\n")
    assert answer.split()[1] in (b"400", b"421")
    assert handlers.taken == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Origin": "http://localhost:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200), ({"Sec-Fetch-Site": "same-origin", "Origin": "OWN"}, 200), ({}, 200),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
        ({"Host": "fawn.example", "Origin": "https://fawn.example"}, 200),
    ],
)  # fmt: skip
async def test_a_page_of_another_address_reads_and_changes_nothing(
    handlers: Handlers, headers: dict[str, str], status: int
) -> None:
    async with served(handlers) as client:
        own = str(client._base_url).rstrip("/")
        sent = {name: own if value == "OWN" else value for name, value in headers.items()}
        async with client.get("/names/a", headers=sent) as answer:
            assert answer.status == status
            assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


async def test_a_followed_link_writes_nothing(handlers: Handlers) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with served(handlers) as client, client.post("/json", json=1, headers=headers) as answer:
        assert answer.status == 403
    assert handlers.taken == []


async def test_a_client_that_does_not_take_its_answer_is_cut_off(
    handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bot.http")
    async with served(handlers, write_seconds=0.3) as client:
        base = client._base_url
        assert base
        reader, writer = await asyncio.open_connection(base.host, base.port, limit=1024)
        writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(60):
            while "http.slow_reader" not in caplog.text:
                await asyncio.sleep(0.01)
        taken = 0
        with suppress(ConnectionResetError):
            while piece := await reader.read(1 << 20):
                taken += len(piece)
        writer.close()
        assert taken < LARGE
        async with client.get("/names/a") as answer:
            assert answer.status == 200


class Idle:
    """A database and a scheduler in which nothing happens."""

    def follow(self, listener: object) -> None:
        """Take a listener that is never called."""


def test_no_two_features_serve_the_same_path(tmp_path: Path) -> None:
    current, idle = SimpleNamespace(config=SimpleNamespace(data_dir=tmp_path)), Idle()
    door = Door(idle, current, None, None, None, None, None, idle, None, None)  # type: ignore[arg-type]  # no service is needed
    served = [(route.method, route.path) for each in FEATURES if each.routes for route in each.routes(door)]
    assert len(served) == len(set(served))


def test_routes_may_ask_for_the_running_service_only_when_turns_can_run() -> None:
    with pytest.raises(HttpProblem) as raised:
        Door(*[None] * 10).running()  # type: ignore[arg-type]  # as before the engine has begun
    assert (raised.value.status, raised.value.headers) == (503, {"Retry-After": "2"})


async def test_a_first_try_takes_another_port_where_its_own_is_in_use() -> None:
    taken = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]
        async with listening(DemoHttpConfig(f"127.0.0.1:{port}"), Handlers().routes()) as address:
            assert address.startswith("http://127.0.0.1:")
            assert not address.endswith(f":{port}")
    assert DemoHttpConfig.on_loopback(opens=True) == HttpConfig()  # a reload finds no change
    assert DemoHttpConfig.on_loopback(opens=True) != HttpConfig("127.0.0.1:8080")


PEOPLE = AccessConfig(
    operators=("U1",), roles=(RoleAssignment("member", ("U2",)), RoleAssignment("viewer", ("U3",)))
)  # and U4 is a stranger


class Callers:
    """A route that finds its caller, and a key for each person and scope. `what` says how the caller must be."""

    def __init__(self, store: Database) -> None:
        self.store = store
        self.what: dict[str, Any] = {"scope": READ}
        self.door = Door(store, Current(Config(channels=(ChannelConfig("slack", None, PEOPLE),))), *[None] * 8)  # type: ignore[arg-type]  # a caller needs no more

    async def find(self, request: web.Request) -> web.StreamResponse:
        caller = await find_caller(self.door, request, **self.what)
        return json_response(200, {"id": caller.author.id})

    async def key(self, person: str, scopes: str, expires: str = "") -> str:
        def make(execute: Execute) -> str:
            return make_key_of(execute, f"{person}-{scopes}", "slack", person, scopes, expires)[0]

        return await self.store.run(make)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[ClientSession]:
        config = HttpConfig(listen="127.0.0.1:0")
        async with (
            listening(config, [Route("GET", "/who", self.find)]) as address,
            ClientSession(base_url=address) as client,
        ):
            yield client


async def answered(client: ClientSession, *authorization: str) -> tuple[int, str]:
    """Return status and code, or the caller's id."""
    headers = CIMultiDict([("Authorization", each) for each in authorization])
    async with client.get("/who", headers=headers) as answer:
        body = await answer.json(content_type=None)
        return answer.status, body.get("code", body.get("id"))


@pytest.fixture
async def callers(tmp_path: Path) -> AsyncIterator[Callers]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        yield Callers(store)


@pytest.mark.parametrize("person", ["U1", "U2", "U3", "U4"])
@pytest.mark.parametrize("right", [None, Right.TALK, Right.OPERATE])
@pytest.mark.parametrize("scopes", [READ, THREADS, OPERATE])
async def test_a_caller_has_a_role_the_right_and_the_scope(
    callers: Callers, person: str, right: Right | None, scopes: str
) -> None:
    """Who has no right at all calls nothing, whatever their key says."""
    given = {"U1": OPERATOR_RIGHTS, "U2": MEMBER_RIGHTS}.get(person, ())
    authorization = f"Bearer {await callers.key(person, scopes)}"
    async with callers.served() as client:
        for scope, enough in {READ: (READ, THREADS), THREADS: (THREADS,), OPERATE: (OPERATE,)}.items():
            callers.what = {"scope": scope, "right": right}
            wanted = (403, "no_access") if not given or (right and right not in given) else (200, f"slack:{person}")
            assert await answered(client, authorization) == (wanted if scopes in enough else (403, "no_scope"))


@pytest.mark.parametrize(("person", "wanted"), [("U1", (200, "slack:U1")), ("U2", (403, "no_access"))])
async def test_what_a_caller_may_not_do_is_in_the_audit(callers: Callers, person: str, wanted: tuple[int, str]) -> None:
    callers.what = {"scope": OPERATE, "deed": SEE_SERVICE}
    async with callers.served() as client:
        assert await answered(client, f"Bearer {await callers.key(person, OPERATE)}") == wanted
    rows = await callers.store.run(lambda execute: execute("SELECT body FROM audit", {}))
    denied = [body["what"] for row in rows if (body := orjson.loads(row["body"]))["kind"] == "access.denied"]
    assert denied == ([] if wanted[0] == 200 else [{"via": "http", "path": "/who"}])


async def test_only_one_good_key_opens_the_door(callers: Callers) -> None:
    good, gone, old = [await callers.key("U1", *each) for each in ((READ,), (THREADS,), (OPERATE, "1d"))]
    await callers.store.run(lambda execute: end_key(execute, f"U1-{THREADS}"))
    await callers.store.run(lambda execute: execute("UPDATE api_keys SET expires=1 WHERE scopes='operate'", {}))
    other = good[:-1] + ("A" if good[-1] != "A" else "B")
    async with callers.served() as client:
        for shown in (f"Bearer {good}", f"bearer  {good} "):
            assert await answered(client, shown) == (200, "slack:U1")
        for bad in ("", "Bearer", "Bearer ", good, f"Basic {good}", *(f"Bearer {key}" for key in (gone, old, other))):
            assert await answered(client, bad) == (401, "no_key"), bad
        assert await answered(client) == (401, "no_key")
        for second in (f"Bearer {good}", f"Bearer {other}", ""):
            assert await answered(client, f"Bearer {good}", second) == (401, "no_key"), "which one counts?"
        async with client.get("/who") as answer:
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="fawn"'


async def test_what_a_caller_showed_is_good_until_it_ends_or_its_person_loses_their_rights(callers: Callers) -> None:
    found: list[Caller] = []

    async def find(request: web.Request) -> web.StreamResponse:
        found.append(await find_caller(callers.door, request, READ))
        return json_response(200, {})

    callers.find = find  # type: ignore[method-assign]  # to keep whom it finds
    now = time.time()
    async with callers.served() as client:
        for person, expires in (("U1", ""), ("U2", "1d")):
            assert (await answered(client, f"Bearer {await callers.key(person, READ, expires)}"))[0] == 200
    one, two = found

    async def good(caller: Caller, at: float) -> bool:
        return await callers.store.run(lambda execute: caller.is_good(execute, at))

    assert (await good(one, now), await good(two, now)) == (True, True)
    assert (await good(one, now + 2 * DAY_SECONDS), await good(two, now + 2 * DAY_SECONDS)) == (True, False)
    await callers.store.run(lambda execute: end_key(execute, f"U2-{READ}"))
    assert (await good(one, now), await good(two, now)) == (True, False)
    callers.door.current.config = replace(callers.door.current.config, channels=())
    assert not await good(one, now)
    assert (one.is_person("slack", "U1"), one.is_person("slack", "U2")) == (True, False)
    assert one.is_person("web", "slack:U1")
