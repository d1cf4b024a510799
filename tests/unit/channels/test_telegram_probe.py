"""The account probe, proxies, and two programs with one token."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Final
from agent.setting import Secret
from channels import telegram
from channels.base import Health, OutgoingFile, Refused
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.support.proxies import Proxy, front, relay, signed
from tests.support.recording_inbox import Box, Memory, Service
from tests.support.rigs.registry import TelegramRig, ready, until


async def test_the_account_is_named() -> None:
    async with FakeTelegram() as server:
        settings = telegram.TelegramSettings(Secret(TOKEN), server.base_url)
        assert await telegram.probe(settings) == "connected as @fawn_bot"
        for token in ("1:OTHER", "nonsense", ""):
            with pytest.raises(Refused, match="@BotFather"):
                await telegram.probe(replace(settings, token=Secret(token)))
        server.fault("error", "getMe", code=502)
        with pytest.raises(Refused, match=r"Telegram answered 502"):
            await telegram.probe(settings)
        server.fault("flood", "getMe", seconds=7)
        with pytest.raises(Refused, match=r"asked to retry after 7 s"):
            await telegram.probe(settings)
    with pytest.raises(Refused, match=r"cannot be reached.*`base_url`") as refusal:
        await telegram.probe(settings)
    assert TOKEN not in repr(refusal.value)
    with pytest.raises(Refused, match=r"cannot be reached.*`proxy`"):
        await telegram.probe(replace(settings, proxy="http://127.0.0.1:9"))


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1080", "SOCKS4://x:1", "127.0.0.1:3128"])
async def test_an_unsupported_kind_of_proxy_is_refused_with_a_reason(proxy: str) -> None:
    settings = telegram.TelegramSettings(Secret(TOKEN), proxy=proxy)
    with pytest.raises(Refused, match=r"`proxy` takes http://"):
        await telegram.probe(settings)
    with pytest.raises(Refused, match=r"`proxy` takes http://"):
        async with telegram.connect(settings):
            pass


async def test_all_connections_use_the_proxy_and_trust_the_certificate(tmp_path: Path) -> None:
    pem, proxy, box = signed(tmp_path), Proxy(), Box()
    async with FakeTelegram() as server, front(server.port, pem) as https, relay(proxy) as port:
        url = f"https://localhost:{https}"
        way = f"http://user:secret@127.0.0.1:{port}"
        settings = telegram.TelegramSettings(Secret(TOKEN), url, proxy=way, ca_file=str(pem), poll_seconds=5.0)
        assert "secret" not in repr(settings)
        assert await telegram.probe(settings) == "connected as @fawn_bot"
        with pytest.raises(Refused, match="cannot be reached"):
            await telegram.probe(replace(settings, ca_file=""))
        asked = len(proxy.asked)
        service = Service(lambda: telegram.connect(settings), box)
        await service.begin()
        server.send_document("a.txt", b"data")
        message = await box.next()
        channel = service.channel
        assert b"".join([chunk async for chunk in channel.fetch(message.attachments[0])]) == b"data"
        await channel.reply(message.thread, Memory()).finish(Final("Seen."))
        path = tmp_path / "copy"
        path.write_bytes(b"more")
        await channel.send_files(message.thread, [OutgoingFile(path, "b.txt", 4)], Memory("f1"))
        assert [(shown.text, shown.file_name) for shown in server.visible(42)] == [("Seen.", ""), ("", "b.txt")]
        await service.end()
        assert set(proxy.asked) == {f"localhost:{https}"}
        assert len(proxy.asked) > asked


@pytest.mark.slow
async def test_the_second_program_with_a_token_stands_by_and_takes_over(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path) as first:
        await ready(first)
        await asyncio.sleep(1.6)  # in peace for long enough to insist
        settings = telegram.TelegramSettings(Secret(TOKEN), first.server.base_url, poll_seconds=5.0)
        box = Box()
        second = Service(lambda: telegram.connect(settings), box)
        await second.begin()
        try:
            await until(lambda: second.channel.readiness().health is Health.DOWN)
            assert "standing by" in second.channel.readiness().detail
            for number in range(12):  # while it checks whether the first one has gone
                await first.say(f"who answers {number}?")
                await asyncio.sleep(0.5)
                assert first.channel.readiness().health is Health.READY
            assert second.channel.readiness().health is Health.DOWN
            assert box.messages == []
            await first.leave()
            first.mutter("and now?")
            await until(lambda: box.messages, what="the takeover")
            assert box.messages[0].text == "and now?"
            await until(lambda: second.channel.readiness().health is Health.READY)
            assert len(box.messages) == 1
        finally:
            await second.end()


@pytest.mark.slow
async def test_another_program_that_keeps_polling_is_reported_until_it_stops(tmp_path: Path) -> None:
    async with TelegramRig.start(tmp_path) as rig:
        await ready(rig)
        rig.server.fault("error", "getUpdates", code=409, times=3)
        rig.mutter("wake the poll")
        await until(lambda: rig.channel.readiness().health is Health.DOWN)
        assert "standing by" in rig.channel.readiness().detail
        rig.server.clear_faults()
        await ready(rig)
        assert (await rig.box.next()).text == "wake the poll"
        assert (await rig.say("after it")).text == "after it"
