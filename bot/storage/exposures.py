"""Store what conversations were exposed to, and the digests of the addresses that they know."""

from __future__ import annotations

from dataclasses import dataclass

from bot.storage.database import Execute
from bot.storage.rows import insert_row, read_row


@dataclass(frozen=True, slots=True)
class ExposureRow:
    """A conversation's exposure; `known` are digests of one length, one after the other, the oldest first."""

    conversation: str
    private: int = 0
    untrusted: int = 0
    files: int = 0
    known: bytes = b""


def find_exposure(execute: Execute, conversation: str) -> ExposureRow:
    """Return the exposure of a conversation."""
    sql = "SELECT * FROM exposures WHERE conversation=:conversation"
    return read_row(execute, ExposureRow, sql, conversation=conversation) or ExposureRow(conversation)


def store_exposure(execute: Execute, row: ExposureRow) -> None:
    """Store the exposure of a conversation in place of its last one."""
    values = {"private": row.private, "untrusted": row.untrusted, "files": row.files, "known": row.known}
    insert_row(execute, "exposures", "conversation", {"conversation": row.conversation} | values, update=[*values])


def inherit_exposure(execute: Execute, caller: str, conversation: str, known_bytes: int) -> None:
    """Let a conversation begin with what its caller has met, and keep what it has met itself."""
    old, own = find_exposure(execute, caller), find_exposure(execute, conversation)
    if old == ExposureRow(caller):
        return
    known = (old.known + own.known)[-known_bytes:]
    flags = (old.private | own.private, old.untrusted | own.untrusted, old.files | own.files)
    store_exposure(execute, ExposureRow(conversation, *flags, known))
