"""Write a command in further forms, so that a rule holds for what it does: `git -C x push` is a `git push`, and
`curl -sXPOST` is a `curl -X`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.permissions.marks import MARKS, TEXT, name_set
from agent.permissions.transfers import transfer_forms

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
