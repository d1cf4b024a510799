"""Keep what a conversation was exposed to across its turns, and let what it starts inherit it."""

from __future__ import annotations

from functools import partial

from agent.exposure import DIGEST_BYTES, MAX_KNOWN, MAX_LISTED, MAX_PRIVATE, MAX_SAID, WORD_BYTES, Exposure, MetWords
from bot.database.database import Database, Execute
from bot.rights.current import Current
from bot.storage import exposures
from bot.storage.exposures import ExposureRow

MAX_BYTES = (MAX_KNOWN * DIGEST_BYTES, *(count * WORD_BYTES for count in (MAX_SAID, MAX_LISTED, MAX_PRIVATE)))


def open_exposure(store: Database, current: Current, row: ExposureRow) -> Exposure:
    """Return the exposure of a conversation. It stores what may make calls ask; `Account.commit` stores the rest."""

    async def save(exposure: Exposure) -> None:
        # What the model answers to it is committed later, and takes this commit to the disk with it.
        changed = make_row(row.conversation, exposure)
        try:
            await store.run(partial(exposures.store_exposure, row=changed), durable=False)
        except BaseException:
            exposure.unsaved = True
            raise

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


def make_row(conversation: str, exposure: Exposure) -> ExposureRow:
    """Return what is stored of an exposure, which counts as saved from now on."""
    exposure.unsaved = False
    flags = (int(exposure.private), int(exposure.untrusted), int(exposure.files))
    words = exposure.words
    kinds = (exposure.known, words.said, words.listed, words.private)
    return ExposureRow(conversation, *flags, *map(b"".join, kinds))


def inherit_exposure(execute: Execute, caller: str, conversation: str) -> None:
    """Let a conversation that another one starts begin with what that one has met."""
    exposures.inherit_exposure(execute, caller, conversation, MAX_BYTES)


def _digests(stored: bytes, length: int) -> dict[bytes, None]:
    return dict.fromkeys(stored[at : at + length] for at in range(0, len(stored), length))
