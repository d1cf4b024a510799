"""Seal the handles of events before they are stored, and open them for the replies."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from agent.messages import Message, ReplyHandle, Thread
from bot.base.stored_secrets import HANDLE, sealer_of
from bot.config.schema import Config
from bot.database.database import Execute
from bot.storage import reply_handles
from sandbox.disk.sealing import NotOpened

log = logging.getLogger(__name__)


def keep_handle(execute: Execute, config: Config, message: Message) -> None:
    """Store the handle of a message, if it has one, until its end."""
    if (handle := message.reply_handle) and handle.current:
        sealed = replace(handle, token=sealer_of(config).seal(handle.token, HANDLE))
        reply_handles.store_handle(execute, message, sealed, time.time())


def find_handle(execute: Execute, config: Config, thread: Thread, message: str) -> ReplyHandle | None:
    """Return the handle by which to answer a message; None without one, or under another key."""
    return open_handle(config, reply_handles.find_handle(execute, thread, message))


def open_handle(config: Config, stored: ReplyHandle | None) -> ReplyHandle | None:
    """Return a handle as its channel gave it."""
    if stored is None:
        return None
    try:
        return replace(stored, token=sealer_of(config).open(stored.token, HANDLE))
    except NotOpened as error:
        log.error("secrets.not_opened what=handle reason=%s", error)  # noqa: TRY400 — the reason is enough
        return None
