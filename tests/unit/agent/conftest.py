"""A real agent with a scripted model over HTTP and checkpoints in a real SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool

from agent.blocks import Block, Done, Step, Text, View
from agent.core.context import Answer, Turn, TurnContext
from agent.messages import UserInput
from agent.settings.models import ModelSettings
from agent.turn.factory import build_agent
from agent.turn.turn import Agent
from tests.fakes.model import FakeModel
from tests.support.agent_database import SqliteDatabase
from tests.support.agent_tools import TOOLS
from tests.support.current_config import SERVICES, agent_settings
from tests.support.turn_context import FolderMachine, ListSteering, SqliteLedger, make_turn_context


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with FakeModel() as server:
        yield server


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    async with SqliteDatabase(tmp_path / "agent.db") as opened:
        yield opened


@dataclass
class Bench:
    """An agent and its dependencies for a test."""

    agent: Agent
    database: SqliteDatabase
    folder: Path
    waiting: ListSteering = field(default_factory=ListSteering)
    machine: FolderMachine = field(init=False)

    async def context(self, conversation: str = "c") -> TurnContext:
        """Build the context of one turn with the bench's sandbox and steering."""
        context = await make_turn_context(self.database, self.folder, conversation)
        context.steering = self.waiting
        context.brief = self.agent.prompt
        assert isinstance(context.sandbox, FolderMachine)
        assert isinstance(context.ledger, SqliteLedger)
        self.machine = context.sandbox
        return context

    async def run(
        self,
        *inputs: UserInput,
        conversation: str = "c",
        answers: tuple[Answer, ...] = (),
        context: TurnContext | None = None,
        **more: Any,
    ) -> list[Block]:
        """Run a turn and return all its blocks."""
        turn = Turn(conversation, inputs, answers=answers, merge_window_seconds=0.0, **more)
        return [block async for block in self.agent.run(turn, context or await self.context(conversation))]

    async def state(self, conversation: str = "c") -> list[Any]:
        """Return the messages in the checkpoint."""
        found = await self.agent.graph.aget_state({"configurable": {"thread_id": conversation}})
        return list(found.values.get("messages", []))

    async def tasks(self, conversation: str = "c") -> bool:
        """Whether the checkpoint has unfinished tasks."""
        return bool((await self.agent.graph.aget_state({"configurable": {"thread_id": conversation}})).tasks)


class Workshop:
    """Create benches and close them."""

    def __init__(self, model: FakeModel, database: SqliteDatabase, folder: Path, stack: AsyncExitStack) -> None:
        self._model, self._database, self._folder, self._stack = model, database, folder, stack

    async def __call__(
        self,
        *,
        settings: tuple[ModelSettings, ...] = (),
        retries: int = 3,
        tools: Sequence[BaseTool] = (),
        **plan: Any,
    ) -> Bench:
        entry = ModelSettings("main", model="scripted", base_url=f"{self._model.base_url}/v1", retries=retries)
        wanted = agent_settings(**{"retry_seconds": 0.01, "time_zone": "Europe/Berlin", **plan})
        agent = await build_agent(settings or (entry,), wanted, self._database, SERVICES, [*TOOLS, *tools])
        self._stack.push_async_callback(agent.close)
        return Bench(agent, self._database, self._folder)


@pytest.fixture
async def make(model: FakeModel, database: SqliteDatabase, tmp_path: Path) -> AsyncIterator[Workshop]:
    async with AsyncExitStack() as stack:
        yield Workshop(model, database, tmp_path / "files", stack)


@pytest.fixture
async def bench(make: Workshop) -> Bench:
    return await make()


def view(blocks: list[Block]) -> View:
    """Return what a chat finally shows; a turn ends with exactly one Done."""
    assert [isinstance(block, Done) for block in blocks] == [False] * (len(blocks) - 1) + [True]
    shown = View()
    for block in blocks:
        shown.add(block)
    return shown


def steps(blocks: list[Block]) -> list[tuple[str, str]]:
    """Return raw calls and states in order."""
    return [(block.detail, block.state) for block in blocks if isinstance(block, Step)]


def texts(blocks: list[Block]) -> list[Text]:
    return [block for block in blocks if isinstance(block, Text)]
