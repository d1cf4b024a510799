"""Feishu's long connection with the real SDK in its process: storage, supervision, proxies, probe."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent.blocks import Final
from agent.messages import Kind
from agent.setting import Secret
from channels import feishu
from channels.base import Channel, CommandInfo, Health, Receipt, Refused, TryLater
from channels.feishu import sdk_process as feishu_process
from channels.feishu.connection import PROGRAM, FeishuConnection
from channels.feishu.setup import OPTIONAL_SCOPES, REQUIRED_SCOPES
from channels.shared.inbound import LANES
from tests.fakes.feishu import APP, DIRECT, KIM, SECRET, FakeFeishu
from tests.fakes.feishu_world import guide_scopes
from tests.fakes.server import until
from tests.support.proxies import BehindTls, Proxy, front, relay, signed
from tests.support.recording_inbox import Box, Memory, listening
from tests.support.rigs.feishu import FeishuRig
from tests.support.rigs.registry import ready


class ProcessRig(FeishuRig):
    """With the program of the service: an interpreter of its own."""

    connect = staticmethod(feishu.connect)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[FeishuRig]:
    async with ProcessRig.start(tmp_path) as made:
        await ready(made)
        yield made


@asynccontextmanager
async def connected(server: FakeFeishu, box: Box | None = None, **settings: Any) -> AsyncIterator[tuple[Channel, Box]]:
    """A channel that listens."""
    given: dict[str, Any] = {"app_id": APP, "app_secret": Secret(SECRET), "domain": server.base_url, **settings}
    box = box or Box()
    async with feishu.connect(feishu.FeishuSettings(**given)) as channel, listening(channel, box):
        yield channel, box


async def test_a_cancellation_while_an_event_arrives_is_not_swallowed() -> None:
    lines = asyncio.StreamReader()
    link = FeishuConnection(feishu.FeishuSettings(APP, Secret(SECRET)), lambda away: None)

    async def read() -> None:
        async for _ in link._read_events(lines):
            pass

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    lines.feed_data(b'{"state": "up"}\n')
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait({reading}, timeout=60)
    assert reading.cancelled()


class Held(Box):
    """An inbox whose disk does not respond until it is released, and then writes in the order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[str] = []
        self.free, self._turn = asyncio.Event(), asyncio.Lock()

    async def receive(self, batch: Any) -> list[Receipt]:
        self.waiting += [event.text for event in batch]
        async with self._turn:
            await self.free.wait()
            return await super().receive(batch)


def down(channel: Channel) -> str:
    """Return the readiness detail while the channel is down."""
    known = channel.readiness()
    return known.detail if known.health is Health.DOWN else ""


def processes() -> list[int]:
    """Return the SDK processes among our children (not by `ps`, which truncates long paths if COLUMNS is set)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            ours = f"\nPPid:\t{os.getpid()}\n" in (entry / "status").read_text()
            if ours and b"feishu/sdk_process.py" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


# ---------------------------------------------------------------- events


async def test_an_event_of_an_unknown_type_is_acknowledged_once(rig: FeishuRig) -> None:
    rig.server.events.add("something.new_v9")  # an operator subscribed to more than the guide says
    event = rig.server.deliver(rig.server.event("something.new_v9", {"x": 1}))
    await until(lambda: rig.server.acknowledged(event))
    assert len(rig.server.pushed[event].at) == 1
    assert not rig.box.events


async def test_a_fragmented_event_is_joined(rig: FeishuRig) -> None:
    rig.server.fragments = 3
    text = "语" * 5000
    assert (await rig.say(text)).text == text


async def test_an_event_that_could_not_be_stored_is_read_from_the_history_later(rig: FeishuRig) -> None:
    await rig.say("before")
    rig.server.retries = ()  # the platform gives up at once
    rig.box.broken = True
    rig.mutter("lost")
    event = list(rig.server.pushed)[-1]
    await until(lambda: rig.server.pushed[event].answers)
    assert rig.server.pushed[event].answers == [{"code": 500}]
    rig.box.broken = False
    await rig.say("after")
    await until(lambda: len(rig.box.messages) == 3, what="the lost one")
    assert [message.text for message in rig.box.messages] == ["before", "after", "lost"]
    assert not rig.server.acknowledged(event)


async def test_concurrent_events_are_offered_together_and_stored_in_order() -> None:
    box, texts = Held(), [str(number) for number in range(30)]
    async with FakeFeishu() as server, connected(server, box) as (channel, _):
        server.patience = 20.0
        await until(lambda: channel.readiness().health is Health.READY)
        box.free.set()
        server.send("hello", chat="oc_0", mention=True)  # the author's name is known from here on
        await until(lambda: len(box.messages) == 1, what="the first one")
        box.free.clear()
        for text in texts:
            server.send(text, chat=f"oc_{int(text) % 3}", mention=True)
        await until(lambda: len(box.waiting) >= 1 + LANES, what="one in each lane, though none is stored")
        box.free.set()
        await until(lambda: all(map(server.acknowledged, server.pushed)))
    assert box.waiting == ["hello", *texts]
    assert [message.text for message in box.messages] == ["hello", *texts]
    assert [len(event.answers) for event in server.pushed.values()] == [1] * (1 + len(texts))


async def test_nobody_overtakes_the_message_of_somebody_who_is_looked_up(rig: FeishuRig) -> None:
    await rig.say("hello", 7)  # Jane is known from here on
    rig.server.fault("slow", "user", seconds=0.5)
    rig.mutter("first", 7, by=KIM)
    await until(lambda: len([call for call in rig.server.calls if call.method == "user"]) == 2)
    rig.mutter("second", 7)
    rig.mutter("elsewhere", 8)
    await until(lambda: len(rig.box.messages) == 4)
    assert [message.text for message in rig.box.messages] == ["hello", "elsewhere", "first", "second"]


# Case 59 of docs/cases.md
@pytest.mark.slow
async def test_a_slow_store_keeps_the_event_once() -> None:
    box = Held()
    async with FakeFeishu() as server, connected(server, box):
        server.patience = 3.2
        server.send("slowly")
        [event] = server.pushed
        await until(lambda: server.pushed[event].answers, what="the answer that it was not stored in time")
        assert server.pushed[event].answers == [{"code": 500}]
        box.free.set()
        await until(lambda: server.acknowledged(event))
    assert box.receipts == [Receipt.ACCEPTED, Receipt.DUPLICATE]


async def test_a_process_that_dies_during_an_event_is_restarted() -> None:
    box = Held()
    async with FakeFeishu() as server, connected(server, box) as (channel, _):
        server.send("begun")
        await until(lambda: box.waiting)
        [pid] = processes()
        os.kill(pid, signal.SIGKILL)
        await until(lambda: "ended" in down(channel), what="the death to be noticed")
        box.free.set()
        assert (await box.next()).text == "begun"
        await until(lambda: channel.readiness().health is Health.READY)
        await until(lambda: all(map(server.acknowledged, server.pushed)))
        assert [message.text for message in box.messages] == ["begun"]


def settings_of(rig: FeishuRig) -> feishu.FeishuSettings:
    return feishu.FeishuSettings(app_id=APP, app_secret=Secret(SECRET), domain=rig.server.base_url)


# ---------------------------------------------------------------- supervision


async def test_the_sdk_is_loaded_in_another_process_only(rig: FeishuRig) -> None:
    await rig.say("hello")
    assert not [name for name in sys.modules if name.partition(".")[0] == "lark_oapi"]
    [pid] = processes()
    arguments = await asyncio.to_thread(Path(f"/proc/{pid}/cmdline").read_bytes)
    environment = await asyncio.to_thread(Path(f"/proc/{pid}/environ").read_bytes)
    assert SECRET.encode() not in arguments + environment


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_the_sdk_loads_with_and_without_its_generated_modules(whole: bool) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(feishu_process.__file__).parents[2])!r})\n"
        f"from channels.feishu.sdk_process import load_sdk_module; client = load_sdk_module({whole}).Client\n"
        "print(client.__module__, len([name for name in sys.modules if name.startswith('lark_oapi.api')]))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    module, count = done.stdout.split()
    assert module == "lark_oapi.ws.client"
    assert (int(count) > 1000) is whole


# Case 64 of docs/cases.md
@pytest.mark.slow
async def test_a_hanging_process_is_detected(rig: FeishuRig) -> None:
    [pid] = processes()
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: "silent" in down(rig.channel))
    os.kill(pid, signal.SIGCONT)
    await ready(rig)
    assert (await rig.say("again")).text == "again"


@pytest.mark.slow
async def test_an_endpoint_that_refuses_while_reconnecting_does_not_end_it(rig: FeishuRig) -> None:
    rig.server.endpoint_error = 1000040350  # the SDK alone would never try again
    rig.server.abort()
    await until(lambda: "too many" in down(rig.channel))
    rig.server.endpoint_error = 1
    await until(lambda: "busy" in down(rig.channel))
    rig.server.endpoint_error = 0
    await ready(rig)
    assert (await rig.say("back")).text == "back"


async def test_without_the_permission_the_history_is_skipped_with_a_log_line(
    rig: FeishuRig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.say("before")
    await rig.leave()
    rig.mutter("missed")
    rig.server.denied.add("message.list")
    await rig.back()
    await rig.say("after")
    assert [message.text for message in rig.box.messages] == ["before", "after"]
    await until(lambda: "feishu.no_catch_up" in caplog.text)


async def test_closing_the_channel_ends_the_process(rig: FeishuRig) -> None:
    assert processes()
    await rig.leave()
    assert not processes()


async def test_the_process_ends_when_its_parent_has_died(tmp_path: Path) -> None:
    async with FakeFeishu() as server:
        words = {"app_id": APP, "app_secret": SECRET, "domain": server.base_url, "proxy": "", "ca_file": ""}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", feishu_process.__file__, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin
        assert process.stdout
        process.stdin.write(orjson.dumps(words) + b"\n")
        await until(lambda: server.sockets)
        process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined] # nobody reads any more
        await asyncio.wait_for(process.wait(), 60)


async def test_a_wrong_secret_is_reported_until_it_is_corrected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeFeishu() as server, connected(server, app_secret=Secret("wrongSecretOfTheApp")) as (channel, _):
        await until(lambda: "secret" in down(channel))
        assert "developer console" in down(channel)
        with pytest.raises(TryLater) as told:
            await channel.reply(
                FeishuRig(server, feishu.FeishuSettings(APP, Secret(SECRET))).thread(), Memory()
            ).finish(Final("x"))
        assert "wrongSecretOfTheApp" not in f"{caplog.text} {told.value!r} {channel.readiness()}"


async def test_an_expired_token_is_replaced(rig: FeishuRig) -> None:
    tokens = rig.server.token_calls
    rig.server.expire()
    replies = [rig.channel.reply(rig.thread(), Memory(f"r{number}")) for number in range(5)]
    await asyncio.gather(*(reply.finish(Final("Here.")) for reply in replies))
    assert rig.visible() == ["Here."] * 5
    assert rig.server.token_calls == tokens + 1


@pytest.mark.slow
async def test_secret_and_token_are_not_in_logs_or_errors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with ProcessRig.start(tmp_path, proxy="") as rig:
        await ready(rig)
        told: list[BaseException] = []
        for kind in ("drop", "error", "flood"):
            rig.server.fault(kind, "message.send", times=2)
            with pytest.raises(Exception) as raised:
                await rig.channel.reply(rig.thread(), Memory()).finish(Final("x"))
            told.append(raised.value)
        await rig.wire.stop()
        await until(lambda: down(rig.channel))
        said = "\n".join([caplog.text, down(rig.channel), *map(repr, told), repr(settings_of(rig))])
        assert SECRET not in said
        assert rig.server.token not in said


# ---------------------------------------------------------------- proxies and certificates


class SecureFeishu(BehindTls, FakeFeishu):
    """A Feishu behind TLS."""


async def test_all_connections_use_the_proxy_and_trust_the_certificate(tmp_path: Path) -> None:
    pem, proxy = await asyncio.to_thread(signed, tmp_path), Proxy()
    async with SecureFeishu() as server, front(server.port, pem) as https, relay(proxy) as port:
        server.https = https
        server.socket_host = f"wss://localhost:{https}"
        options: dict[str, Any] = {"proxy": f"http://user:secret@127.0.0.1:{port}", "ca_file": str(pem)}
        settings = feishu.FeishuSettings(APP, Secret(SECRET), domain=server.base_url, **options)
        assert "user:secret" not in repr(settings)
        assert (await feishu.probe(settings)).startswith("connected as Fawn")
        asked_by_calls = len(proxy.asked)
        async with connected(server, **options) as (channel, box):
            await until(lambda: channel.readiness().health is Health.READY)
            assert len(proxy.asked) - asked_by_calls >= 3  # the channel's calls, the SDK's endpoint and socket
            server.upload("a.csv", b"a,b")
            [file] = (await box.next()).attachments
            assert b"".join([chunk async for chunk in channel.fetch(file)]) == b"a,b"
            await channel.reply((await box.next()).thread, Memory()).finish(Final("Through."))
            assert server.visible(DIRECT) == ["Through."]
        assert set(proxy.asked) == {f"localhost:{https}"}
        async with connected(server, ca_file="") as (channel, _):
            await until(lambda: "cannot be reached" in down(channel))


# ---------------------------------------------------------------- fawn check


async def test_the_probe_reports_what_is_wrong() -> None:
    async with FakeFeishu() as server:
        good = {"app_id": APP, "app_secret": Secret(SECRET), "domain": server.base_url}

        async def probed(**changes: Any) -> str:
            try:
                return await feishu.probe(feishu.FeishuSettings(**{**good, **changes}))
            except Refused as refusal:
                return f"refused: {refusal}"

        assert await probed() == "connected as Fawn"
        assert "rejects the app's id or secret" in await probed(app_secret=Secret("wrong"))
        assert "rejects the app's id or secret" in await probed(app_id="cli_other")
        assert "Check `domain`" in await probed(domain="http://127.0.0.1:1")
        assert "Check `domain`" in await probed(domain="nonsense")
        server.scopes.remove("cardkit:card:write")
        assert await probed() == "connected as Fawn, without the permissions cardkit:card:write (streaming)"
        server.scopes.remove("im:message")
        assert await probed() == "refused: The app lacks the permissions im:message: add them and publish a version."
        server.scopes |= guide_scopes()
        server.endpoint_error = 1000040343
        assert "long connection" in await probed()
        server.endpoint_error = 0
        server.denied.add("bot")
        assert "Bot capability" in await probed()


@pytest.mark.parametrize("known", [True, False])
async def test_an_entry_of_the_menu_is_a_command_in_the_direct_chat(rig: FeishuRig, known: bool) -> None:
    """The event names the person, but not the chat."""
    await rig.channel.announce([CommandInfo("status", "What I do")])
    if known:
        await rig.say("hello")
    rig.server.choose("status")
    command = await rig.box.next(kind=Kind.COMMAND)
    assert (command.text, command.private, command.thread.chat) == ("status", True, DIRECT)
    assert rig.visible() == ([] if known else ["/status"])
    assert {call.status for call in rig.server.calls} == {200}


def test_the_undocumented_names_of_the_sdk_are_where_they_were() -> None:
    """channels/feishu/sdk_process.py uses them; pyproject.toml binds the minor version."""
    program = f"""
import importlib.metadata, inspect, runpy
assert importlib.metadata.version("lark-oapi").startswith("1.7."), "another minor version"
ws = runpy.run_path({PROGRAM[-1]!r})["load_sdk_module"]()
assert len(inspect.signature(ws._ws_connect_kwargs).parameters) == 1
assert callable(ws.JSON.marshal) and ws.Response(code=200).code == 200 and hasattr(ws, "loop")
client = ws.Client(app_id="a", app_secret="b", domain="http://127.0.0.1:9", auto_reconnect=False)
assert client._conn is None and client._ping_interval > 0
for name in ("_connect", "_ping_loop", "_write_message", "_handle_control_frame", "_handle_data_frame"):
    assert inspect.iscoroutinefunction(getattr(client, name)), name
assert len(inspect.signature(client._combine).parameters) == 4
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=180)


def test_the_guide_asks_for_the_permissions_that_the_probe_checks() -> None:
    assert guide_scopes() == {*REQUIRED_SCOPES, *OPTIONAL_SCOPES}


def test_both_domains_have_their_urls() -> None:
    assert feishu.FeishuSettings("cli", Secret("s")).base_url == "https://open.feishu.cn"
    assert feishu.FeishuSettings("cli", Secret("s"), domain="lark").base_url == "https://open.larksuite.com"
    assert feishu.FeishuSettings("cli", Secret("s"), domain="https://open.acme.cn/").base_url == "https://open.acme.cn"
