"""Plan mode: show a plan first, and work only after the person says "go".

While a turn plans, `PermissionPolicy` denies every tool that has an effect. The answer with which the model would end
the turn is its plan: the policy adds a call to it that asks the person. So the question, the wait and the restart are
those of any other question, and the model cannot forget to ask. The plan is shown with its expected cost; when the work
passes that, a call in place of the model's asks whether to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, interrupt

from agent.core.context import NO_ANSWER
from agent.core.policy import (
    BY_POLICY_KEY,
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
    continue_with,
    final_response,
    is_final,
    model_answer,
    turn_context_of,
)
from agent.core.tool import ask_person
from agent.spending import CostBound
from agent.todos import plan_of
from catalogue import N_, _, every_translation

SUBMIT_PLAN = "submit_plan"  # the call that asks; the model is not offered it
ASK_TO_GO_ON = "ask_to_go_on"  # neither is it offered this one, when the work passes its expected cost
EXPECTED_KEY = "expected_cost"  # of the answer with the plan: what the person is told, and the bound that follows
EXCESS_KEY = "passed_cost"  # of the answer that asks to go on
GO_ON, STOP = N_("Go on"), N_("Stop")
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
CANCELLED_KEY, STOPPED_KEY = "cancelled", "stopped_by_cost"
AGREED = "The person agreed to the plan. Plan mode is over: carry it out now, and keep its steps current."
CHANGES = "The person wants another plan. Still plan only, and answer with the new plan. Their words:\n{words}"
CANCELLED = "The person cancelled the plan."
GOES_ON = "The work has cost more than expected. The person agreed to go on. Their words:\n{words}"
STOPPED = "The work has cost more than expected, and the person stopped it."


class PlanModePolicy:
    """Turn the answer of a planning turn into a question: go, change or cancel."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Submit the plan instead of ending the turn with it."""
        last, costs = request.messages[-1], request.runtime.context.costs
        if not request.state.get("planning"):
            return await self._within_bound(request, handler)
        if isinstance(last, ToolMessage) and last.additional_kwargs.get(CANCELLED_KEY):
            return final_response(_("Cancelled. I haven't changed anything."))
        response = await handler(request)
        answer = model_answer(response)
        answer.additional_kwargs.pop(EXPECTED_KEY, None)  # no model says it
        asks = is_final(answer) or any(call["name"] == SUBMIT_PLAN for call in answer.tool_calls)
        if costs and asks:  # stored with the call, which runs again after the answer
            answer.additional_kwargs[EXPECTED_KEY] = asdict(await costs.expected())
        continue_with(answer, SUBMIT_PLAN, {})
        return response

    async def _within_bound(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the model, or ask first if the work has passed its expected cost."""
        last, costs = request.messages[-1], request.runtime.context.costs
        bound: Any = request.state.get("cost_bound")
        if not bound or not costs:
            return await handler(request)
        if isinstance(last, ToolMessage) and last.additional_kwargs.get(STOPPED_KEY):
            return final_response(_("Stopped, as you said. What is done so far is kept."))
        spent = await costs.spent(bound["unit"])
        if spent <= bound["amount"]:
            response = await handler(request)
            model_answer(response).additional_kwargs.pop(EXCESS_KEY, None)  # no model says it
            return response
        question = costs.excess(spent, bound["amount"], bound["unit"])
        answer = AIMessage("")
        continue_with(answer, ASK_TO_GO_ON, {})
        answer.additional_kwargs = {BY_POLICY_KEY: True, EXCESS_KEY: {"question": question, "spent": spent}}
        return ModelCallResponse([answer])

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Ask about a submitted plan, or whether to go on."""
        name, state = request.tool_call["name"], request.state
        if name == SUBMIT_PLAN and state.get("planning"):
            return await _ask_about_plan(request)
        if name == ASK_TO_GO_ON and state.get("cost_bound") and _noted(state["messages"], EXCESS_KEY):
            return await _ask_to_go_on(request)
        return await handler(request)


async def _ask_about_plan(request: ToolCallRequest) -> ToolCallResult:
    """Ask about the plan, and once more for the changes if only the button was pressed."""
    expected = _noted(request.state["messages"], EXPECTED_KEY)
    words = _ask(_plan_question(request.state["messages"], expected.get("text", "")), (GO, CHANGE, CANCEL))
    if _is_option(words, CHANGE):
        words = _ask(_("What should I change in the plan?"), (GO, CANCEL))
    result = ToolMessage(CHANGES.format(words=words), tool_call_id=request.tool_call["id"], name=SUBMIT_PLAN)
    if _means_go(words):
        result.content = AGREED
        known = expected.get("amount") is not None
        bound = {key: expected.get(key, 0) for key in ("amount", "unit", "tokens")} if known else None
        await _hold(request, bound)
        return Command(update={"planning": False, "cost_bound": bound, "messages": [result]})
    if _is_option(words, CANCEL) or words == NO_ANSWER:
        result.content, result.additional_kwargs = CANCELLED, {CANCELLED_KEY: True}
    return result


async def _ask_to_go_on(request: ToolCallRequest) -> ToolCallResult:
    """Ask until the answer is clear: other words are kept for the model, and do not agree to the cost."""
    passed, bound = _noted(request.state["messages"], EXCESS_KEY), request.state["cost_bound"]
    result = ToolMessage(STOPPED, tool_call_id=request.tool_call["id"], name=ASK_TO_GO_ON)
    question, said = passed["question"], []
    while True:
        options = [_(GO_ON), _(STOP)]
        value = {"kind": "ask", "question": question, "options": options}
        words = (await ask_person(turn_context_of(request), value)).strip()
        said.append(words)
        if _is_option(words, STOP) or words == NO_ANSWER:
            result.additional_kwargs = {STOPPED_KEY: True}
            return result
        if _is_option(words, GO_ON) or _means_go(words):
            break
        question = _("I have noted that. Go on, or stop here?")
    result.content = GOES_ON.format(words="\n".join(said))
    amount = max(1, 2 * bound["amount"])
    while amount < passed["spent"]:
        amount *= 2
    higher = {**bound, "amount": amount, "tokens": bound.get("tokens", 0) * amount // max(1, bound["amount"])}
    await _hold(request, higher)
    return Command(update={"cost_bound": higher, "messages": [result]})


async def _hold(request: ToolCallRequest, bound: dict[str, Any] | None) -> None:
    """Hold in the budgets what the person agreed to. A repetition after a crash holds the same."""
    costs = turn_context_of(request).costs
    if costs and bound:
        await costs.hold(CostBound(amount=bound["amount"], unit=bound["unit"], tokens=bound["tokens"]))


def _noted(messages: Sequence[AnyMessage], key: str) -> dict[str, Any]:
    """Return what this policy noted in the latest answer."""
    answer = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    noted = answer.additional_kwargs.get(key) if answer else None
    return noted if isinstance(noted, dict) else {}


def _plan_question(messages: Sequence[AnyMessage], expected: str) -> str:
    plan = plan_of(messages)
    lines = [f"{number}. {item.title}" for number, item in enumerate(plan.items, 1)] if plan else []
    cost = [expected] if expected else []
    return "\n".join([*lines, *([""] if lines else []), *cost, _("Shall I work by this plan?")])


def _ask(question: str, options: Sequence[str]) -> str:
    return str(interrupt({"kind": "ask", "question": question, "options": [_(option) for option in options]})).strip()


def _means_go(words: str) -> bool:
    """Return whether these words, and no others, agree: then the plan need not be made again."""
    plain = words.translate(_SKIN_TONES).translate(_SIGNS).replace("’", "'").casefold()
    return _is_option(words, GO) or " ".join(plain.split()) in AGREEING


def _is_option(words: str, option: str) -> bool:
    """Return whether these words are an option, in the language of whoever answered."""
    return words.casefold() in {each.casefold() for each in every_translation(option)}
