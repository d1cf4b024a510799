"""Make a tool for the model from an async function.

The function's docstring describes the tool to the model, `Annotated[type, "text"]` an argument. langchain does not make
the schema, because its schema would validate and dump the whole state (the argument `runtime`) on every call.

Each tool's module has a `ToolMaker` called `make`, and declares the tool's `ToolTraits`.

Ask a person from inside a tool call.
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, ToolException
from langchain_core.tools.base import _format_output
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph._internal._constants import CONFIG_KEY_SCRATCHPAD, CONFIG_KEY_SEND, RESUME
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt import ToolRuntime
from langgraph.types import interrupt
from pydantic import BaseModel, ConfigDict, Field, create_model

from agent.background import BackgroundWork
from agent.core.context import AskingTask, ToolServices, TurnContext
from agent.exposure import Brings, WayOut
from agent.models.streamed_answer import has_listeners
from agent.permissions.rules import Subject, Verdict
from agent.settings.sections import AgentSettings
from catalogue import _
from sandbox.base import WORKSPACE, SandboxError

P = ParamSpec("P")
T = TypeVar("T", str, tuple[str, dict[str, Any]])
Runtime = ToolRuntime[TurnContext, Any]  # the second is the graph's state, which no tool uses
Effect = Literal["none", "once", "resumable"]
TASK_TOOL = "task"  # runs a sub-agent
FAILED_KEY = "failed"  # of an artifact: the work failed, though the tool did what it was asked to


def names_of(tools: Iterable[BaseTool | dict[str, Any]]) -> list[str]:
    """Return the names of tools, of which some may be JSON already."""
    return [tool["function"]["name"] if isinstance(tool, dict) else tool.name for tool in tools]


def has_failed(result: ToolMessage) -> bool:
    """Return whether the artifact of a result says that its work failed."""
    return isinstance(result.artifact, dict) and bool(result.artifact.get(FAILED_KEY))


@dataclass(frozen=True, slots=True)
class ToolTraits:
    """The properties of a tool that policies and the event mapper read.

    `describe` says in a few words what a call does, such as "Reading report.pdf". `effect` says what a second run of a
    call does, after a crash: `none` changes nothing, `once` must not happen, and `resumable` continues the first run. A
    function decides by the arguments.
    """

    describe: Callable[[Mapping[str, Any]], str] | None = None
    needs_sandbox: bool = False  # it starts while the model still writes the arguments
    effect: Effect | Callable[[Mapping[str, Any]], Effect] = "once"
    read_only: bool = False  # changes nothing, neither here nor elsewhere: it may run while the agent only plans
    asks: bool = False  # shown as a question, not as a step
    shows_plan: bool = False  # shown as the plan, not as a step
    paged: bool = False  # limits its own output; calls for nearly the same range count as equal
    permission: Verdict = "ask"  # without a rule: `allow` for a tool that stays inside the sandbox
    subject: Subject | None = None  # the argument that the patterns of rules are compared with
    way_out: WayOut | None = None  # how it can carry data out; None: by its arguments, unless it stays inside
    brings: Brings | None = None  # what its result may hold; None: everything, unless it stays inside

    @property
    def is_step(self) -> bool:
        """Whether its calls are shown as steps."""
        return not (self.asks or self.shows_plan)

    @property
    def outward(self) -> WayOut:
        """How a call can carry data out."""
        return self.way_out or ("none" if self.permission == "allow" else "arguments")

    @property
    def exposes(self) -> Brings:
        """What the result of a call may hold."""
        return self.brings or ("nothing" if self.permission == "allow" else "everything")

    def effect_of(self, args: Mapping[str, Any]) -> Effect:
        """Return the effect of a call with these arguments."""
        return self.effect(args) if callable(self.effect) else self.effect


class ToolArguments(BaseModel):
    """The arguments of a tool that `make_tool` has made."""

    model_config = ConfigDict(extra="forbid")
    runtime: Annotated[Any, InjectedToolArg()] = Field(exclude=True)  # injected, and the model does not see it


class AgentTool(StructuredTool):
    """A tool with its traits and its JSON schema, which is made once."""

    traits: ToolTraits = ToolTraits()

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run a call as the inherited method does, but without callbacks where nobody listens to them."""
        schema, function = self.args_schema, self.coroutine
        is_call = isinstance(input, dict) and input.get("type") == "tool_call" and not kwargs
        if not (function and isinstance(schema, type) and issubclass(schema, ToolArguments) and is_call) or (
            self.callbacks or has_listeners(config)
        ):
            return await super().ainvoke(input, config, **kwargs)
        given = schema.model_validate(input["args"])
        artifact, status = None, "success"
        try:
            content = await function(**{name: getattr(given, name) for name in schema.model_fields})
            if self.response_format == "content_and_artifact":
                content, artifact = content
        except ToolException as error:
            content, status = error.args[0] if error.args else type(error).__name__, "error"
        return _format_output(content, artifact, input["id"], self.name, status)

    @functools.cached_property
    def json_schema(self) -> dict[str, Any]:
        """The tool as OpenAI-compatible servers expect it."""
        return convert_to_openai_tool(self)


ToolMaker = Callable[[AgentSettings, ToolServices], AgentTool | None]
"""Make a tool, or return None if these settings and services do not allow it."""


def always(tool: AgentTool) -> ToolMaker:
    """Return the `make` of a tool that needs no setting and no service."""
    return lambda settings, services: tool


def traits_of(tool: BaseTool | None) -> ToolTraits:
    """Return the traits of a tool; the careful ones for a tool that does not declare any."""
    return tool.traits if isinstance(tool, AgentTool) else ToolTraits()


def make_tool(traits: ToolTraits) -> Callable[[Callable[P, Awaitable[T]]], AgentTool]:
    """Return the decorator that makes a tool with these traits.

    The function returns a result, or a pair of result and artifact; the model does not see the artifact. A SandboxError
    becomes a result with status "error".
    """

    def decorate(function: Callable[P, Awaitable[T]]) -> AgentTool:
        parameters = inspect.signature(function).parameters

        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if "runtime" not in parameters:  # the schema of every tool has it
                kwargs.pop("runtime", None)
            try:
                return await function(*args, **kwargs)
            except SandboxError as error:
                raise ToolException(str(error)) from error

        hints = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}  # name → type and default
        for name, parameter in parameters.items():
            if name != "runtime":
                default = ... if parameter.default is parameter.empty else parameter.default
                hint = hints.get(name, Any)
                kind, *described = get_args(hint) if get_origin(hint) is Annotated else (hint,)
                description = next((each for each in described if isinstance(each, str)), None)
                fields[name] = (kind, Field(default, description=description))
        return AgentTool(
            name=function.__name__,
            description=inspect.getdoc(function) or "",
            coroutine=call,
            response_format="content_and_artifact" if get_origin(hints.get("return")) is tuple else "content",
            args_schema=create_model(function.__name__, __base__=ToolArguments, **fields),
            handle_tool_error=True,
            traits=traits,
        )

    return decorate


def require_background(runtime: Runtime) -> BackgroundWork:
    """Return the background tasks of the turn. Raises ToolException where there are none."""
    if runtime.context.background is None:
        raise ToolException("Background tasks are not available here.")
    return runtime.context.background


def describe_as(title: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a `describe` that fills arguments into a title such as "Reading {name}". `name` is the file name of `path`
    where the tool has no such argument."""

    def describe(args: Mapping[str, Any]) -> str:
        values = {name: str(value) for name, value in args.items()}
        values.setdefault("name", PurePosixPath(values.get("path", WORKSPACE)).name or "/")
        return _(title).format_map(defaultdict(str, values))

    return describe


def absolute_path(path: str) -> str:
    """Resolve a relative path below the workspace."""
    return path if path.startswith("/") else f"{WORKSPACE}/{path.removeprefix('./')}".rstrip("/")


def join_lines(lines: Sequence[str], limit: int, noun: str) -> str:
    """Join at most `limit` lines; say so if there are more."""
    return "\n".join(lines if len(lines) <= limit else [*lines[:limit], f"[more than {limit} {noun}]"])


async def ask_person(context: TurnContext, value: dict[str, Any]) -> str:
    """Return the answer to a question, whose `value` ARCHITECTURE.md describes.

    It is asked at once while tasks work. Otherwise the turn ends and waits: the tool call then runs
    again from its start when the answer arrives, so it must not have effects before.
    """
    try:
        return str(interrupt(value))
    except GraphInterrupt as asked:
        asker: AskingTask | None = context.task or context.tasks
        answer = await asker.wait_for_answer(asked.args[0][0]) if asker else None
        if answer is None:
            raise
        _record(answer)
        return answer


def count_recorded_answers() -> int:
    """Return how many answers to questions of this tool call are recorded: an earlier turn got them, or a task did."""
    return len(get_config()["configurable"][CONFIG_KEY_SCRATCHPAD].resume)


def _record(answer: str) -> None:
    """Record an answer as `interrupt` does. If the turn ends because a later question of this call waits, the call runs
    again, and gets it instead of asking again."""
    configurable = get_config()["configurable"]
    recorded = configurable[CONFIG_KEY_SCRATCHPAD].resume
    recorded.append(answer)
    configurable[CONFIG_KEY_SEND]([(RESUME, recorded)])
