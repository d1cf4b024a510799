"""Texts name commands by hints, and each channel spells them its way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.blocks import HINT_MARK, Approve, Ask, Block, Failed, Final, Notice, Text, command_hint
from agent.messages import Thread
from bot.journey.replies import open_reply
from bot.main.features import gather_commands
from channels.base import Reply, SentMessages
from tests.fakes.slack import JANE, FakeSlack
from tests.support.current_config import current_of
from tests.support.recording_inbox import Memory
from tests.unit.bot.test_outbox import RecordingChannel

ROOT = Path(__file__).parents[3]
WORDS = "|".join(gather_commands(current_of()).known)
SPELLED = re.compile(rf"(?<![\w/.}}<-])[/!](?:{WORDS})\b(?!/|\.\w)")
OPEN_PREFIX = re.compile(r"[\s`(][/!]$")  # before a name that an f-string inserts
# A table of docs/team.md; how robots of DingTalk and WeCom spell a command; paths of Docker's API and of /proc.
OTHERS = ("deeds.py", "robot_chats.py", "proxy_rules.py", "socket_proxy.py", "pod_init.py")
FOR_OPERATORS = {"setting", "field"}  # the help of settings, for docs/configuration.md


class Shouting(RecordingChannel):
    """A channel where a command is a word in capitals."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Block] = []

    def spell_command(self, thread: Thread, command: str) -> str:
        return command.upper()

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        return Heard(self)


class Heard:
    def __init__(self, channel: Shouting) -> None:
        self._channel = channel

    def show(self, block: Block) -> None:
        self._channel.blocks.append(block)

    async def finish(self, final: Final) -> None:
        self._channel.shown.append(("", final.text))

    async def settle(self, final: Final, question: str, outcome: str) -> None:
        self._channel.shown.append((question, final.settle(question, outcome).text))

    async def close(self) -> None:
        return


async def test_every_text_of_a_reply_is_spelled_by_its_channel() -> None:
    channel, hint = Shouting(), command_hint("notify off")
    reply = open_reply(channel, Thread("wall", "1", "here"), Memory())
    for block in (Text("a"), Notice("x", f"Try {hint}."), Failed(f"No {hint}.", f"Use `{hint}`.")):
        reply.show(block)
    await reply.finish(Final(f"{hint}, {command_hint('stop')}"))
    await reply.close()
    assert channel.blocks == [
        Text("a"),
        Notice("x", "Try NOTIFY OFF."),
        Failed("No NOTIFY OFF.", "Use `NOTIFY OFF`."),
    ]
    assert channel.shown == [("", "NOTIFY OFF, STOP")]


async def test_live_text_and_questions_are_spelled_also_in_pieces() -> None:
    channel, hint = Shouting(), command_hint("plan packing")
    reply = open_reply(channel, Thread("wall", "1", "here"), Memory())
    for piece in ("Type `", hint[:5], hint[5:], "` now. ", f"{hint} and ", hint[:3]):
        reply.show(Text(piece, "1"))
    reply.show(Text("another part", "2"))
    reply.show(Text("taken back", "1", replace=True))
    reply.show(Ask("q", f"Use `{hint}`?"))
    reply.show(Approve("q", "Do it?", f"See {hint}."))
    await reply.finish(Final("", (Ask("q", hint),)))
    texts = [block for block in channel.blocks if isinstance(block, Text)]
    assert "".join(each.delta for each in texts if each.part == "1" and not each.replace) == (
        "Type `PLAN PACKING` now. PLAN PACKING and "
    )
    assert not any(HINT_MARK in str(block) for block in channel.blocks)
    assert texts[-1] == Text("taken back", "1", replace=True)
    assert [block.question for block in channel.blocks if isinstance(block, Ask)] == ["Use `PLAN PACKING`?"]
    assert [block.detail for block in channel.blocks if isinstance(block, Approve)] == ["See PLAN PACKING."]


def literal_commands(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module, but its docstrings, that spell a command by themselves."""
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FOR_OPERATORS)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and SPELLED.search(node.value)
            and node.value not in ("/models", "/search")  # paths of APIs
        ):
            yield node.value
        if isinstance(node, ast.JoinedStr):
            for before, after in zip(node.values, node.values[1:], strict=False):
                if isinstance(before, ast.Constant) and isinstance(after, ast.FormattedValue):
                    yield from [ast.unparse(node)] * bool(OPEN_PREFIX.search(str(before.value)))


@pytest.mark.parametrize("text", ["'Send /retry now.'", "'`!stop` works'", "f'`/{name}` failed'", "f'/new {x}'"])
def test_a_spelled_command_is_found(text: str) -> None:
    assert list(literal_commands(ast.parse(f"x = {text}")))


def test_no_text_to_people_spells_a_command_by_itself() -> None:
    """A text of the bot or the agent that names a command uses `command_hint`. Channels know their own spelling."""
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for folder in ("agent", "bot", "channels/shared", "sandbox")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name not in OTHERS
        for text in literal_commands(ast.parse(path.read_text("utf-8")))
    ]
    assert found == []


async def test_the_client_of_slack_takes_slash_commands_for_itself() -> None:
    """It sends no message, and says that the command is not valid (slack.com/help/articles/201259356)."""
    async with FakeSlack() as slack:
        with pytest.raises(ValueError, match="it sends no message"):
            slack.send("/stop", f"D{JANE}")
        assert slack.send("/etc/hosts is a path", f"D{JANE}")
