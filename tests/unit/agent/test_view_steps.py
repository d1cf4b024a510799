"""What counts as a step of an ended turn."""

from __future__ import annotations

from agent.blocks import NOTED_STEP, Step, Text, View


def test_a_message_that_arrived_while_the_turn_worked_is_no_step() -> None:
    view = View()
    for block in (Step("1", "Reading", "done"), Step(f"{NOTED_STEP}k", "got it: x", "done"), Text("answer")):
        view.add(block)
    final = view.final()
    assert (final.step_count, [step.id for step in final.steps]) == (1, ["1"])
