"""Plan mode: show a plan first, and work only after the person says "go".

While a turn plans, `PermissionPolicy` denies every tool that has an effect. The answer with which the model would end
the turn is its plan: the policy adds a call to it that asks the person. So the question, the wait and the restart are
those of any other question, and the model cannot forget to ask.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import AnyMessage, ToolMessage
from langgraph.types import Command, interrupt

from agent.context import NO_ANSWER
from agent.policies.base import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
    continue_with,
    final_response,
    model_answer,
)
from agent.todos import plan_of
from catalogue import N_, _, every_translation

SUBMIT_PLAN = "submit_plan"  # the call that asks; the model is not offered it
GO, CHANGE, CANCEL = N_("Go"), N_("Change"), N_("Cancel")
# What people write in place of the button. Exactly these: "ok, but without step 2" changes the plan.
_AGREEING = """
go | go ahead | go for it | go on | do it | please do | yes | yes please | yep | yeah | yup | sure | ok | okay | ok go |
ok go ahead | yes go ahead | fine | good | great | perfect | agreed | approved | approve | lgtm | looks good |
looks good to me | sounds good | ship it | start | proceed | continue | let's go | 👍 | 👌 | ✅ | 🚀 |
好 | 好的 | 好吧 | 好啊 | 可以 | 可以的 | 行 | 行吧 | 没问题 | 同意 | 是 | 是的 | 对 | 嗯 | 继续 |
开始 | 开始吧 | 执行 | 去做吧 | 做吧 | 就这样 | 就这么办 | 没意见 | 批准 | 确认 | 看起来不错
"""
AGREEING = frozenset(" ".join(words.split()) for words in _AGREEING.split("|"))
_SKIN_TONES = dict.fromkeys((*range(0x1F3FB, 0x1F400), 0xFE0F))
_SIGNS = str.maketrans(dict.fromkeys(".!,~。！，～…", " "))
CANCELLED_KEY = "cancelled"
AGREED = "The person agreed to the plan. Plan mode is over: carry it out now, and keep its steps current."
CHANGES = "The person wants another plan. Still plan only, and answer with the new plan. Their words:\n{words}"
CANCELLED = "The person cancelled the plan."


class PlanModePolicy:
    """Turn the answer of a planning turn into a question: go, change or cancel."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Submit the plan instead of ending the turn with it."""
        if not request.state.get("planning"):
            return await handler(request)
        last = request.messages[-1]
        if isinstance(last, ToolMessage) and last.additional_kwargs.get(CANCELLED_KEY):
            return final_response(_("Cancelled. I haven't changed anything."))
        response = await handler(request)
        continue_with(model_answer(response), SUBMIT_PLAN, {})
        return response

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Ask about a submitted plan, and once more for the changes if only the button was pressed."""
        call = request.tool_call
        if call["name"] != SUBMIT_PLAN or not request.state.get("planning"):
            return await handler(request)
        words = _ask(_plan_question(request.state["messages"]), (GO, CHANGE, CANCEL))
        if _is_option(words, CHANGE):
            words = _ask(_("What should I change in the plan?"), (GO, CANCEL))
        result = ToolMessage(CHANGES.format(words=words), tool_call_id=call["id"], name=SUBMIT_PLAN)
        if _means_go(words):
            result.content = AGREED
            return Command(update={"planning": False, "messages": [result]})
        if _is_option(words, CANCEL) or words == NO_ANSWER:
            result.content, result.additional_kwargs = CANCELLED, {CANCELLED_KEY: True}
        return result


def _plan_question(messages: Sequence[AnyMessage]) -> str:
    plan = plan_of(messages)
    lines = [f"{number}. {item.title}" for number, item in enumerate(plan.items, 1)] if plan else []
    return "\n".join([*lines, *([""] if lines else []), _("Shall I work by this plan?")])


def _ask(question: str, options: Sequence[str]) -> str:
    return str(interrupt({"kind": "ask", "question": question, "options": [_(option) for option in options]})).strip()


def _means_go(words: str) -> bool:
    """Return whether these words, and no others, agree: then the plan need not be made again."""
    plain = words.translate(_SKIN_TONES).translate(_SIGNS).replace("’", "'").casefold()
    return _is_option(words, GO) or " ".join(plain.split()) in AGREEING


def _is_option(words: str, option: str) -> bool:
    """Return whether these words are an option, in the language of whoever answered."""
    return words.casefold() in {each.casefold() for each in every_translation(option)}
