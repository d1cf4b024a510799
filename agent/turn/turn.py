"""Run one turn: messages in, blocks out. The only module that runs the graph."""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError

from agent.blocks import ANSWERED_PART, Block, Done, Failed, Notice, Text, internal_fault
from agent.core.context import TransactionRunner, Turn, TurnContext, join_parts
from agent.core.event_mapper import EventMapper
from agent.core.graphs import RECURSION_LIMIT, Graph
from agent.core.tool import ToolTraits
from agent.core.user_message import MessageFormatter
from agent.mcp.names import KnownPrompt, PromptError, PromptName
from agent.mcp.resources import expand_prompt, known_prompts
from agent.mcp.servers import McpServers
from agent.memory.extraction import FactExtractor
from agent.messages import UserInput
from agent.models.errors import ModelFailure
from agent.models.loader import LoadedModel
from agent.models.openai_stream import MERGE_WINDOW_SECONDS
from agent.models.traffic import ModelTraffic
from agent.settings.subagents import KindSettings
from agent.spending import Meter
from agent.subagents.board import TaskBoard
from agent.subagents.callee import callee_context, worker_brief
from agent.turn.agent_kinds import AgentProfile, SubagentKinds
from agent.turn.checkpoint_rows import ReadState
from agent.turn.checkpointer import HeldState, LatestCheckpointer
from agent.turn.resume import AlreadyFinished, GraphInput, QuestionClosed, enter_turn, recall_blocks, repair_state
from agent.turn.title import TitleMaker
from catalogue import N_, _

log = logging.getLogger(__name__)


class WorkerGone(Exception):
    """The agent, or the kind of sub-agent, of a background task is no longer configured."""


class Agent:
    """Graphs over one checkpointer, for all models. Made by `agent.turn.factory.build_agent`.

    `profiles` are the agents by name, the default one as "". `route` names the models of a turn for which no other one
    was chosen. `facts` extracts memories. `vision` takes over turns with pictures from models that do not see.
    """

    def __init__(
        self,
        profiles: Mapping[str, AgentProfile],
        models: Mapping[str, LoadedModel],
        route: Sequence[str],
        checkpoints: LatestCheckpointer,
        formatter: MessageFormatter,
        tools: Mapping[str, ToolTraits],
        titles: TitleMaker,
        facts: FactExtractor,
        kinds: SubagentKinds,
        vision: LoadedModel | None,
        mcp: McpServers | None = None,
    ) -> None:
        self.graph = profiles[""].graph
        self._profiles = profiles
        self.models = models
        self.facts = facts
        self._route = route
        self._checkpoints = checkpoints
        self._formatter = formatter
        self._tools: Mapping[str, ToolTraits] = ChainMap(dict(tools), mcp.traits) if mcp else tools
        self._mcp = mcp
        self._titles = titles
        self._kinds = kinds
        self._vision = vision

    @property
    def prompt(self) -> str:
        """The prompt of the default agent."""
        return self.prompt_of("")

    def prompt_of(self, agent: str) -> str:
        """Return the first part of every brief of this agent; of the default one if it is not configured."""
        return self._profiles.get(agent, self._profiles[""]).prompt

    @property
    def sees_pictures(self) -> bool:
        """Whether one of its models takes pictures."""
        return any(model.sees_pictures for model in self.models.values())

    @property
    def traffic(self) -> ModelTraffic:
        """What the calls of all models share."""
        return next(iter(self.models.values())).traffic

    async def run(self, turn: Turn, context: TurnContext) -> AsyncGenerator[Block, None]:
        """Run the turn. The last block is the only Done (done, waiting or failed); a Failed may precede it.

        To stop the model and the tools at once, cancel the iterating task or close the iterator, then call `repair`.
        Run each turn in its own task: it sets a context variable.
        """
        MERGE_WINDOW_SECONDS.set(turn.merge_window_seconds)
        mapper = EventMapper(context, self._tools, turn.begun)
        context.meter.root.conversation = turn.conversation
        failed: Failed | None = None
        try:
            async with aclosing(self._run_graph(turn, context, mapper)) as blocks:
                async for block in blocks:
                    yield block
            if mapper.asks:  # the bot clears the ledger now, so finished tool results must be committed
                await self._checkpoints.flush(turn.conversation)
        except ModelFailure as error:
            failed = error.failed
        except WorkerGone:
            what = _("This background task cannot go on: its agent is no longer configured.")
            failed = Failed(what, _("Ask me again, then I'll do it with what there is now."))
        except GraphRecursionError:
            failed = Failed(_("I've used all the steps I may take at once."), _("Say “continue” and I'll go on."))
        except Exception:  # a person waits for an answer, whatever failed
            log.exception("turn.failed conversation=%s", turn.conversation)
            failed = internal_fault()
        if failed:
            # A fresh next turn does not check the state.
            await self.repair(turn.conversation, steering=context.taken_steering)
            yield failed
        for warning in context.meter.gate.take_warnings() if context.meter.gate else ():
            yield Notice("budget", warning, kept=True)
        yield Done("failed" if failed else "waiting" if mapper.asks else "done", context.meter.total)

    async def _run_graph(self, turn: Turn, context: TurnContext, mapper: EventMapper) -> AsyncGenerator[Block, None]:
        config = _graph_config(turn.conversation)
        await context.exposure.note_inputs(turn.inputs)
        if context.memory and context.memory.notes:
            await context.exposure.note_result("memory", {}, context.memory.notes)
        entry = await enter_turn(self.graph, config, turn, self._formatter)
        agent, worker = (entry.by if isinstance(entry, GraphInput) else ()) or (turn.agent, turn.worker)
        profile, kind = self._profiles.get(agent), self._kinds.find(worker)
        if worker and (profile is None or kind is None):  # another one could do more
            raise WorkerGone
        if profile is None:
            profile = self._profiles[""]
            gone = _("The agent {name} is no longer configured; the default agent answers instead.", name=agent)
            yield Notice("agent", gone, kept=True)
        if agent != turn.agent:  # chosen after the question
            context.brief = profile.prompt + context.brief.removeprefix(self.prompt_of(turn.agent))
        for notice in self._choose_models(turn, profile, context):
            yield notice
        graph = profile.graph
        if kind:
            graph, context = await self._background(kind, context)
        match entry:
            case AlreadyFinished(answer, files, plan):
                for file in files:
                    yield file
                for shown in mapper.resume_plan(plan):
                    yield shown
                yield Text(answer.text, answer.id or "")
            case QuestionClosed(open_):
                yield Notice("stale", _("That question is already answered; this one is still open."))
                for ask in mapper.map_interrupts(open_):
                    yield ask
            case GraphInput(given, calls, files, answered, plan, asked, finished):
                context.asked = asked
                context.tasks = None if kind else TaskBoard(self._kinds, context.questions, finished)
                for file in files:
                    yield file
                for shown in mapper.resume_plan(plan):
                    yield shown
                if answered:
                    yield Text(answered, ANSWERED_PART)
                mapper.note_calls(calls)
                events = graph.astream(
                    given,
                    config,
                    context=context,
                    stream_mode=["updates", "custom"],
                    durability="sync",  # with the default, tools can run twice after a crash
                    subgraphs=True,
                )
                async with aclosing(events):  # type: ignore[type-var]  # an async generator behind the type AsyncIterator
                    async for namespace, mode, event in events:
                        for block in mapper.map_event(namespace, mode, event):
                            yield block

    async def _background(self, kind: KindSettings, context: TurnContext) -> tuple[Graph, TurnContext]:
        """Return the graph of a sub-agent that works without a turn of its caller, and what it may do."""
        context.route = self._kinds.route(kind, context)
        if context.clock:
            context.clock.shorten(self._kinds.seconds(kind))
        worker = callee_context(context, kind)
        worker.brief = join_parts(worker_brief(kind, background=True), worker.skills.brief() if worker.skills else "")
        return await self._kinds.graph(kind, "background"), worker

    def _choose_models(self, turn: Turn, profile: AgentProfile, context: TurnContext) -> Iterator[Notice]:
        """Set the models of the turn, and what its agent may use."""
        lead, *fallbacks = self._route
        lead = profile.model or lead
        if turn.model and turn.model not in self.models:
            gone = _("The model {name} is no longer configured; {other} answers instead.", name=turn.model, other=lead)
            yield Notice("model", gone, kept=True)
        elif turn.model:
            lead = turn.model
        names = [*filter(turn.may_use_model, dict.fromkeys([lead, *fallbacks]))] or [
            *filter(turn.may_use_model, self.models)
        ][:1]
        chosen, *others = (self.models[name] for name in names)
        if turn.model == lead and turn.effort:  # of the chosen model: a fallback may refuse it
            chosen = chosen.with_effort(turn.effort)
        context.route = [chosen, *others]
        context.reach = profile.reach
        context.may_use_model = turn.may_use_model
        context.vision = self._vision if self._vision and turn.may_use_model(self._vision.settings.name) else None

    async def repair(self, conversation: str, partial_text: str = "", steering: Sequence[UserInput] = ()) -> None:
        """Repair the state after a stop; keep `partial_text` and the `steering` messages that joined the turn."""
        messages = [self._formatter.format_message(item) for item in steering]
        await repair_state(self.graph, _graph_config(conversation), partial_text, messages)

    def hold_state(
        self, conversation: str, known: ReadState | None = None, database: TransactionRunner | None = None
    ) -> HeldState:
        """Keep the checkpoints of a turn in memory, for its own commits, until it releases them.

        `known` is what its claim read. What it writes by itself goes to `database`, where others may have the
        conversation one day: then nothing that an earlier turn has left in memory counts any more.
        """
        return self._checkpoints.hold(conversation, known, database=database)

    async def recall(self, conversation: str, keys: Collection[str]) -> list[Block]:
        """Return the texts and steps in the checkpoint of the latest turn, which the messages `keys` began."""
        state = await self.graph.aget_state(_graph_config(conversation))
        return list(recall_blocks(state.values.get("messages", []), keys, self._tools))

    async def forget(self, conversation: str) -> None:
        """Delete the checkpoint of a conversation."""
        await self._checkpoints.adelete_thread(conversation)

    def title_at_once(self, text: str) -> str:
        """Return the title of a conversation that begins with `text`, or "" if a model makes it."""
        return self._titles.title_at_once(text)

    async def make_title(
        self, text: str, meter: Meter, may_use_model: Callable[[str], bool] = lambda model: True
    ) -> str:
        """Return a title of 1 to 60 characters, made by a model if one is configured."""
        return await self._titles.make_title(text, meter, may_use_model)

    @property
    def need_sign_in(self) -> list[str]:
        """The names of the MCP servers that cannot be used until a person signs in."""
        return self._mcp.need_sign_in if self._mcp else []

    async def start_servers(self) -> None:
        """Start the MCP servers that may have prompts, before a turn needs them."""
        if self._mcp:
            await self._mcp.start()

    def known_prompts(self) -> list[KnownPrompt]:
        """Return the prompts that MCP servers have listed."""
        return known_prompts(self._mcp) if self._mcp else []

    async def expand_prompt(self, name: PromptName, words: str) -> str:
        """Return the text of a prompt of an MCP server. Raises PromptError."""
        if self._mcp is None:
            raise PromptError(N_("The prompts of the MCP server “{server}” are not used here."), server=name.server)
        return await expand_prompt(self._mcp, name, words)

    def adopt_servers(self, before: Agent) -> None:
        """Continue with the running MCP servers of the agent that this one replaces, as far as they are the same."""
        if self._mcp and before._mcp:
            self._mcp.adopt(before._mcp)

    async def close(self) -> None:
        """Close the connections to the models and the MCP servers."""
        if self._mcp:
            await self._mcp.close()
        for model in self.models.values():
            await model.close()


def _graph_config(conversation: str) -> RunnableConfig:
    return {"configurable": {"thread_id": conversation}, "recursion_limit": RECURSION_LIMIT}
