"""WeChat end to end: through kills of the process, and more messages than the person's last one allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.model import FakeModel
from tests.fakes.push import serve_push
from tests.fakes.server import until
from tests.fakes.telegram import FakeTelegram
from tests.fakes.wechat import JANE, FakeWeChat
from tests.support.all_platforms import AllPlatforms
from tests.support.kills import KillRun, Plan
from tests.support.rigs.wechat import WeChatRig
from tests.support.service_process import ask
from tests.support.wizard import PATIENCE_SECONDS, NewService


class NewWeChatService(NewService):
    """A folder in which nobody has signed in."""

    friends: FakeWeChat

    def channels(self) -> dict[str, dict[str, Any]]:
        url = self.friends.base_url
        return {"wechat": {"person": "$WECHAT_PERSON", "base_url": url, "cdn_url": f"{url}/c2c", "per_person": 50.0}}


async def test_from_the_code_in_the_terminal_to_the_first_answer(tmp_path: Path) -> None:
    async with FakeTelegram() as unused, FakeModel() as model, FakeWeChat() as friends:
        NewWeChatService.friends = friends
        service = NewWeChatService(tmp_path, unused, model, {"channels": {"wechat": {"access": {}}}})
        async with service.wizard("setup", "wechat") as wizard:
            link = await wizard.shows(r"https://liteapp\.weixin\.qq\.com/q/(\w+)")
            assert "▄" in wizard.seen, "the code is drawn"
            friends.codes[link[1]]["status"] = "expired"
            code = (await wizard.shows(r"https://liteapp\.weixin\.qq\.com/q/(\w+)"))[1]
            assert code != link[1]
            friends.want_number(code, "2468")
            await wizard.shows("Type the number that WeChat shows on your telephone: ")
            await wizard.types("1357")
            await wizard.shows("That is not the number")
            await wizard.types("2468")
            await wizard.shows("Scanned")
            friends.scan(code)
            await wizard.shows(f"the login of {JANE} is kept by the service")
            word = await wizard.shows(r"Write to the robot, which is now among your chats in WeChat: (\w+)")
            friends.send(word[1])
            await wizard.shows(r"Let jane \(jane@im\.wechat\) in\? \[Y/n\] ")
            await wizard.types("")
            await wizard.shows("is in, and is an operator")
            await wizard.shows("Fawn runs here until you press Ctrl-C")
            friends.send(ask(text="the first answer"))
            await until(lambda: "the first answer" in [one.text for one in friends.visible()], PATIENCE_SECONDS)
            assert await wizard.leaves() == 0
        [token] = friends.tokens
        assert token not in wizard.seen + (tmp_path / ".env").read_text() + (service.data / "setup.log").read_text()
        assert (tmp_path / ".env").read_text() == f"WECHAT_PERSON={JANE}\n"


async def test_ctrl_c_while_the_code_is_shown_leaves_nothing(tmp_path: Path) -> None:
    async with FakeTelegram() as unused, FakeModel() as model, FakeWeChat() as friends:
        NewWeChatService.friends = friends
        service = NewWeChatService(tmp_path, unused, model, {"channels": {"wechat": {"access": {}}}})
        for number in (False, True):
            async with service.wizard("setup", "wechat") as wizard:
                code = (await wizard.shows(r"https://liteapp\.weixin\.qq\.com/q/(\w+)"))[1]
                if number:
                    friends.want_number(code, "2468")
                    await wizard.shows("Type the number")
                await wizard.leaves()
                await wizard.shows("Nothing was written")
        assert not (tmp_path / ".env").exists()
        assert not service.data.exists()


def server_of(service: AllPlatforms) -> FakeWeChat:
    rig = service.rigs["wechat"]
    assert isinstance(rig, WeChatRig)
    return rig.server


async def test_an_answer_beyond_the_budget_waits_for_the_person_over_a_restart(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "wechat") as service:
        server = server_of(service)
        server.send(ask(text="late answer", delay_ms=1500))
        await until(lambda: server.typing, what="the typing action")
        server.windows[JANE].left = 0
        await until(lambda: [call for call in server.calls_of("post") if call.code], what="a refusal")
        await service.kill()
        await service.start()
        assert server.visible() == []
        server.send(ask(text="the next answer"))
        await service.shows("wechat", "late answer")
        await service.shows("wechat", "the next answer")
        await service.quiet()
        assert service.rows("SELECT count(*) FROM outbox WHERE state<>2") == [(0,)]


@pytest.mark.usefixtures("bubblewrap")
async def test_each_message_is_answered_once_through_kills(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path, "wechat", sandbox={}) as service:
        figures = await KillRun(service, Plan(kills=3, life=(1.0, 3.0), unborn=0, talkers=1, gateway=0.5)).run()
        assert not figures.faults, f"{figures}\n" + "\n".join(figures.faults)
        assert figures.answered, "how many there was time for depends on the machine"


async def test_an_operator_who_has_only_wechat_gets_a_push_when_its_login_ends(tmp_path: Path) -> None:
    """What is said in WeChat does not arrive then; a restart pushes it to nobody again."""
    async with serve_push("key7") as servers:
        more: dict[str, Any] = {
            "push": {"bark_servers": [servers.base_url], "private_addresses": True},
            "channels": {"wechat": {"access": {"open": True, "operators": [JANE]}}},
        }
        async with AllPlatforms.open(tmp_path, "wechat", **more) as service:
            rig = service.rigs["wechat"]
            assert isinstance(rig, WeChatRig)
            rig.mutter(f"/notify bark {servers.base_url}/key7")
            await service.shows("wechat", "Pings go to your Bark.")
            await service.quiet()
            before = len(rig.server.calls_of("post"))
            rig.server.login(JANE)  # a scan elsewhere
            await until(lambda: servers.shown, 60, "the push")
            [pushed] = servers.shown.values()
            assert "signed out of wechat" in str(pushed)
            assert "fawn setup wechat" in str(pushed)
            await until(lambda: not service.rows("SELECT 1 FROM jobs WHERE kind='push'"), what="the record of it")
            downs = service.log().count("wechat.down")
            await service.kill()
            await service.spawn("run", "--config", "config.yaml")
            await until(lambda: service.log().count("wechat.down") > downs, what="the same after a restart")
            assert servers.attempts == 1
            assert len(rig.server.calls_of("post")) == before
