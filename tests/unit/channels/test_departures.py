"""What each platform's answer about an account means: gone, there, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.base import AccountChecker
from tests.fakes.discord import JANE as JANE_IN_DISCORD
from tests.fakes.feishu import JANE as JANE_IN_FEISHU
from tests.fakes.slack import JANE as JANE_IN_SLACK
from tests.support.rigs.discord import DiscordRig
from tests.support.rigs.feishu import FeishuRig
from tests.support.rigs.registry import Rig, ready
from tests.support.rigs.slack import SlackRig


@pytest.fixture
async def discord(tmp_path: Path) -> AsyncIterator[DiscordRig]:
    async with DiscordRig.start(tmp_path) as rig:
        await ready(rig)
        yield rig


@pytest.fixture
async def feishu(tmp_path: Path) -> AsyncIterator[FeishuRig]:
    async with FeishuRig.start(tmp_path) as rig:
        await ready(rig)
        yield rig


@pytest.fixture
async def slack(tmp_path: Path) -> AsyncIterator[SlackRig]:
    async with SlackRig.start(tmp_path) as rig:
        await ready(rig)
        yield rig


async def gone(rig: Rig, person: str) -> bool | None:
    assert isinstance(rig.channel, AccountChecker)
    return await rig.channel.is_gone(person)


async def test_a_member_of_any_server_is_there_on_whatever_page_of_the_list(discord: DiscordRig) -> None:
    servers = [str(7_000_000_000_000_000 + number) for number in range(205)]
    for server in servers:
        discord.server.server(server)
    discord.depart(JANE_IN_DISCORD)
    discord.server.left.remove((servers[-1], JANE_IN_DISCORD))
    assert await gone(discord, JANE_IN_DISCORD) is False
    assert len(discord.server.calls_of("guilds")) >= 2


async def test_a_bot_in_no_server_knows_of_nobody(discord: DiscordRig) -> None:
    discord.server.guilds.clear()
    assert await gone(discord, JANE_IN_DISCORD) is None


@pytest.mark.parametrize(
    ("status", "is_gone"),
    [
        ({"is_resigned": True, "is_activated": False}, True),
        ({"is_frozen": True}, True),
        ({"is_exited": True}, True),
        ({"is_unjoin": True, "is_activated": False}, False),
        ({"is_activated": False}, False),
        ({}, False),
    ],
)
async def test_feishu_accounts_are_gone_by_their_status(
    feishu: FeishuRig, status: dict[str, bool], is_gone: bool
) -> None:
    feishu.server.statuses[JANE_IN_FEISHU] = status
    assert await gone(feishu, JANE_IN_FEISHU) is is_gone


async def test_feishu_says_nothing_without_the_permission(feishu: FeishuRig) -> None:
    feishu.depart(JANE_IN_FEISHU)
    feishu.server.scopes.remove("contact:user.employee:readonly")
    assert await gone(feishu, JANE_IN_FEISHU) is None


async def test_slack_accounts_without_the_field_are_active(slack: SlackRig) -> None:
    del slack.server.person(JANE_IN_SLACK)["deleted"]
    assert await gone(slack, JANE_IN_SLACK) is False


@pytest.mark.parametrize("error", ["user_not_found", "user_not_visible"])
async def test_slack_accounts_that_the_bot_does_not_find_are_unknown(slack: SlackRig, error: str) -> None:
    slack.depart(JANE_IN_SLACK)
    slack.server.fault("error", "users.info", code=400, description=error, times=-1)
    assert await gone(slack, JANE_IN_SLACK) is None
