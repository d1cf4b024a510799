"""Read a .po file, as Babel writes it: a binary .mo would have to be built, and would conflict in every merge."""

from __future__ import annotations

import json


def read_po(text: str) -> dict[str, str]:
    """Return the translations by msgid. Of a plural it returns the first form: Chinese has no other."""
    found = {}
    for entry in text.split("\n\n"):
        values: dict[str, str] = {}
        name = ""
        for line in entry.splitlines():
            if not line.startswith("#"):
                keyword, quote, rest = line.partition('"')
                name = keyword.strip() or name  # a line without keyword continues the one above it
                values[name] = values.get(name, "") + json.loads(quote + rest)
        translation = values.get("msgstr") or values.get("msgstr[0]")
        if values.get("msgid") and translation:
            found[values["msgid"]] = translation
    return found
