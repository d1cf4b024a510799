"""Say how commands of the command line end."""

from __future__ import annotations

import sys

from agent.foreign_text import printable_text
from catalogue import localized

OK, FAULT, CONFIG, TAKEN, NOT_RUNNING = 0, 1, 2, 3, 4
GAVE_WAY = 75  # a command's service ended for another one, which goes on with its work (EX_TEMPFAIL, sysexits.h)
INTERRUPTED = 130  # by Ctrl-C, as shells say


def fail(error: object, code: int) -> int:
    """Print an error and return the exit code."""
    print(f"fawn: {printable_text(localized(error))}", file=sys.stderr)  # it may quote a stranger's server
    return code
