"""The final reply of a turn knows how the turn ended."""

from __future__ import annotations

import pytest

from agent.blocks import Block, Done, Failed, Final, Text, View


@pytest.mark.parametrize(
    ("blocks", "state"),
    [
        ((Text("All of it."), Done()), "done"),
        ((Text("Half"), Done("stopped")), "stopped"),
        ((Text("Which?"), Done("waiting")), "waiting"),
        ((Failed("The model is away."), Done("failed")), "failed"),
        ((Text("Half"), Failed("It broke.")), "failed"),
    ],
)
def test_a_final_has_the_state_of_its_turn_also_after_a_restart(blocks: tuple[Block, ...], state: str) -> None:
    view = View()
    for block in blocks:
        view.add(block)
    assert Final.load(view.final().dump()).state == view.final().state == state
    assert Final.load(b'{"text": "of an earlier version"}').state == "done"
