"""One turn: a message in, blocks out. The only file that runs the graph."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError

from agent.blocks import Block, Done, Failed, Notice, Text
from agent.checkpointer import LatestCheckpointer
from agent.context import Meter, Turn, TurnContext, UserInput
from agent.event_mapper import EventMapper
from agent.models.errors import ModelFailure
from agent.models.openai_stream import MERGE_WINDOW_SECONDS
from agent.repair import repair_state
from agent.resume import AlreadyFinished, Graph, GraphInput, QuestionClosed, enter_turn
from agent.title import TitleMaker
from agent.user_message import MessageFormatter

log = logging.getLogger(__name__)

RECURSION_LIMIT = 10_000  # supersteps; the cap on model calls and the loop policy end a turn long before


class Agent:
    """The agent: one graph per model over one set of checkpoints. Made by `agent.factory.build_agent`."""

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        lead: str,
        checkpoints: LatestCheckpointer,
        formatter: MessageFormatter,
        needs_sandbox: frozenset[str],
        titles: TitleMaker,
        closers: Sequence[Callable[[], Awaitable[None]]],
    ) -> None:
        self.lead = lead
        self._graphs = graphs
        self._checkpoints = checkpoints
        self._formatter = formatter
        self._needs_sandbox = needs_sandbox
        self._titles = titles
        self._closers = closers

    async def run(self, turn: Turn, context: TurnContext) -> AsyncGenerator[Block, None]:
        """Do the turn. Ends with exactly one Done (done, waiting or failed); a failure is a Failed before it.

        Cancelling the task that iterates, or closing the iterator, stops the model and the tools at once; `repair`
        must follow. Each turn belongs into a task of its own.
        """
        MERGE_WINDOW_SECONDS.set(turn.merge_window_seconds)
        flow = EventMapper(context, self._needs_sandbox)
        failed: Failed | None = None
        try:
            async with aclosing(self._run_graph(turn, context, flow)) as blocks:
                async for block in blocks:
                    yield block
            if flow.asks:  # the bot forgets the ledger now: what finished beside the question must be on the disk
                await self._checkpoints.flush(turn.conversation)
        except ModelFailure as error:
            failed = error.failed
        except GraphRecursionError:
            failed = Failed("The work took more steps than one turn may have.", "Tell me how to go on.")
        except Exception:  # the edge of a turn: a person waits for an answer, whatever broke
            log.exception("turn failed in %s", turn.conversation)
            failed = Failed("Something went wrong inside me.", "Try again; the operator finds the reason in the log.")
        if failed:
            # The next turn may come without a look at the state.
            await self.repair(turn.conversation, heard=context.taken_steering)
        if failed:
            yield failed
        yield Done("failed" if failed else "waiting" if flow.asks else "done", context.meter.total)

    async def _run_graph(self, turn: Turn, context: TurnContext, flow: EventMapper) -> AsyncGenerator[Block, None]:
        graph = self._graphs.get(turn.model or self.lead)
        if graph is None:
            yield Notice("model", f"The model {turn.model} is no longer configured; {self.lead} answers instead.")
            graph = self._graphs[self.lead]
        config = _graph_config(turn.conversation)
        match await enter_turn(graph, config, turn, self._formatter):
            case AlreadyFinished(answer, files):
                for file in files:
                    yield file
                yield Text(answer.text, answer.id or "")
            case QuestionClosed(open_):
                yield Notice("stale", "That question is answered already; this one is still open.")
                for ask in flow.map_interrupts(open_):
                    yield ask
            case GraphInput(given, calls, files, answered):
                for file in files:
                    yield file
                if answered:
                    yield Text(answered, "answered")
                for step in flow.begin_calls(calls):
                    yield step
                events = graph.astream(
                    given,
                    config,
                    context=context,
                    stream_mode=["messages", "updates", "custom"],
                    durability="sync",  # with the default, a crash lets tools run twice
                )
                async with aclosing(events):  # type: ignore[type-var]  # an async generator behind the type AsyncIterator
                    async for mode, event in events:
                        for block in flow.map_event(mode, event):
                            yield block

    async def repair(self, conversation: str, partial: str = "", heard: Sequence[UserInput] = ()) -> None:
        """After a stop: finished tool results are kept, the other calls answered, what was `heard` during the turn kept
        and `partial` text kept and marked."""
        messages = [self._formatter.format_message(item) for item in heard]
        await repair_state(self._graphs[self.lead], _graph_config(conversation), partial, messages)

    async def forget(self, conversation: str) -> None:
        """Delete what the agent remembers of a conversation."""
        await self._checkpoints.adelete_thread(conversation)

    def title_at_once(self, text: str) -> str:
        """The title of a conversation that begins with `text`: one line, at most 60 characters; "" when a model makes
        it."""
        return self._titles.title_at_once(text)

    async def make_title(self, text: str, meter: Meter) -> str:
        """The title that a model makes."""
        return await self._titles.make_title(text, meter)

    async def close(self) -> None:
        """Close the connections to the models."""
        for close in self._closers:
            await close()


def _graph_config(conversation: str) -> RunnableConfig:
    return {"configurable": {"thread_id": conversation}, "recursion_limit": RECURSION_LIMIT}
