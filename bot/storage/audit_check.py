"""Verify the audit: find the first row that was changed, cut or inserted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bot.storage.audit import AuditKind, AuditRow, chain_hash, make_alias, read_anchor, read_names, read_page
from bot.storage.database import Execute

PAGE_ROWS = 10_000
_BEFORE_ALL = -(2**63)
_PRUNED = f'"{AuditKind.PRUNED}"'.encode()


@dataclass(frozen=True, slots=True)
class ChainReport:
    """The result: how many rows are valid, the last of them, and the first fault ("": none)."""

    rows: int
    seq: int
    hash: bytes
    fault: str = ""
    deleted: tuple[int, ...] = ()  # anchors whose rows retention has deleted, so that they cannot be compared


@contextmanager
def read_only(database: Path, *, snapshot: bool) -> Iterator[Execute]:
    """Open a database that a service may be writing. A `snapshot` shows one state of it all the time."""
    address = f"{database.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        if snapshot:
            connection.execute("BEGIN")
        yield lambda sql, values: connection.execute(sql, values).fetchall()


def read_rows(execute: Execute, after: int = _BEFORE_ALL) -> Iterator[AuditRow]:
    """Yield every row that follows a number."""
    while page := read_page(execute, after, PAGE_ROWS):
        yield from page
        after = page[-1].seq


def verify_chain(execute: Execute, anchors: Mapping[int, bytes]) -> ChainReport:
    """Verify all rows in one transaction. `anchors` are hashes by row number that were kept elsewhere."""
    start, first = read_anchor(execute)
    seq, before, earlier = start, first, b""  # the last valid row, its hash, and that of the row before it
    confirmed, rows = start == 0, 0
    for row in read_rows(execute):
        if row.seq != seq + 1 or chain_hash(before, row.seq, row.body) != row.hash:
            return ChainReport(rows, seq, before, _describe_fault(row, seq, earlier))
        if row.seq in anchors and (fault := _differs(row.seq, row.hash, anchors)):
            return ChainReport(rows, seq, before, fault)
        if not confirmed and _PRUNED in row.body:
            confirmed = _confirms(row, start, first)
        seq, before, earlier, rows = row.seq, row.hash, before, rows + 1
    fault = _differs(start, first, anchors)
    if not confirmed:
        fault = f"rows up to {start} are missing, and no row says that retention deleted them"
    elif beyond := [number for number in anchors if number > seq]:
        fault = f"row {seq + 1} and later ones were cut: an anchor has row {max(beyond)}"
    elif renamed := [alias for alias, (name, salt) in read_names(execute).items() if make_alias(name, salt) != alias]:
        fault = f"the name of pseudonym {renamed[0]} was changed"
    return ChainReport(rows, seq, before, fault, tuple(number for number in anchors if number < start))


def _confirms(row: AuditRow, start: int, first: bytes) -> bool:
    """Return whether a row says that retention deleted everything up to row `start`."""
    event = row.event
    return event.get("kind") == AuditKind.PRUNED and event.get("what") == {"seq": start, "hash": first.hex()}


def _differs(seq: int, found: bytes, anchors: Mapping[int, bytes]) -> str:
    return f"row {seq} differs from the anchor: the chain was written anew" if anchors.get(seq, found) != found else ""


def _describe_fault(row: AuditRow, seq: int, earlier: bytes) -> str:
    """Say why a row does not follow row `seq`. `earlier` is the hash of the row before that one."""
    if row.seq <= seq:
        return f"row {row.seq} was inserted before the first one"
    if row.seq > seq + 1:
        missing = f"row {seq + 1} was" if row.seq == seq + 2 else f"rows {seq + 1} to {row.seq - 1} were"
        return f"{missing} cut"
    if earlier and chain_hash(earlier, seq, row.body) == row.hash:
        return f"row {seq} was inserted"
    return f"row {row.seq} was changed or inserted, or a row was cut before it"
