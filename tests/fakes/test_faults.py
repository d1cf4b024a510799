"""The fake Telegram's faults, update queue and rate limits, in a thread and in a process."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.fakes.process import process
from tests.fakes.server import Json, until
from tests.fakes.telegram import JANE, TOKEN, FakeTelegram

GROUP = -1_001_234_567_890


class Client:
    """Bare calls without an SDK: `await client("sendMessage", chat_id=1, text="x")` returns (status, body)."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self._session = session
        self._base_url = base_url

    async def __call__(self, method: str, **args: Any) -> tuple[int, Json]:
        async with self._session.post(f"{self._base_url}/bot{TOKEN}/{method}", json=args) as response:
            return response.status, await response.json()

    async def poll(self, offset: int = 0, timeout: float = 0) -> list[Json]:
        _, body = await self("getUpdates", offset=offset, timeout=timeout)
        updates: list[Json] = body["result"]
        return updates


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as server:
        server.chat(JANE)
        yield server


@pytest.fixture
def client(telegram: FakeTelegram, session: aiohttp.ClientSession) -> Client:
    return Client(session, telegram.base_url)


async def test_a_fault_applies_to_its_method_chat_and_count(telegram: FakeTelegram, client: Client) -> None:
    telegram.chat(7)
    telegram.fault("flood", "sendMessage", chat=7, times=2, seconds=5)
    assert (await client("sendMessage", chat_id=JANE, text="a"))[0] == 200
    assert (await client("sendChatAction", chat_id=7, action="typing"))[0] == 200
    for _ in range(2):
        status, body = await client("sendMessage", chat_id=7, text="b")
        assert status == 429
        assert body["parameters"] == {"retry_after": 5}
        assert body["description"] == "Too Many Requests: retry after 5"
    assert (await client("sendMessage", chat_id=7, text="b"))[0] == 200
    assert telegram.texts(7) == ["b"]
    assert [call.status for call in telegram.calls_of("sendMessage", 7)] == [429, 429, 200]


async def test_errors_before_and_after_the_effect(telegram: FakeTelegram, client: Client) -> None:
    telegram.fault("error", "sendMessage", code=502)
    telegram.fault("error", "sendMessage", code=500, after=True)
    assert (await client("sendMessage", chat_id=JANE, text="one"))[1]["description"] == "Bad Gateway"
    assert telegram.texts(JANE) == []
    assert (await client("sendMessage", chat_id=JANE, text="two"))[0] == 500
    assert telegram.texts(JANE) == ["two"]
    telegram.fault("error", "sendMessage", code=400, description="Bad Request: no", contains="final", times=-1)
    assert (await client("sendMessage", chat_id=JANE, text="three"))[0] == 200
    assert (await client("sendMessage", chat_id=JANE, text="final"))[1]["description"] == "Bad Request: no"
    telegram.clear_faults()
    assert (await client("sendMessage", chat_id=JANE, text="final"))[0] == 200


async def test_a_connection_drops_before_or_after_the_effect(telegram: FakeTelegram, client: Client) -> None:
    telegram.fault("drop", "sendMessage")
    with pytest.raises(aiohttp.ClientConnectionError):
        await client("sendMessage", chat_id=JANE, text="lost")
    assert telegram.texts(JANE) == []
    telegram.fault("drop", "sendMessage", after=True)
    with pytest.raises(aiohttp.ClientConnectionError):
        await client("sendMessage", chat_id=JANE, text="kept")
    assert telegram.texts(JANE) == ["kept"]


async def test_answers_are_slow_or_never_sent(telegram: FakeTelegram, client: Client) -> None:
    telegram.fault("slow", "getMe", seconds=0.2)
    begin = time.monotonic()
    await client("getMe")
    assert time.monotonic() - begin >= 0.2
    telegram.set_latency(0.1)
    begin = time.monotonic()
    await client("getMe")
    assert time.monotonic() - begin >= 0.1
    telegram.fault("hang", "sendMessage", after=True)
    hangs = asyncio.create_task(client("sendMessage", chat_id=JANE, text="kept"))
    await until(lambda: telegram.texts(JANE) == ["kept"])
    assert not hangs.done()
    hangs.cancel()
    await asyncio.wait({hangs})


async def test_updates_stay_until_the_offset_confirms_them(telegram: FakeTelegram, client: Client) -> None:
    telegram.send("one")
    telegram.send("two")
    first, second = await client.poll()
    assert [u["update_id"] for u in await client.poll()] == [first["update_id"], second["update_id"]]
    assert await client.poll(first["update_id"] + 1) == [second]
    assert await client.poll(second["update_id"] + 1) == []
    assert telegram.waiting() == 0
    telegram.redeliver(first)
    assert await client.poll(second["update_id"] + 1) == [first]
    poison = telegram.poison()
    assert [u["update_id"] for u in await client.poll(second["update_id"] + 1)] == [poison]
    telegram.send("three")
    telegram.send("four")
    assert [u["message"]["text"] for u in await client.poll(-1)] == ["four"]


async def test_a_lost_answer_to_a_poll_does_not_lose_updates(telegram: FakeTelegram, client: Client) -> None:
    telegram.send("one")
    telegram.fault("drop", "getUpdates", after=True)
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.poll()
    assert [u["message"]["text"] for u in await client.poll()] == ["one"]
    assert [len(delivery.at) for delivery in telegram.deliveries(JANE)] == [2]


async def test_a_long_poll_waits_and_a_second_poller_ends_it(telegram: FakeTelegram, client: Client) -> None:
    waiting = asyncio.create_task(client.poll(timeout=60))
    await until(telegram.poll_count)
    telegram.send("hi")
    assert [u["message"]["text"] for u in await waiting] == ["hi"]
    older = asyncio.create_task(client("getUpdates", offset=10**9, timeout=60))
    await until(lambda: telegram.poll_count() == 2)
    newer = asyncio.create_task(client("getUpdates", offset=10**9, timeout=0.2))
    status, body = await older
    assert status == 409
    assert body["description"].startswith("Conflict: terminated by other getUpdates request")
    assert (await newer)[0] == 200


async def test_only_the_requested_kinds_of_updates_are_sent(telegram: FakeTelegram, client: Client) -> None:
    telegram.membership(JANE, "member")
    telegram.send("hi")
    _, body = await client("getUpdates", allowed_updates=["message"])
    assert [set(u) - {"update_id"} for u in body["result"]] == [{"message"}]


async def test_calls_that_are_too_fast_are_refused(telegram: FakeTelegram, client: Client) -> None:
    telegram.enforce_rates()
    answers = [await client("sendMessage", chat_id=JANE, text=f"{n}") for n in range(5)]
    assert [status for status, _ in answers] == [200, 200, 200, 429, 429]
    assert answers[-1][1]["parameters"]["retry_after"] >= 1
    assert telegram.refused() == 2
    assert telegram.texts(JANE) == ["0", "1", "2"]
    others = [await client("sendChatAction", chat_id=JANE, action="typing") for _ in range(5)]
    assert {status for status, _ in others} == {200}


async def test_a_group_allows_twenty_calls_a_minute_and_the_bot_thirty_a_second(
    telegram: FakeTelegram, client: Client
) -> None:
    telegram.enforce_rates()
    assert telegram.rates
    telegram.rates.chat = (1000, 1000)
    telegram.chat(GROUP)
    in_group = [(await client("sendMessage", chat_id=GROUP, text=f"{n}"))[0] for n in range(24)]
    assert in_group.count(200) in (20, 21, 22)
    for chat in range(100, 200):
        telegram.chat(chat)
    overall = await asyncio.gather(*(client("sendMessage", chat_id=chat, text="x") for chat in range(100, 200)))
    assert [status for status, _ in overall].count(429) > 40


async def test_an_upload_that_is_cut_off_leaves_no_file_open() -> None:
    """One that is garbage fails this test by its ResourceWarning."""
    async with FakeTelegram() as telegram:
        _reader, writer = await asyncio.open_connection("127.0.0.1", telegram.port)
        head = f"POST /bot{TOKEN}/sendDocument HTTP/1.1\r\nHost: t\r\nContent-Length: {60 << 20}\r\n"
        part = 'Content-Disposition: form-data; name="document"; filename="a"'
        writer.write(f"{head}Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n{part}\r\n\r\n".encode())
        writer.write(bytes(32 << 20))
        await writer.drain()  # the server has most of it
        writer.transport.abort()
    gc.collect()


async def test_a_call_may_be_json_form_multipart_or_query(
    telegram: FakeTelegram, session: aiohttp.ClientSession
) -> None:
    url = f"{telegram.base_url}/bot{TOKEN}/sendMessage"
    bold = [{"type": "bold", "offset": 0, "length": 2}]
    text_entities = {"text": "hi", "entities": json.dumps(bold)}
    parts = aiohttp.FormData({"chat_id": str(JANE), **text_entities}, default_to_multipart=True)
    form = {"chat_id": str(JANE), **text_entities}
    as_json = session.post(url, json={"chat_id": JANE, "text": "hi", "entities": bold})
    ways = [as_json, session.post(url, data=form), session.post(url, data=parts), session.get(url, params=form)]
    for way in ways:
        async with way as response:
            assert (await response.json())["result"]["entities"] == bold
    assert telegram.texts(JANE) == ["hi"] * 4


async def test_chance_is_seeded(telegram: FakeTelegram, client: Client) -> None:
    telegram.fault("error", "getMe", times=-1, chance=0.5)
    statuses = [(await client("getMe"))[0] for _ in range(40)]
    assert 8 < statuses.count(500) < 32


async def test_wait_sees_edited_texts(telegram: FakeTelegram, client: Client) -> None:
    waiting = asyncio.create_task(telegram.wait(JANE, "done"))
    _, sent = await client("sendMessage", chat_id=JANE, text="working")
    await client("editMessageText", chat_id=JANE, message_id=sent["result"]["message_id"], text="all done")
    assert (await waiting).text == "all done"
    with pytest.raises(TimeoutError, match="all done"):
        await telegram.wait(JANE, "never", seconds=0.05)


async def test_a_fake_runs_in_its_own_thread(session: aiohttp.ClientSession) -> None:
    with FakeTelegram().in_thread() as telegram:
        client = Client(session, telegram.base_url)
        poll = asyncio.create_task(client.poll(timeout=60))
        await until(telegram.poll_count)
        telegram.send("hi")
        assert [u["message"]["text"] for u in await poll] == ["hi"]
        waiting = asyncio.create_task(telegram.wait(JANE, "hello"))
        await asyncio.sleep(0)
        await client("sendMessage", chat_id=JANE, text="hello")
        assert (await waiting).by_bot


async def test_a_fake_runs_in_its_own_process(session: aiohttp.ClientSession) -> None:
    async with process("tests.fakes.telegram") as remote:
        client = Client(session, remote.base_url)
        await remote("send_document", name="a.csv", data=base64.b64encode(b"1,2").decode())
        await remote("fault", kind="flood", method="sendMessage", seconds=2)
        [update] = await client.poll()
        assert update["message"]["document"]["file_size"] == 3
        assert (await client("sendMessage", chat_id=JANE, text="x"))[0] == 429
        waiting = asyncio.create_task(remote("wait", chat=JANE, text="x"))
        assert (await client("sendMessage", chat_id=JANE, text="x"))[0] == 200
        assert (await waiting)["text"] == "x"
        assert [call["status"] for call in await remote("calls_of", method="sendMessage")] == [429, 200]
        with pytest.raises(ValueError, match="no button"):
            await remote("click", data="yes", message_id=2)
        with pytest.raises(ValueError, match="no control"):
            await remote("_answer")


async def test_a_server_that_is_away_refuses_connections_and_keeps_its_port(session: aiohttp.ClientSession) -> None:
    async with FakeTelegram() as telegram:
        client, port = Client(session, telegram.base_url), telegram.port
        await telegram.stop()
        with pytest.raises(aiohttp.ClientConnectorError):
            await client("getMe")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        await telegram.start()
        assert (telegram.port, (await client("getMe"))[0]) == (port, 200)
