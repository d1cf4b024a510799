"""Settings of budgets and rate limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from agent.setting import setting
from catalogue import _

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

Scope = Literal["turn", "person", "chat", "workspace", "agent", "model", "everything"]
_MONEY = re.compile(r"\$? ?(\d+(?:\.\d+)?) ?(?:USD|\$)?", re.IGNORECASE)
_COUNT = re.compile(r"(\d+(?:\.\d+)?) ?([kM]?)")
_FACTORS = {"": 1, "k": 1000, "M": 1_000_000}


class Money(int):
    """Micro-dollars, written as `5 USD`."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Money:
        """Return the amount of a text or number. Raises ValueError."""
        written = _MONEY.fullmatch(str(value).strip())
        if not written or isinstance(value, bool):
            raise ValueError(_("is not an amount of money: write dollars, such as `5 USD` or `0.50 USD`"))
        return cls(round(float(written[1]) * 1_000_000))

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> Any:
        from pydantic import AfterValidator

        return handler(Annotated[Any, AfterValidator(cls.parse)])


class TokenCount(int):
    """A number of tokens, written as `500k` or `2M`."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> TokenCount:
        """Return the number of a text or number. Raises ValueError."""
        written = _COUNT.fullmatch(str(value).strip())
        if not written or isinstance(value, bool):
            raise ValueError(_("is not a number of tokens: write such as 500000, `500k` or `2M`"))
        return cls(round(float(written[1]) * _FACTORS[written[2]]))

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> Any:
        from pydantic import AfterValidator

        return handler(Annotated[Any, AfterValidator(cls.parse)])


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """One entry of `budgets:`."""

    scope: Scope = field(
        metadata={
            "help": "what it limits: each `person`, `chat`, `workspace`, `agent`, `model`, `turn`, or `everything`"
        }
    )
    which: str = setting(
        "",
        "only this one: a person `CHANNEL/ID` or a chat `CHANNEL/WORKSPACE/CHAT`, as `/whoami` shows them, or a name;"
        " it replaces the entry of the same scope and period for all others",
    )
    period: Literal["day", "month"] = setting("month", "in which it is used, in the time zone of `time_zone`")
    money: Money | None = setting(None, "the most that may be spent, such as `5 USD`")
    tokens: TokenCount | None = setting(None, "the most tokens, input and output together, such as `2M`")


@dataclass(frozen=True, slots=True)
class RateLimitConfig:
    """One entry of `rate_limits:`."""

    scope: Literal["person", "chat", "tool"] = field(
        metadata={"help": "what it limits: messages of each `person` or in each `chat`, or calls of each `tool`"}
    )
    which: str = setting(
        "",
        "only this one: a person `CHANNEL/ID` or a chat `CHANNEL/WORKSPACE/CHAT`, as `/whoami` shows them, or a tool;"
        " it replaces the entry of the same scope for all others",
    )
    count: int = setting(60, "so many …", ge=1)
    seconds: float = setting(3600.0, "… in so many seconds", ge=1)
