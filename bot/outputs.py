"""What a turn left in outputs/ becomes files of its reply: each new or changed one once, by its stamp."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from agent.conversation import File
from bot.store import Execute, Row
from channels.base import OutFile
from sandbox import base
from sandbox.disk import safe_files
from sandbox.disk.file_threads import file_work

log = logging.getLogger(__name__)

MOST = 20  # files of one turn; the rest stays in outputs/ and is named


@dataclass(frozen=True, slots=True)
class Collected:
    """Files to hand over (private copies), the stamps to remember, and sentences about what cannot be sent."""

    stamps: Mapping[str, str]
    files: tuple[OutFile, ...] = ()
    notes: tuple[str, ...] = ()


async def collect(
    folder: Path, spool: Path, seen: Mapping[str, str], presented: Sequence[File], limit: int
) -> Collected:
    """Copy what is new below `folder`/outputs into `spool`.

    `seen` maps path to the stamp that was handed over already; `presented` comes first, in its order, with captions;
    `limit` is the largest file (bytes) the channel takes.
    """
    return await file_work(_collect, folder / "outputs", spool, seen, presented, limit)


def _collect(outputs: Path, spool: Path, seen: Mapping[str, str], presented: Sequence[File], limit: int) -> Collected:
    shutil.rmtree(spool, ignore_errors=True)  # what an interrupted try of this run copied
    if not outputs.is_dir():
        return Collected(stamps={})
    found = safe_files.snapshot(outputs)
    stamps = {path: _stamp(stamp) for path, stamp in found.items() if not stamp.problem}
    unsendable = {path: f"!{stamp.problem}" for path, stamp in found.items() if stamp.problem}
    reasons = {_key(path): why for path, why in unsendable.items()}
    captions = {file.path.removeprefix(f"{base.OUTPUTS}/"): file.caption for file in presented}
    new = [path for path in captions if path in stamps and seen.get(path) != stamps[path]]
    new += sorted(path for path in stamps if path not in captions and seen.get(path) != stamps[path])
    notes = [
        f"Not sent: {_shown(path)} ({why[1:]})." for path, why in unsendable.items() if seen.get(_key(path)) != why
    ]
    if len(new) > MOST:
        notes.append(f"{len(new) - MOST} more files are in outputs/; ask for them by name.")
    out: list[OutFile] = []
    for path in new[:MOST]:
        target = spool / f"{len(out)}"
        try:
            spool.mkdir(parents=True, exist_ok=True)
            size = safe_files.copy_out(outputs, path, target, limit)
        except (base.SandboxError, OSError) as error:
            notes.append(f"Not sent: {_shown(path)} ({_reason(error, found[path].size, limit)}).")
            target.unlink(missing_ok=True)
            continue
        out.append(OutFile(target, Path(path).name, size, captions.get(path, "")))
    return Collected(stamps | reasons, tuple(out), tuple(notes))


def _key(path: str) -> str:
    """What the store knows a path by. One with bytes that are no text is quoted, where no path begins with a slash."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"/{quote(os.fsencode(path))}"
    return path


def _stamp(stamp: safe_files.Stamp) -> str:
    return f"{stamp.mtime_ns} {stamp.ctime_ns} {stamp.size} {stamp.ino}"


def _reason(error: Exception, size: int, limit: int) -> str:
    if size > limit:
        return f"{size / (1 << 20):.0f} MB, over this chat's limit of {limit >> 20} MB"
    return str(error) if isinstance(error, base.SandboxError) else "could not be read"


def _shown(path: str) -> str:
    return f"`{safe_files.shown(path).replace('`', '�')}`"


def seen(execute: Execute, conversation: str) -> dict[str, str]:
    """What was handed over of this conversation's outputs."""
    rows: Sequence[Row] = execute(
        "SELECT path, stamp FROM outputs WHERE conversation=:conversation", {"conversation": conversation}
    )
    return {row["path"]: row["stamp"] for row in rows}


def record(execute: Execute, conversation: str, collected: Collected, before: Mapping[str, str]) -> None:
    """Remember the stamps, in the transaction that writes the files' outbox rows."""
    for path, stamp in collected.stamps.items():
        if before.get(path) != stamp:
            execute(
                "INSERT INTO outputs(conversation, path, stamp) VALUES (:conversation, :path, :stamp)"
                " ON CONFLICT(conversation, path) DO UPDATE SET stamp=excluded.stamp",
                {"conversation": conversation, "path": path, "stamp": stamp},
            )
    for path in before.keys() - collected.stamps.keys():
        execute(
            "DELETE FROM outputs WHERE conversation=:conversation AND path=:path",
            {"conversation": conversation, "path": path},
        )
