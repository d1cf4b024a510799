"""Contract of every platform: a channel that does not listen, because another process does, still posts and edits."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from agent.blocks import Final, Text
from channels.base import ListenerPosts, StateKeeper
from tests.support.recording_inbox import Memory
from tests.support.rigs.platform import FakeRig
from tests.support.rigs.registry import RIGS, Rig, settled

LISTENERS = ("matrix", "wechat", "wecom")  # `ListenerPosts`: where one listens, only that one posts
POSTING = sorted(
    name for name, kind in RIGS.items() if issubclass(kind, FakeRig) and not name.startswith((*LISTENERS, "console"))
)


@pytest.mark.parametrize("rig", POSTING, indirect=True)
async def test_a_channel_that_does_not_listen_posts(rig: Rig) -> None:
    async with asyncio.timeout(60), cast(FakeRig, rig)._connect() as standby:
        if isinstance(standby, StateKeeper):
            standby.keep_state(rig.box)
        reply = standby.reply(rig.thread(), posts := Memory())
        reply.show(Text("Half"))
        await reply.finish(Final("Said by the other process."))
        await settled(rig, "Said by the other process.")
        again = standby.reply(rig.thread(), Memory(posts.key, posts.rows))
        await again.finish(Final("Said again."))
        await settled(rig, "Said again.")


@pytest.mark.parametrize("rig", LISTENERS, indirect=True)
async def test_a_channel_that_posts_only_where_it_listens_says_so(rig: Rig) -> None:
    assert isinstance(rig.channel, ListenerPosts)
    assert rig.channel.posts_by_listening
