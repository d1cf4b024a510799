"""Define the sections of config.yaml as frozen dataclasses: each setting with its default and its help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from agent.setting import setting
from agent.settings.mcp import McpConfig
from agent.settings.models import AgentConfigError, CallLimits, ModelSettings
from agent.settings.network import NetworkConfig
from agent.settings.sections import (
    ContextConfig,
    EmbeddingsConfig,
    ExternalAgentSettings,
    GoalConfig,
    ModelRoles,
    PermissionConfig,
    PolicySettings,
    PromptConfig,
    ToolSettings,
    VoiceConfig,
    WebConfig,
)
from agent.settings.subagents import NamedAgentSettings, SubagentSettings
from bot.config.database import DatabaseConfig
from bot.config.document import ConfigFault
from bot.config.excerpt import Location
from bot.config.hooks import HookConfig, RelayConfig
from bot.config.http import HttpConfig
from bot.config.operations import (
    AuditConfig,
    BackupConfig,
    DrillConfig,
    EncryptionConfig,
    MetricsConfig,
    PushConfig,
    TracesConfig,
)
from bot.config.spending import BudgetConfig, RateLimitConfig
from bot.config.team import RoleAssignment, TeamConfig
from bot.config.uploads import UploadsConfig
from catalogue import LazyText
from sandbox.network.preview import PreviewSettings
from sandbox.rules import NetworkRules
from sandbox.settings import KubernetesOptions


@dataclass(frozen=True, slots=True)
class AccessConfig:
    """Who may talk to the bot on a channel: nobody by default."""

    open: bool = setting(False, "every member of the workspace may talk to the bot; guests, strangers and bots may not")
    allow: tuple[str, ...] = setting(
        (),
        "platform ids of people, chats and workspaces that may talk to the bot; a guest or a stranger needs their own"
        " id or the chat's, a bot needs its own",
    )
    operators: tuple[str, ...] = setting(
        (), "platform ids of operators: they may talk to the bot and stop other people's turns"
    )
    pairing: bool = setting(
        True,
        "an unknown person who writes privately gets a code and waits for an operator",
    )
    answer_strangers: bool = setting(
        True,
        "who addresses the bot in a group without access is told so, once a day: privately on Slack, elsewhere as a"
        " reply",
    )
    roles: tuple[RoleAssignment, ...] = setting(
        (), "roles of people, chats and workspaces here (docs/team.md), described below; a person named here may talk"
    )

    def settings_naming(self, person: str) -> list[str]:
        """Return the settings that let this person in."""
        in_roles = any(person == id.rpartition("/")[2] for entry in self.roles for id in entry.who)
        named = {
            "open": self.open,
            "allow": person in self.allow,
            "operators": person in self.operators,
            "roles": in_roles,
        }
        return [name for name, names in named.items() if names]


@dataclass(frozen=True, slots=True)
class ChannelConfig:
    """One entry of `channels:`. `settings` is an instance of that channel's Settings."""

    name: str
    settings: Any
    access: AccessConfig
    use: str = ""  # the module of a channel that is not Fawn's

    @property
    def module(self) -> str:
        """The name of the module with `Settings`, `connect` and `probe`."""
        return self.use or f"channels.{self.name}"


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """Where commands run, and their limits."""

    provider: Literal["auto", "docker", "local", "kubernetes", "none"] = setting(
        "auto",
        "`auto`: Docker if the engine and the image are available, otherwise bubblewrap, otherwise files only;"
        " `docker`: one container per conversation, required; `local`: bubblewrap, required; `kubernetes`: one pod per"
        " conversation (docs/kubernetes.md), required; `none`: files only",
    )
    use: str = setting("", "a provider of your own instead, `package.module:Class` (docs/extend.md)")
    options: Mapping[str, Any] = field(
        default_factory=dict, metadata={"help": "further arguments of that class, after the settings"}
    )
    image: str = setting(
        "fawn-sandbox", "image of Docker and Kubernetes sandboxes; `fawn sandbox build` builds the default one"
    )
    runtime: str = setting("", "Docker runtime, such as `runsc` (gVisor); empty: the engine's default")
    docker_host: str = setting("unix:///var/run/docker.sock", "the Docker engine on this machine: unix:// or tcp://")
    idle_minutes: float = setting(15.0, "a sandbox that is idle for so long is stopped; its folders stay", ge=0)
    command_seconds: float = setting(600.0, "timeout of one command", ge=1)
    memory_mb: int = setting(
        1024,
        "memory limit of a sandbox; it applies to each process where the machine cannot limit the whole sandbox",
        ge=64,
    )
    processes: int = setting(256, "process limit of a sandbox", ge=8)
    file_mb: int = setting(2048, "largest file that a command may write", ge=1)
    tmp_mb: int = setting(256, "size of /tmp in a sandbox", ge=1)
    cpus: float = setting(1.0, "processors that a sandbox may use, where the machine can limit them", ge=0.1)
    disk_mb: int = setting(
        4096,
        "disk quota of a conversation's three folders; a sandbox that exceeds it is stopped, and its newest files are"
        " deleted",
        ge=16,
    )
    price_per_hour: float = setting(
        0.0, "what an hour of a sandbox in use costs, in dollars: it counts in `/usage` and in budgets of money", ge=0
    )
    live: int = setting(100, "sandboxes that run at once; another one stops the least recently used idle one", ge=1)
    network: NetworkRules = setting(NetworkRules(), "what sandboxes may reach; nothing by default")
    kubernetes: KubernetesOptions = setting(KubernetesOptions(), "the cluster of `provider: kubernetes`")
    preview: PreviewSettings = setting(PreviewSettings(), "links to servers in sandboxes; disabled by default")


@dataclass(frozen=True, slots=True)
class SkillsConfig:
    """Which skills the agent has beside the shipped ones, as docs/skills.md describes."""

    custom: str = setting("skills/custom", "folder of your own and of installed skills, which win by name", path=True)
    folders: tuple[str, ...] = setting((), "further folders with skills; a later one wins by name", path=True)
    allow: tuple[str, ...] = setting((), "names of the skills that the agent may use; empty: every enabled one")
    evolution: bool = setting(True, "the agent may propose new and changed skills, which an operator accepts")
    private_hosts: tuple[str, ...] = setting(
        (),
        "git servers whose address may be private, such as `git.corp.example`, each by its exact name; on this machine"
        " or its network segment, by its address",
    )


@dataclass(frozen=True, slots=True)
class FollowUpLimits:
    """How often the agent may go on without a person: after one message, and for one person within 24 hours."""

    per_message: int = 5
    per_day: int = 50
    time_zone: str = ""  # in which people without one are told when there is room again


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits of the service."""

    live_turns: int = setting(400, "turns that run at once; more are queued, and their requesters are told", ge=1)
    model_calls: int = setting(
        0, "model calls at once, shared fairly among conversations; more of them wait; 0: no limit", ge=0
    )
    endpoint_failures: int = setting(
        5,
        "failures in a row, of at least two conversations, after which a model's server is skipped where another model"
        " can answer; 0: never",
        ge=0,
    )
    endpoint_seconds: float = setting(30.0, "a skipped server gets one call each time after so many seconds", ge=0.1)
    turn_seconds: float = setting(7200.0, "timeout of one turn", ge=1)
    attempts: int = setting(
        3, "crashes while a run is the only one in progress; then it is given up, and the requester is told", ge=1
    )
    flood_messages: int = setting(20, "messages that one person may send …", ge=1)
    flood_seconds: float = setting(10.0, "… in so many seconds; more are queued, with one notice", ge=0.1)
    reply_hours: float = setting(6.0, "a reply that is delivered later than this says how late it is", ge=0)
    question_hours: float = setting(0.0, "a question that is open for longer is closed; 0: it waits without end", ge=0)
    approval_hours: float = setting(24.0, "an approval that is open for longer counts as denied; 0: it waits", ge=0)
    bot_turns: int = setting(
        3, "turns in a row that other bots may ask for in a conversation until a person writes there again", ge=0
    )
    follow_ups_per_message: int = setting(
        5,
        "how often the agent may go on by itself after one message: background agents, goals, `then`",
        ge=0,
    )
    follow_ups_per_day: int = setting(50, "…and for one person within 24 hours", ge=0)
    grace_seconds: float = setting(10.0, "how long a shutdown waits for running turns before it suspends them", ge=0)
    notify_seconds: float = setting(
        45.0, "the end of a turn that took longer mentions the requester; 0: only people who asked with `/notify`", ge=0
    )
    earlier_messages: int = setting(
        30, "messages above a mention that the bot reads as context: those since its last turn there; 0: none", ge=0
    )
    earlier_tokens: int = setting(3000, "…at most about so many tokens of them, the latest", ge=0)
    talk_hours: float = setting(
        24.0, "how long the talk of Telegram groups is kept for that, after the group was told; 0: not at all", ge=0
    )

    @property
    def of_calls(self) -> CallLimits:
        """The limits of model calls."""
        return CallLimits(self.model_calls, self.endpoint_failures, self.endpoint_seconds)


@dataclass(frozen=True, slots=True)
class CatchUpConfig:
    """Which missed messages are read after downtime, where the platform does not keep events."""

    hours: float = setting(24.0, "oldest missed message that is still answered; 0: missed messages are ignored", ge=0)
    messages: int = setting(200, "missed messages that are read per chat", ge=1)


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """What the agent remembers of people from one conversation to the next (docs/memory.md)."""

    enabled: bool = setting(
        True, "the agent remembers lasting facts; everybody can switch it off for themselves with `/memory off`"
    )
    tokens: int = setting(500, "tokens of memories that go with a request at most", ge=50)
    wait_seconds: float = setting(
        60.0, "how long the extraction waits after a turn, so that one call of the model reads several turns", ge=0
    )
    unused_days: float = setting(
        180.0, "a memory that no turn uses for so long is deleted, except corrections; an uncertain one earlier", ge=1
    )
    embeddings: EmbeddingsConfig = setting(
        EmbeddingsConfig(), "memories are also found by their meaning; off by default"
    )


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """Work, reminders and watched pages at set times (docs/schedules.md)."""

    per_person: int = setting(20, "schedules that one person may have; 0: no schedules", ge=0)
    least_minutes: float = setting(5.0, "shortest time between two fires of a schedule", ge=0)
    grace_minutes: float = setting(
        60.0, "a fire that was missed is made up for unless it is older, where the schedule's rule is `once`", ge=0
    )


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """Background tasks: commands and agents that work on after an answer (docs/tasks.md)."""

    per_thread: int = setting(3, "background tasks that run at once in one thread; 0: no background tasks", ge=0)
    per_person: int = setting(10, "background tasks of one person that run at once", ge=1)
    hours: float = setting(6.0, "a background command is stopped after so many hours", gt=0)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = setting("info", "lowest level that is logged")
    format: Literal["text", "json"] = setting("text", "`text` for people, `json` for machines; one line per event")


@dataclass(frozen=True, slots=True)
class SystemdConfig:
    """What systemd passes to a service of `Type=notify`: its socket, and how often it wants to be notified."""

    socket: str = ""
    watchdog_seconds: float = 0.0  # 0: no watchdog


@dataclass(frozen=True, slots=True, repr=False)  # a text that came from the environment may be a secret
class FileConfig:
    """The sections of config.yaml, but for `channels`, whose settings each channel defines."""

    data_dir: Path = setting(Path("data"), "databases and the threads' folders; one process per folder")
    models: tuple[ModelSettings, ...] = setting((), "the models, described below; empty: the built-in demo model")
    roles: ModelRoles = ModelRoles()
    prompt: PromptConfig = PromptConfig()
    permissions: PermissionConfig = PermissionConfig()
    team: TeamConfig = setting(TeamConfig(), "the roles of people, and whose approval calls need")
    web: WebConfig = WebConfig()
    mcp: McpConfig = McpConfig()
    voice: VoiceConfig = VoiceConfig()
    subagents: SubagentSettings = setting(SubagentSettings(), "sub-agents, to which the agent delegates tasks")
    agents: tuple[NamedAgentSettings, ...] = setting(
        (),
        "agents that people choose with `/agents` instead of the default one, described below",
    )
    external_agents: tuple[ExternalAgentSettings, ...] = setting(
        (), "agent programs that speak the Agent Client Protocol and work in the sandbox, described below"
    )
    policies: tuple[PolicySettings, ...] = setting(
        (), "your own policies around model and tool calls (docs/permissions.md)"
    )
    tools: tuple[ToolSettings, ...] = setting((), "your own tools (docs/extend.md), described below")
    sandbox: SandboxConfig = SandboxConfig()
    skills: SkillsConfig = SkillsConfig()
    limits: ServiceLimits = ServiceLimits()
    budgets: tuple[BudgetConfig, ...] = setting((), "how much the models may be used (docs/team.md), described below")
    rate_limits: tuple[RateLimitConfig, ...] = setting(
        (), "how often people write and tools run (docs/team.md), described below"
    )
    uploads: UploadsConfig = setting(UploadsConfig(), "which files are taken from chats")
    catch_up: CatchUpConfig = CatchUpConfig()
    context: ContextConfig = ContextConfig()
    memory: MemoryConfig = MemoryConfig()
    schedules: ScheduleConfig = ScheduleConfig()
    tasks: TaskConfig = TaskConfig()
    push: PushConfig = setting(PushConfig(), "notifications outside of the chats")
    goal: GoalConfig = GoalConfig()
    database: DatabaseConfig = setting(DatabaseConfig(), "PostgreSQL instead of SQLite (docs/postgresql.md)")
    encryption: EncryptionConfig = setting(EncryptionConfig(), "what is stored of secrets, and backups, is encrypted")
    backup: BackupConfig = setting(BackupConfig(), "backups at set times (docs/operations.md)")
    drill: DrillConfig = setting(DrillConfig(), "drills at set times (docs/operations.md)")
    keep_days: int = setting(
        90, "finished rows and threads' folders that are unused for so long are deleted", ge=1, le=36_500
    )
    time_zone: str = setting("", "IANA name such as Europe/Berlin; empty: the machine's time zone")
    language: Literal["auto", "en", "zh"] = setting(
        "auto",
        "language of the bot's own sentences for people and chats that chose none with `/language`; `auto`: the one"
        " that the platform reports, otherwise English",
    )
    library_switches: tuple[str, ...] = setting(
        (),
        "environment variables that libraries may obey although they send people's words elsewhere, such as"
        " LANGSMITH_TRACING (docs/security.md); without their names here they are ignored",
    )
    network: NetworkConfig = setting(NetworkConfig(), "the way to the outside (docs/behind-a-proxy.md)")
    http: HttpConfig = setting(HttpConfig(), "a listener for the probes of containers, clusters and monitors")
    metrics: MetricsConfig = MetricsConfig()
    traces: TracesConfig = setting(TracesConfig(), "traces of what each message brought about, for a collector")
    hooks: Mapping[str, HookConfig] = field(
        default_factory=dict, metadata={"help": "what other systems post becomes work in a chat (docs/hooks.md)"}
    )
    relay: RelayConfig = setting(RelayConfig(), "what cannot reach Fawn posts to a relay (docs/relay.md)")
    audit: AuditConfig = setting(AuditConfig(), "the audit")
    log: LogConfig = LogConfig()


@dataclass(frozen=True, slots=True, repr=False)
class Config(FileConfig):
    """The whole configuration.

    `source` names the files, `file` is the first of them, None for the defaults; `paths` are those that were read and
    may hold secrets, `digest` is its SHA-256, `variables` are the texts that came from the environment, `network_files`
    what only `.env` says of proxies, `hints` what looks wrong there, and `switches` those that libraries obey.
    `encryption_locked`: a key is named that this process does not have, because it needs no secrets.
    `places` are the settings of models and policies in the file, for faults that only their classes can find.
    """

    channels: tuple[ChannelConfig, ...] = ()
    source: str = ""
    file: Path | None = None
    paths: frozenset[Path] = frozenset()
    digest: str = ""
    variables: frozenset[str] = frozenset()
    network_files: Mapping[str, str] = field(default_factory=dict, repr=False)
    hints: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    encryption_locked: bool = False
    systemd: SystemdConfig = SystemdConfig()
    places: Mapping[Location, ConfigFault] = field(default_factory=dict)

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone of people without one; None: the machine's."""
        return ZoneInfo(self.time_zone) if self.time_zone else None

    @property
    def has_memory(self) -> bool:
        """Whether memory is on; the built-in demo model has none."""
        return self.memory.enabled and bool(self.models)

    def faults_of(self, error: AgentConfigError) -> list[ConfigFault]:
        """Return the faults of an agent that cannot be built, at their lines."""
        return [self.locate(each.place, each.wrong, each.fix) for each in (error, *error.others)]

    def locate(self, place: Location, wrong: LazyText | str, fix: LazyText | str) -> ConfigFault:
        """Return a fault of the agent at its line. `place` has the names of models, the file their numbers."""
        numbers = {model.name: i for i, model in enumerate(self.models)}
        at = place
        if place[0] == "models" and place[1] in numbers:
            at = ("models", numbers[str(place[1])], *place[2:])
        known = next(filter(None, (self.places.get(at[:end]) for end in range(len(at), 0, -1))), None)
        return (
            replace(known, wrong=wrong, fix=fix)
            if known
            else ConfigFault("", 0, ": ".join(map(str, place)), wrong, fix)
        )
