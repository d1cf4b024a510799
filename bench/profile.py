"""Profile the CPU of the service with cProfile: `python -m bench.profile`."""

from __future__ import annotations

import argparse
import asyncio
import pstats
import tempfile
from pathlib import Path

from bench.harness import Job, new_chats, world
from bench.latency import FAST
from bench.service import NO_LIMITS


async def main(chats: int, turns: int, tokens: int, pace: float, tools: int, profile: Path) -> None:
    """Run `chats` at once if there are any, then `turns` one after the other."""
    async with (
        world() as outside,
        outside.service("fawn", rates=FAST if turns else NO_LIMITS, profile=profile) as service,
    ):
        await outside.turn(Job(new_chats(1)[0]))
        before = service.cpu()
        await outside.ask([Job(chat, tokens, pace, tools) for chat in new_chats(chats)])
        for chat in new_chats(turns):
            await outside.turn(Job(chat, tokens, pace, tools))
        print(f"{(service.cpu() - before) / (chats + turns) * 1000:.1f} ms CPU a turn, profiler included")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("--chats", type=int, default=0, help="at once")
    parser.add_argument("--turns", type=int, default=0, help="one after the other")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between two tokens")
    parser.add_argument("--tools", type=int, default=0, help="sandbox commands a turn")
    parser.add_argument("--sort", default="tottime", choices=("tottime", "cumtime", "ncalls"))
    parser.add_argument("--lines", type=int, default=45)
    given = parser.parse_args()
    if not given.chats + given.turns:
        given.chats = 50
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile"
        asyncio.run(main(given.chats, given.turns, given.tokens, given.pace, given.tools, path))
        pstats.Stats(str(path)).strip_dirs().sort_stats(given.sort).print_stats(given.lines)
