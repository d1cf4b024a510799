"""Write a command in further forms, so that a rule holds for what it does: `git -C x push` is a `git push`, and
`curl -sXPOST` is a `curl -X`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from agent.permissions.marks import MARKS, TEXT, name_set

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

_CURL_VALUES = "AbcCdDeEFhHKmoPQrtTuUwxXyYz"
_CURL_FLAGS = "#01234 6aBfgGiIjJklLMnNOpqRsSvVZ:".replace(" ", "")
_CURL_LONG: Mapping[str, tuple[str, ...]] = {
    "request": ("-X", "--request"),
    "data": ("-d", "--data"),
    "data-ascii": ("-d", "--data"),
    "data-binary": ("-d", "--data"),
    "data-raw": ("-d", "--data"),
    "data-urlencode": ("-d", "--data"),
    "json": ("-d", "--json"),
    "form": ("-F", "--form"),
    "form-string": ("-F", "--form"),
    "upload-file": ("-T", "--upload-file"),
    "mail-from": ("-T", "--mail-from"),
    "quote": ("-Q", "--quote"),
}
_CURL_SHORT = {"X": "request", "d": "data", "F": "form", "T": "upload-file", "Q": "quote"}
_CURL_TAKING = name_set(
    """
    --user-agent --cookie --cookie-jar --continue-at --referer --cert --header --max-time --output --proxy --range
    --user --proxy-user --write-out --connect-timeout --retry --retry-delay --retry-max-time --cacert --capath
    --key --resolve --interface --limit-rate --max-filesize --dump-header --output-dir --url --unix-socket
    --noproxy --max-redirs
    """
)
_WGET_LONG = ("post-data", "post-file", "body-data", "body-file", "method", "execute")
_WGET_VALUES = "aABDeiIloOPQRtTUwX"


def command_forms(words: Sequence[str]) -> tuple[list[str], bool]:
    """Return further spellings of a command for rules that deny or ask, and whether what it runs is certain."""
    if not words:
        return [], True
    name, arguments = words[0], list(words[1:])
    if name == "git":
        return _git_forms(arguments)
    if name.startswith("git-"):
        return [join_words(("git", name[4:], *arguments))], True
    if name == "curl":
        return _curl_forms(arguments)
    if name == "wget":
        return _wget_forms(arguments)
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


def _curl_forms(words: list[str]) -> tuple[list[str], bool]:
    """Return one form per option that sends, such as `curl -X POST`."""
    forms, certain, rest = [], True, list(words)
    while rest:
        word = rest.pop(0)
        if MARKS.match(word):
            forms.append(f"curl {TEXT}")  # any option
        elif word.startswith("--"):
            found = [name for name in _CURL_LONG if word[2:].partition("=")[0] in (name, f"{name}s")]
            found = found or [name for name in _CURL_LONG if len(word) > 3 and name.startswith(word[2:])]
            value = rest[0] if rest else ""
            forms += [f"curl {spelling} {value}" for name in found for spelling in _CURL_LONG[name]]
            if len(word) > 5 and "--config".startswith(word):  # a file of options
                forms, certain = [*forms, f"curl {TEXT}"], False
            if found or word in _CURL_TAKING:
                rest = rest[1:]
        elif word.startswith("-") and len(word) > 1:
            more, certain_here, takes = _curl_cluster(word[1:], rest[0] if rest else "")
            forms += more
            certain &= certain_here
            rest = rest[1:] if takes else rest
    return forms, certain


def _curl_cluster(letters: str, following: str) -> tuple[list[str], bool, bool]:
    """Return the forms of letters such as `sXPOST`, whether they are all known, and whether the next word is theirs."""
    for index, letter in enumerate(letters):
        if letter in _CURL_VALUES:
            inside = letters[index + 1 :]
            value = inside or following
            forms = [f"curl {each} {value}" for each in _CURL_LONG.get(_CURL_SHORT.get(letter, ""), ())]
            return (forms, True, not inside) if letter != "K" else ([f"curl {TEXT}"], False, not inside)
        if letter not in _CURL_FLAGS:
            return [f"curl {TEXT}"], False, False
    return [], True, False


def _wget_forms(words: list[str]) -> tuple[list[str], bool]:
    forms, certain = [], True
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word[2:].partition("=")
        if MARKS.match(word):
            forms.append(f"wget {TEXT}")
        elif word.startswith("--") and name:
            found = [each for each in _WGET_LONG if each.startswith(name)]
            forms += [f"wget --{each} {value if equals else following}" for each in found]
            if any(each.startswith(name) for each in ("config", "use-askpass")):
                forms, certain = [*forms, f"wget {TEXT}"], False
        elif word.startswith("-") and "e" in _short_options(word[1:]):
            forms.append(f"wget --execute {following}")
    return forms, certain


def _short_options(letters: str) -> Iterator[str]:
    """Yield the options of letters such as `qO-`, up to one with a value."""
    for letter in letters:
        yield letter
        if letter in _WGET_VALUES:
            return
