"""Find the program that another program runs: `sudo -u bob git push` runs `git push`.

A table has the options of each wrapper. With an option that it does not have, what runs is not certain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.permissions.marks import MARKS, TEXT, name_set

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """The options of a wrapper: letters and words without a value, and those with one. `before` words come before the
    program."""

    flags: str = ""
    values: str = ""
    long_flags: frozenset[str] = frozenset()
    long_values: frozenset[str] = frozenset()
    before: int = 0
    assigns: bool = False


def _wrapper(
    flags: str = "", values: str = "", long: str = "", with_value: str = "", *, before: int = 0, assigns: bool = False
) -> Wrapper:
    return Wrapper(flags, values, name_set(long), name_set(with_value), before, assigns)


WRAPPERS: Mapping[str, Wrapper] = {
    "builtin": _wrapper(),
    "busybox": _wrapper(),
    "chroot": _wrapper(long="skip-chdir", with_value="groups userspec", before=1),
    "command": _wrapper("pvV"),
    "coproc": _wrapper(),
    "doas": _wrapper("nL", "uC"),
    "env": _wrapper("iv0", "uC", "ignore-environment null debug", "unset chdir", assigns=True),
    "exec": _wrapper("cl", "a"),
    "ionice": _wrapper("t", "cnpPu", "ignore", "class classdata pid pgid uid"),
    "nice": _wrapper("0123456789", "n", with_value="adjustment"),
    "nohup": _wrapper(),
    "setsid": _wrapper("cfw", "", "ctty fork wait"),
    "stdbuf": _wrapper("", "ioe", "", "input output error"),
    "sudo": _wrapper(
        "AbBEHkKnNPS",
        "CDghpRrTtUu",
        "askpass background bell non-interactive preserve-groups set-home stdin reset-timestamp preserve-env",
        "chdir chroot close-from command-timeout group host other-user prompt role type user",
        assigns=True,
    ),
    "time": _wrapper("apqvV", "fo", "append portability quiet verbose", "format output"),
    "timeout": _wrapper("vfp", "ks", "foreground preserve-status verbose", "kill-after signal", before=1),
    "xargs": _wrapper(
        "0rtpxo",
        "adEILnPs",
        "null no-run-if-empty verbose interactive exit open-tty show-limits",
        "arg-file delimiter max-args max-chars max-procs max-lines process-slot-var",
    ),
}
RUNNERS = name_set(  # they run the program that is somewhere in their arguments
    "bundle conda direnv hatch mamba mise nix npx pdm pipenv pixi pnpm poetry rye uv uvx yarn"
)
OPAQUE = name_set(  # they run what their arguments or a file say, or give a name another meaning
    """
    eval source . ssh su script watch parallel trap alias hash enable mapfile readarray complete compgen bind flock
    unshare nsenter strace ltrace taskset chrt runuser fakeroot start-stop-daemon systemd-run at batch crontab screen
    tmux gosu su-exec tini dumb-init setpriv capsh sg newgrp pkexec runcon choom chpst expect unbuffer proot fakechroot
    faketime eatmydata firejail bwrap setarch linux32 linux64 prlimit numactl cpulimit torsocks proxychains xvfb-run
    dbus-run-session run-parts chronic ifne entr valgrind perf gdb rlwrap socat hyperfine catchsegv setuidgid softlimit
    logsave fish csh tcsh pwsh nu xonsh tclsh toybox
    """
)


@dataclass(frozen=True, slots=True)
class Inner:
    """The words of the program inside, and whether they are certain."""

    words: Words
    certain: bool = True
    assigned: Words = ()


def unwrap(name: str, words: Sequence[str]) -> Inner:
    """Return what a wrapper runs. `words` are its arguments."""
    wrapper = WRAPPERS[name]
    rest, certain, assigned, replaced = list(words), True, [], ""
    while rest:
        word = rest[0]
        if wrapper.assigns and ASSIGNMENT.match(word):
            assigned.append(rest.pop(0))
        elif word == "--":
            rest.pop(0)
            if not wrapper.assigns:
                break
        elif not word.startswith("-"):
            break
        elif name == "xargs" and word.startswith(("-I", "-i", "--replace")):
            replaced, rest = _replaced_mark(rest)
        elif (taken := _option_words(wrapper, word)) and taken <= len(rest):
            certain &= TEXT not in "".join(rest[:taken])  # it may be several words, the program among them
            rest = rest[taken:]
        else:
            return Inner(tuple(rest[1:]), False, tuple(assigned))
    before = rest[: wrapper.before]
    certain &= TEXT not in "".join(before)
    rest = rest[wrapper.before :]
    if name == "xargs":
        rest = [TEXT if replaced and replaced in word else word for word in rest]
        rest += [] if replaced or not rest else [TEXT]
    return Inner(tuple(rest), certain, tuple(assigned))


def _replaced_mark(words: list[str]) -> tuple[str, list[str]]:
    """Return what `xargs -I{}` replaces, and the words behind."""
    word = words[0]
    if word == "-I":
        return (words[1] if len(words) > 1 else ""), words[2:]
    mark = word.partition("=")[2] if word.startswith("--") else word[2:]
    return mark or "{}", words[1:]


def _option_words(wrapper: Wrapper, word: str) -> int:
    """Return how many words an option is, 0 for one that is unknown."""
    if MARKS.search(word.partition("=")[0] if word.startswith("--") else word[:2]):
        return 0
    if word.startswith("--"):
        name, equals, _value = word[2:].partition("=")
        if name in wrapper.long_values:
            return 1 if equals else 2
        return 1 if name in wrapper.long_flags else 0
    if word == "-":
        return 1 if "i" in wrapper.flags else 0
    for index, letter in enumerate(word[1:], 2):
        if letter in wrapper.values:
            return 2 if index == len(word) else 1
        if letter not in wrapper.flags:
            return 0
    return 1


def shell_script(words: Sequence[str]) -> str | None:
    """Return the script of `bash -c SCRIPT`, None if what the shell runs is not in its arguments."""
    rest, has_script = list(words), False
    while rest and rest[0].startswith(("-", "+")) and rest[0] != "--":
        word = rest.pop(0)
        if word in ("--login", "--norc", "--noprofile", "--posix"):
            continue
        if not re.fullmatch(r"[-+][abefhklmnpuvxBCEHPTco]+", word) or word.count("o") > 1:
            return None
        has_script |= word[0] == "-" and "c" in word
        if "o" in word and (not rest or MARKS.search(rest.pop(0))):
            return None
    if rest[:1] == ["--"]:
        rest.pop(0)
    return rest[0] if has_script and rest and not MARKS.search(rest[0]) else None


def found_programs(words: Sequence[str]) -> tuple[list[Words], bool]:
    """Return what `find` runs, and whether it changes files itself."""
    programs: list[Words] = []
    for index, word in enumerate(words):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            inner: list[str] = []
            for each in words[index + 1 :]:
                if each == ";" or (each == "+" and inner and inner[-1] == TEXT):
                    break
                inner.append(TEXT if "{}" in each else each)
            programs.append(tuple(inner))
    return programs, not {"-delete", "-fprintf", "-fprint", "-fprint0", "-fls"}.isdisjoint(words)
