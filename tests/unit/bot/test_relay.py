"""The relay over a real listener: what it keeps and refuses, and that it hands over until all is stored."""

from __future__ import annotations

import asyncio
import hmac
import json
import signal
import sys
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from agent.setting import Secret
from bot.commands.feature import Door
from bot.config.hooks import MAX_BODY_BYTES, HookConfig, RelayConfig, RelaySource
from bot.config.http import HttpConfig
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.database.database import Database, StorageError
from bot.hooks.endpoint import HookEndpoint
from bot.http.listener import listening
from bot.relay.server import MAX_TAKEN, Relay, Spool
from bot.rights.current import Current
from channels.base import ChannelError, TokenRejected
from channels.shared.http_client import HttpClient
from channels.shared.lifecycle import opened
from channels.shared.relay_client import Delivery, RelayClient
from tests.fakes import hook_payloads
from tests.fakes.hook_payloads import Payload, headers_of
from tests.fakes.server import until
from tests.support.forked_services import python
from tests.support.ports import free_port
from tests.support.rehearsed_database import make_empty_database
from tests.unit.bot.test_hook_endpoint import SIGNATURES, TOKEN, stranger

KEY = "k" * 40
KILLS = 20
SOURCES = {name: RelaySource(Secret(TOKEN), signature) for name, signature in SIGNATURES.items()} | {
    "whatsapp": RelaySource(Secret("app secret"), "meta", Secret("verify me"))
}
HOOKS = {
    name: HookConfig("slack:T1/C1", "@U7", Secret(TOKEN), signature, gather_seconds=0)
    for name, signature in SIGNATURES.items()
}


class Bench:
    """A relay at an address, and its two sides."""

    def __init__(self, address: str, spool: Spool, client: ClientSession, fetcher: RelayClient) -> None:
        self.address, self.spool, self.client, self.fetcher = address, spool, client, fetcher

    async def post(
        self, name: str, payload: Payload | bytes, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str]]:
        """Post as this sender; return the status and the headers of the answer."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload[1]).encode()
        if headers is None and name == "whatsapp":
            headers = {"X-Hub-Signature-256": f"sha256={hmac.digest(b'app secret', body, 'sha256').hex()}"}
        elif headers is None:
            assert not isinstance(payload, bytes)
            headers = headers_of(HOOKS[name], payload[0], body)
        async with self.client.post(f"/hooks/{name}", data=BytesIO(body), headers=headers) as answer:
            return answer.status, dict(answer.headers)

    async def fetch(self, *sources: str, wait: float = 0.0) -> list[Delivery]:
        """Take what waits, and let the relay know with the next call."""
        found: list[Delivery] = []

        async def store(delivery: Delivery) -> None:
            found.append(delivery)

        await self.fetcher.fetch(sources or tuple(SOURCES), store, wait=wait)
        return found


@asynccontextmanager
async def relaying(folder: Path, **settings: Any) -> AsyncIterator[Bench]:
    config = RelayConfig(key=Secret(KEY), sources=SOURCES, **settings)
    spool = Spool(folder / "relay", config.max_mb << 20)
    spool.load_waiting()
    async with (
        listening(HttpConfig(listen="127.0.0.1:0"), Relay(config, spool).routes()) as address,
        ClientSession(base_url=address) as client,
        opened(HttpClient("relay", "", "")) as http,
    ):
        yield Bench(address, spool, client, RelayClient(http, address, KEY))


@pytest.mark.parametrize("name", hook_payloads.ALL)
async def test_each_sender_is_kept_and_handed_over_as_it_came(tmp_path: Path, name: str) -> None:
    async with relaying(tmp_path) as bench:
        payload = hook_payloads.ALL[name]()
        status, _headers = await bench.post(name, payload)
        assert status == 202
        [delivery] = await bench.fetch()
        assert (delivery.source, delivery.body) == (name, json.dumps(payload[1]).encode())
        given = headers_of(HOOKS[name], payload[0], delivery.body).keys() - {"user-agent"}
        assert {each.lower() for each in given} <= delivery.headers.keys()


async def test_what_waits_is_there_after_a_restart_and_gone_once_fawn_has_it(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        await bench.post("script", hook_payloads.ALL["script"]())
        [first] = await bench.fetch()
    async with relaying(tmp_path) as bench:  # the relay was not told that it is stored
        [again] = await bench.fetch()
        assert again == first
        assert await bench.fetch() == []
    assert [*(tmp_path / "relay").iterdir()] == []


async def test_a_question_is_answered_when_something_comes(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        asking = asyncio.create_task(bench.fetch(wait=20.0))
        await bench.fetch("nobody")  # the relay has the question before it
        await bench.post("github", hook_payloads.github())
        async with asyncio.timeout(60):
            [delivery] = await asking
        assert delivery.source == "github"


async def test_sources_do_not_get_what_is_for_others(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        await bench.post("whatsapp", b'{"entry": []}')
        assert await bench.fetch("github", "script") == []
        [delivery] = await bench.fetch("whatsapp")
        assert delivery.body == b'{"entry": []}'


async def test_what_is_not_genuine_is_refused_and_takes_no_room(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        assert (await bench.post("whatsapp", b"{}", {"X-Hub-Signature-256": "sha256=00"}))[0] == 401
        assert (await bench.post("whatsapp", b"{}", {}))[0] == 401
        assert (await bench.post("alertmanager", b"{}", {"Authorization": "Bearer wrong"}))[0] == 401
        assert (await bench.post("nobody", b"{}", {}))[0] == 404
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert (await bench.post("alertmanager", b"x" * (MAX_BODY_BYTES + 1), bearer))[0] == 413
        assert await bench.fetch() == []
        assert [*(tmp_path / "relay").iterdir()] == []


async def test_who_has_no_key_takes_nothing_and_drops_nothing(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench, opened(HttpClient("relay", "", "")) as http:
        await bench.post("github", hook_payloads.github())
        [file] = (tmp_path / "relay").iterdir()
        stranger = RelayClient(http, bench.address, "wrong")
        stranger._done = {int(file.name.partition(".")[0])}
        with pytest.raises(TokenRejected):
            await stranger.fetch(["github"], lambda delivery: pytest.fail("it was handed over"))
        assert len(await bench.fetch()) == 1


async def test_beyond_its_bounds_a_sender_is_asked_to_come_later(tmp_path: Path) -> None:
    async with relaying(tmp_path, max_mb=1, per_minute=3) as bench:
        large = json.dumps({"title": "x" * 700_000}).encode()
        bearer = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        statuses = [await bench.post("alertmanager", large, bearer) for _each in range(4)]
        assert [status for status, _headers in statuses] == [202, 503, 503, 429]
        assert [headers.get("Retry-After") for _status, headers in statuses] == [None, "60", "60", "10"]
        assert len(await bench.fetch()) == 1
        await bench.fetch()  # it is stored, and there is room again
        assert (await bench.post("other", large, {"X-Gitlab-Token": TOKEN}))[0] == 202


async def test_a_disk_that_fails_acknowledges_nothing(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        (tmp_path / "relay").rmdir()
        assert (await bench.post("github", hook_payloads.github()))[0] == 503
        assert await bench.fetch() == []
        (tmp_path / "relay").mkdir()
        assert (await bench.post("github", hook_payloads.github()))[0] == 202
        assert len(await bench.fetch()) == 1


async def test_many_are_handed_over_in_order(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        for number in range(MAX_TAKEN + 5):
            body = json.dumps({"title": str(number)}).encode()
            assert (await bench.post("whatsapp", body))[0] == 202
        found = [await bench.fetch(), await bench.fetch()]
        assert [len(each) for each in found] == [MAX_TAKEN, 5]
        titles = [int(json.loads(each.body)["title"]) for each in found[0] + found[1]]
        assert titles == [*range(MAX_TAKEN + 5)]


async def test_what_fawn_cannot_store_comes_again_and_what_it_stored_does_not(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        for number in range(3):
            await bench.post("whatsapp", json.dumps({"n": number}).encode())
        stored: list[bytes] = []

        async def store(delivery: Delivery) -> None:
            if len(stored) == 1:
                raise StorageError("disk full")
            stored.append(delivery.body)

        with pytest.raises(StorageError):
            await bench.fetcher.fetch(["whatsapp"], store, wait=0)
        assert [json.loads(each.body)["n"] for each in await bench.fetch("whatsapp")] == [1, 2]


async def test_meta_asks_whether_the_address_is_ours(tmp_path: Path) -> None:
    """developers.facebook.com/docs/graph-api/webhooks/getting-started#verification-requests"""
    async with relaying(tmp_path) as bench:
        asked = {"hub.mode": "subscribe", "hub.verify_token": "verify me", "hub.challenge": "1158201444"}
        async with bench.client.get("/hooks/whatsapp", params=asked) as answer:
            assert (answer.status, await answer.text()) == (200, "1158201444")
        for wrong in ({"hub.verify_token": "other"}, {"hub.challenge": "<script>"}, {"hub.mode": "unsubscribe"}):
            async with bench.client.get("/hooks/whatsapp", params=asked | wrong) as answer:
                assert answer.status == 403
        async with bench.client.get("/hooks/github", params=asked | {"hub.verify_token": ""}) as answer:
            assert answer.status == 403  # it has no verify token


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db") as store:
        yield store


@pytest.mark.parametrize("name", hook_payloads.ALL)
async def test_a_relayed_delivery_is_stored_once_as_a_direct_one(tmp_path: Path, store: Database, name: str) -> None:
    config = Config(hooks=HOOKS, channels=(ChannelConfig("slack", None, AccessConfig(open=True)),))
    endpoint = HookEndpoint(Door(store, Current(config), *[None] * 8))  # type: ignore[arg-type]  # it needs no more
    async with relaying(tmp_path) as bench:
        payload = hook_payloads.ALL[name]()
        for _attempt in range(2):  # the sender got no answer to the first
            await bench.post(name, payload)
        deliveries = await bench.fetch()
        for each in deliveries * 2:  # Fawn ended before it told the relay
            await endpoint.take_relayed(each.source, each.headers, each.body, each.received)
    rows = await store.run(lambda execute: execute("SELECT hook, state, received FROM hook_deliveries", {}))
    assert [(row["hook"], row["state"], row["received"]) for row in rows] == [(name, "waiting", deliveries[0].received)]


async def test_a_relay_that_forges_is_refused_by_fawn(store: Database) -> None:
    """Fawn checks the signature of what a relay hands over, as of the time at which it came to the relay."""
    config = Config(hooks=HOOKS)
    endpoint = HookEndpoint(Door(store, Current(config), *[None] * 8))  # type: ignore[arg-type]  # it needs no more
    await endpoint.take_relayed("github", {"x-hub-signature-256": "sha256=00"}, b"{}", 1.0)
    await endpoint.take_relayed("removed", {}, b"{}", 1.0)
    rows = await store.run(lambda execute: execute("SELECT hook, reason FROM hook_refusals ORDER BY hook", {}))
    assert [(row["hook"], row["reason"]) for row in rows] == [("", "unknown_hook"), ("github", "bad_signature")]


async def test_what_a_kill_left_half_written_is_no_delivery(tmp_path: Path) -> None:
    """Its sender got no answer, and posts it again."""
    spool = Spool(tmp_path, 1 << 20)
    spool.load_waiting()
    await spool.keep("part", {}, b"whole", 1.0)
    [kept] = tmp_path.iterdir()
    for name in (f"{kept.name}.part", "01795654452306407526.deploys.part"):
        (tmp_path / name).write_bytes(b"hal")
    again = Spool(tmp_path, 1 << 20)
    assert again.load_waiting() == 1
    assert [*tmp_path.iterdir()] == [kept]
    assert [each["source"] for each in await again.read(await again.wait(["part"], 0.0))] == ["part"]


async def test_a_kill_in_the_middle_of_a_write_leaves_no_delivery(tmp_path: Path) -> None:
    folder = tmp_path / "relay"
    program = (
        "import asyncio, pathlib, resource, signal, sys\nfrom bot.relay.server import Spool\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "async def main():\n    spool = Spool(pathlib.Path(sys.argv[1]), 1 << 20)\n    spool.load_waiting()\n"
        "    await spool.keep('deploys', {}, bytes(5000), 1.0)\nasyncio.run(main())"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(folder))
    assert await process.wait() == -signal.SIGXFSZ
    assert [each.stat().st_size for each in folder.iterdir()] == [1000]
    assert Spool(folder, 1 << 20).load_waiting() == 0
    assert not [*folder.iterdir()]


# ---------------------------------------------------------------- strangers, damage and kills


async def test_slow_strangers_do_not_keep_senders_out(tmp_path: Path) -> None:
    """Bodies that dribble in are read before anybody knows who sends them: they take no place from others."""
    large = b'{"n": "%s"}' % (b"x" * 100_000)
    async with relaying(tmp_path) as bench:
        strangers = [await stranger(bench.address, "whatsapp", 100_000, b"{") for _each in range(40)]
        hears = [asyncio.create_task(reader.read(1)) for reader, _writer in strangers]
        assert (await bench.post("whatsapp", large))[0] == 202
        assert not any(each.done() for each in hears), "they are not given up yet"
        assert [each.body for each in await bench.fetch()] == [large]
        for each, (_reader, writer) in zip(hears, strangers, strict=True):
            each.cancel()
            writer.close()


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_truncated_upload_is_no_delivery(tmp_path: Path, framing: str) -> None:
    """Also of a sender whose header alone is the proof."""
    async with relaying(tmp_path) as bench:
        host, port = bench.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        size = b"Content-Length: 20" if framing == "length" else b"Transfer-Encoding: chunked"
        head = b"POST /hooks/alertmanager HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n"
        body = b'{"alerts":' if framing == "length" else b'a\r\n{"alerts":\r\n'
        writer.write(head % (TOKEN.encode(), size) + body)
        writer.write_eof()
        assert b"202" not in (await reader.read()).partition(b"\r\n")[0]
        writer.close()
        assert await bench.fetch() == []
        assert [*(tmp_path / "relay").iterdir()] == []


async def test_a_signature_is_over_the_bytes_that_came(tmp_path: Path) -> None:
    """Another form of the same JSON, a second signature, and one of another source are no proof."""
    body, other = b'{"n":1}', b'{"n": 1}'
    signed = f"sha256={hmac.digest(b'app secret', body, 'sha256').hex()}"
    async with relaying(tmp_path) as bench:
        for wrong in (other, body + b"\n", b"\xef\xbb\xbf" + body, b""):
            assert (await bench.post("whatsapp", wrong, {"X-Hub-Signature-256": signed}))[0] == 401
        for header in (signed.upper(), signed[:-1], signed + "0", f"{signed}, {signed}", "sha256=", "sha1=00", ""):
            assert (await bench.post("whatsapp", body, {"X-Hub-Signature-256": header}))[0] == 401, header
        assert (await bench.post("github", body, {"X-Hub-Signature-256": signed}))[0] == 401
        assert (await bench.post("whatsapp", body, {"X-Hub-Signature-256": signed}))[0] == 202
        assert [each.body for each in await bench.fetch()] == [body]


async def test_a_disk_that_is_full_keeps_no_halves(tmp_path: Path) -> None:
    """What could not be written whole takes no room, nor what was written and may not be there after a crash."""
    folder = tmp_path / "relay"
    program = (
        "import asyncio, pathlib, resource, signal, sys\nfrom bot.relay.server import Spool\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "async def main():\n    spool = Spool(pathlib.Path(sys.argv[1]), 1 << 20)\n    spool.load_waiting()\n"
        "    try:\n        await spool.keep('deploys', {}, bytes(5000), 1.0)\n"
        "    except OSError:\n        await spool.keep('deploys', {}, b'small', 1.0)\n        sys.exit(7)\n"
        "asyncio.run(main())"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(folder))
    assert await process.wait() == 7
    assert [each.suffix for each in folder.iterdir()] == [".deploys"]


async def test_what_is_damaged_or_foreign_stops_no_other_delivery(tmp_path: Path) -> None:
    """A link to another file, a folder, a cut file and one that has vanished, among good ones."""
    spool = Spool(tmp_path / "relay", 1 << 20)
    spool.load_waiting()
    for number in range(3):
        await spool.keep("deploys", {}, f"{number}".encode(), 1.0)
    first, second, _third = sorted((tmp_path / "relay").iterdir())
    (tmp_path / "secret").write_text('{"headers": {}, "received": 1}\nsecret')
    (tmp_path / "relay" / f"{1:020d}.deploys").symlink_to(tmp_path / "secret")
    (tmp_path / "relay" / f"{2:020d}.deploys").mkdir()
    first.write_bytes(b'{"received": 1.0, "hea')
    again = Spool(tmp_path / "relay", 1 << 20)
    assert again.load_waiting() == 3
    second.unlink()
    found = await again.read(await again.wait(["deploys"], 0.0))
    assert [b64decode(each["body"]) for each in found] == [b"2"]
    await again.drop([each["id"] for each in found])
    assert await again.wait(["deploys"], 0.0) == []
    assert first.with_suffix(".deploys.damaged").exists(), "for whoever wants to look at it"


async def test_no_kill_at_any_step_loses_or_doubles_a_delivery(tmp_path: Path, store: Database) -> None:
    """The relay is killed at its first step on the disk, the next one at its second, and so on."""
    config = Config(hooks=HOOKS, channels=(ChannelConfig("slack", None, AccessConfig(open=True)),))
    endpoint = HookEndpoint(Door(store, Current(config), *[None] * 8))  # type: ignore[arg-type]  # it needs no more
    port, folder = free_port(), tmp_path / "relay"
    address, numbers = f"http://127.0.0.1:{port}", iter(range(1_000_000))
    sent: list[int] = []

    async def take(delivery: Delivery) -> None:
        await endpoint.take_relayed(delivery.source, delivery.headers, delivery.body, delivery.received)

    async def send() -> None:
        async with ClientSession() as client:
            for number in numbers:
                event, body = deploy(number)
                while True:
                    with suppress(ClientError):
                        async with client.post(f"{address}/hooks/github", data=body, headers=event) as answer:
                            assert answer.status == 202, await answer.text()
                            sent.append(number)
                            break
                    await asyncio.sleep(0.02)

    async def fetch() -> None:
        async with opened(HttpClient("relay", "", "")) as http:
            fetcher = RelayClient(http, address, KEY)
            while True:
                with suppress(ChannelError):
                    await fetcher.fetch(["github"], take, wait=0.2)
                await asyncio.sleep(0.02)

    sender, receiver = asyncio.create_task(send()), asyncio.create_task(fetch())
    command = [*python(), "-m", "tests.support.killed_relay", str(folder), str(port), KEY, TOKEN]
    try:
        for step in range(1, KILLS + 1):
            process = await asyncio.create_subprocess_exec(*command, str(step))
            assert await asyncio.wait_for(process.wait(), 120) == -signal.SIGKILL
        sender.cancel()  # in the middle of a post, whose outcome it does not know
        process = await asyncio.create_subprocess_exec(*command, "0")
        await until(lambda: not [*folder.iterdir()], 60)
        process.terminate()
        await process.wait()
    finally:
        for task in (sender, receiver):
            task.cancel()
        await asyncio.gather(sender, receiver, return_exceptions=True)
    rows = await store.run(lambda execute: execute("SELECT event FROM hook_deliveries", {}))
    stored = [int(json.loads(row["event"])["items"][0]["title"].split()[-1]) for row in rows]
    assert len(stored) == len({*stored})
    assert {*sent} <= {*stored} <= {*sent, len(sent)}  # the last one was stored without an answer, or not
    assert len(sent) > KILLS // 5


def deploy(number: int) -> tuple[Mapping[str, str], bytes]:
    """Return the headers and the body of a signed delivery."""
    body = json.dumps({"title": f"deploy {number}", "group": str(number)}).encode()
    return {"X-Hub-Signature-256": f"sha256={hmac.digest(TOKEN.encode(), body, 'sha256').hex()}"}, body
