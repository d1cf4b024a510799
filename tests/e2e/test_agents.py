"""Named agents, chosen in the chat."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Start
from tests.fakes.model import FakeModel
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask, bash

AGENTS = [
    {"name": "writer", "description": "Writes.", "prompt": "You write novels.", "tools": ["read_file"]},
    {"name": "poet", "prompt": "You write poems."},
]


def briefs(model: FakeModel) -> list[str]:
    """Return the agent's own instructions in the system text of each request."""
    texts = [str(each.messages[0]["content"]) for each in model.requests()]
    return ["".join(line for line in text.splitlines() if line.startswith("You write")) for text in texts]


async def test_people_choose_an_agent_for_a_conversation_and_as_their_default(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(agents=AGENTS)
    telegram.send("/agents")
    await telegram.wait(JANE, "default (in use here)")
    telegram.send("/agents chef")
    await telegram.wait(JANE, "I have no agent chef.")
    telegram.send("/agents poet me")
    await telegram.wait(JANE, "the agent poet answers you by default")
    telegram.send(ask(text="first"))
    await telegram.wait(JANE, "first")
    await service.quiet()
    telegram.send("/agents writer")
    await telegram.wait(JANE, "the agent writer answers in this conversation")
    telegram.send(ask(text="second"))
    await telegram.wait(JANE, "second")
    await service.quiet()
    telegram.send("/new")
    await telegram.wait(JANE, "A fresh start")
    telegram.send("/agents default")
    await telegram.wait(JANE, "the agent default answers in this conversation")
    telegram.send(ask(text="third"))
    await telegram.wait(JANE, "third")
    await service.quiet()
    assert briefs(model) == ["You write poems.", "You write novels.", ""]
    assert [tool["function"]["name"] for tool in model.requests()[1].tools] == ["read_file"]
    assert service.rows("SELECT agent FROM usage ORDER BY id") == [("poet",), ("writer",), ("lead",)]


async def test_only_an_operator_chooses_the_agent_of_a_group(telegram: FakeTelegram, start: Start) -> None:
    await start(agents=AGENTS)
    telegram.send("/agents writer here", chat=-100)
    await telegram.wait(-100, "Only an operator can choose the agent of a group.")


@pytest.mark.usefixtures("bubblewrap")
async def test_an_answer_goes_to_the_agent_that_asked_whoever_is_chosen_meanwhile(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(agents=AGENTS, permissions={"ask": ["bash(touch *)"]})
    telegram.send("/agents poet")
    await telegram.wait(JANE, "the agent poet answers in this conversation")
    step = bash("touch /mnt/user-data/workspace/done")
    telegram.send(ask(steps=[step], text="all done"))
    shown = await telegram.wait(JANE, "May I run bash?")
    await service.quiet()
    telegram.send("/agents writer")
    await telegram.wait(JANE, "the agent writer answers in this conversation")
    telegram.click(shown.buttons[0][1], shown.id)
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert [*service.data.glob("threads/*/workspace/done")]
    telegram.send(ask(text="written"))
    await telegram.wait(JANE, "written")
    await service.quiet()
    assert briefs(model) == ["You write poems.", "You write poems.", "You write novels."]
