"""What the platforms' API clients share: errors of the network, tokens, and memory of limited size."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from channels.base import OutcomeUnknown, TryLater
from channels.shared.access_token import AccessToken
from channels.shared.caches import ExpiringDict, LatestDict, TypingActions
from channels.shared.http_client import HttpClient, opened_file
from channels.shared.lifecycle import opened
from tests.fakes.server import until
from tests.support.ports import free_port


async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_an_unanswered_call_may_have_had_an_effect_unless_it_can_be_repeated() -> None:
    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/secret"
    async with server, opened(HttpClient("Chat", "", "")) as client:
        for method, repeatable, expected in (
            ("POST", False, OutcomeUnknown),
            ("POST", True, TryLater),
            ("GET", False, TryLater),
        ):
            with pytest.raises(expected, match=r"Chat did not answer \([\w ]+\)$"):
                async with client.request(method, url, repeatable=repeatable):
                    pass
    with pytest.raises(TryLater, match="closed"):
        async with client.request("GET", url):
            pass


async def test_a_call_that_was_not_sent_is_repeated() -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    async with opened(HttpClient("Chat", "", "")) as client:
        with pytest.raises(TryLater, match="Chat cannot be reached"):
            async with client.request("POST", url):
                pass


async def test_calls_share_a_token_until_the_platform_rejects_it() -> None:
    fetched: list[str] = []

    async def fetch() -> tuple[str, float]:
        await asyncio.sleep(0)
        fetched.append(f"token {len(fetched)}")
        return fetched[-1], 7200.0

    token = AccessToken(fetch, margin_seconds=600.0)
    first, second = await asyncio.gather(token.get(), token.get())
    assert first == second == "token 0"
    token.reject("token 0")
    assert await token.get() == "token 1"
    token.reject("token 0")  # by a call that was made before
    assert await token.get() == "token 1"


async def test_caches_drop_what_is_old() -> None:
    latest: LatestDict[str, int] = LatestDict(2)
    for key in "abac":
        latest[key] = ord(key)
    assert list(latest) == ["a", "c"]
    expiring: ExpiringDict[str, int] = ExpiringDict()
    expiring.set("past", 1, 0.0)
    expiring.set("present", 2, 60.0)
    assert ("past" in expiring, expiring.get("past"), expiring.pop("present"), expiring.get("present")) == (
        False,
        None,
        2,
        None,
    )


async def test_typing_is_sent_again_only_when_it_no_longer_shows() -> None:
    sent: list[str] = []

    async def send(place: str) -> None:
        sent.append(place)
        if len(sent) == 1:
            raise TryLater("busy")

    typing = TypingActions(60.0, send)
    with pytest.raises(TryLater):
        await typing.show("chat")
    for _ in range(2):
        await typing.show("chat")
    typing.forget("chat")
    await typing.show("chat")
    assert sent == ["chat"] * 3


async def test_a_file_that_is_opened_for_nobody_any_more_is_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")  # its reader opens when its writer does
    opening = asyncio.create_task(opened_file(tmp_path / "file").__aenter__())
    await asyncio.sleep(0)  # it is in its thread
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    writer = await asyncio.to_thread(os.open, tmp_path / "file", os.O_WRONLY)

    def has_reader() -> bool:
        try:
            return bool(os.write(writer, b"x"))
        except BrokenPipeError:
            return False

    await until(lambda: not has_reader())
    os.close(writer)
