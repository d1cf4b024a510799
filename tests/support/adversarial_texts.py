"""Every function that processes foreign text on the event loop, with texts that are hard for it.

`python -m tests.support.adversarial_texts` runs all of them and prints each name before it starts. Work that is
quadratic in the length of its text exceeds the CPU limit; linear work stays far below it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable

import httpx2
from langchain_core.messages import HumanMessage, ToolMessage

from agent import text_cleaning
from agent.blocks import Final
from agent.core import event_mapper, user_message
from agent.demo import model
from agent.messages import Author, Message, Origin, Quote, Thread, UploadedFile, UserInput
from agent.models import openai_events
from agent.policies import kept_words, tool_calls
from agent.turn import title
from bot.base.log import Redactor
from channels import base
from channels.discord import events as discord
from channels.discord import markdown as discord_markdown
from channels.feishu import card_renderer, message_content
from channels.shared import markdown
from channels.shared import texts as shared_texts
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
    """Build the texts: one piece repeated up to an ending that does not match, also inside a table."""
    made: dict[str, str] = {}
    for piece in PIECES:
        body = piece * (length // 2 // len(piece))
        made[repr(piece)] = f"{body}!`é\n\na|b\n-|-\n{body}"
    made["backticks of every length"] = " ".join("`" * n for n in range(1, int((2 * length) ** 0.5)))
    return made


def message(text: str) -> Message:
    return Message(
        Thread("t", "w", "c"), "k", "1", Author("u", text), text, 0.0, quotes=(Quote(text, text),), origin=Origin.PERSON
    )


def read_stream(text: str) -> None:
    """Read the lines of the model stream from chunks as a socket delivers them."""
    data = text.encode("utf-8", "replace")

    async def read() -> None:
        async def parts() -> AsyncIterator[bytes]:
            for at in range(0, len(data), 4096):
                yield data[at : at + 4096]

        with contextlib.suppress(openai_events.StrangeBody):  # a text without an event
            async for _ in openai_events.parse_events(parts(), httpx2.Request("POST", "http://m")):
                pass

    asyncio.run(read())


WORK: dict[str, Callable[[str], object]] = {
    "summary": lambda text: kept_words.lost_values([HumanMessage(text)], "", 6000),
    "title": title.first_words,
    "clean": text_cleaning.clean_json,
    "step": lambda text: event_mapper.raw_call_line("bash", {"command": text}),
    "fingerprint": lambda text: tool_calls.call_fingerprint("bash", {"command": text.replace("\ud83d", "")}, text),
    "failure": lambda text: tool_calls.failure_mark(ToolMessage(text, tool_call_id="1", status="error")),
    "human": lambda text: user_message.MessageFormatter().format_message(
        UserInput(message(text), (UploadedFile(text, text),))
    ),
    "demo": lambda text: (model._text_without_header(HumanMessage(text)), model._choose_scene(text)),
    "stream": read_stream,
    "log": Redactor(["secret-of-ours"]),
    "command": lambda text: base.parse_command_text(text, "fawn"),
    "short": lambda text: shared_texts.shorten(text, 80),
    "split": lambda text: markdown.split_markdown(text, 4096, markdown.utf16_length),
    "discord in": lambda text: discord._text_without_mention({"content": text}, discord.DiscordAccount("1", "2")),
    "discord out": lambda text: [
        *map(
            discord_markdown.without_previews,
            markdown.split_markdown(discord_markdown.to_discord_markdown(text), 2000),
        )
    ],
    "feishu in": lambda text: message_content._text_with_names(text, {}),
    "feishu out": lambda text: card_renderer.render_final_cards(Final(text), "r1", direct=True),
    "slack in": lambda text: slack.readable_text(text, slack.SlackAccount("T", "U1", "B", "fawn", "w")),
    "slack out": lambda text: (
        blocks.without_mentions(text),
        blocks.stable_prefix(text),
        blocks.split_for_slack(text, streamed=False),
        blocks.split_for_slack(text, streamed=True),
    ),
    "telegram out": lambda text: [
        telegram_markdown.without_mentions(*telegram_markdown.to_entities(piece))
        for piece in markdown.split_markdown(text, 3000)
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
