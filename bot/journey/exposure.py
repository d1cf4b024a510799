"""Keep what a conversation was exposed to across its turns, and let what it starts inherit it."""

from __future__ import annotations

from functools import partial

from agent.exposed_words import MAX_LISTED, MAX_PRIVATE, MAX_SAID, WORD_BYTES, MetWords
from agent.exposure import DIGEST_BYTES, MAX_KNOWN, Exposure
from bot.current import Current
from bot.storage import exposures
from bot.storage.database import Database, Execute
from bot.storage.exposures import ExposureRow

MAX_BYTES = (MAX_KNOWN * DIGEST_BYTES, *(count * WORD_BYTES for count in (MAX_SAID, MAX_LISTED, MAX_PRIVATE)))


def open_exposure(store: Database, current: Current, row: ExposureRow) -> Exposure:
    """Return the exposure of a conversation, which stores each change."""

    async def save(exposure: Exposure) -> None:
        flags = (int(exposure.private), int(exposure.untrusted), int(exposure.files))
        words = exposure.words
        kinds = (exposure.known, words.said, words.listed, words.private)
        changed = ExposureRow(row.conversation, *flags, *map(b"".join, kinds))
        # What the model answers to it is committed later, and takes this commit to the disk with it.
        await store.run(partial(exposures.store_exposure, row=changed), durable=False)

    return Exposure(
        bool(row.private),
        bool(row.untrusted),
        bool(row.files),
        _digests(row.known, DIGEST_BYTES),
        MetWords(*(_digests(each, WORD_BYTES) for each in (row.said, row.listed, row.private_words))),
        lambda: current.config.permissions.outward,
        lambda: current.config.sandbox.network.enabled,
        save,
    )


def inherit_exposure(execute: Execute, caller: str, conversation: str) -> None:
    """Let a conversation that another one starts begin with what that one has met."""
    exposures.inherit_exposure(execute, caller, conversation, MAX_BYTES)


def _digests(stored: bytes, length: int) -> dict[bytes, None]:
    return dict.fromkeys(stored[at : at + length] for at in range(0, len(stored), length))
