"""Check the texts of a section against what their settings are: by shape, never empty by accident, and printable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from agent.near_misses import did_you_mean
from agent.setting import Secret
from bot.config.document import Document
from bot.config.excerpt import Location
from catalogue import _

MAX_NUMBER = 1e12  # what a database, a clock and a limit of the system still take
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_LINE_BREAK = re.compile(r"[\n\r]")


def check_texts(document: Document, kind: type[Any], data: Mapping[Any, Any], at: Location) -> None:
    """Report the texts of the section `kind` that their settings cannot be, also in the sections and lists below."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        if field.name in data:
            _check_value(document, kind, field, _without_nothing(hints[field.name]), data[field.name], at)


def _check_value(
    document: Document, kind: type[Any], field: Field[Any], hint: Any, value: Any, section: Location
) -> None:
    at = (*section, field.name)
    for inner, data, place in _sections_in(hint, value, at):
        check_texts(document, inner, data, place)
    if hint in (int, float) and isinstance(value, int | float) and abs(value) > MAX_NUMBER and value - value == 0:
        document.fault(at, _("is too large"), _("write a smaller number"))
    if isinstance(value, dict) and get_origin(hint) is Mapping:
        _check_entries(document, field, value, at)
    if isinstance(value, list) and get_origin(hint) is tuple:
        for i, item in enumerate(value):
            if (*at, i) in document.faulty:
                continue
            if isinstance(item, str) and not item.strip():
                document.fault((*at, i), _("is empty"), _("remove it"))
            elif isinstance(item, str):
                _check_characters(document, item, (*at, i), one_line=False)
    if not isinstance(value, str) or at in document.faulty or hint not in (str, Path, Secret):
        return
    if not value.strip() and hint is Secret and field.default is None and not _may_have_no_key(kind):
        document.fault(at, _("is empty"), _("remove the line"))
    elif not value.strip() and _needs_text(field):
        default = "" if field.default is MISSING else str(field.default)
        fix = _("remove the line, then it is `{default}`", default=default) if default else f"`{field.name}: …`"
        document.fault(at, _("is empty"), fix)
    elif value.strip() and _check_characters(document, value.strip(), at, one_line=hint is Secret):
        _check_shape(document, kind, field, value.strip(), at, is_secret=hint is Secret)


def _may_have_no_key(kind: type[Any]) -> bool:
    """Return whether the section names a server, which may need no key."""
    return any(field.name in ("base_url", "provider") for field in fields(kind))


def _check_entries(document: Document, field: Field[Any], entries: Mapping[Any, Any], at: Location) -> None:
    """Compare the names and the texts of a section of variables or headers with what these can be."""
    names, values = field.metadata.get("keys", ""), field.metadata.get("values", "")
    for name, text in entries.items() if names else ():
        if not re.fullmatch(names, str(name)):
            near = re.split(r"[=:\s]", str(name).removeprefix("export "))[0]
            near = near if re.fullmatch(names, near) else field.metadata["key_example"]
            wrong = field.metadata["key_wrong"]
            document.fault((*at, name), _(wrong), _("such as `{example}`", example=f"{near}: …"), on_key=True)
        elif isinstance(text, str) and not re.fullmatch(values, text):
            wrong = _("contains characters that it cannot have")
            document.fault((*at, name), wrong, _("write it again in one line, with plain letters"))


def _needs_text(field: Field[Any]) -> bool:
    """Return whether an empty text means nothing here: the setting is required, or has a text without it."""
    required = field.default is MISSING and field.default_factory is MISSING
    return required or (isinstance(field.default, str | Path) and str(field.default) not in ("", "."))


def _check_characters(document: Document, text: str, at: Location, *, one_line: bool) -> bool:
    """Return whether a text has no characters that nobody sees; report them."""
    if not (_CONTROL.search(text) or (one_line and _LINE_BREAK.search(text))):
        return True
    document.fault(at, _("contains a control character or a line break"), _("write it again in one line"))
    return False


def _check_shape(
    document: Document, kind: type[Any], field: Field[Any], text: str, at: Location, *, is_secret: bool
) -> None:
    """Compare a text with the shape of its setting. Of a token, say if it is that of another setting beside it."""
    shape, looks = field.metadata.get("shape", ""), field.metadata.get("looks", "")
    if not shape or re.fullmatch(shape, text):
        return
    if field.name == "name":
        near = re.sub(r"\W+", "-", text, flags=re.ASCII).strip("-_")
        example = near if re.fullmatch(shape, near) else _(looks)
        document.fault(at, _("cannot be a name here"), _("such as `{example}`", example=f"name: {example}"))
        return
    if not is_secret:
        meant = field.metadata.get("words", {}).get(text.lower(), "")
        fix = did_you_mean(meant) if meant else _("write it as {looks}", looks=_(looks))
        document.fault(at, _("has another form than this setting"), fix)
        return
    beside = [other for other in fields(kind) if other.metadata.get("shape") and other.name != field.name]
    meant = next((other.name for other in beside if re.fullmatch(other.metadata["shape"], text)), "")
    if meant:
        document.fault(at, _("this is the `{name}`", name=meant), _("write it there, and here {looks}", looks=looks))
        return
    wrong = _("does not look like one")
    if "$" in text:
        wrong = _("does not look like one (a $NAME is replaced only where it is the whole value)")
    document.fault(at, wrong, _("copy it again: {looks}", looks=_(looks)))


def _sections_in(hint: Any, value: Any, at: Location) -> Iterator[tuple[type[Any], Mapping[Any, Any], Location]]:
    """Yield the type, the values and the place of each section that is the value, or an item of it."""
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        yield hint, value, at
    elif get_origin(hint) is tuple and isinstance(value, list):
        for i, item in enumerate(value):
            yield from _sections_in(get_args(hint)[0], item, (*at, i))


def _without_nothing(hint: Any) -> Any:
    """Return the type of a setting without its "or nothing"."""
    if get_origin(hint) in (Union, UnionType):
        return next(option for option in get_args(hint) if option is not NoneType)
    return hint
