"""Clean and count model answers; ask a model one question outside the conversation."""

from __future__ import annotations

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.constants import TAG_NOSTREAM

from agent.blocks import Usage
from agent.context import Meter
from agent.text_cleaning import clean_message


def record_answer(message: AIMessage, meter: Meter, model: str = "") -> None:
    """Clean the answer in place and add its tokens to the meter, as far as the provider reports them."""
    reported = clean_message(message).usage_metadata
    usage = Usage(calls=1)
    if reported:
        cached = (reported.get("input_token_details") or {}).get("cache_read") or 0
        usage = Usage(input=reported["input_tokens"], output=reported["output_tokens"], cached=cached, calls=1)
    meter.add(usage, model)


async def ask_model(model: BaseChatModel, prompt: str, meter: Meter) -> str:
    """Return the text of the answer, for a summary or a title. It is counted, but not streamed to people."""
    message = await model.ainvoke([HumanMessage(prompt)], {"tags": [TAG_NOSTREAM]})
    record_answer(message, meter)
    return message.text.strip()
