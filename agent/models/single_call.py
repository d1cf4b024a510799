"""A question to a model beside the conversation: for a summary, for a title."""

from __future__ import annotations

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langgraph.constants import TAG_NOSTREAM

from agent.context import Meter
from agent.policies.usage import message_usage
from agent.text_cleaning import clean_message


async def ask_model(model: BaseChatModel, prompt: str, meter: Meter) -> str:
    """The text of the answer, cleaned and counted. Nobody is shown its words while it streams."""
    message = clean_message(await model.ainvoke([HumanMessage(prompt)], {"tags": [TAG_NOSTREAM]}))
    meter.add(message_usage(message))
    return message.text.strip()
