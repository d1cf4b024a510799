"""Every channel's rig by name, and helpers that all channel tests share."""

from __future__ import annotations

import asyncio

import pytest

from agent.blocks import Final
from agent.messages import Message
from channels.base import Health, OutcomeUnknown, TryLater
from tests.fakes.server import until
from tests.support.recording_inbox import Box, Memory, listening
from tests.support.rigs.base import ABILITIES, Rig
from tests.support.rigs.console import ConsoleRig
from tests.support.rigs.dingtalk import DingTalkMarkdownRig, DingTalkRig
from tests.support.rigs.discord import DiscordRig
from tests.support.rigs.feishu import FeishuRig
from tests.support.rigs.matrix import EncryptedMatrixRig, MatrixRig
from tests.support.rigs.slack import SlackRig
from tests.support.rigs.telegram import TelegramRig
from tests.support.rigs.web import WebRig
from tests.support.rigs.wechat import WeChatRig
from tests.support.rigs.wecom import WeComRig
from tests.support.rigs.whatsapp import WhatsAppRig

__all__ = ["RIGS", "Box", "ConsoleRig", "Memory", "Rig", "TelegramRig", "deliver", "demanded", "listening", "until"]

RIGS: dict[str, type[Rig]] = {
    "console": ConsoleRig,
    "dingtalk": DingTalkRig,
    "dingtalk-markdown": DingTalkMarkdownRig,
    "discord": DiscordRig,
    "feishu": FeishuRig,
    "matrix": MatrixRig,
    "matrix-encrypted": EncryptedMatrixRig,
    "slack": SlackRig,
    "telegram": TelegramRig,
    "web": WebRig,
    "wechat": WeChatRig,
    "wecom": WeComRig,
    "whatsapp": WhatsAppRig,
}

DEMANDED: set[str] = set()  # the abilities that some test of the contract demands


def demanded(*abilities: str) -> pytest.MarkDecorator:
    """Parametrize a test with every channel whose platform has this ability."""
    assert ABILITIES.keys() >= set(abilities)
    DEMANDED.update(abilities)
    able = [name for name, kind in sorted(RIGS.items()) if kind.can.issuperset(abilities)]
    return pytest.mark.parametrize("rig", able, indirect=True)


async def ready(rig: Rig) -> None:
    """Wait until the channel reports ready."""
    await until(lambda: rig.channel.readiness().health is Health.READY, what="readiness")


async def heard(rig: Rig, text: str, topic: int = 0) -> Message:
    """A person writes this to the bot; returns the received message, whatever else arrived before."""
    rig.mutter(text, topic, mention=True)
    await until(lambda: any(message.text == text for message in rig.box.messages), what=text)
    return next(message for message in rig.box.messages if message.text == text)


async def settled(rig: Rig, text: str, topic: int = 0) -> str:
    """Return everything visible, as soon as it contains `text`."""
    await until(lambda: text in "\n".join(rig.visible(topic)), what=text)
    return "\n".join(rig.visible(topic))


async def deliver(rig: Rig, final: Final, posts: Memory, topic: int = 0) -> int:
    """Deliver as the outbox does, with a new reply per attempt, until it is visible. Returns the attempts."""
    for tries in range(1, 60):
        reply = rig.channel.reply(rig.thread(topic), Memory(posts.key, posts.rows))
        try:
            await reply.finish(final)
        except TryLater as error:
            await asyncio.sleep(min(error.after, 2.0))
        except OutcomeUnknown:
            await asyncio.sleep(0)
        else:
            return tries
        finally:
            await reply.close()
    raise AssertionError("never delivered")
