"""One turn: a message in, blocks out. The only file that runs the graph."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError

from agent.checkpointer import Checkpoints
from agent.context import Desk, Input, Meter, Turn
from agent.conversation import Block, Done, Failed, Notice, Text
from agent.event_mapper import Flow
from agent.models.errors import ModelFailure
from agent.models.openai_stream import WINDOW
from agent.repair import repair
from agent.resume import Finished, Graph, Stale, Work, enter
from agent.title import Titles
from agent.user_message import Humans

log = logging.getLogger(__name__)

RECURSION = 10_000  # supersteps; the cap on model calls and the loop policy end a turn long before


class Agent:
    """The agent: one graph per model over one set of checkpoints. Made by `agent.factory.build_agent`."""

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        lead: str,
        checkpoints: Checkpoints,
        humans: Humans,
        needs_sandbox: frozenset[str],
        titles: Titles,
        closers: Sequence[Callable[[], Awaitable[None]]],
    ) -> None:
        self.lead = lead
        self._graphs = graphs
        self._checkpoints = checkpoints
        self._humans = humans
        self._needs_sandbox = needs_sandbox
        self._titles = titles
        self._closers = closers

    async def run(self, turn: Turn, desk: Desk) -> AsyncGenerator[Block, None]:
        """Do the turn. Ends with exactly one Done (done, waiting or failed); a failure is a Failed before it.

        Cancelling the task that iterates, or closing the iterator, stops the model and the tools at once; `repair`
        must follow. Each turn belongs into a task of its own.
        """
        WINDOW.set(turn.window)
        flow = Flow(desk, self._needs_sandbox)
        failed: Failed | None = None
        try:
            async with aclosing(self._work(turn, desk, flow)) as blocks:
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
            await self.repair(turn.conversation, heard=desk.heard)
        if failed:
            yield failed
        yield Done("failed" if failed else "waiting" if flow.asks else "done", desk.meter.total)

    async def _work(self, turn: Turn, desk: Desk, flow: Flow) -> AsyncGenerator[Block, None]:
        graph = self._graphs.get(turn.model or self.lead)
        if graph is None:
            yield Notice("model", f"The model {turn.model} is no longer configured; {self.lead} answers instead.")
            graph = self._graphs[self.lead]
        config = _config(turn.conversation)
        match await enter(graph, config, turn, self._humans):
            case Finished(answer, files):
                for file in files:
                    yield file
                yield Text(answer.text, answer.id or "")
            case Stale(open_):
                yield Notice("stale", "That question is answered already; this one is still open.")
                for ask in flow.ask(open_):
                    yield ask
            case Work(given, calls, files, answered):
                for file in files:
                    yield file
                if answered:
                    yield Text(answered, "answered")
                for step in flow.begin(calls):
                    yield step
                events = graph.astream(
                    given,
                    config,
                    context=desk,
                    stream_mode=["messages", "updates", "custom"],
                    durability="sync",  # with the default, a crash lets tools run twice
                )
                async with aclosing(events):  # type: ignore[type-var]  # an async generator behind the type AsyncIterator
                    async for mode, event in events:
                        for block in flow.take(mode, event):
                            yield block

    async def repair(self, conversation: str, partial: str = "", heard: Sequence[Input] = ()) -> None:
        """After a stop: finished tool results are kept, the other calls answered, what was `heard` during the turn kept
        and `partial` text kept and marked."""
        messages = [self._humans.message(item) for item in heard]
        await repair(self._graphs[self.lead], _config(conversation), partial, messages)

    async def forget(self, conversation: str) -> None:
        """Delete what the agent remembers of a conversation."""
        await self._checkpoints.adelete_thread(conversation)

    def title_at_once(self, text: str) -> str:
        """The title of a conversation that begins with `text`: one line, at most 60 characters; "" when a model makes
        it."""
        return self._titles.at_once(text)

    async def title(self, text: str, meter: Meter) -> str:
        """The title that a model makes."""
        return await self._titles.title(text, meter)

    async def close(self) -> None:
        """Close the connections to the models."""
        for close in self._closers:
            await close()


def _config(conversation: str) -> RunnableConfig:
    return {"configurable": {"thread_id": conversation}, "recursion_limit": RECURSION}
