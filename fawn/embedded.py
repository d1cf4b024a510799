"""Run the service in this process, for one program: it listens on this machine only, and makes the program a key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

from bot.api.shared.keys import end_key, make_key_of
from bot.config.loader import load_config
from bot.config.source import ConfigSource
from bot.database.data_lock import ServiceLock
from bot.main.app import App
from bot.main.startup import platform_connectors
from bot.rights.access import LOCAL_CHANNEL
from bot.storage.api_access import THREADS
from channels.console import ConsoleSettings, person_name

ANY_PORT = "127.0.0.1:0"
POLL_SECONDS = 0.02
STOP_SECONDS = 60.0
EXPIRES = "30d"  # of the key, which is revoked at the end, unless the process is killed


@asynccontextmanager
async def serving(file: Path | None) -> AsyncIterator[tuple[str, str]]:
    """Run the service; yields its address and a key. Raises ConfigError and DataDirLocked, and what ends it.

    The person of the key is the user of this machine on the console, an owner unless the configuration says otherwise.
    """
    config = load_config(file)
    config = config if config.http.listen else replace(config, http=replace(config.http, listen=ANY_PORT))
    config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ServiceLock(config.data_dir, seconds=0):  # its caller has a loop, which must not wait
        app = App(config, platform_connectors(config), ConfigSource(file))
        running = asyncio.create_task(app.run(take_signals=False), name="fawn")
        try:
            while not app.http_address:
                if running.done():
                    running.result()
                await asyncio.sleep(POLL_SECONDS)
            name = f"embedded-{uuid4().hex[:12]}"
            person = person_name(ConsoleSettings())
            make = partial(make_key_of, name=name, channel=LOCAL_CHANNEL, id=person, scopes=THREADS, expires=EXPIRES)
            key, _row = await app.store.run(make)
            yield app.http_address, key
            with suppress(Exception):  # it ends with the process anyhow
                await app.store.run(partial(end_key, name=name))
        finally:
            app.stop()
            async with asyncio.timeout(STOP_SECONDS):
                await running
