"""Show a line of the configuration with a caret under the place of a fault, and without secrets.

Words are hidden by default. Only a value that `may_be_shown` and a plain key stay readable, because a mistyped line can
contain a secret anywhere: in a key, in a comment, after a wrong indentation.

Explain errors of YAML's syntax: the place where the mistake is, not the place where the parser stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from catalogue import _

Location = tuple[str | int, ...]
Spans = Mapping[int, tuple[int, str]]  # start column → end column, text to show

HIDDEN = "***"
MAX_COLUMNS = 100
VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
SECRET_NAME = re.compile(r"(?i)token(?!s)|key|secret|passw|proxy|auth|credential")
_RANDOM = re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{16,}")  # keys look like this, names do not
_MODEL_NAMES = ("name", "use", "preset", "model", "effort", "base_url", "display_name", "ca_file")
_LINE_BREAKS = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # those of YAML
_GAP = re.compile(r"(?P<key>(?<=[\s{,])[\w-]{1,40}(?=:))|(?P<word>[^\s\[\]{},:'\"]+)|(?P<other>.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the file. Lines and columns count from 0; `end` is a column of the same line."""

    line: int
    start: int
    end: int


def split_lines(text: str) -> list[str]:
    """Return the lines of a YAML text, as its parser counts them."""
    return _LINE_BREAKS.split(text.removeprefix("\ufeff"))


def may_be_shown(at: Location, text: str, *, number: bool) -> bool:
    """Return whether the value of a setting is certainly not a secret."""
    names = [part for part in at if isinstance(part, str)]
    if VARIABLE.fullmatch(text):
        return True
    if not names or not text.isprintable() or len(text) > 60 or any(map(SECRET_NAME.search, names)):
        return False
    if "access" in names:
        return True
    if number and len(text) <= 6:
        return True
    if names[0] == "channels" or (names[0] == "models" and names[-1] not in _MODEL_NAMES):
        return False
    return "@" not in text and not _RANDOM.search(text)


def render_excerpt(line: str, mark: Mark, spans: Spans, *, parsed: bool = True) -> str:
    """Return the line with its number, and a line with the caret.

    `spans` are its scalars. `parsed` is false for a file with a syntax error: then keys are recognised by their form.
    """
    from wcwidth import wcswidth

    before = after = text = ""
    for column, piece in _pieces(line, spans, parsed=parsed):
        before += piece if column < mark.start else ""
        after += piece if column < mark.end else ""
        text += piece
    cut = max(0, len(before) - MAX_COLUMNS // 2)
    text, before, after = text[cut:], before[cut:], after[cut:]
    text = text.rstrip() if len(text) <= MAX_COLUMNS else text[:MAX_COLUMNS] + "…"
    width = max(1, wcswidth(after[len(before) :][: MAX_COLUMNS - len(before)].rstrip()))
    number = str(mark.line + 1)
    margin = " " * len(number)
    return f"  {number} | {text}\n  {margin} | {' ' * max(0, wcswidth(before))}{'^' * width}"


def _pieces(line: str, spans: Spans, *, parsed: bool) -> Iterator[tuple[int, str]]:
    """Yield column and text of each part of the line as it may be shown."""
    column = 0
    for start, (end, shown) in [*sorted(spans.items()), (len(line), (len(line), ""))]:
        for found in _GAP.finditer(" " + line[column:start]):  # the space: a key may begin the line
            if found.start() == 0:
                continue
            at = column + found.start() - 1
            if found["word"] and found["word"].startswith("#"):
                return  # a comment
            yield at, _hide(found, parsed=parsed)
        if shown:
            yield start, shown
        column = max(column, end)


def _hide(found: re.Match[str], *, parsed: bool) -> str:
    if found["other"]:
        return "⇥" if found["other"] == "\t" else found["other"] if found["other"].isprintable() else " "
    word = found.group()
    if word == "-" or (not parsed and (found["key"] or re.fullmatch(r"\d{1,6}", word))):
        return word
    return word[0] + "…" if word[0] in "@%`*&!|>" else "…"


_KEY_WITHOUT_SPACE = re.compile(r"\s*(?:- )?([A-Za-z_][\w-]{0,40})(?::[^\s/]|\uff1a)")
_FULL_WIDTH_COLON = "\uff1a"


def explain_syntax_error(error: yaml.MarkedYAMLError, lines: Sequence[str]) -> tuple[Mark | None, str, str]:
    """Return where the mistake is, what is wrong and how to fix it. Never repeats a value."""
    problem, context = error.problem or error.context or _("not valid"), error.context or ""
    mark, begin = _mark(error.problem_mark or error.context_mark), _mark(error.context_mark)
    if "found character '\\t'" in problem:
        return mark, _("a tab, which YAML does not allow here"), _("replace it with spaces")
    if "found unexpected end of stream" in problem and "quoted scalar" in context:
        return begin, _("this quote is never closed"), _("close it, or remove it")
    if squeezed := _key_without_space(begin or mark, lines) or _key_without_space(_line_above(mark), lines):
        line, column = squeezed
        if lines[line][column] == _FULL_WIDTH_COLON:
            return Mark(line, column, column + 1), _("a full-width colon"), _("write `:` and a space instead")
        return Mark(line, column, column + 1), _("there is no space after the colon"), _("put a space after it")
    if "could not find expected ':'" in problem:
        return begin, _("expected `name: value`"), _("add the colon and a space")
    if begin and mark and "flow" in context and mark.line > begin.line:
        bracket = "{" if "mapping" in context else "["
        return (
            begin,
            _("this `{bracket}` is not closed", bracket=bracket),
            _("close it, or add the comma that is missing in line {n}", n=begin.line + 1),
        )
    if "mapping values are not allowed" in problem:
        return (
            mark,
            _("a second `name: value` in one line"),
            _("indent the lines of a section equally; quote a value with a colon"),
        )
    if "<block" in problem or "<document" in problem:
        return (
            mark,
            _("this line is indented like none of those above it"),
            _("indent it like its section's other lines"),
        )
    if "that cannot start any token" in problem:
        return mark, _("a value cannot begin with this character"), _("put the value in quotes")
    if "another document" in problem and mark:
        return mark, _("a second document begins here"), _("remove the line `---`")
    if isinstance(error, yaml.composer.ComposerError):  # its text repeats what was written
        problem = re.sub(r" '.*", "", problem)
    return mark, problem, _("check quotes, colons and indentation")


def _mark(mark: yaml.Mark | None) -> Mark | None:
    return Mark(mark.line, mark.column, mark.column + 1) if mark else None


def _line_above(mark: Mark | None) -> Mark | None:
    return Mark(mark.line - 1, 0, 1) if mark and mark.line else None


def _key_without_space(mark: Mark | None, lines: Sequence[str]) -> tuple[int, int] | None:
    """Return line and column of the colon when that line is `name:value`."""
    found = _KEY_WITHOUT_SPACE.match(lines[mark.line]) if mark and mark.line < len(lines) else None
    return (mark.line, found.end(1)) if mark and found else None
