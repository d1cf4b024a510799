"""Read a configuration to be tried: a whole file, or only the sections that replace those of the one in force."""

from __future__ import annotations

from pathlib import Path

from bot.config.document import Document
from bot.config.files import default_file, read_document, read_files
from bot.config.loader import checked_config, known_variables
from bot.config.schema import Config

PARTS = ("permissions", "team", "budgets", "rate_limits")


def load_variant(file: Path, base: Path | None) -> Config:
    """Return the configuration of `file`. If it has only some of PARTS, all others are those of the file `base`.

    Variables are those that `base` could use. Raises ConfigError with every fault.
    """
    environ = known_variables(base)
    document = Document(str(file), file.absolute().parent, environ)
    sections = read_document(document, file, PARTS)
    base = base or default_file()
    if not base or not sections or not set(sections) <= set(PARTS):
        return checked_config(document, sections)
    whole = Document(str(base), base.absolute().parent, environ)
    below = read_files(whole, base)
    whole.add(document)
    return checked_config(whole, below and below | sections)
