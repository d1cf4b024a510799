"""Reports of how the process died: `data_dir/crashes` has one file for each death that was no shutdown.

A fault of Python ends in a traceback, one of native code in what `faulthandler` writes (docs.python.org/3/library/
faulthandler.html). Of a process that was killed from outside, such as for its memory, nothing remains but a file that
says when it began and last worked; the next start finds it.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from bot.base.version import VERSION
from catalogue import N_, _

log = logging.getLogger(__name__)

FOLDER = "crashes"
ALIVE = "alive"  # the file of the process that works
ALIVE_SECONDS = 10.0
KEPT = 10  # reports
SHOWN_DAYS = 7.0  # a report is named by `fawn status` for so long
MAX_BYTES = 200_000  # of a report that is read
KILLED = N_("it was killed from outside, such as for its memory")


@dataclass(frozen=True, slots=True)
class CrashReport:
    """A report: its file, when the process died (unix time), and what of."""

    file: Path
    at: float
    why: str


@contextmanager
def reporting_crashes(data_dir: Path) -> Iterator[None]:
    """Report how this process dies, unless it leaves the context. The caller holds the lock on data_dir.

    Raises nothing of its own: without room for a report there is none.
    """
    folder = data_dir / FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        _keep_last(folder)
        file = (folder / ALIVE).open("w", encoding="utf-8", buffering=1)
    except OSError as error:
        log.warning("crash.no_reports reason=%s", error)
        yield
        return
    ended = threading.Event()
    with file:
        file.write(f"Fawn {VERSION}, process {os.getpid()}, began {_now()}\n")
        faulthandler.enable(file)
        threading.Thread(target=_note_alive, args=(folder / ALIVE, ended), name="alive", daemon=True).start()
        try:
            yield
        except Exception:
            _write_traceback(file)
            _keep_last(folder)
            raise
        finally:
            ended.set()
            faulthandler.disable()
            (folder / ALIVE).unlink(missing_ok=True)


def latest_crash(data_dir: Path, now: float, *, is_dead: bool = False) -> CrashReport | None:
    """Return the latest report of the last days; None where there is none. Blocks.

    `is_dead`: no process works on data_dir, so what the last one left is a report, too, before a start names it so.
    """
    try:
        folder = data_dir / FOLDER
        files = [*folder.glob("*.txt"), *([folder / ALIVE] if is_dead and (folder / ALIVE).exists() else [])]
        newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
        if newest is None or (at := newest.stat().st_mtime) < now - SHOWN_DAYS * 86400:
            return None
        return CrashReport(newest, at, _why(newest))
    except OSError:
        return None


def describe_crash(report: CrashReport) -> str:
    """Return a sentence about a report."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(report.at))
    return _("The process died at {when}: {why}. The report: {file}", when=when, why=report.why, file=report.file)


def _keep_last(folder: Path) -> None:
    """Make a report of the file that a dead process left; delete the oldest ones. Raises OSError."""
    left = folder / ALIVE
    if left.exists():
        at = datetime.fromtimestamp(left.stat().st_mtime, UTC)
        report = folder / f"{at:%Y%m%d-%H%M%S}-{_number_of(left)}.txt"
        os.replace(left, report)
        log.warning("crash.found file=%s why=%s", report, _why(report))
    old = sorted(folder.glob("*.txt"), key=lambda file: file.stat().st_mtime)[:-KEPT]
    for file in old:
        file.unlink(missing_ok=True)


def _note_alive(file: Path, ended: threading.Event) -> None:
    """Note every few seconds that the process works, so that the report of one that is killed says until when."""
    while not ended.wait(ALIVE_SECONDS):
        with suppress(OSError):
            os.utime(file)


def _number_of(file: Path) -> str:
    """Return the number of the process that wrote a report, which makes its name unique."""
    words = file.read_text("utf-8", "replace")[:MAX_BYTES].split()
    return words[3].rstrip(",") if len(words) > 3 else "0"


def _why(report: Path) -> str:
    """Return what a report says first: the fault of native code, or the error of Python."""
    lines = report.read_text("utf-8", "replace")[:MAX_BYTES].splitlines()[1:]
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    return (fatal or [line for line in lines[-1:] if line.strip()] or [_(KILLED)])[0]


def _write_traceback(file: TextIO) -> None:
    from bot.base.log import current_redactor

    redact = current_redactor()
    file.write(f"{_now()}\n{redact(traceback.format_exc())}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
