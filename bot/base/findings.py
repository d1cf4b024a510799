"""Say what a check of the configuration, or of what it names, finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from catalogue import _


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. The service works with a note, but not with a fault.

    `mend` does what the fix says where that is safe, for `fawn check --fix`. It blocks and raises OSError.
    """

    state: Literal["ok", "note", "fault"]
    subject: str
    text: str
    fix: str = ""
    mend: Callable[[], object] | None = field(default=None, compare=False, repr=False)

    @property
    def ok(self) -> bool:
        return self.state != "fault"


@dataclass(frozen=True, slots=True)
class Check:
    """One check of `fawn check`, by its subject.

    Those `at_start` ask nothing outside of this machine: a start and a reload run them, too. They log a note, and
    refuse a configuration with a fault.
    """

    subject: str
    run: Callable[[], Awaitable[Finding | list[Finding]]]
    at_start: bool = False

    async def findings(self) -> list[Finding]:
        """Run it. An error of it is a fault."""
        try:
            found = await self.run()
        except Exception as error:  # noqa: BLE001 — the boundary of one check
            text = _("the check failed: {error}", error=f"{type(error).__name__}: {error}")
            return [Finding("fault", self.subject, text, _("repeat it; if it stays, report it with these words"))]
        return found if isinstance(found, list) else [found]
