"""Draw what only one platform has: python -m docs.pictures.native (needs Chromium).

Slack's Home tab, a long answer on Discord and a rich message on Telegram, from the payloads that the fakes received.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from agent.blocks import Final, Step
from agent.messages import Thread
from channels.base import Home, HomeItem, HomePage
from docs.pictures.platforms import FAWN, FOLDER, PERSON, Bubble, as_page, attached, buttons, draw, markdown
from tests.fakes.server import until
from tests.fakes.slack import JANE, OPS, TEAM
from tests.fakes.telegram import JANE as TELEGRAM_JANE
from tests.support.recording_inbox import Memory
from tests.support.rigs.discord import DiscordRig
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


async def play(folder: Path) -> dict[str, tuple[str, list[Bubble]]]:
    """Return for each picture its platform, and the messages on it."""
    made: dict[str, tuple[str, list[Bubble]]] = {}
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
