"""Discord's limit of calls per second, and the room that streams leave in it for finals."""

from __future__ import annotations

import asyncio

from channels.discord.call_window import CallWindow


async def test_streams_leave_room_for_the_finals_of_all_open_replies() -> None:
    """discord.com/developers/docs/topics/rate-limits#global-rate-limit: 50 calls a second."""
    window = CallWindow(45.0)
    for reply in range(50):
        window.open_reply(reply)
    edit = asyncio.create_task(window.wait_for_stream(0))
    for reply in range(50):  # the finals
        final = asyncio.create_task(window.wait())
        await asyncio.sleep(0)
        assert final.done()
        window.close_reply(reply)
    late = asyncio.create_task(window.wait())
    await asyncio.sleep(0)
    assert not any(task.done() for task in (late, edit))
    await asyncio.gather(late, edit)  # as soon as the finals are a second old


async def test_a_reply_without_an_update_for_long_is_updated_although_there_is_no_room() -> None:
    window = CallWindow(45.0)
    for reply in range(100):
        window.open_reply(reply)
    await window.wait_for_stream("a reply that was never updated")


async def test_a_few_replies_stream_at_once() -> None:
    window = CallWindow(45.0)
    for reply in range(5):
        window.open_reply(reply)
    for _ in range(9):
        edit = asyncio.create_task(window.wait_for_stream(0))
        await asyncio.sleep(0)
        assert edit.done()
        await window.wait()
