"""Run a relay that kills itself just before its nth step on the disk: `FOLDER PORT KEY SECRET N` (0: never).

Its steps are the audit events of Python that name its folder: a file that is opened, renamed or removed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from agent.setting import Secret
from bot.config.hooks import RelayConfig, RelaySource
from bot.config.http import HttpConfig
from bot.http.listener import listening
from bot.relay.server import Relay, Spool

STEPS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.listdir", "os.scandir"})


def count_steps(folder: str, last: int) -> None:
    """Have this process end before a step."""
    seen = 0

    def look(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in STEPS and arguments and str(arguments[0]).startswith(folder):
            seen += 1
            if seen == last:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


async def main(folder: Path, port: str, key: str, secret: str, last: int) -> None:
    spool = Spool(folder, 1 << 20)
    count_steps(str(folder), last)
    spool.load_waiting()
    config = RelayConfig(key=Secret(key), sources={"github": RelaySource(Secret(secret), "github")}, per_minute=100_000)
    async with listening(HttpConfig(listen=f"127.0.0.1:{port}"), Relay(config, spool).routes()):
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])))
