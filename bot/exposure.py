"""Keep what a conversation was exposed to across its turns, and let what it starts inherit it."""

from __future__ import annotations

from functools import partial

from agent.exposure import DIGEST_BYTES, MAX_KNOWN, Exposure
from bot.current import Current
from bot.storage import exposures
from bot.storage.database import Database, Execute
from bot.storage.exposures import ExposureRow

MAX_KNOWN_BYTES = MAX_KNOWN * DIGEST_BYTES


def open_exposure(store: Database, current: Current, row: ExposureRow) -> Exposure:
    """Return the exposure of a conversation, which stores each change."""

    async def save(exposure: Exposure) -> None:
        flags = (int(exposure.private), int(exposure.untrusted), int(exposure.files))
        changed = ExposureRow(row.conversation, *flags, b"".join(exposure.known))
        await store.run(partial(exposures.store_exposure, row=changed))

    return Exposure(
        bool(row.private),
        bool(row.untrusted),
        bool(row.files),
        dict.fromkeys(row.known[at : at + DIGEST_BYTES] for at in range(0, len(row.known), DIGEST_BYTES)),
        lambda: current.config.permissions.outward,
        lambda: current.config.sandbox.network.enabled,
        save,
    )


def inherit_exposure(execute: Execute, caller: str, conversation: str) -> None:
    """Let a conversation that another one starts begin with what that one has met."""
    exposures.inherit_exposure(execute, caller, conversation, MAX_KNOWN_BYTES)
