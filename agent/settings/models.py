"""Model settings. Imports nothing heavy, because channels listen before the agent stack is loaded.

Make what an entry of the configuration names by `use:`; its faults are those of the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.near_misses import DID_YOU_MEAN, closest_name, suggest_lazily
from agent.setting import NAME, Secret, setting
from catalogue import N_, LazyText
from sandbox.named_code import NamedCodeError, call_code, find_code

DEMO_CLASS_PATH = "agent.demo.model:DemoModel"
NO_SUCH_MODEL = N_("there is no model {model!r}; configured are {models}")

PresetName = Literal[
    "",
    "openai",
    "openai-responses",
    "anthropic",
    "gemini",
    "deepseek",
    "kimi",
    "qwen",
    "doubao",
    "minimax",
    "ollama",
    "vllm",
    "openrouter",
]
Effort = Literal["", "none", "minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """What a model costs, in dollars for a million tokens. Reasoning counts as output."""

    input: float = field(metadata={"help": "dollars for a million tokens of input", "ge": 0})
    output: float = field(metadata={"help": "dollars for a million tokens of output", "ge": 0})
    cached: float | None = setting(None, "dollars for a million tokens of cached input; empty: as `input`", ge=0)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One entry of `models:`."""

    name: str = field(metadata={"help": "the name that `roles:` and `/model` use", **NAME})
    use: str = setting("langchain_openai:ChatOpenAI", "class of a LangChain chat model, `package.module:Class`")
    model: str = setting(
        "", "the provider's name of the model; empty: the first one that the server at `base_url` lists"
    )
    base_url: str = setting("", "URL of an OpenAI-compatible server; empty: the provider's own")
    api_key: Secret | None = setting(
        None, "empty: the variable of the provider itself, such as `$OPENAI_API_KEY`; no key for other servers"
    )
    preset: PresetName = setting(
        "", "the provider; sets `use`, `base_url`, the variable of the key, and what is known of the model"
    )
    display_name: str = setting("", "the name in `/models`; empty: `name`")
    proxy: str = setting("", "proxy for calls of this model")
    ca_file: str = setting("", "PEM file with certificate authorities to trust for this model")
    connect_seconds: float = setting(10.0, "timeout of a connection attempt", ge=0)
    read_seconds: float = setting(120.0, "timeout of a silence inside an answer", ge=0)
    retries: int = setting(4, "how often a failed call is retried", ge=0)
    context_tokens: int = setting(
        0, "size of the model's context window; only a fallback that sets it takes over a conversation too long", ge=0
    )
    vision: bool | None = setting(
        None, "whether the model sees pictures; empty: what langchain knows about it, which is nothing of local models"
    )
    price: ModelPrice | None = setting(
        None,
        "dollars for a million tokens, `{input: 1.25, cached: 0.125, output: 10}`; empty: the list price",
    )
    calls: int = setting(0, "calls of this model at once, shared fairly among conversations; 0: no limit", ge=0)
    effort: Effort = setting("", "how much the model thinks; empty: what the provider does by itself")
    show_thinking: bool = setting(False, "show the model's thinking as a step, as far as the provider sends it")
    options: Mapping[str, Any] = field(
        default_factory=dict, metadata={"help": "more arguments of the class, such as `temperature`"}
    )

    @property
    def label(self) -> str:
        """The name that `/models` shows."""
        return self.display_name or self.name

    @property
    def server(self) -> str:
        """The server: its URL, or else the class of the provider."""
        return self.base_url.rstrip("/") or self.use


TellPause = Callable[[str, float], None]
"""Tell other processes how many seconds the calls to a server (`ModelSettings.server`) must wait."""


def tell_nobody(_server: str, _seconds: float) -> None:
    """Be the `TellPause` of a process that works alone."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of all model calls, set in `limits:`."""

    model_calls: int = 0
    endpoint_failures: int = 5
    endpoint_seconds: float = 30.0


class AgentConfigError(Exception):
    """The agent cannot use its configuration: the place (model entries by name), what is wrong, and how to fix it.

    `others` are further faults of the same configuration.
    """

    def __init__(
        self,
        place: tuple[str | int, ...],
        wrong: LazyText | str,
        fix: LazyText | str = "",
        others: Sequence[AgentConfigError] = (),
    ) -> None:
        where = "".join(f"[{part}]" if isinstance(part, int) else f": {part}" for part in place).removeprefix(": ")
        super().__init__(f"{where}: {wrong}" + (f" → {fix}" if fix else ""))
        self.place, self.wrong, self.fix, self.others = place, wrong, fix, others


NAME_CODE = N_("name it as in docs/extend.md; the module may be beside the configuration")


def find_own(use: str, at: tuple[str | int, ...]) -> Any:
    """Return what `package.module:name` means. Raises AgentConfigError."""
    try:
        return find_code(use)
    except NamedCodeError as error:
        raise config_error(error, at) from None


def call_own(use: str, found: Any, at: tuple[str | int, ...], *arguments: Any, options: Mapping[str, Any]) -> Any:
    """Return what the function or class makes. Raises AgentConfigError."""
    try:
        return call_code(use, found, *arguments, options=options)
    except NamedCodeError as error:
        raise config_error(error, at) from None


def config_error(error: NamedCodeError, at: tuple[str | int, ...]) -> AgentConfigError:
    """Return the fault of the entry at `at`."""
    return AgentConfigError((*at, *error.place), error.wrong, fix_of(error))


def fix_of(error: NamedCodeError) -> LazyText | str:
    """Return the name that was meant, or how code is named."""
    if near := closest_name(error.written, error.known) if error.written else "":
        return LazyText(DID_YOU_MEAN, name=near)
    if error.place == ("options",):
        return LazyText(N_("add it below `options`"))
    if error.place[0] == "use" and not error.is_name:
        return LazyText(N_("mend that code, or remove the entry"))
    if error.place[0] == "options":
        return suggest_lazily(error.written, error.known) or LazyText(N_("docs/extend.md says what it gets"))
    return LazyText(NAME_CODE)
