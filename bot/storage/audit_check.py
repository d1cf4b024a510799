"""Verify the audit: find the first row that was changed, cut or inserted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
        fault = _fault_of(row, seq, before, earlier) or _differs(row.seq, row.hash, anchors)
        if fault:
            return ChainReport(rows, seq, before, fault)
        if not confirmed and _PRUNED in row.body:
            what = row.event.get("what")
            confirmed = row.event["kind"] == AuditKind.PRUNED and what == {"seq": start, "hash": first.hex()}
        seq, before, earlier, rows = row.seq, row.hash, before, rows + 1
    fault = _differs(start, first, anchors)
    if not confirmed:
        fault = f"rows up to {start} are missing, and no row says that retention deleted them"
    elif beyond := [number for number in anchors if number > seq]:
        fault = f"row {seq + 1} and later ones were cut: an anchor has row {max(beyond)}"
    elif renamed := [alias for alias, (name, salt) in read_names(execute).items() if make_alias(name, salt) != alias]:
        fault = f"the name of pseudonym {renamed[0]} was changed"
    return ChainReport(rows, seq, before, fault, tuple(number for number in anchors if number < start))


def _differs(seq: int, found: bytes, anchors: Mapping[int, bytes]) -> str:
    return f"row {seq} differs from the anchor: the chain was written anew" if anchors.get(seq, found) != found else ""


def _fault_of(row: AuditRow, seq: int, before: bytes, earlier: bytes) -> str:
    """Say what is wrong with a row that must follow row `seq`, whose hash is `before`; "" if it does."""
    if row.seq <= seq:
        return f"row {row.seq} was inserted before the first one"
    if row.seq > seq + 1:
        missing = f"row {seq + 1} was" if row.seq == seq + 2 else f"rows {seq + 1} to {row.seq - 1} were"
        return f"{missing} cut"
    if chain_hash(before, row.seq, row.body) == row.hash:
        return ""
    if earlier and chain_hash(earlier, seq, row.body) == row.hash:
        return f"row {seq} was inserted"
    return f"row {row.seq} was changed or inserted, or a row was cut before it"
