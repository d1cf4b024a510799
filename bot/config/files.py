"""Read a configuration file, and the operator's own one beside it, which wins."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from bot.config.decoder import EXPECTED, describe
from bot.config.document import Document
from catalogue import _

CONFIG_VERSION = 1  # of the file's meaning; raised when an old file would be misread
MAX_BYTES = 1_000_000  # more would be parsed for seconds
DEFAULT_NAME = "config.yaml"
VARIABLE = "FAWN_CONFIG"


def default_file() -> Path | None:
    """Return ./config.yaml, ./config.local.yaml if only that exists, or None."""
    names = (Path(DEFAULT_NAME), local_file(Path(DEFAULT_NAME)))
    return next((name for name in names if name.is_file()), None)


def file_elsewhere(environ: Mapping[str, str]) -> Path | None:
    """Return $FAWN_CONFIG, else ~/.config/fawn/config.yaml if it exists and the current folder has none; or None."""
    if named := environ.get(VARIABLE):
        return Path(os.path.expanduser(named))
    # Those of pathlib raise for a user without a home, as in containers, and for a home that may not be read.
    home = Path(os.path.expanduser(environ.get("XDG_CONFIG_HOME") or "~/.config")) / "fawn" / DEFAULT_NAME
    return home if default_file() is None and os.path.isfile(home) else None


def local_file(path: Path) -> Path:
    """Return the name of the file that is merged over this one: `config.local.yaml` for `config.yaml`."""
    return path.with_name(f"{path.stem}.local{path.suffix}")


def read_files(document: Document, path: Path) -> dict[str, Any] | None:
    """Return the sections of the file with those of its local file merged over them; None as in `read_document`.

    A local file alone, as beside an installed service, needs no version either.
    """
    sections = read_document(document, path, is_part=path.stem.endswith(".local"))
    if sections is None or not (own := local_file(path)).is_file():
        return sections
    local = Document(str(own), document.folder, document.environ)
    local.left_out, local.fetched = document.left_out, document.fetched
    more = read_document(local, own, is_part=True)
    document.add(local)
    return None if more is None else _merged(sections, more)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return both sections as one: settings of `above` win, lists are replaced."""
    merged = dict(below)
    for name, value in above.items():
        inner = merged.get(name)
        merged[name] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def read_document(
    document: Document, path: Path, parts: Collection[str] = (), *, is_part: bool = False
) -> dict[str, Any] | None:
    """Return the sections of the file; None when it is not of this version or cannot be read.

    A file with only the sections `parts`, and one that is a part of another (`is_part`), need no version.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        document.paths.add(path.absolute())
        if len(raw) > MAX_BYTES:
            wrong = _("is larger than {n} KB, which no configuration is", n=MAX_BYTES // 1000)
            document.fault((), wrong, _("check the path after --config"))
            return None
        sections = document.read(raw.decode("utf-8-sig"))
    except OSError as error:
        document.fault((), _("cannot be read: {why}", why=error.strerror), _("check the path after --config"))
        return None
    except UnicodeError:
        document.fault((), _("cannot be read: {why}", why=_("it is not UTF-8 text")), _("save it as UTF-8"))
        return None
    if sections is None and document.faults:
        return None
    if not isinstance(sections, dict | None):
        fix = _(
            "begin with `config_version: {CONFIG_VERSION}`, then one `name: value` a line",
            CONFIG_VERSION=CONFIG_VERSION,
        )
        document.fault((), _(EXPECTED, expected=_("a section (name: value)"), found=describe(sections)), fix)
        return None
    sections = sections or {}
    at, version = ("config_version",), sections.pop("config_version", None)
    if version is None and not (is_part or (sections and set(sections) <= set(parts))):
        document.fault(
            at,
            _("is missing"),
            _("add `config_version: {CONFIG_VERSION}` as the first line", CONFIG_VERSION=CONFIG_VERSION),
        )
    elif version is not None and type(version) is not int:
        document.fault(
            at, _(EXPECTED, expected=_("a whole number"), found=describe(version)), _("write {n}", n=CONFIG_VERSION)
        )
    elif version not in (None, CONFIG_VERSION):
        document.faults.clear()  # they may be right in that version
        fix = _("upgrade Fawn, or write the file for this version")
        document.fault(at, _("this Fawn understands version {CONFIG_VERSION} only", CONFIG_VERSION=CONFIG_VERSION), fix)
        return None
    return sections
