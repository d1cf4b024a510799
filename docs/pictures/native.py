"""Draw what only one platform has: python -m docs.pictures.native (needs Chromium).

Slack's Home tab and its status while many ask, a long answer on Discord, a rich message and a draft on Telegram,
several pictures and a mention on Feishu, and a long card on DingTalk, from the payloads that the fakes received.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from agent.blocks import Final, Step, Text
from agent.messages import Thread
from channels.base import Home, HomeItem, HomePage, OutgoingFile
from docs.pictures.platforms import (
    FAWN,
    FOLDER,
    PERSON,
    Bubble,
    as_page,
    attached,
    buttons,
    draw,
    feishu_element,
    markdown,
)
from tests.fakes.feishu import APP as FEISHU_APP
from tests.fakes.feishu import KIM
from tests.fakes.server import until
from tests.fakes.slack import BOT, JANE, OPS, TEAM
from tests.fakes.telegram import JANE as TELEGRAM_JANE
from tests.support.recording_inbox import Memory
from tests.support.rigs.dingtalk import DingTalkRig
from tests.support.rigs.discord import DiscordRig
from tests.support.rigs.feishu import FeishuRig
from tests.support.rigs.slack import DIRECT, SlackRig
from tests.support.rigs.telegram import TelegramRig

HOME = Home(
    "2 questions wait for you.",
    (
        HomeItem(
            "waiting:12",
            "12. May I run this command?",
            Thread("slack", TEAM, OPS, "1.2"),
            "“Restart of staging” · asked for Bob · waits for 12 min",
            "systemctl restart web\njournalctl -u web -n 20",
            ("Approve", "Deny"),
        ),
        HomeItem("waiting:13", "13. Which market shall it cover?", None, "our direct chat", "", ("Asia", "Europe")),
    ),
    "Write !waiting to me at any time to see this list. It is as new as when you opened this page.",
)
STEPS = (Step("s1", "Reading web.log", "done"), Step("s2", "Running make test", "failed"))
LOG = "\n\n".join(
    f"**{number}. {title}** " + "The worker lost its connection, waited, and tried again with a longer pause. " * 6
    for number, title in enumerate(("Before", "The fault", "What was tried", "What is left"), 1)
)
TABLE = """Here is who is on call:

| Week | Primary | Backup |
|---|:-:|--:|
| 48 | **Jane** | Bob |
| 49 | Kim | `nobody` |

- [x] Week 48 is confirmed
- [ ] Week 49 needs a backup
"""


def home(blocks: Sequence[Any]) -> str:
    return "".join(map(_home_block, blocks))


def _home_block(block: Any) -> str:
    match block["type"]:
        case "header":
            return f"<h2>{escape(block['text']['text'])}</h2>"
        case "divider":
            return "<hr>"
        case "rich_text":
            tags = {"rich_text_section": "p", "rich_text_preformatted": "pre"}
            found = [(tags[part["type"]], part["elements"]) for part in block["elements"]]
            texts = [(tag, "".join(each["text"] for each in elements)) for tag, elements in found]
            return "".join(f"<{tag}>{escape(text)}</{tag}>" for tag, text in texts)
        case "context":
            text = " ".join(part["text"] for part in block["elements"]).replace(f"<#{OPS}>", "#ops")
            return f"<small>{escape(text)}</small>"
        case "actions":
            return buttons([(each["text"]["text"], each.get("style", "")) for each in block["elements"]])
    return ""


def component(part: Any) -> str:
    match part["type"]:
        case 10:
            lines = part["content"].split("\n")
            small = [line.removeprefix("-# ") for line in lines if line.startswith("-# ")]
            text = "\n".join(line for line in lines if not line.startswith("-# "))
            return markdown(text) + "".join(f"<small>{escape(line)}</small>" for line in small)
        case 13:
            return attached(part["file"]["url"].removeprefix("attachment://"))
        case 17:
            return f'<div class="fold">{"".join(map(component, part["components"]))}</div>'
        case 1:
            return buttons([(each["label"], "") for each in part["components"]])
    return ""


async def waiting_status(folder: Path) -> list[Bubble]:
    """Return the status of a thread where the calls that end a session are used up."""
    async with SlackRig.start(folder, rate_factor=1.0) as rig:
        await until(lambda: rig.server.sockets)
        for number in range(12):
            rig.server.send(f"<@{BOT}> How is deploy {number}?")
        shown = await until_call(rig.server, "assistant.threads.setStatus")
    lines = "".join(f"<small>{escape(line)}</small>" for line in shown["loading_messages"])
    return [
        Bubble(PERSON, markdown("How is the deploy?")),
        Bubble(FAWN, f'<div class="text">Fawn {escape(shown["status"])}</div>{lines}'),
    ]


async def until_call(server: Any, method: str) -> Any:
    """Return the arguments of the first call of a method."""
    await until(lambda: any(call.method == method for call in server.calls), 30, method)
    return next(call.args for call in server.calls if call.method == method)


async def draft(folder: Path) -> list[Bubble]:
    """Return what a draft shows while the answer is written."""
    async with TelegramRig.start(folder, drafts=True) as chat:
        reply = chat.channel.reply(chat.thread(), Memory())
        reply.show(Step("s1", "Reading web.log", "done"))
        reply.show(Text("The worker lost its connection at 02:14, and"))
        await until(lambda: "at 02:14" in "".join(chat.server.drafts.values()), 10, "the draft")
        [text] = chat.server.drafts.values()
        await reply.close()
    return [Bubble(PERSON, markdown("What happened?")), Bubble(FAWN, f'<div class="text">{escape(text)} ▍</div>')]


async def pictures_and_mention(folder: Path) -> list[Bubble]:
    """Return several pictures as one message, and the notification of a person."""
    async with FeishuRig.start(folder / "rig") as rig:
        files = []
        for name in ("cpu.png", "memory.png", "disk.png"):
            path = folder / name
            await asyncio.to_thread(path.write_bytes, b"\x89PNG\r\n\x1a\n" + bytes(64))
            files.append(OutgoingFile(path, name, 72))
        asked = await rig.say("Draw the three graphs, and tell Kim", 1)
        answer = rig.channel.reply(asked.thread, Memory("r1"), to=asked.id)
        await answer.finish(Final("@Kim here they are: the disk of db-3 fills up since noon."))
        await rig.channel.send_files(asked.thread, files, Memory("r2"))
        call = rig.channel.reply(asked.thread, Memory("r3"), to=asked.id)
        await call.finish(Final("My answer above is for you, too.", mention=KIM))
        said = [each for each in rig.server.messages.values() if each.sender == FEISHU_APP]
        return [Bubble(PERSON, markdown(asked.text)), *(_feishu_bubble(rig.server, each) for each in said)]


def _feishu_bubble(server: Any, said: Any) -> Bubble:
    if said.kind == "post":
        body = said.content.get("content") or next(iter(said.content.values()))["content"]
        names = [server.files[part["image_key"]][0] for row in body for part in row if part["tag"] == "img"]
        return Bubble(FAWN, f'<div class="grid">{"".join(f"<i>▦ {escape(name)}</i>" for name in names)}</div>')
    elements = server.cards[said.content["data"]["card_id"]].json["body"]["elements"]
    html = "".join(map(feishu_element, elements))
    return Bubble(FAWN, html.replace(escape(f"<at id={KIM}></at>"), "<b class='at'>@Kim</b>"))


async def long_card(folder: Path) -> list[Bubble]:
    """Return the cards of an answer of 1,200 Chinese characters."""
    line = "昨晚两点十四分，工作进程失去了与数据库的连接，等待后重新连接，并以更长的间隔再次尝试。"
    text = "\n\n".join(f"**{number}.** {line * 7}" for number in range(1, 5))
    async with DingTalkRig.start(folder) as rig:
        await rig.channel.reply(rig.thread(), Memory()).finish(Final(text))
        cards = [rig.server.cards[shown.card].variables["content"] for shown in rig.server.shown]
    return [Bubble(PERSON, markdown("昨晚发生了什么？")), *(Bubble(FAWN, markdown(card)) for card in cards)]


async def play(folder: Path) -> dict[str, tuple[str, list[Bubble]]]:
    """Return for each picture its platform, and the messages on it."""
    made: dict[str, tuple[str, list[Bubble]]] = {}
    for name, platform, scene in (
        ("slack-status", "slack", waiting_status),
        ("telegram-draft", "telegram", draft),
        ("feishu-pictures", "feishu", pictures_and_mention),
        ("dingtalk-long", "dingtalk", long_card),
    ):
        (folder / name).mkdir()
        made[name] = platform, await scene(folder / name)
    async with SlackRig.start(folder / "slack") as rig:
        await until(lambda: rig.server.sockets)
        if isinstance(rig.channel, HomePage):
            await rig.channel.show_home(Thread("slack", TEAM, DIRECT), JANE, HOME)
        made["slack-home"] = "slack", [Bubble(FAWN, home(rig.server.homes[TEAM, JANE]["blocks"]))]
    async with DiscordRig.start(folder / "discord") as guild:
        await guild.channel.reply(guild.thread(), Memory()).finish(Final(LOG, steps=STEPS, step_count=2, seconds=62))
        [message] = [each for each in guild.server.direct().messages.values() if each["components"]]
        made["discord-long"] = (
            "discord",
            [
                Bubble(PERSON, markdown("What happened to the worker last night?")),
                Bubble(FAWN, "".join(map(component, message["components"]))),
            ],
        )
    async with TelegramRig.start(folder / "telegram", rich_messages=True) as chat:
        await chat.channel.reply(chat.thread(), Memory()).finish(Final(TABLE, steps=STEPS, step_count=2, seconds=62))
        [rich] = chat.server.chat(TELEGRAM_JANE).rich.values()
        made["telegram-rich"] = (
            "telegram",
            [Bubble(PERSON, markdown("Who is on call?")), Bubble(FAWN, f'<div class="rich">{rich.html}</div>')],
        )
    return made


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fawn-pictures-") as name:
        folder = Path(name)
        for picture, (platform, bubbles) in asyncio.run(play(folder)).items():
            page = folder / f"{picture}.html"
            page.write_text(as_page(platform, bubbles))
            draw(page, FOLDER / f"{picture}.png")


if __name__ == "__main__":
    main()
