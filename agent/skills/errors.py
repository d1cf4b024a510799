"""Define the error that says what is wrong with a skill."""

from __future__ import annotations

from catalogue import LocalizedError


class SkillError(LocalizedError):
    """A skill cannot be used or changed; the text says why."""
