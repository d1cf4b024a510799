"""Store what conversations were exposed to, and the digests of the addresses that they know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bot.database.database import Execute
from bot.database.rows import insert_row, read_row


@dataclass(frozen=True, slots=True)
class ExposureRow:
    """A conversation's exposure; the digests are of one length, one after the other, the oldest first."""

    conversation: str
    private: int = 0
    untrusted: int = 0
    files: int = 0
    known: bytes = b""
    said: bytes = b""
    listed: bytes = b""
    private_words: bytes = b""


def find_exposure(execute: Execute, conversation: str) -> ExposureRow:
    """Return the exposure of a conversation."""
    sql = "SELECT * FROM exposures WHERE conversation=:conversation"
    return read_row(execute, ExposureRow, sql, conversation=conversation) or ExposureRow(conversation)


def store_exposure(execute: Execute, row: ExposureRow) -> None:
    """Store the exposure of a conversation in place of its last one."""
    values = asdict(row)
    insert_row(execute, "exposures", "conversation", values, update=[each for each in values if each != "conversation"])


def inherit_exposure(execute: Execute, caller: str, conversation: str, most: Sequence[int]) -> None:
    """Let a conversation begin with what its caller has met, and keep what it has met itself.

    `most` are the bytes that are kept of each kind of digests.
    """
    old, own = find_exposure(execute, caller), find_exposure(execute, conversation)
    if old == ExposureRow(caller):
        return
    both = zip(
        (old.known, old.said, old.listed, old.private_words),
        (own.known, own.said, own.listed, own.private_words),
        most,
        strict=True,
    )
    flags = (old.private | own.private, old.untrusted | own.untrusted, old.files | own.files)
    store_exposure(
        execute, ExposureRow(conversation, *flags, *((older + newer)[-count:] for older, newer, count in both))
    )


def forget_words(execute: Execute, conversation: str) -> None:
    """Forget the words that a conversation has met. What it was exposed to stays true."""
    sql = "UPDATE exposures SET said=:none, listed=:none, private_words=:none WHERE conversation=:conversation"
    execute(sql, {"none": b"", "conversation": conversation})
