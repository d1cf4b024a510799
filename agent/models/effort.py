"""The reasoning effort of a model call. Imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.models.settings import ModelSettings

if TYPE_CHECKING:  # it imports the model classes
    from langchain_core.language_models import BaseChatModel

OPENAI_CLASS_PATH = "langchain_openai:ChatOpenAI"
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")  # of OpenAI's `reasoning_effort`


def offered_efforts(settings: ModelSettings) -> tuple[str, ...]:
    """Return the efforts that people may choose for a model; the server decides which of them it accepts."""
    return EFFORTS if settings.use == OPENAI_CLASS_PATH else ()


def with_effort(model: BaseChatModel, settings: ModelSettings, effort: str) -> BaseChatModel:
    """Return the model with this effort; it shares the connections of `model`."""
    if effort not in offered_efforts(settings):
        return model
    return model.model_copy(update={"reasoning_effort": effort})
