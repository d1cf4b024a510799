"""Contract of every platform: a process that may not act any more makes no call, whatever it was about to do.

A paused process wakes up in the middle of something: after it has recorded a post, after a look into the history, or
between two edits. Others have what it held by then.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.blocks import Final, Text
from channels.base import ChannelError, Fenced, OutgoingFile, Unattended
from tests.support.recording_inbox import Memory
from tests.support.rigs.platform import FakeRig
from tests.support.rigs.registry import RIGS, Rig, settled

LOCAL = ("console", "web")  # the first is in the process itself, what the other writes is in the database
PLATFORMS = sorted(name for name, kind in RIGS.items() if issubclass(kind, FakeRig) and not name.startswith(LOCAL))


class Pausing(Memory):
    """Remembers a post as any other, and `paused` says whether the process was paused right after it."""

    paused = False

    async def sending(self, index: int, handle: str = "") -> None:
        await super().sending(index, handle)
        self.paused = True


@pytest.mark.parametrize("rig", PLATFORMS, indirect=True)
async def test_a_process_that_was_paused_before_a_post_does_not_post(rig: Rig) -> None:
    assert isinstance(rig.channel, Fenced)
    posts = Pausing()
    rig.channel.fence(lambda: not posts.paused)
    reply = rig.channel.reply(rig.thread(), posts)
    with pytest.raises(Unattended):
        await reply.finish(Final("Said twice."))
    assert posts.paused
    assert rig.visible() == []
    rig.channel.fence(lambda: True)
    await reply.finish(Final("Said once."))
    assert sum("Said once." in text for text in await _texts(rig, "Said once.")) == 1


@pytest.mark.parametrize("rig", PLATFORMS, indirect=True)
async def test_a_process_that_was_paused_between_two_edits_changes_nothing(rig: Rig) -> None:
    if "edits" not in rig.can:
        pytest.skip("nothing is edited there")
    assert isinstance(rig.channel, Fenced)
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("Half"))
    await settled(rig, "Half")
    rig.channel.fence(lambda: False)
    with pytest.raises(Unattended):
        await reply.finish(Final("What another process has replaced."))
    assert "replaced" not in "".join(rig.visible())


@pytest.mark.parametrize("rig", PLATFORMS, indirect=True)
async def test_a_channel_that_is_closed_posts_nothing(rig: Rig) -> None:
    """A process ends while something still wants to say that it cannot store a message."""
    await rig.channel.close()  # type: ignore[attr-defined]  # as `connect` does at its end
    with pytest.raises(ChannelError):
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("Said by nobody."))
    assert rig.visible() == []


@pytest.mark.parametrize("rig", PLATFORMS, indirect=True)
async def test_nor_does_it_send_a_file(rig: Rig, tmp_path: Path) -> None:
    if "uploads" not in rig.can:
        pytest.skip("no files are sent there")
    assert isinstance(rig.channel, Fenced)
    rig.channel.fence(lambda: False)
    (path := tmp_path / "a.csv").write_text("1,2,3\n")
    before = rig.wire.count("post")
    with pytest.raises(Unattended):
        await rig.channel.send_files(rig.thread(), [OutgoingFile(path, "a.csv", 6, "")], Memory())
    assert rig.wire.count("post") == before


async def _texts(rig: Rig, text: str) -> list[str]:
    await settled(rig, text)
    return rig.visible()
