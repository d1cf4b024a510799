"""Say in a few words what a shell command does, such as "Running pytest" or "Installing pandas"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from catalogue import N_, _, list_items

RUNNING, RUNNING_COMMAND, RUNNING_PYTHON = N_("Running {program}"), N_("Running a command"), N_("Running Python code")
RUNNING_SCRIPT = N_("Running a shell script")
INSTALLING, INSTALLING_PACKAGES = N_("Installing {packages}"), N_("Installing packages")
MAX_NAMED_PACKAGES = 3
MAX_READ_CHARS = 2000  # of a script: its first command is at the beginning

_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PROGRAM = re.compile(r"[A-Za-z_][\w.+-]*")
_PREPARING = frozenset({"cd", "set", "export", "source", ".", "mkdir", "echo", "true", "umask", "ulimit", "pushd"})
_KEYWORDS = frozenset({"for", "while", "until", "if", "case", "select", "function", "{", "(", "[[", "!"})
_WRAPPERS = frozenset({"sudo", "timeout", "time", "nohup", "exec", "env", "command", "nice", "stdbuf", "xvfb-run"})
_INSTALLERS = frozenset({"pip", "pip3", "uv", "npm", "pnpm", "yarn", "apt", "apt-get", "cargo", "gem", "conda", "apk"})
_WITH_SUBCOMMAND = frozenset({"git", "make", "npm", "pnpm", "yarn", "cargo", "go", "docker", "uv"})


def describe_command(args: Mapping[str, Any]) -> str:
    """Describe a call of `bash` by the first program that does more than prepare."""
    script = str(args.get("command") or "")[:MAX_READ_CHARS]
    commands = [words for line in _SEPARATOR.split(script) if (words := _program_words(line))]
    if any(words[0] in _KEYWORDS or words[0].startswith("(") for words in commands):
        return _(RUNNING_SCRIPT)
    working = [words for words in commands if words[0] not in _PREPARING and not words[0].startswith("#")]
    return _describe_words((working or commands or [[""]])[0])


def _program_words(line: str) -> list[str]:
    """Return the words of a command from its program on."""
    words = line.split()
    while words and (_ASSIGNMENT.match(words[0]) or PurePosixPath(words[0]).name in _WRAPPERS):
        is_timeout = words.pop(0).endswith("timeout")
        while is_timeout and words and (words[0].startswith("-") or words[0][0].isdigit()):
            words.pop(0)
    return words


def _describe_words(words: Sequence[str]) -> str:
    program, rest = PurePosixPath(words[0]).name, words[1:]
    if re.fullmatch(r"python[\d.]*", program):
        if rest[:1] == ["-m"] and len(rest) > 1:
            return _describe_words(rest[1:])
        script = next((word for word in rest if not word.startswith("-")), "")
        if not script.endswith(".py") or "-c" in rest[: rest.index(script)]:
            return _(RUNNING_PYTHON)
        program, rest = PurePosixPath(script).name, ()
    subcommand = next((word for word in rest if not word.startswith("-")), "")
    if program in _INSTALLERS and {"install", "add"} & {*rest[:3]}:
        return _describe_packages(rest)
    if not _PROGRAM.fullmatch(program):
        return _(RUNNING_COMMAND)
    if program in _WITH_SUBCOMMAND and _PROGRAM.fullmatch(subcommand):
        program = f"{program} {subcommand}"
    return _(RUNNING, program=program)


def _describe_packages(words: Sequence[str]) -> str:
    """Name the packages that follow "install" or "add"."""
    begin = next(number for number, word in enumerate(words, 1) if word in ("install", "add"))
    named = [word.strip("\"'") for word in words[begin:]]
    if any(word in ("-r", "-e", "--requirement", "--editable", ".") for word in named):
        return _(INSTALLING_PACKAGES)
    packages = [found[0] for word in named if (found := re.match(r"@?[A-Za-z0-9][\w./-]*", word))]
    if not packages or len(packages) > MAX_NAMED_PACKAGES:
        return _(INSTALLING_PACKAGES)
    return _(INSTALLING, packages=list_items(packages))
