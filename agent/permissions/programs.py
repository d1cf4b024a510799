"""Find the program that another program runs, and further forms of a command, so that a rule holds for what it does.

A table has the options of each wrapper. With an option that it does not have, what runs is not certain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.permissions.patterns import MARKS, TEXT, name_set
from agent.permissions.transfers import transfer_forms

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
SHELLS = name_set("sh bash dash zsh ksh ash mksh yash rbash")
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


PRINTERS = name_set(  # they print, search or move what their arguments say, and run none of it
    """
    echo printf grep egrep fgrep rg ag ack cat ls head tail wc sort uniq cut tr basename dirname true false test [ : cd
    pwd mkdir rmdir touch cp mv rm ln chmod chown which type whereis sleep date seq diff cmp comm stat du df file jq yq
    export declare local readonly unset set read realpath readlink md5sum sha256sum base64 tee kill ps whoami id uname
    pip pip3 apt apt-get apk brew cargo gem find
    """
)
GIT_PRINTERS = name_set(
    "add am blame branch checkout cherry-pick commit describe diff fetch grep init log merge notes pull push reset"
    " restore rev-list rev-parse revert rm show stash status switch tag"
)


def only_prints(words: Sequence[str]) -> bool:
    """Return whether a program is known to run nothing of its arguments, or what it runs is judged by itself."""
    name, *arguments = words or ("",)
    if name == "git":
        return next((each for each in arguments if not each.startswith("-")), "") in GIT_PRINTERS
    return name in PRINTERS or name in WRAPPERS or name in SHELLS


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


_GIT_FLAGS = name_set(
    """
    -p --paginate -P --no-pager --bare --no-replace-objects --literal-pathspecs --glob-pathspecs --noglob-pathspecs
    --icase-pathspecs --no-optional-locks --no-lazy-fetch --no-advice --html-path --man-path --info-path
    """
)
_GIT_VALUES = name_set("-C --git-dir --work-tree --namespace --super-prefix --attr-source --list-cmds")
_GIT_HARMLESS_CONFIG = re.compile(
    r"(?:user|color|advice|init|column|commit\.gpgsign|core\.(?:quotepath|autocrlf|filemode))\b", re.I
)
_GIT_RUNNING_CONFIG = re.compile(
    r"alias|include|pager|sshcommand|editor|hookspath|fsmonitor|askpass|external|textconv|helper|process|\bcmd\b|command",
    re.I,
)
_GIT_RUNNERS = name_set("bisect filter-branch for-each-repo submodule difftool mergetool daemon instaweb web--browse")
_GIT_RUNNING_OPTIONS = ("-x", "--exec", "-O", "--open-files-in-pager", "--upload-pack", "-u", "--receive-pack")


def command_forms(words: Sequence[str], raw: Sequence[str]) -> tuple[list[str], bool]:
    """Return further spellings of a command for rules that deny or ask, and whether what it runs is certain.

    `raw` are the words as the line spells them.
    """
    if not words:
        return [], True
    name, arguments = words[0], list(words[1:])
    if name == "git":
        return _git_forms(arguments)
    if name.startswith("git-"):
        return [join_words(("git", name[4:], *arguments))], True
    if name in ("curl", "wget"):
        return transfer_forms(name, arguments, raw[1:])
    return [], True


def join_words(words: Sequence[str]) -> str:
    """Join words with blanks. What may be no word at all has none beside it."""
    text = " ".join(words)
    return re.sub(f" ?{TEXT} ?", TEXT, text) if TEXT in text else text


def _git_forms(words: list[str]) -> tuple[list[str], bool]:
    rest, certain = words, True
    while rest and rest[0].startswith("-"):
        name, equals, _value = rest[0].partition("=")
        if name in _GIT_FLAGS or (equals and name in _GIT_VALUES):
            rest = rest[1:]
        elif name in _GIT_VALUES:
            if TEXT in "".join(rest[1:2]):
                return [join_words(("git", TEXT, *rest[2:]))], certain
            rest = rest[2:]
        elif name == "-c" and len(rest) > 1:
            certain &= bool(_GIT_HARMLESS_CONFIG.match(rest[1]))
            rest = rest[2:]
        else:
            if rest != ["--version"] and rest != ["--help"]:
                certain = False
            rest = rest[1:]
    if not rest:
        return ([] if certain else [f"git {TEXT}"]), certain
    verb, arguments = rest[0], rest[1:]
    if verb in _GIT_RUNNERS and not (verb == "submodule" and "foreach" not in "".join(arguments)):
        certain &= verb == "bisect" and "run" not in arguments and not MARKS.search("".join(arguments))
    if verb == "config" and any(_GIT_RUNNING_CONFIG.search(each) or MARKS.match(each) for each in arguments[:4]):
        certain = False
    if verb in ("rebase", "grep", "fetch", "clone", "ls-remote", "pull", "archive"):
        certain &= not any(each.startswith(_GIT_RUNNING_OPTIONS) for each in arguments)
    forms = [join_words(("git", *rest))] if rest is not words else []
    return forms + ([] if certain else [f"git {TEXT}"]), certain
