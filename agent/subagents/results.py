"""Say how a task of a turn ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from langchain_core.messages import ToolMessage


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task, or why it did not finish."""

    text: str
    failed: bool = False

    @classmethod
    def of_message(cls, message: ToolMessage) -> Self:
        """Return the result that a message holds."""
        return cls(str(message.content), message.status == "error")
