"""Run the program and record every statement it sends to SQLite: `python -m tests.support.traced_service FILE …`.

The statements stand in FILE in their order, each before a zero byte, as soon as it is sent. The text with its
parameters is needed: what a tracer of SQLite tells has the values in place of them, and a query with values may use an
index that the same one with parameters may not.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from bot.__main__ import main
from tests.support.forked_services import load_program

DURABLE, LAZY = "COMMIT", "COMMIT -- does not wait for the disk"


def run(file: Path, arguments: list[str]) -> int:
    """Run the program and return its exit code. A profiler sees each call of `Connection.execute`, on every thread."""
    seen = file.open("w")

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call" or not isinstance(called.__self__, sqlite3.Connection):
            return
        if called.__name__ == "execute" and (sql := frame.f_locals.get("sql")):
            seen.write(f"{sql}\0")
        elif called.__name__ == "commit":
            seen.write(f"{DURABLE if frame.f_locals['batch'].durable else LAZY}\0")
        seen.flush()

    load_program()  # before every call in it takes the profiler's time
    threading.setprofile(watch)
    try:
        return main(arguments)
    finally:
        seen.close()


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
