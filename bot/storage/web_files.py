"""Files on the channel `web`: what people sent and got over HTTP. Entries of the transcript name them by their item."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass

from bot.database.database import Execute
from bot.database.rows import insert_row, read_row

_OF_RUN = re.compile(r"r([0-9]{1,18})-([0-9]{1,4})")
_ITEM = re.compile(r"file:(.+):([0-9]{1,4})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class WebFileRow:
    """A file. `person` is the id on the channel `web` whose thread has it."""

    id: str
    thread: str
    person: str
    name: str
    size: int  # bytes
    caption: str
    at: float


def sent_id(message: str, number: int) -> str:
    """Return the id of a file that came with the message of this key."""
    return f"u{hashlib.sha256(message.encode()).hexdigest()[:32]}-{number}"


def run_file_id(run: int, number: int) -> str:
    """Return the id of a file that a run delivered."""
    return f"r{run}-{number}"


def notice_file_id(row: int, number: int) -> str:
    """Return the id of a file that the bot itself delivered by a row of the outbox."""
    return f"o{row}-{number}"


def parse_run_file(id: str) -> tuple[int, int] | None:
    """Return the run that delivered a file, and the number of the file; None for another one."""
    found = _OF_RUN.fullmatch(id)
    return (int(found[1]), int(found[2])) if found else None


def id_of_entry(item: str, *, sent: bool) -> str:
    """Return the id of the file that an entry of a transcript names; "" for none. `sent`: a person sent it."""
    found = _ITEM.fullmatch(item)
    if not found:
        return ""
    number = int(found[2])
    if sent:
        return sent_id(found[1], number)
    return run_file_id(int(found[1]), number) if found[1].isdecimal() else f"{found[1]}-{number}"


def add_file(execute: Execute, row: WebFileRow) -> None:
    """Store a file, also again."""
    insert_row(execute, "web_files", "id", asdict(row), update=("name", "size", "caption"))


def find_file(execute: Execute, id: str, person: str) -> WebFileRow | None:
    """Return a file of a person."""
    return read_row(
        execute, WebFileRow, "SELECT * FROM web_files WHERE id=:id AND person=:person", id=id, person=person
    )


def delete_files(execute: Execute, thread: str, person: str) -> None:
    """Delete the files of a thread."""
    sql = "DELETE FROM web_files WHERE person=:person AND thread=:thread"
    execute(sql, {"person": person, "thread": thread})


def unknown_ids(execute: Execute, ids: Collection[str]) -> set[str]:
    """Return those that no row has."""
    return {id for id in ids if not execute("SELECT 1 FROM web_files WHERE id=:id", {"id": id})}
