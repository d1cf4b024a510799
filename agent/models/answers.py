"""Clean and count model answers; ask a model one question outside the conversation."""

from __future__ import annotations

import time

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langgraph.constants import TAG_NOSTREAM

from agent.context import Meter, ModelCall
from agent.models.loader import LoadedModel
from agent.models.traffic import model_call
from agent.text_cleaning import clean_message

LEAD = "lead"  # the agent that answers the person


def record_answer(
    message: AIMessage, meter: Meter, model: BaseChatModel, began: float, kind: str = "turn", agent: str = LEAD
) -> None:
    """Clean the answer in place and add the call to the meter. `began` is the monotonic time of its start."""
    used = clean_message(message).usage_metadata or UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
    call = ModelCall(
        agent=agent,
        model=model.name or "",
        kind=kind,
        input=used["input_tokens"],
        output=used["output_tokens"],
        cached=(used.get("input_token_details") or {}).get("cache_read") or 0,
        reasoning=(used.get("output_token_details") or {}).get("reasoning") or 0,
        seconds=time.monotonic() - began,
        at=time.time(),
    )
    meter.add(call)


async def ask_model(entry: LoadedModel, prompt: str, meter: Meter, kind: str, *, background: bool = False) -> str:
    """Return the text of the answer, for a summary or a title. It is counted, but not streamed to people.

    While places are scarce, a call in the `background` lets the calls of turns go first.
    """
    async with model_call(entry, meter.root, background=background):
        began = time.monotonic()
        message = await entry.model.ainvoke([HumanMessage(prompt)], {"tags": [TAG_NOSTREAM]})
    record_answer(message, meter, entry.model, began, kind)
    return message.text.strip()
