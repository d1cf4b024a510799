"""Fields of settings dataclasses, and secrets. At the bottom of the project: imports only the catalogue of ours."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from catalogue import N_

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

T = TypeVar("T")

NAME = {"shape": r"[\w.:/@+-]{1,64}", "looks": "my-name"}  # of entries that people and rules name, without blanks
ENVIRONMENT = {  # of a section whose names are variables: the forms of names and values
    "keys": r"[^\s=\x00-\x1f\x7f]+",
    "key_wrong": N_("cannot be the name of a variable"),
    "key_example": "MY_VARIABLE",
    "values": r"[^\x00]*",
}
HEADERS = {  # of HTTP (rfc-editor.org/rfc/rfc9110#name-field-names): tokens, and here values in ASCII
    "keys": r"[!#$%&'*+.^_`|~0-9A-Za-z-]+",
    "key_wrong": N_("cannot be the name of a header"),
    "key_example": "X-Api-Key",
    "values": r"[\t\x20-\x7e]*",
}
TOOL_PART = {"shape": r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*", "looks": "my-server"}  # of a name that is a part of a tool's


class Secret:
    """A token or key that hides itself in repr, logs and errors; `reveal()` is the only way to its text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> Any:
        from pydantic import AfterValidator

        return handler(Annotated[str, AfterValidator(lambda text: cls(text.strip()))])  # copied with its newline


def setting(default: T, text: str, *, repr: bool = True, **metadata: object) -> T:
    """Return a field of a settings dataclass with the sentence for the docs; see bot/config/decoder.py."""
    return field(default=default, repr=repr, metadata={"help": text, **metadata})


def required(text: str, **metadata: object) -> Any:
    """Return such a field without a default."""
    return field(metadata={"help": text, **metadata})
