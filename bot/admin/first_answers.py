"""Take the answers of `fawn init`: from the command line, a file, an earlier run that stopped, or a person."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agent.near_misses import suggest
from bot.admin.setup import SetupStopped
from catalogue import _, list_items

QUESTIONS = ("where", "provider", "base_url", "key", "model", "access", "sandbox", "budget", "tokens")
PROGRESS_NAME = ".fawn-init.yaml"  # beside the configuration, until it is written
MAX_BYTES = 100_000
LONG_LIST = 12  # from so many choices on, letters filter them


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `choices` are values with what a person reads; `more` permits others. `check` raises ValueError.

    Without a terminal the `default` is taken; "" counts as one only with `optional`.
    """

    name: str
    text: str
    choices: Sequence[tuple[str, str]] = ()
    default: str = ""
    optional: bool = False
    secret: bool = False
    more: bool = False
    check: Callable[[str], object] = str

    def refusal(self, value: str) -> str | None:
        """Return why a value cannot be taken; None if it can."""
        names = [name for name, _shown in self.choices]
        if names and value not in names and not self.more:
            return _("{value!r} is none of the choices: {fix}", value=value, fix=suggest(value, names))
        try:
            self.check(value)
        except ValueError as error:
            return _("{value} {why}", value="…" if self.secret else repr(value), why=error)
        return None


def read_answers(file: Path) -> dict[str, Any]:
    """Return the answers of a file. Raises SetupStopped."""
    try:
        with file.open("rb") as stream:
            found = yaml.safe_load(stream.read(MAX_BYTES))
    except OSError as error:
        raise SetupStopped(_("{file} cannot be read: {why}", file=file, why=error.strerror)) from None
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise SetupStopped(_("{file} has no answers → write one `name: value` a line", file=file))
    wrong = list[str]()
    for name, value in found.items():
        if name not in QUESTIONS:
            values = {"file": file, "name": name, "fix": suggest(name, QUESTIONS)}
            wrong.append(_("{file} answers {name!r}, which nobody asks → {fix}", **values))
            continue
        fits = isinstance(value, dict) if name == "tokens" else isinstance(value, str | int | float)
        if not fits or isinstance(value, bool):
            wrong.append(_("{file}: {name} needs a text", file=file, name=name))
    if wrong:
        raise SetupStopped("\n".join(wrong))
    return {name: value if name == "tokens" else str(value) for name, value in found.items()}


class Answers:
    """The answers so far. What a person typed is kept in the file `progress` until `forget`."""

    def __init__(self, given: Mapping[str, Any], progress: Path, *, terminal: bool) -> None:
        self.progress, self.terminal = progress, terminal
        self.given: dict[str, Any] = {**(read_answers(progress) if progress.exists() else {}), **given}
        self.resumed = progress.exists()

    @property
    def tokens(self) -> dict[str, str]:
        """The tokens of the platform, by variable."""
        return {str(name): str(value) for name, value in self.given.get("tokens", {}).items()}

    def ask(self, question: Question) -> str:
        """Return the answer. Raises SetupStopped where there is none, or none that fits."""
        if (value := self.given.get(question.name)) is not None:
            if not (why := question.refusal(value)):
                return str(value)
            self.refuse(question.name, f"{question.name}: {why}")
        if not self.terminal:
            if question.default or question.optional:
                return question.default
            values = {"name": question.name, "option": question.name.replace("_", "-")}
            text = _("{name} has no answer → give --{option}, or `{name}:` in --answers FILE", **values)
            choices = [name for name, _shown in question.choices]
            more = "\n" + _("one of: {names}", names=list_items(choices[:40])) if choices else ""
            raise SetupStopped(text + more)
        value = _ask_person(question)
        self.keep(question.name, value)
        return value

    def keep(self, name: str, value: object) -> None:
        """Remember an answer for a run that goes on where this one stops."""
        self.given[name] = value
        self.progress.unlink(missing_ok=True)
        descriptor = os.open(self.progress, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as stream:
            yaml.safe_dump(self.given, stream, allow_unicode=True)

    def refuse(self, name: str, why: str) -> None:
        """Drop an answer that does not work, for another one. Raises SetupStopped where nobody can give it."""
        if not self.terminal:
            raise SetupStopped(why)
        print(why, flush=True)
        self.given.pop(name, None)

    def forget(self) -> None:
        """Delete what was kept."""
        self.progress.unlink(missing_ok=True)

    def confirm(self, question: str) -> bool:
        """Ask a person for a yes; without one it is a yes."""
        if not self.terminal:
            return True
        import questionary

        return bool(questionary.confirm(question).unsafe_ask())


def has_terminal() -> bool:
    """Return whether a person can answer."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _ask_person(question: Question) -> str:
    """Ask at the terminal, until the answer fits. Raises KeyboardInterrupt and EOFError."""
    import questionary  # brings the terminal's library

    def judge(value: str) -> bool | str:
        value = value.strip()
        return (bool(value) or question.optional or _("There is no answer yet.")) and (question.refusal(value) or True)

    other = ""
    if question.choices:
        choices = [questionary.Choice(shown, value=name) for name, shown in question.choices]
        if question.more:
            choices.append(questionary.Choice(_("another one"), value=other))
        filtered = len(choices) > LONG_LIST
        chosen = questionary.select(
            question.text,
            choices,
            default=question.default or None,
            instruction=" ",
            use_search_filter=filtered,
            use_jk_keys=not filtered,
        ).unsafe_ask()
        if chosen != other or not question.more:
            return str(chosen)
    if question.secret:
        return str(questionary.password(question.text, validate=judge).unsafe_ask()).strip()
    return str(questionary.text(question.text, default=question.default, validate=judge).unsafe_ask()).strip()
