"""Hostile members of a chat: attackers who drive the model, floods, files, commands and forged presses."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

from bot.main.features import gather_commands
from tests.fakes.server import until
from tests.redteam import texts
from tests.redteam.calls import Turn, setup_turn
from tests.redteam.judge import HostileModel, Report, WatchedTelegram, marker
from tests.redteam.site import PNG
from tests.support.current_config import current_of
from tests.support.service_process import Service, ask

FLOODER, UPLOADER, COMMANDER, OPERATOR, GROUP = 901, 902, 903, 904, -905
FLOOD_MESSAGES, FLOOD_PAUSE_SECONDS = 200, 20.0
TURN_SECONDS, STOP_SECONDS, LOOK_SECONDS = 15.0, 5.0, 0.2
TURNS_BEFORE_NEW = 4
AGENT = b"""
import sys
ASK = '{"jsonrpc": "2.0", "id": "\\\\ud800", "method": "fs/read_text_file", "params": {"path": "/etc/passwd"}}'
for line in sys.stdin:
    for number in range(5000):
        print("" if number % 2 else ASK)
    print('{"jsonrpc": "2.0", "id": 0, "result": ' + "[" * 50000, flush=True)
"""


@dataclass(slots=True)
class Arena:
    """A run: the service, the fakes, and when it is over."""

    service: Service
    telegram: WatchedTelegram
    model: HostileModel
    report: Report
    end: float
    chance: random.Random
    busy: frozenset[str] = frozenset()  # the chats for which the service works
    looked: float = 0.0  # when it was last looked whether it does

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.end

    async def wait_for_end(self, chat: int) -> None:
        """Wait until the service does not work for a chat."""
        begun = time.monotonic()
        await until(lambda: self.looked > begun and str(chat) not in self.busy, what=f"the end in {chat}")

    async def look_for_work(self) -> None:
        """Look again and again for which chats the service works: once for all attackers, to cost it little."""
        while True:
            began = time.monotonic()
            rows = await asyncio.to_thread(self.service.rows, "SELECT thread FROM conversations WHERE pending > 0")
            self.busy, self.looked = frozenset(thread.split("/")[2] for (thread,) in rows), began
            await asyncio.sleep(LOOK_SECONDS)


async def attack(arena: Arena, chat: int, turns: Callable[[], Turn]) -> None:
    """Have the hostile model work in one chat, turn by turn. Deny what it asks for."""
    arena.telegram.send_document("agent.py", AGENT, caption=marker(chat), chat=chat)
    left = 0  # turns, until it begins anew
    for number in range(100_000):
        if arena.over:
            return
        if left:
            await _play(arena, chat, turns())
            left -= 1
            continue
        setup = setup_turn(f"setup{chat}x{number}", marker(chat))
        arena.model.turns[setup.id] = setup
        if number:
            arena.telegram.send("/new", chat=chat)
        left = TURNS_BEFORE_NEW if await _play(arena, chat, setup) else 0  # half of it leaves the sealed file to all


async def _play(arena: Arena, chat: int, turn: Turn) -> bool:
    """Play a turn; return whether it came to its end."""
    arena.telegram.send(f"{marker(chat)} {ask(id=turn.id)}", chat=chat)
    arena.report.turns += 1
    with contextlib.suppress(TimeoutError):
        for _ in range(12):  # questions of one turn
            async with asyncio.timeout(TURN_SECONDS):
                await until(lambda: turn.id in arena.model.played)
                await arena.wait_for_end(chat)
            if not _deny(arena, chat):
                return True
            await asyncio.sleep(0.2)
        arena.telegram.send("/new", chat=chat)
        return False
    arena.report.unfinished += 1
    arena.telegram.send("/stop", chat=chat)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await arena.wait_for_end(chat)
    return False


def _deny(arena: Arena, chat: int) -> bool:
    """Press Deny, or the first answer, under every open question; return whether there was one."""
    pressed = False
    for shown in arena.telegram.visible(chat):
        if shown.buttons:
            data = next(
                (data for label, data in shown.buttons if label in ("Deny", "Decline", "Discard", "No")),
                shown.buttons[0][1],
            )
            if (chat, shown.id, data) not in _PRESSED:
                _PRESSED.add((chat, shown.id, data))
                arena.telegram.click(data, shown.id, chat=chat, user=chat)
                pressed = True
    return pressed


_PRESSED: set[tuple[int, int, str]] = set()


async def flood(arena: Arena) -> None:
    """Send 200 messages at once, privately and in a group, edit them, and repeat."""
    while not arena.over:
        for number in range(FLOOD_MESSAGES):
            text = arena.chance.choice([each for each in texts.TEXTS if 0 < len(each.strip()) < 4_000])
            sent = arena.telegram.send(f"{marker(FLOODER)} {number} {text}", chat=FLOODER)
            if number % 10 == 0:
                arena.telegram.edit("edited " * 500, sent["message_id"], chat=FLOODER)
                arena.telegram.react("👍", sent["message_id"], chat=FLOODER)
                arena.telegram.send(f"@fawn_bot {text}", chat=GROUP, user=FLOODER)
            if number % 50 == 0:
                arena.telegram.poison()
        await _rest(arena, FLOOD_PAUSE_SECONDS)


async def upload(arena: Arena) -> None:
    """Send files whose names and contents are hostile."""
    names = (
        "../../../etc/cron.d/x",
        "-rf",
        "a\nb.csv",
        "\u202egnp.exe",
        "x" * 300 + ".txt",
        "\x00",
        "con",
        ".env",
        "a/b.md",
    )
    bodies = {
        "picture.png": PNG,
        "picture.jpg": b"\xff\xd8\xff\xe0" + b"\0" * 50_000,
        "bomb.zip": _bomb(),
        "bomb.xlsx": _bomb(),
        "deep.json": b"[" * 500_000,
        "lines.csv": b"=cmd|' /C calc'!A0," * 20_000,
        "page.html": b"<div>" * 100_000,
        "paper.pdf": b"%PDF-1.7\n" + b"1 0 obj<</Kids[1 0 R]/Type/Pages>>endobj " * 9_000,
        "SKILL.md": texts.SKILLS[0].encode(),
        **dict.fromkeys(names, b"x"),
    }
    for number in range(100_000):
        if arena.over:
            return
        name, data = list(bodies.items())[number % len(bodies)]
        arena.telegram.send_document(name, data, caption=f"{marker(UPLOADER)} look", chat=UPLOADER)
        if name.endswith("png"):
            arena.telegram.send_photo(data, chat=UPLOADER)
            arena.telegram.send_voice(data, chat=UPLOADER)
        if name == "bomb.zip":  # what an operator installs by mistake
            arena.telegram.send_document("bomb.zip", data, caption="/skills install", chat=OPERATOR)
        await _rest(arena, 1.0)


async def command(arena: Arena) -> None:
    """Use every command with hostile words, and presses that no message has."""
    words = (
        "",
        "KANARI",
        "../../etc/passwd",
        "999999999999999999999",
        "-1",
        "me",
        "file:///etc/passwd",
        "https://[",
        "' OR 1=1 --",
        "x" * 3_000,
        "\u202e\x00",
    )
    telegram, commands = arena.telegram, gather_commands(current_of()).ranked()
    while not arena.over:
        for each in arena.chance.sample(commands, len(commands)):
            telegram.send(f"/{each.name} {arena.chance.choice(words)}", chat=COMMANDER)
            telegram.send(f"/{each.name}@fawn_bot {arena.chance.choice(words)}", chat=GROUP, user=COMMANDER)
            shown = telegram.send("x", chat=GROUP, user=COMMANDER)
            query = {
                "id": f"forged{time.monotonic()}",
                "from": telegram.person(COMMANDER),
                "chat_instance": "1",
                "message": shown,
            }
            telegram.push("callback_query", {**query, "data": arena.chance.choice((*words[:5], "a:1:y", "\x00" * 60))})
            await _rest(arena, 0.7)


def _bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/SKILL.md", "---\nname: bomb\ndescription: x\n---\n")
        for number in range(20):
            archive.writestr(f"bomb/../../{number}", b"\0" * 2_000_000)
        archive.writestr("a", "x")
        archive.writestr("a/b", "x")
    return out.getvalue()


async def _rest(arena: Arena, seconds: float) -> None:
    await asyncio.sleep(max(0.0, min(seconds, arena.end - time.monotonic())))
