"""Every function of ours that works through somebody's text on the event loop, and texts made to be hard for it.

`python -m tests.text_work` runs all of them and prints the name of each before it begins: what is quadratic in the
length of its text is ended by the limit of processor time, which what is linear does not come near.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable

import httpx2
from langchain_core.messages import HumanMessage

from agent import clean, demo, flow, human, stream, title
from agent.conversation import Author, Final, Message, Quote, Thread
from agent.desk import Input, Upload
from agent.policies import loops, summary
from bot.log import Redactor
from channels import base, markdown, words
from channels.discord import events as discord
from channels.discord import markdown as discord_markdown
from channels.feishu import card, content
from channels.slack import blocks
from channels.slack import events as slack
from channels.telegram import markdown as telegram_markdown

LENGTH, SECONDS = 60_000, 1.5  # characters, and of processor time: quadratic work on them is 1,800,000,000 steps
PARSED, PARSED_SECONDS = 20_000, 2.0  # …for those that parse Markdown in Python, a hundred times slower

PIECES = (
    *(
        "a",
        "a-",
        "a.",
        "a ",
        "a\n",
        "-",
        "_",
        "1",
        "0123456789abcdef-",
        "A1-",
        " ",
        "\t",
        "\n",
        "\n\n",
        " \n",
        "谢",
        "e\u0301",
    ),
    *(
        "`",
        "``` ",
        "`a",
        "`a`` b```c",
        "~",
        "*",
        "**a",
        "* a\n",
        "_a_",
        "- - ",
        "1. ",
        "# ",
        "##",
        ":-:|",
        "|-|",
        "|",
        "\\",
    ),
    *(
        "[",
        "]",
        "[a](",
        "![",
        "![a](",
        "![a] ",
        "!",
        "<",
        ">",
        "> ",
        "<@A",
        "<@U1|",
        "<a",
        "<https://",
        "<:a",
        "<:a:b",
        "&#",
    ),
    *(
        "https://",
        "http://a",
        "://",
        "://a:",
        "://a:a",
        "/mnt/",
        "/mnt/a,",
        "a@",
        "a@a-",
        "@",
        "@aa",
        "a@a.",
        "/",
        "/a",
    ),
    *(
        "&",
        "&#a",
        "&lt;",
        ":",
        "{",
        "(",
        '"',
        "'",
        "=",
        "sk-",
        "bearer ",
        "1234567890:",
        "\ud83d",
        "\U0001f600",
        "\0",
        "\0 ",
    ),
)


def texts(length: int = LENGTH) -> dict[str, str]:
    """By what they are made of: one piece over and over, up to an end that fits nothing, and in a table to the end."""
    made: dict[str, str] = {}
    for piece in PIECES:
        body = piece * (length // 2 // len(piece))
        made[repr(piece)] = f"{body}!`é\n\na|b\n-|-\n{body}"
    made["backticks of every length"] = " ".join("`" * n for n in range(1, int((2 * length) ** 0.5)))
    return made


def message(text: str) -> Message:
    return Message(Thread("t", "w", "c"), "k", "1", Author("u", text), text, 0.0, quotes=(Quote(text, text),))


def read_stream(text: str) -> None:
    """The cheap stream's lines, from pieces as a socket gives them."""
    data = text.encode("utf-8", "replace")

    async def read() -> None:
        async def parts() -> AsyncIterator[bytes]:
            for at in range(0, len(data), 4096):
                yield data[at : at + 4096]

        async for _ in stream._events(parts(), httpx2.Request("POST", "http://m")):
            pass

    asyncio.run(read())


WORK: dict[str, Callable[[str], object]] = {
    "summary": lambda text: summary._exact([HumanMessage(text)], ""),
    "title": title.first_words,
    "clean": clean.clean,
    "step": lambda text: flow.title("bash", {"command": text}),
    "fingerprint": lambda text: loops.fingerprint("bash", {"command": text.replace("\ud83d", "")}, text),
    "human": lambda text: human.Humans().message(Input(message(text), (Upload(text, text),))),
    "demo": lambda text: (demo._words(HumanMessage(text)), demo._choose(text)),
    "stream": read_stream,
    "log": Redactor(["secret-of-ours"]),
    "command": lambda text: base.command_text(text, "fawn"),
    "short": lambda text: words.short(text, 80),
    "split": lambda text: markdown.split(text, 4096, markdown.utf16),
    "discord in": lambda text: discord._words({"content": text}, discord.Me("1", "2")),
    "discord out": lambda text: [*map(discord_markdown.quiet, markdown.split(discord_markdown.convert(text), 2000))],
    "feishu in": lambda text: content._Names([], "me").shown(text),
    "feishu out": lambda text: card.render_final(Final(text), direct=True),
    "slack in": lambda text: slack.words(text, slack.Me("T", "U1", "B", "fawn", "w")),
    "slack out": lambda text: (blocks.defused(text), blocks.settled(text), blocks.cut(text)),
    "telegram out": lambda text: [
        telegram_markdown.quiet(*telegram_markdown.convert(piece)) for piece in markdown.split(text, 3000)
    ],
}


PARSING = frozenset({"split", "discord out", "feishu out", "slack out", "telegram out"})


def main(names: list[str]) -> None:
    plain, parsed = texts(), texts(PARSED)
    for name in names or WORK:
        for what, text in (parsed if name in PARSING else plain).items():
            print(f"{name}: {what}", flush=True)
            seconds = PARSED_SECONDS if name in PARSING else SECONDS
            signal.setitimer(signal.ITIMER_PROF, seconds)  # the default of its signal ends the process
            WORK[name](text)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
