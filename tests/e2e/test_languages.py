"""The bot's sentences in the language of each person."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

from catalogue import _, use_language
from channels.console.session import NO_STEPS
from channels.shared.texts import ANSWERED
from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.all_platforms import AllPlatforms
from tests.support.console_screens import demo_environment
from tests.support.forked_services import program
from tests.support.service_process import ask, said
from tests.support.terminal import Terminal

BOB = 43
QUESTION = {"calls": [{"name": "ask_clarification", "args": {"question": "Which colour?", "options": ["red", "blue"]}}]}


async def test_two_people_at_once_read_their_own_languages(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """Help, queue, stop, failure and the end of a question, where Telegram reports Bob's language as Chinese."""
    telegram.person(BOB)["language_code"] = "zh-hans"
    await start(limits={"live_turns": 1, "question_hours": 0.0005})

    telegram.send("/help")
    telegram.send("/help", chat=BOB)
    await asyncio.gather(telegram.wait(JANE, "Tell me what you need."), telegram.wait(BOB, "告诉我你需要什么。"))

    telegram.send(ask(text="at last", delay_ms=60_000))
    await until(lambda: model.requests(), what="the model call")
    telegram.send(ask(text="later"), chat=BOB)
    await telegram.wait(BOB, "你排在第 1 位")
    telegram.send("/stop", chat=BOB)
    telegram.send("/stop")
    await telegram.wait(JANE, "Stopped.")
    await telegram.wait(BOB, "已停止。")

    model.fault("error", "chat", code=401, times=-1)
    telegram.send("think")
    telegram.send("想一想", chat=BOB)
    await asyncio.gather(
        telegram.wait(JANE, "My model refused its key (401)"), telegram.wait(BOB, "模型拒绝了密钥（401）")
    )
    model.clear_faults()

    telegram.send(ask(steps=[QUESTION], text="as I like"), chat=BOB)
    telegram.send(ask(steps=[QUESTION], text="as I like"))
    await telegram.wait(BOB, "⌛ 没有人及时回答")
    await telegram.wait(JANE, "⌛ Nobody answered in time")
    assert not any("一" <= letter <= "鿿" for text in said(telegram, JANE) for letter in text)
    assert [text for text in said(telegram, BOB) if "My model" in text or "Stopped" in text] == []


async def test_a_toast_is_in_the_chosen_language_also_after_a_restart(telegram: FakeTelegram, start: Start) -> None:
    """Jane, whose app is English, chose Chinese, and Bob the other way round."""
    telegram.person(BOB)["language_code"] = "zh-hans"
    service = await start()
    telegram.send("/language zh")
    await telegram.wait(JANE, "从现在起")
    telegram.send("/language en", chat=BOB)
    await telegram.wait(BOB, "From now on")

    async def press_twice(person: int) -> str:
        telegram.send(ask(steps=[QUESTION], text="fine", id=f"{person}"), chat=person)
        await until(lambda: any(each.buttons for each in telegram.visible(person)), what="the question")
        await service.quiet()
        [shown] = [each for each in telegram.visible(person) if each.buttons]
        presses = [telegram.click(shown.buttons[number][1], shown.id, chat=person) for number in (0, 1)]
        await until(lambda: presses[1] in telegram.answers, what="the answer to the second press")
        await service.quiet()
        return str(telegram.answers[presses[1]])

    with use_language("zh"):
        assert await press_twice(JANE) == _(ANSWERED)
    assert await press_twice(BOB) == ANSWERED
    await service.restart()
    with use_language("zh"):
        assert await press_twice(JANE) == _(ANSWERED)


async def test_the_command_line_speaks_the_language_of_the_terminal_or_of_the_configuration(
    telegram: FakeTelegram, start: Start
) -> None:
    service = await start()
    service.more_environment = {"LC_ALL": "zh_CN.UTF-8"}
    await until(lambda: "app.ready" in service.log(), what="the agent")
    assert "显示正在运行的服务的状态" in (await service.fawn("status", "--help"))[1]
    code, shown = await service.fawn("status")
    assert (code, "正常" in shown, "模型：" in shown, "个等待" in shown) == (0, True, True, True), shown
    assert not any("一" <= letter <= "鿿" for letter in (await service.fawn("status", "--json"))[1])
    assert "没有死信 7" in (await service.fawn("dead", "drop", "7"))[1], "the service says it"
    assert "已连接，身份是 @" in (await service.fawn("check"))[1]
    assert not any("一" <= letter <= "鿿" for letter in service.log())
    await service.stop()
    service.configure({"langauge": "zh"})
    assert "未知的设置" in (await service.fawn("status"))[1]
    service.more_environment = {}
    assert "unknown setting" in (await service.fawn("status"))[1]
    service.configure({"language": "zh"})
    assert "没有正在运行的 Fawn" in (await service.fawn("status"))[1]
    service.configure({"language": "zh", "keep_days": 0})
    assert "不能小于 1" in (await service.fawn("status"))[1]


async def test_a_chosen_language_holds_on_every_platform_and_after_a_restart(tmp_path: Path) -> None:
    async with AllPlatforms.open(tmp_path) as service:

        async def choose(name: str) -> None:
            service.rigs[name].mutter("!language zh")
            await service.shows(name, "我跟你说简体中文")
            service.rigs[name].mutter("!stop")
            await service.shows(name, "这里没有正在运行的任务。")

        async def ask_again(name: str) -> None:
            service.rigs[name].mutter(ask(steps=[QUESTION], text="fine", id=f"q-{name}"))
            await service.shows(name, "请点选，或用自己的话回答。" if name != "feishu" else "Which colour?")
            service.rigs[name].mutter("!new")
            await service.shows(name, "好，重新开始：")

        await asyncio.gather(*map(choose, service.names))
        await service.quiet()
        await service.restart()
        await asyncio.gather(*map(ask_again, service.names))
        await service.quiet()


def test_each_console_speaks_the_language_of_its_own_terminal(tmp_path: Path) -> None:
    """Also where the system has no such locale, as in a container: the variables alone say it."""
    with use_language("zh"):
        chinese = "› " + _("Try: plot")
    (tmp_path / "config.yaml").write_text("config_version: 1\nsandbox: {provider: none}\n")

    def open_console(command: str, language: str) -> Terminal:
        environment = {**demo_environment(), "LC_ALL": language}
        console = Terminal([*program(), command, "--config", "config.yaml"], tmp_path, environment)
        console.patience = 60
        return console

    with ExitStack() as stack:

        def open_and_see(command: str, language: str, prompt: str) -> Terminal:
            console = open_console(command, language)
            stack.callback(console.close)
            console.shows(prompt)
            return console

        open_and_see("run", "zh_CN.UTF-8", chinese)
        english = open_and_see("chat", "en_US.UTF-8", "› Try: plot")
        attached = open_and_see("chat", "zh_TW.UTF-8", chinese)
        english.type("/steps\r")
        english.shows(NO_STEPS)
        attached.type("/steps\r")
        with use_language("zh"):
            attached.shows(_(NO_STEPS))
