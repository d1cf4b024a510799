"""Verify the audit: find the first row that was changed, cut or inserted."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.database.audit import (
    DAY_MS,
    NAMED_FIELDS,
    AuditKind,
    AuditRow,
    chain_hash,
    make_alias,
    pruned_text,
    read_anchor,
    read_names,
    read_page,
)
from bot.database.database import Execute

PAGE_ROWS = 10_000
BEFORE_ALL = -(2**63)


@dataclass(frozen=True, slots=True)
class ChainReport:
    """The result: how many rows are valid, the last of them, and the first fault."""

    rows: int
    seq: int
    hash: bytes
    fault: str | None = None
    deleted: tuple[int, ...] = ()  # anchors whose rows retention has deleted, so that they cannot be compared
    unanchored: int = 0  # rows after the newest anchor


@dataclass(frozen=True, slots=True)
class PruningRules:
    """What retention may have deleted: rows older than `days` (0: none). `sign` signs what it says ("": no key)."""

    days: int
    sign: Callable[[str], str] = lambda _text: ""


@contextmanager
def read_only(database: Path, *, snapshot: bool) -> Iterator[Execute]:
    """Open a database that a service may be writing. A `snapshot` shows one state of it all the time."""
    address = f"{database.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        if snapshot:
            connection.execute("BEGIN")
        yield lambda sql, values: connection.execute(sql, values).fetchall()


def read_rows(execute: Execute, after: int = BEFORE_ALL) -> Iterator[AuditRow]:
    """Yield every row that follows a number."""
    while page := read_page(execute, after, PAGE_ROWS):
        yield from page
        after = page[-1].seq


def verify_chain(execute: Execute, anchors: Mapping[int, bytes], pruning: PruningRules) -> ChainReport:
    """Verify all rows in one transaction. `anchors` are hashes by row number that were kept elsewhere."""
    start, first = read_anchor(execute)
    seq, before, earlier = start, first, b""  # the last valid row, its hash, and that of the row before it
    rows, oldest = 0, 0
    pruned = None if start == 0 else f"rows up to {start} are missing, and no row says that retention deleted them"
    used: dict[str, int] = {}  # pseudonyms, with the first row that uses them
    forgotten: set[str] = set()
    for row in read_rows(execute):
        if row.seq != seq + 1 or chain_hash(before, row.seq, row.body) != row.hash:
            return ChainReport(rows, seq, before, _describe_fault(row, seq, earlier))
        if row.seq in anchors and (fault := _differs(row.seq, row.hash, anchors)):
            return ChainReport(rows, seq, before, fault)
        event = row.event
        oldest = oldest or event["at"]
        if start and event["kind"] == AuditKind.PRUNED and _is_about(event, start, first):
            pruned = _check_pruned(event, oldest, pruning)
        for alias in (event[field] for field in NAMED_FIELDS if field in event):
            used.setdefault(alias, row.seq)
        if event["kind"] == AuditKind.PERSON_FORGOTTEN:
            forgotten |= {event.get("subject", ""), *str(event.get("what", {}).get("chats", "")).split()}
        seq, before, earlier, rows = row.seq, row.hash, before, rows + 1
    names = read_names(execute)
    nameless = next((alias for alias in used if alias not in names and alias not in forgotten), "")
    fault = _differs(start, first, anchors) or pruned
    if fault:
        pass
    elif beyond := [number for number in anchors if number > seq]:
        fault = f"row {seq + 1} and later ones were cut: an anchor has row {max(beyond)}"
    elif renamed := [alias for alias, (name, salt) in names.items() if make_alias(name, salt) != alias]:
        fault = f"the name of pseudonym {renamed[0]} was changed"
    elif nameless:
        fault = f"the name of pseudonym {nameless} (row {used[nameless]}) was deleted, and nobody was forgotten"
    deleted = tuple(number for number in anchors if number < start)
    return ChainReport(rows, seq, before, fault, deleted, seq - max([start, *anchors]))


def _is_about(event: dict[str, Any], start: int, first: bytes) -> bool:
    """Return whether a row says that retention deleted everything up to row `start`."""
    what = event.get("what", {})
    return (what.get("seq"), what.get("hash")) == (start, first.hex())


def _check_pruned(event: dict[str, Any], oldest: int, pruning: PruningRules) -> str | None:
    """Return why retention cannot have deleted what this row says; None if it can.

    `oldest` is the time of the first row. Retention keeps one row that is old enough to be deleted, so the first row
    tells that nothing newer is gone.
    """
    what, days = event["what"], event["what"].get("days")
    said = f"rows up to {what['seq']} are missing, and retention did not delete them"
    expected = pruning.sign(pruned_text(what))
    if expected and what.get("signature") != expected:
        return f"{said}: the row that says so is not signed with `audit.key`"
    if not expected and days != pruning.days:
        return f"{said}: the row that says so speaks of {days} days, and `audit.days` is {pruning.days}"
    tomorrow = time.time_ns() // 1_000_000 + DAY_MS
    if not isinstance(days, int) or days < 1 or not (oldest + days * DAY_MS <= event["at"] <= tomorrow):
        return f"{said}: the first row that is kept is not {days} days older than the row that says so"
    return None


def _differs(seq: int, found: bytes, anchors: Mapping[int, bytes]) -> str | None:
    if anchors.get(seq, found) == found:
        return None
    return f"row {seq} differs from the anchor: the chain was rewritten"


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
