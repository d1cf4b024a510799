"""The sections of config.yaml that concern the agent. Imports nothing heavy.

The section `external_agents:` of config.yaml. Imports nothing heavy.

The section `web:` of config.yaml. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.exposure import OutwardMode
from agent.permissions.rules import Rule, RuleText, parse_rules
from agent.setting import ENVIRONMENT, TOOL_PART, Secret, setting
from agent.settings.mcp import McpConfig
from agent.settings.mcp_tokens import TokenFolder
from agent.settings.models import CallLimits, TellPause, tell_nobody
from agent.settings.subagents import NamedAgentSettings, SubagentSettings
from catalogue import N_


@dataclass(frozen=True, slots=True)
class ExternalAgentSettings:
    """One entry of `external_agents:`: a program that speaks the Agent Client Protocol (docs/external-agents.md)."""

    name: str = field(metadata={"help": "the name by which the agent calls it", **TOOL_PART})
    command: str = field(metadata={"help": "the command that starts it in the conversation's sandbox"})
    description: str = setting("", "when the agent should give work to it")
    env: Mapping[str, Secret] = field(
        default_factory=dict,
        metadata={"help": "its environment variables, such as `ANTHROPIC_API_KEY: $ANTHROPIC_API_KEY`", **ENVIRONMENT},
    )
    permission: Literal["ask", "allow", "deny"] = setting(
        "ask", "what it gets when it asks for permission and no rule of `permissions` decides; `ask`: the requester"
    )
    seconds: float = setting(1800.0, "timeout of one call; time in which it waits for a person does not count", ge=1)
    auth_method: str = setting(
        "", "the id of its way to sign in; empty: if it asks for one, those whose variables `env` has are tried"
    )
    mode: str = setting("", "the id of the mode of its sessions (`session/set_mode`); empty: its own default")


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """One entry of `web.search`."""

    provider: Literal["searxng", "tavily", "brave", "exa", "infoquest", "ddgs"] = field(
        metadata={
            "help": "`searxng`: your own instance, at `url`; `ddgs`: scrapes public search engines without a key, as"
            " best effort (`make setup EXTRAS=ddgs`); the others need `api_key`"
        }
    )
    api_key: Secret | None = setting(None, "the provider's key")
    url: str = setting("", "URL of the SearXNG instance; of the others: another address of their API")


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What the agent may do on the web, from this machine and not from the sandbox."""

    fetch: bool = setting(
        True, "the agent may read public pages; private and local addresses are always refused (docs/web.md)"
    )
    robots: bool = setting(True, "pages that a site's robots.txt excludes are not read")
    hosts: tuple[str, ...] = setting(
        (),
        "the only hosts whose pages are read, with their subdomains, such as `example.com`; empty: every public host",
    )
    proxy: str = setting(
        "", "URL of an HTTP proxy through which pages and searches are requested, such as `http://proxy.example:3128`"
    )
    search: tuple[SearchSettings, ...] = setting(
        (), "search providers, described below; when one fails, the next one answers"
    )


MAX_MODEL_CALLS = 500  # in one turn
LANGUAGE_CODES = {  # what people write instead of a code
    "english": "en",
    "german": "de",
    "deutsch": "de",
    "french": "fr",
    "français": "fr",
    "spanish": "es",
    "español": "es",
    "chinese": "zh",
    "mandarin": "zh",
    "中文": "zh",
    "japanese": "ja",
    "日本語": "ja",
    "korean": "ko",
    "italian": "it",
    "portuguese": "pt",
    "russian": "ru",
    "dutch": "nl",
    "polish": "pl",
    "turkish": "tr",
    "arabic": "ar",
    "hindi": "hi",
    "ukrainian": "uk",
    "vietnamese": "vi",
    "indonesian": "id",
    "swedish": "sv",
}


@dataclass(frozen=True, slots=True)
class ModelRoles:
    """Which model does what. Empty means the first model (lead), the lead (memory), the model that answers (summary,
    evaluator) or no model (title, vision)."""

    lead: str = setting("", "the model that answers; empty: the first of `models`")
    fallback: tuple[str, ...] = setting(
        (), "models that take over, in this order, when the model of a turn fails after its retries"
    )
    title: str = setting("", "the model that titles a thread; empty: its first words, without a model call")
    summary: str = setting("", "the model that summarizes a long conversation; empty: the model that answers")
    memory: str = setting("", "the model that extracts memories after a turn; empty: the lead model")
    vision: str = setting(
        "", "the model that answers for the rest of a turn when people show a picture to a model that does not see"
    )
    evaluator: str = setting("", "the model that judges whether a `/goal` is met; empty: the model that answers")


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """The system prompt."""

    file: str = setting("", "a file that replaces the built-in system prompt (agent/prompt.md)", path=True)
    extend: str = setting("", "text that is appended to the system prompt")


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """When a conversation is summarized, so that the cost of a turn stays bounded."""

    trigger_tokens: int = setting(40_000, "a conversation is summarized when it exceeds so many tokens …", ge=1000)
    trigger_messages: int = setting(160, "… or so many messages", ge=4)
    keep_messages: int = setting(40, "newest messages that a summary does not replace …", ge=2)
    keep_tokens: int = setting(
        0,
        "… as long as they have no more tokens than this (0: a quarter of `trigger_tokens`); the last one always stays",
        ge=0,
    )
    output_chars: int = setting(
        12_000, "a longer tool output is written to a file, and the model gets its beginning and end", ge=500
    )

    @property
    def kept_tokens(self) -> int:
        """How many tokens of the newest messages stay: less than would begin the next summary at once."""
        return min(self.keep_tokens, self.trigger_tokens // 2) or self.trigger_tokens // 4


@dataclass(frozen=True, slots=True)
class GoalConfig:
    """The limits of `/goal`, which works in rounds until an evaluator says that the goal is met."""

    rounds: int = setting(10, "rounds of work at most", ge=1)
    tokens: int = setting(1_000_000, "budget: no round begins after so many tokens, cached input not counted", ge=1000)


@dataclass(frozen=True, slots=True)
class PermissionConfig:
    """Which tool calls run, which ask a person first, and which never run: `deny`, then `ask`, then `allow`."""

    deny: tuple[RuleText, ...] = setting((), "calls that never run, such as `bash(rm -rf /*)` or `mcp__github__*`")
    ask: tuple[RuleText, ...] = setting(
        (), "calls that a person approves each time, such as `bash(make deploy *)`, in addition to the built-in rules"
    )
    allow: tuple[RuleText, ...] = setting(
        (), "calls that run without a question, such as `mcp__github__get_*`; they replace built-in rules"
    )
    outward: OutwardMode = setting(
        "ask-after-untrusted",
        "whether calls that can carry data out ask: `ask-after-untrusted` once a conversation holds private data and"
        " has read text by strangers, `ask` always, `allow` never; addresses that a person, a search or a page"
        " named run without a question",
    )

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules of all three lists."""
        return parse_rules(self.deny, self.ask, self.allow)


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """One entry of `policies:`: code of yours around model calls, tool calls or both (agent/core/policy.py)."""

    use: str = field(metadata={"help": "the class, `package.module:Class`, with `wrap_model_call` or `wrap_tool_call`"})
    before: str = setting("", "the policy that it comes before (outside of), such as `ledger`; empty: the last one")
    after: str = setting("", "the policy that it comes after (inside of)")
    fail_closed: bool = setting(
        True, "a call does not happen where this policy's own code fails; false: it happens without the policy"
    )
    options: Mapping[str, Any] = field(default_factory=dict, metadata={"help": "arguments of the class"})


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """One entry of `tools:`: a tool of your own (docs/extend.md)."""

    use: str = field(
        metadata={"help": "the tool, or the function that makes it from settings and services: `package.module:name`"}
    )
    options: Mapping[str, Any] = field(default_factory=dict, metadata={"help": "further arguments of that function"})


@dataclass(frozen=True, slots=True)
class VoiceConfig:
    """Where voice messages are transcribed."""

    base_url: str = setting(
        "", "URL of an OpenAI-compatible server, such as `https://api.openai.com/v1`; empty: voice stays a file"
    )
    model: str = setting("whisper-1", "the server's name of the model")
    api_key: Secret | None = setting(None, "the server's key")
    language: str = setting(
        "",
        "ISO 639-1 code of the language that people speak; empty: the server detects it",
        shape=r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*",
        looks=N_("a code such as de"),
        words=LANGUAGE_CODES,
    )
    price_per_minute: float | None = setting(
        None, "dollars for a minute of audio, such as 0.006; empty: the list price of the model", ge=0
    )


@dataclass(frozen=True, slots=True)
class EmbeddingsConfig:
    """Where facts are embedded, so that memories are also found by their meaning."""

    base_url: str = setting(
        "", "URL of an OpenAI-compatible server, such as `https://api.openai.com/v1`; empty: words only"
    )
    model: str = setting("text-embedding-3-small", "the server's name of the model")
    api_key: Secret | None = setting(None, "the server's key")
    seconds: float = setting(0.5, "how long a turn waits for the embedding of its request at most", ge=0.05)
    query_prefix: str = setting("", "what the model wants before a request, such as `query: ` for E5")
    passage_prefix: str = setting("", "what the model wants before a fact, such as `passage: ` for E5")
    min_similarity: float = setting(
        0.35,
        "how similar a memory must be to go with a request: 0 is as similar as any sentence is for the model, 1 equal",
        ge=0,
        le=1,
    )
    price_per_million_tokens: float | None = setting(
        None, "dollars for a million tokens, such as 0.02; empty: the list price of the model", ge=0
    )


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Everything an operator sets for the agent, except the models."""

    roles: ModelRoles = ModelRoles()
    prompt: PromptConfig = PromptConfig()
    context: ContextConfig = ContextConfig()
    goal: GoalConfig = GoalConfig()
    time_zone: str = ""
    max_model_calls: int = MAX_MODEL_CALLS
    policies: tuple[PolicySettings, ...] = ()
    tools: tuple[ToolSettings, ...] = ()
    subagents: SubagentSettings = field(default_factory=SubagentSettings)
    agents: tuple[NamedAgentSettings, ...] = ()
    external_agents: tuple[ExternalAgentSettings, ...] = ()
    mcp: McpConfig = McpConfig()
    tokens: TokenFolder | None = None  # of people who signed in to MCP servers
    calls: CallLimits = field(default_factory=CallLimits)
    tell_pause: TellPause = tell_nobody
    retry_seconds: float = 1.0  # the first backoff after a model error
