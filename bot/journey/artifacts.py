"""Collect the files that a turn left in outputs/: each new or changed file once, by its stamp."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from agent.blocks import CALL_FILE_NAME, Approve, Ask, File, Final, View
from agent.schedules import NOTHING_NEW
from catalogue import LazyText, _, list_items, localized, ngettext
from channels.base import Channel, OutgoingFile
from sandbox import base
from sandbox.disk import safe_files
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import remove_tree
from sandbox.inside.search import SkipReason, WalkBounds

MAX_FILES_PER_TURN, MOST_BYTES = 20, 100 << 20  # of one turn; the rest stays in outputs/ and is named
DEFAULT_UPLOAD_BYTES = 50 << 20  # of one file, while its channel is not connected
NOTES = 3  # lines about files that cannot be sent
LATER = "later "  # before the stamp of a file that was named, not sent: it goes out when it is presented
BOUNDS = WalkBounds(entries=10_000, path_bytes=1_000, seconds=2.0)


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Files to send (private copies), the stamps to store, and notes about files that cannot be sent."""

    stamps: Mapping[str, str]
    files: tuple[OutgoingFile, ...] = ()
    notes: tuple[str, ...] = ()


def upload_limit(channel: Channel | None) -> int:
    """Return the size (bytes) of the largest file that a channel accepts; a usual one while it is not connected."""
    return channel.limits.upload if channel else DEFAULT_UPLOAD_BYTES


async def collect_artifacts(
    folder: Path, spool: Path, seen: Mapping[str, str], presented: Sequence[File], limit: int
) -> Artifacts:
    """Copy new files below `folder`/outputs into `spool`.

    `seen` maps path to the stamp that was sent already. `presented` files come first, in their order, with captions.
    `limit` is the size (bytes) of the largest file that the channel accepts.
    """
    return await run_file_work(_collect, folder / "outputs", spool, seen, presented, limit)


async def add_long_calls(collected: Artifacts, asks: Sequence[Ask | Approve], spool: Path) -> Artifacts:
    """Add a file for each call that needs approval and is too long to be shown."""
    calls = [ask.call for ask in asks if isinstance(ask, Approve) and ask.has_long_call]
    files = await asyncio.to_thread(_write_calls, spool, calls) if calls else ()
    return replace(collected, files=(*files, *collected.files))


def _write_calls(spool: Path, calls: Sequence[str]) -> list[OutgoingFile]:
    spool.mkdir(parents=True, exist_ok=True)
    files = []
    for number, call in enumerate(calls):
        path = spool / f"call-{number}"
        files.append(OutgoingFile(path, CALL_FILE_NAME, path.write_bytes(call.encode("utf-8", "replace"))))
    return files


def make_final(view: View, collected: Artifacts) -> Final:
    """Return the final reply of a turn, which names its files if it has no words, and what cannot be sent."""
    final = view.final()
    text = final.text
    if collected.files and not (view.text.strip() or view.failed or view.asks):
        text = _("Created: {files}", files=list_items(file.name for file in collected.files))
        if view.done and view.done.state == "stopped":
            text += "\n\n" + _("_Stopped._")
    if collected.notes:
        text = f"{text}\n\n" + "\n".join(collected.notes)
    return replace(final, text=text.strip())


def is_silent(unattended: bool, view: View, collected: Artifacts) -> bool:
    """Return whether a run that nobody waits for ended with nothing to report: the marker as answer, nothing else."""
    is_done = view.done is not None and view.done.state == "done" and not view.failed
    return unattended and is_done and not collected.files and view.text.strip() == NOTHING_NEW


def _collect(outputs: Path, spool: Path, seen: Mapping[str, str], presented: Sequence[File], limit: int) -> Artifacts:
    remove_tree(spool)  # copies of an interrupted attempt
    refused = _Refused()
    found = safe_files.list_files(outputs, BOUNDS, refused.skip)
    stamps = {path: _format_stamp(stamp) for path, stamp in found.items() if not stamp.problem}
    unsendable = {_key(path): f"!{stamp.problem}" for path, stamp in found.items() if stamp.problem}
    for path, stamp in found.items():
        if stamp.problem and seen.get(_key(path)) != unsendable[_key(path)]:
            refused.add(path, stamp.problem)
    captions = {file.path.removeprefix(f"{base.OUTPUTS}/"): file.caption for file in presented}
    waiting = {path for path, stamp in stamps.items() if seen.get(path) == f"{LATER}{stamp}"} - captions.keys()
    new = [path for path in captions if path in stamps and seen.get(path) != stamps[path]]
    new += sorted(path for path in stamps.keys() - captions.keys() - waiting if seen.get(path) != stamps[path])
    out: list[OutgoingFile] = []
    later: list[str] = []
    room = MOST_BYTES
    for path in new:
        size = found[path].size
        if len(out) == MAX_FILES_PER_TURN or (out and limit >= size > room):
            later.append(path)
            continue
        target = spool / f"{len(out)}"
        try:
            spool.mkdir(mode=0o700, parents=True, exist_ok=True)
            size = safe_files.copy_out(outputs, path, target, min(limit, room) if out else limit)
        except (base.SandboxError, OSError) as error:
            refused.add(path, _refusal_reason(error, size, limit))
            target.unlink(missing_ok=True)
            continue
        room -= size
        out.append(OutgoingFile(target, Path(path).name, size, captions.get(path, "")))
    stamps |= {path: f"{LATER}{stamps[path]}" for path in [*later, *waiting]}
    notes = refused.notes(seen)
    if later:
        notes.append(
            ngettext(
                "{n} more file is in outputs/ (at most {files} files and {size} MB go out with one answer);"
                " ask for it by name.",
                "{n} more files are in outputs/ (at most {files} files and {size} MB go out with one answer);"
                " ask for them by name.",
                len(later),
                files=MAX_FILES_PER_TURN,
                size=MOST_BYTES >> 20,
            )
        )
    return Artifacts(refused.complete(stamps | unsendable, seen), tuple(out), tuple(notes))


class _Refused:
    """Notes about files that are not sent. What the walk skipped has no stamp, but the notes about it have one."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._skipped: list[str] = []

    def add(self, path: str, why: object) -> None:
        self._lines.append(_not_sent(path, why))

    def skip(self, path: str, why: SkipReason) -> None:
        self._skipped.append(_not_sent(path, LazyText(why.sentence, n=why.n)))

    def _said(self) -> str:
        return f"!{hashlib.sha256(repr(self._skipped).encode()).hexdigest()}" if self._skipped else ""

    def notes(self, seen: Mapping[str, str]) -> list[str]:
        """Return the first notes that were not sent before."""
        lines = self._lines + (self._skipped if seen.get("", "") != self._said() else [])
        more = [ngettext("… and {n:,} more.", "… and {n:,} more.", len(lines) - NOTES)] if len(lines) > NOTES else []
        return lines[:NOTES] + more

    def complete(self, stamps: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, str]:
        """Return the stamps to store. Those of files that this walk did not reach stay: they were sent."""
        if not self._skipped:
            return dict(stamps)
        unreached = [path for path in seen if path and path not in stamps]
        kept = {path: seen[path] for path in unreached[: BOUNDS.entries]}
        return {**stamps, **kept, "": self._said()}


def _key(path: str) -> str:
    """Return the stored name of a path. Bytes that are not text are quoted, behind a slash that no path begins with."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"/{quote(os.fsencode(path))}"
    return path


def _format_stamp(stamp: safe_files.Stamp) -> str:
    return f"{stamp.mtime_ns} {stamp.ctime_ns} {stamp.size} {stamp.ino}"


def _refusal_reason(error: Exception, size: int, limit: int) -> str:
    if size > limit:
        size, limit = round(size / (1 << 20)), limit >> 20
        return _("{size} MB, over this chat's limit of {limit} MB", size=size, limit=limit)
    return localized(error) if isinstance(error, base.SandboxError) else _("could not be read")


def _not_sent(path: str, why: object) -> str:
    return _("Not sent: {path} ({reason}).", path=_shown_path(path), reason=why)


def _shown_path(path: str) -> str:
    return f"`{safe_files.shown_path(path).replace('`', '�')}`"
