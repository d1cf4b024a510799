"""Channel startup refuses unusable settings before any call; a token that is rejected later is a fault."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agent.setting import Secret
from channels import discord, feishu, slack, telegram
from channels.base import ChannelError, Health, OutcomeUnknown, Readiness, Refused, TokenRejected, TryLater
from channels.shared.http_client import TokenState

SETTINGS: list[Any] = [
    discord.DiscordSettings(Secret("x")),
    feishu.FeishuSettings("cli_x", Secret("x")),
    slack.SlackSettings(Secret("xoxb-x"), Secret("xapp-x")),
    telegram.TelegramSettings(Secret("1:x")),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: type(settings).__module__)
async def test_an_invalid_ca_file_is_reported(settings: Any, tmp_path: Path) -> None:
    channel = import_module(type(settings).__module__)
    (tmp_path / "none.pem").write_text("no certificate\n")
    for name in ("none.pem", "nowhere.pem"):
        wrong = replace(settings, ca_file=str(tmp_path / name))
        with pytest.raises(Refused, match="`ca_file` cannot be used"):
            await channel.probe(wrong)
        with pytest.raises(Refused, match="`ca_file` cannot be used"):
            async with channel.connect(wrong):
                pass


@pytest.mark.parametrize(
    ("answers", "is_rejected"),
    [
        ([TokenRejected("revoked")], True),
        ([TokenRejected("revoked"), None], False),
        ([TokenRejected("revoked"), Refused("no such message")], False),
        ([TokenRejected("revoked"), TryLater("502")], True),
        ([TokenRejected("revoked"), OutcomeUnknown("504")], True),
        ([None, TokenRejected("revoked")], True),
        ([Refused("no such message")], False),
    ],
    ids=repr,
)
def test_the_latest_answer_says_whether_the_platform_takes_the_token(
    answers: list[ChannelError | None], is_rejected: bool
) -> None:
    state = TokenState()
    for answer in answers:
        with suppress(ChannelError), state.watch():
            if answer:
                raise answer
    assert bool(state.fault) is is_rejected
    known = Readiness(Health.READY, 1.0, "@fawn").with_fault(state.fault, state.since)
    assert known.health is (Health.DOWN if is_rejected else Health.READY)
