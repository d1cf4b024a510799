"""Say how single calls of models, tools and skills ended. Imports nothing heavy, and holds no word of anybody."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Used(StrEnum):
    """What a call used."""

    MODEL = "model"
    TOOL = "tool"
    SKILL = "skill"


class CallError(StrEnum):
    """Why a call did not succeed. The words are stored."""

    RATE = "busy"  # the model's server asked to wait
    SERVER = "server error"
    NETWORK = "no connection"
    TIMEOUT = "time limit"
    TOO_LONG = "too long"  # for the model's context window
    REFUSED = "refused"  # by the model's server: the key, the model's name, the credit, the request
    UNREADABLE = "unreadable answer"
    REPORTED = "reported by the tool"
    SANDBOX = "sandbox"
    FAULT = "fault"  # an error that nobody expected
    EXIT_CODE = "exit code"  # of a program of a skill


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The end of a call. A call of a model is only noted if it failed: the usage has the others.

    `role` is the agent that called a model, or the kind of a call that no agent made. `charged`: the usage has it.
    """

    used: Used
    name: str
    role: str = ""
    error: CallError | None = None
    seconds: float = 0.0
    charged: bool = False
