"""Run a program of a skill from the command line, or with the same as JSON on stdin. Results and errors are JSON.

The programs of several shipped skills import it from the folder next to the skills.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

EXIT_PROBLEM, EXIT_USAGE, EXIT_MISSING_PACKAGE = 1, 2, 3
MAX_INPUT_BYTES = 4 << 20  # of the JSON on stdin, and of a JSON file that an option names
FILES = ("file", "files")


class Problem(Exception):
    """What was asked cannot be done. The text says why, and what to do."""


class MissingPackage(Exception):
    """A package is not installed. The text is its name."""


def need(module: str, package: str) -> Any:
    """Import a module of a package. Raises MissingPackage."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingPackage(package) from None


def check_size(path: Path, limit: int) -> Path:
    """Return a file that is at most `limit` bytes. Raises Problem."""
    if not path.is_file():
        raise Problem(f"There is no file {path}.")
    if path.stat().st_size > limit:
        raise Problem(f"{path.name} is larger than {limit >> 20} MB.")
    return path


def read_json(text: str) -> Any:
    """Return what JSON says: the text itself, or the file that it names. Raises Problem."""
    source = text
    if not text.lstrip().startswith(("{", "[")):
        source = check_size(Path(text), MAX_INPUT_BYTES).read_text("utf-8-sig")
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as error:
        raise Problem(f"This is not JSON: {error}.") from None


def option_texts(value: Any) -> list[str]:
    """Return the texts of an option with this value of JSON; a list without objects repeats the option."""
    if isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in value):
        return [str(item) for item in value]
    return [json.dumps(value, ensure_ascii=False)] if isinstance(value, (dict, list)) else [str(value)]


def command_line(given: Any, places: Sequence[str] = FILES) -> list[str]:
    """Translate {"command": "merge", "files": ["a", "b"], "out": "c"} into merge --out=c -- a b. Raises Problem.

    `places` are the names of arguments without an option, in their order.
    """
    if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
        raise Problem('The input is one JSON object, such as {"command": "info", "file": "…"}; see SKILL.md.')
    words: list[str] = []
    for key, value in given.items():
        if key == "command":
            words.insert(0, str(value))
        elif value is True and key not in places:
            words.append(f"--{key.replace('_', '-')}")
        elif key not in places and value is not None and value is not False:
            words += [f"--{key.replace('_', '-')}={text}" for text in option_texts(value)]
    files = [text for name in places if given.get(name) is not None for text in option_texts(given[name])]
    return [*words, "--", *files] if files else words


def given_words(places: Sequence[str] = FILES) -> list[str]:
    """Return the arguments: of the command line, or from stdin for `run_skill`, whose files are in the workspace."""
    if len(sys.argv) > 1 or sys.stdin.isatty():
        return sys.argv[1:] or ["--help"]
    text = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    if not text.strip():
        return ["--help"]
    if len(text) > MAX_INPUT_BYTES:
        raise Problem(f"The input is larger than {MAX_INPUT_BYTES >> 20} MB.")
    if state := os.environ.get("SKILL_STATE"):
        os.chdir(Path(state).parents[1])
    return command_line(read_json(text.decode("utf-8", "replace")), places)


def fail(error: str, code: int, **more: Any) -> NoReturn:
    """Print what is wrong and exit. Of a program that fails, `run_skill` shows what is on stderr."""
    where = sys.stderr if "SKILL_STATE" in os.environ else sys.stdout
    print(json.dumps({"error": error, **more}, ensure_ascii=False), file=where)
    sys.exit(code)


def run_program(
    parser: argparse.ArgumentParser,
    commands: Mapping[str, Callable[[argparse.Namespace], Any]],
    damaged: Callable[[], tuple[type[Exception], ...]] = tuple,
) -> None:
    """Run the chosen command and print what it returns. `damaged` returns the errors of unreadable files."""
    try:
        options = parser.parse_args(given_words())
        try:
            result = commands[options.command](options)
        except damaged() as error:
            raise Problem(f"The file cannot be read or changed: {type(error).__name__}: {error}") from error
    except MissingPackage as missing:
        name = str(missing)
        fail(f"This needs the package {name}.", EXIT_MISSING_PACKAGE, missing=[name], fix=f"pip install {name}")
    except (Problem, OSError, UnicodeError) as error:
        fail(str(error), EXIT_PROBLEM)
    print(json.dumps(result, ensure_ascii=False))


def run_main(main: Callable[[], None], places: Sequence[str]) -> None:
    """Run a program that reads `sys.argv` and prints JSON; for `run_skill`, what it prints if it fails is on stderr."""
    if "SKILL_STATE" not in os.environ:
        main()
        return
    try:
        sys.argv = ["run_skill", *given_words(places)]
    except (Problem, OSError) as error:
        fail(str(error), EXIT_PROBLEM)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            main()
    except SystemExit as end:
        print(said.getvalue(), file=sys.stderr if end.code else sys.stdout)
        raise
    print(said.getvalue())
