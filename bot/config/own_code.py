"""Code of the operator that a configuration names by `use:`: where it is found, and channels among it."""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from agent.settings.own_code import fix_of
from bot.config.document import ConfigFault, Document
from bot.config.schema import SandboxConfig
from bot.database.web_people import WEB
from catalogue import _, localized
from sandbox.named_code import NamedCodeError, check_code, find_code, import_code

EXPORTS = ("Settings", "connect", "probe")  # of a channel's module
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,29}")


def open_folder(document: Document, sections: Mapping[str, Any], folder: Path) -> None:
    """Put the folder of the configuration last on the import path, if the configuration names code.

    Last, so that a file there never replaces a module of Fawn, of a package or of Python.
    """
    if not any(_uses(sections)) or str(folder) in sys.path:
        return
    if folder.stat().st_mode & stat.S_IWOTH:
        wrong = _("everybody can write into this folder, so code beside the configuration is not used")
        document.faults.append(ConfigFault(str(folder), 0, "", wrong, _("take that right away: `chmod o-w`")))
        return
    sys.path.append(str(folder))


def _uses(sections: Mapping[str, Any]) -> Iterator[bool]:
    """Yield whether each entry that may name code does so."""
    channels = sections.get("channels")
    entries = [sections.get("sandbox"), *(channels.values() if isinstance(channels, dict) else ())]
    for name in ("models", "tools", "policies"):
        entries += section if isinstance(section := sections.get(name), list) else ()
    yield from (isinstance(entry, dict) and bool(entry.get("use")) for entry in entries)


def take_own_channels(
    document: Document, section: Mapping[str, Any], known: Collection[str]
) -> dict[str, tuple[str, ModuleType]]:
    """Return the channels with `use:` as name → its path and its module, and take `use` out of their settings."""
    found = {}
    for name, settings in section.items():
        if isinstance(settings, dict) and "use" in settings:
            use, at = settings.pop("use"), ("channels", name, "use")
            if name in (*known, WEB):
                document.fault(at, _("Fawn has a channel called {name}", name=name), _("give yours another name"))
            elif not _NAME.fullmatch(name):
                fix = _("use lower-case letters, digits, - and _")
                document.fault(at[:2], _("is no name of a channel"), fix, on_key=True)
            elif module := _import_channel(document, use, at):
                found[name] = (str(use), module)
    return found


def _import_channel(document: Document, use: object, at: tuple[str, str, str]) -> ModuleType | None:
    try:
        module = import_code(str(use))
    except NamedCodeError as error:
        document.fault(at, localized(error.wrong), localized(fix_of(error)))
        return None
    if missing := [name for name in EXPORTS if not hasattr(module, name)]:
        document.fault(at, _("has no {name}", name=f"`{missing[0]}`"), _("docs/channels.md says what it exports"))
        return None
    if not is_dataclass(module.Settings):
        document.fault(at, _("its `Settings` is no dataclass"), _("docs/channels.md says what it exports"))
        return None
    return module


def check_own_sandbox(document: Document, sandbox: SandboxConfig) -> None:
    """Find the provider of `sandbox.use`, and check its options; what it needs of the machine shows at the start."""
    if not sandbox.use:
        if sandbox.options:
            wrong = _("have no effect: they are arguments of `use`")
            document.fault(("sandbox", "options"), wrong, _("remove the line"))
        return
    try:
        check_code(sandbox.use, find_code(sandbox.use), 1, sandbox.options)
    except NamedCodeError as error:
        document.fault(("sandbox", *error.place), localized(error.wrong), localized(fix_of(error)))
