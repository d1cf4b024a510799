"""Make the codes by which people prove something in a chat."""

from __future__ import annotations

import secrets

_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # no 0/O, 1/I
_LENGTH = 8


def make_code() -> str:
    """Return a random code that people can copy by hand: one of 10 to the power of 12."""
    return "".join(secrets.choice(_LETTERS) for _letter in range(_LENGTH))
