"""Channel startup refuses unusable settings before any call."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agent.setting import Secret
from channels import discord, feishu, slack, telegram
from channels.base import Refused

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
