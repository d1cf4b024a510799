"""One service on all fake platforms, with the people of each through its rig."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from agent.setting import Secret
from bot.admin import service_client
from channels import dingtalk, discord, feishu, slack, telegram, wecom
from tests.fakes import dingtalk as fake_dingtalk
from tests.fakes import discord as fake_discord
from tests.fakes import feishu as fake_feishu
from tests.fakes import slack as fake_slack
from tests.fakes import telegram as fake_telegram
from tests.fakes import wechat as fake_wechat
from tests.fakes import wecom as fake_wecom
from tests.fakes import whatsapp as fake_whatsapp
from tests.fakes.model import FakeModel
from tests.fakes.model_script import without_directives
from tests.fakes.server import until
from tests.support.relaying import relaying
from tests.support.rigs.attached_console import AttachedConsoleRig
from tests.support.rigs.base import Rig
from tests.support.rigs.dingtalk import DingTalkRig
from tests.support.rigs.discord import DiscordRig
from tests.support.rigs.feishu import FeishuRig
from tests.support.rigs.matrix import EncryptedMatrixRig
from tests.support.rigs.slack import SlackRig
from tests.support.rigs.telegram import TelegramRig
from tests.support.rigs.wechat import WeChatRig
from tests.support.rigs.wechat import login_of as wechat_login
from tests.support.rigs.wechat import settings_for as wechat_settings
from tests.support.rigs.wecom import WeComRig
from tests.support.rigs.whatsapp import SOURCES, WhatsAppRig
from tests.support.rigs.whatsapp import settings_for as whatsapp_settings
from tests.support.service_process import UNPACED, Service


class AllPlatforms(Service):
    """`fawn run` with all platforms. `rigs` provide the people; their own channels are not used."""

    access: Mapping[str, Any] = MappingProxyType({"open": True})  # of every channel

    def __init__(
        self,
        folder: Path,
        model: FakeModel,
        rigs: Mapping[str, Rig],
        sections: Mapping[str, dict[str, Any]],
        settings: Mapping[str, Any],
    ) -> None:
        self.rigs = rigs
        self._sections = sections
        self.kept: dict[str, dict[str, str]] = {}  # by channel: what its set-up has the service keep
        assert isinstance(rigs["telegram"], TelegramRig)
        super().__init__(folder, rigs["telegram"].server, model, settings)

    @property
    def names(self) -> list[str]:
        """The names of the platforms that it is connected to."""
        return list(self._sections)

    def channels(self) -> dict[str, dict[str, Any]]:
        """The channel sections with the addresses of the fakes."""
        return {name: {**section, "access": {**self.access}} for name, section in self._sections.items()}

    async def start(self) -> None:
        """Start it and wait until every channel is ready."""
        await self.spawn("run", "--config", "config.yaml")
        try:
            async with asyncio.timeout(180):
                while not await self._ready():
                    assert not self._ended(), self.log()
        except TimeoutError:
            await self.kill()
            raise AssertionError(self.log()) from None
        if isinstance(console := self.rigs.get("console"), AttachedConsoleRig):
            await console.attach(self)

    async def kill(self) -> None:
        """kill -9. The console beside it leaves first: one that finds no service begins its own."""
        if isinstance(console := self.rigs.get("console"), AttachedConsoleRig):
            await console.detach()
        await super().kill()

    async def _ready(self) -> bool:
        await asyncio.sleep(0.05)
        try:
            report = await service_client.call_service(self.data, "status", {})
            while self.kept:
                channel, texts = self.kept.popitem()
                await service_client.call_service(self.data, "channel.keep", {"channel": channel, "kept": texts})
        except (service_client.NotRunning, OSError):
            return False
        channels = report.get("channels", {})  # it may end while it answers
        ready = {name for name, channel in channels.items() if channel["health"] == "ready"}
        return ready == self._sections.keys()

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, only: str | tuple[str, ...] = "", /, **settings: Any) -> AsyncIterator[Self]:
        """Start the platforms, the model and the service, with the channels that `only` names; kill it at the end.

        WeCom, WeChat, Matrix, WhatsApp and the console come only by their names; the console is attached to one with
        Telegram.
        """
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            model = await enter(FakeModel())
            chats = await enter(fake_telegram.FakeTelegram())
            team = await enter(fake_slack.FakeSlack())
            guild = await enter(fake_discord.FakeDiscord())
            tenant = await enter(fake_feishu.FakeFeishu())
            office = await enter(fake_dingtalk.FakeDingTalk())
            sections: dict[str, dict[str, Any]] = {
                "telegram": {"token": fake_telegram.TOKEN, "base_url": chats.base_url, **UNPACED},
                "slack": {
                    "bot_token": fake_slack.BOT_TOKEN,
                    "app_token": fake_slack.APP_TOKEN,
                    "base_url": team.api_url,
                    "rate_factor": 20.0,
                    "agent_view": False,
                },
                "discord": {
                    "token": fake_discord.TOKEN,
                    "base_url": guild.api_url,
                    "gateway_url": guild.gateway_url,
                    "per_channel": 20.0,
                    "burst": 20,
                    "overall": 1000.0,
                },
                "feishu": {
                    "app_id": fake_feishu.APP,
                    "app_secret": fake_feishu.SECRET,
                    "domain": tenant.base_url,
                    "per_reply": 20.0,
                    "overall": 1000.0,
                },
                "dingtalk": {
                    "client_id": fake_dingtalk.CLIENT,
                    "client_secret": fake_dingtalk.SECRET,
                    "card_template_id": fake_dingtalk.TEMPLATE,
                    "base_url": office.base_url,
                    "upload_url": office.base_url,
                    "per_reply": 20.0,
                    "overall": 1000.0,
                },
            }
            unused = Secret("unused")
            kept: dict[str, dict[str, str]] = {}
            rigs: dict[str, Rig] = {
                "telegram": TelegramRig(chats, telegram.TelegramSettings(token=unused)),
                "slack": SlackRig(team, slack.SlackSettings(unused, unused)),
                "discord": DiscordRig(guild, discord.DiscordSettings(token=unused)),
                "feishu": FeishuRig(tenant, feishu.FeishuSettings(app_id="unused", app_secret=unused)),
                "dingtalk": DingTalkRig(office, dingtalk.DingTalkSettings("unused", unused)),
            }
            if only == "wecom":  # it lacks too much for what all the others do
                company = await enter(fake_wecom.FakeWeCom())
                sections["wecom"] = {
                    "bot_id": fake_wecom.BOT,
                    "secret": fake_wecom.SECRET,
                    "gateway_url": company.ws_url,
                    "per_reply": 20.0,
                    "overall": 1000.0,
                }
                rigs["wecom"] = WeComRig(company, wecom.WeComSettings("unused", unused))
            if only == "wechat":
                friends = await enter(fake_wechat.FakeWeChat())
                addresses = wechat_settings(friends)
                sections["wechat"] = {
                    "person": addresses.person,
                    "base_url": addresses.base_url,
                    "cdn_url": addresses.cdn_url,
                    "per_person": 50.0,
                }
                rigs["wechat"], kept["wechat"] = WeChatRig(friends, addresses), wechat_login(friends)
            if "whatsapp" in only:  # likewise; its relay is in the test's process
                phones = await enter(fake_whatsapp.FakeWhatsApp())
                settings_of = whatsapp_settings(phones, await enter(relaying(folder, SOURCES)))
                sections["whatsapp"] = {
                    "phone_number_id": fake_whatsapp.NUMBER,
                    "token": fake_whatsapp.TOKEN,
                    "app_secret": fake_whatsapp.APP_SECRET,
                    "relay_url": settings_of.relay_url,
                    "relay_key": settings_of.relay_key.reveal(),
                    "base_url": phones.base_url,
                    "per_person": 50.0,
                    "burst": 50,
                    "overall": 1000.0,
                }
                rigs["whatsapp"] = WhatsAppRig(phones, settings_of)
            if only == "matrix":  # in encrypted rooms of a real server, which takes its time to start
                rigs["matrix"] = room = await enter(EncryptedMatrixRig.with_people())
                homeserver = {"homeserver": room.proxy.base_url, "token": room.token}
                sections["matrix"] = {**homeserver, "per_reply": 20.0, "overall": 1000.0, "burst": 1000}
            if only == "console":
                rigs["console"] = console = AttachedConsoleRig(folder)
                stack.push_async_callback(console.detach)
            wanted = ("telegram",) if only == "console" else (only,) if isinstance(only, str) else only
            sections = {name: section for name, section in sections.items() if name in wanted or "" in wanted}
            service = cls(folder, model, rigs, sections, settings)
            service.kept = kept
            async with service:
                yield service

    async def shows(self, name: str, text: str, topic: int = 0, seconds: float = 60) -> list[str]:
        """Return the bot's visible text in a topic, as soon as it contains `text`, but not in a quoted directive."""
        rig = self.rigs[name]
        await until(lambda: text in without_directives("\n".join(rig.visible(topic))), seconds, f"{text!r} on {name}")
        return rig.visible(topic)
