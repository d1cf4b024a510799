"""Say and ask at a terminal: rows end between words, and a question is open only as long as it holds."""

from __future__ import annotations

import select
import shutil
import sys
import termios
from collections.abc import Callable

YES = ("y", "yes", "是")
LOOK_SECONDS = 0.5  # between two looks whether an open question still holds


class QuestionVoid(Exception):
    """A question no longer holds."""


def fit_words(text: str) -> str:
    """Return a text in rows of the terminal that end between words; as it is where stdout is none. Links stay whole."""
    if not sys.stdout.isatty():
        return text
    from wcwidth import wrap

    columns = shutil.get_terminal_size().columns
    return "\n".join(
        row
        for line in text.split("\n")
        for row in wrap(line, columns, break_long_words=False, break_on_hyphens=False) or ("",)
    )


def say(*texts: object) -> None:
    """Print texts, a line each, with rows that end between words."""
    for text in texts:
        print(fit_words(str(text)), flush=True)


def ask(question: str, read: Callable[[str], str] = input) -> str:
    """Ask for a line, with the end of the question before the cursor. Raises EOFError and KeyboardInterrupt."""
    *rows, last = fit_words(question).split("\n")
    for row in rows:
        print(row, flush=True)
    return read(f"{last.rstrip()} ")


def confirm(question: str, *, default: bool = True) -> bool:
    """Ask yes or no; Enter is the default."""
    return confirm_while(question, lambda: True, default=default)


def confirm_while(question: str, holds: Callable[[], bool], *, default: bool) -> bool:
    """Ask yes or no as `confirm` does. Raises QuestionVoid once the question no longer holds.

    `holds` is called every LOOK_SECONDS. What was typed until a question closed answers nothing.
    """
    print(fit_words(question).rstrip(), end=" ", flush=True)
    while not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
        if not holds():
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
            print(flush=True)
            raise QuestionVoid
    if not (line := sys.stdin.readline()):
        raise EOFError
    return _is_yes(line, default)


def _is_yes(line: str, default: bool) -> bool:
    answer = line.strip().lower()
    return answer in YES if answer else default
