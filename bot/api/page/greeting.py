"""Tell who starts the service at a terminal where the page is, and open it on the desktop of a first try."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from functools import partial

from bot.api.shared.sessions import link_address, make_link
from bot.commands.feature import Door
from bot.config.http import DemoHttpConfig
from bot.rights.access import LOCAL_CHANNEL
from catalogue import N_, _
from channels.console import ConsoleSettings, person_name
from sandbox.processes import start_process

log = logging.getLogger(__name__)

PAGE = N_("The page is ready: this link signs you in, once within 10 minutes (`fawn web link` makes another).")


async def greet(door: Door) -> str:
    """Return a link to the page for the person of the console; "" where nothing listens."""
    if not (address := door.status.http_address):
        return ""
    config = door.current.config
    settings = next((entry.settings for entry in config.channels if entry.name == LOCAL_CHANNEL), ConsoleSettings())
    what: dict[str, int | str] = {"via": LOCAL_CHANNEL}
    token = await door.store.run(partial(make_link, channel=LOCAL_CHANNEL, person=person_name(settings), what=what))
    link = link_address(address, token)
    if isinstance(config.http, DemoHttpConfig) and config.http.opens:
        await _open_on_desktop(link)
    return f"{_(PAGE)}\n{link}"


async def _open_on_desktop(link: str) -> None:
    """Have the desktop open a link, if it can; the terminal shows the link, too."""
    program = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
    if program is None:
        return
    nowhere = asyncio.subprocess.DEVNULL
    try:  # nobody waits for it: some openers end with the browser
        await start_process(program, link, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
    except OSError as error:
        log.info("page.not_opened reason=%r", error)
