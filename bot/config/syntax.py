"""Explain errors of YAML's syntax: the place where the mistake is, not the place where the parser stopped."""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml

from bot.config.excerpt import Mark
from catalogue import _

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
