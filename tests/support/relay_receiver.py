"""Fetch the deliveries of hooks from a relay until killed: `python -m tests.support.relay_receiver CONFIG`.

It is the part of the service that does so, over the service's database.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bot.commands.feature import Door
from bot.config.loader import load_config
from bot.database.database import Database
from bot.hooks.endpoint import HookEndpoint, RelayedHooks
from bot.rights.current import Current


async def main(file: Path) -> None:
    config = load_config(file)
    async with Database(config.data_dir / "fawn.db") as store:
        door = Door(store, Current(config), *[None] * 8)  # type: ignore[arg-type]  # it needs no more
        await RelayedHooks(door.current, HookEndpoint(door)).serve()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
