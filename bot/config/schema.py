"""The sections of config.yaml as frozen dataclasses: every setting with its default and what it does."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from agent.models.settings import ModelSettings
from sandbox.network.preview import PreviewSettings
from sandbox.network.rules import NetworkRules

T = TypeVar("T")


def setting(default: T, text: str, **metadata: object) -> T:
    """A field with its default and the sentence that the docs say about it."""
    return field(default=default, metadata={"help": text, **metadata})


@dataclass(frozen=True, slots=True)
class AccessConfig:
    """Who may talk to the bot on a channel: deny by default."""

    open: bool = setting(False, "everybody of the team may talk to the bot; guests, strangers and bots may not")
    allow: tuple[str, ...] = setting(
        (),
        "platform ids of people, chats and workspaces that may talk to it; a guest or stranger needs their own id or"
        " the chat's, a bot its own",
    )
    operators: tuple[str, ...] = setting((), "platform user ids; may talk, and may stop other people's turns")
    pairing: bool = setting(True, "an unknown person gets a code in a private chat, which `fawn pair accept` admits")


@dataclass(frozen=True, slots=True)
class ChannelConfig:
    """One entry of `channels:`; `settings` is an instance of that channel module's own Settings dataclass."""

    name: str
    settings: Any
    access: AccessConfig


@dataclass(frozen=True, slots=True)
class ModelRoles:
    """Which model does what; "" = the first model (lead), or no model call at all (title)."""

    lead: str = setting("", "model that answers; empty: the first of `models`")
    title: str = setting("", "model that names a thread; empty: its first words, without a model call")
    summary: str = setting("", "model that shortens a long conversation; empty: the lead model")


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """The system prompt: `file` replaces agent/prompt.md, `extend` is added to it."""

    file: str = setting("", "a page that replaces the built-in system prompt (agent/prompt.md)", path=True)
    extend: str = setting("", "text added to the system prompt")


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """`auto` takes the best that works here, `docker` and `local` insist on theirs, `none` offers files only."""

    provider: Literal["auto", "docker", "local", "none"] = setting(
        "auto",
        "`auto`: Docker if its engine and the image are there, else bubblewrap, else files only; `docker`: a container"
        " per conversation, or no start; `local`: bubblewrap, or no start; `none`: files only",
    )
    image: str = setting("fawn-sandbox", "image of a Docker sandbox; `fawn sandbox build` makes the default one")
    runtime: str = setting("", "runtime of Docker, such as `runsc` (gVisor); empty: the engine's default")
    docker_host: str = setting("unix:///var/run/docker.sock", "the Docker engine, on this machine: unix:// or tcp://")
    idle_minutes: float = setting(15.0, "a sandbox that nobody used for so long is stopped (its folders stay)")
    command_seconds: float = setting(600.0, "the longest a single command may run", least=1)
    memory_mb: int = setting(
        1024, "memory of a sandbox; where this machine lets us bound only processes, of each of them", least=64
    )
    processes: int = setting(256, "processes in one sandbox", least=8)
    file_mb: int = setting(2048, "largest single file a command may write", least=1)
    tmp_mb: int = setting(256, "size of /tmp in a sandbox", least=1)
    skills: str = setting("skills", "folder shown read-only at /mnt/skills", path=True)
    cpus: float = setting(1.0, "processors one sandbox may keep busy, where the machine lets us say so", least=0.1)
    disk_mb: int = setting(
        4096,
        "what a thread's three folders may hold; a sandbox that takes more is stopped, and what it made last deleted",
        least=16,
    )
    disk: Literal["measured", "images"] = setting(
        "measured",
        "how that is kept: `measured` from outside; `images`: each new thread gets a file system of that size, which"
        " takes root and, while it is used, all of its size on the disk",
    )
    live: int = setting(100, "sandboxes that run at once; for one more the least recently used idle one stops", least=1)
    network: NetworkRules = field(
        default_factory=NetworkRules, metadata={"help": "what sandboxes may reach: nothing by default"}
    )
    preview: PreviewSettings = field(
        default_factory=PreviewSettings, metadata={"help": "links to servers in sandboxes: none by default"}
    )


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Bounds of the service."""

    live_turns: int = setting(400, "turns that may run at once; who waits, sees it", least=1)
    turn_seconds: float = setting(7200.0, "the longest one turn may take", least=1)
    attempts: int = setting(3, "tries of one run that a crash interrupted, then an honest failure", least=1)
    flood_messages: int = setting(20, "messages one person may send …", least=1)
    flood_seconds: float = setting(10.0, "… in so many seconds; what is over waits, with one notice", least=0.1)
    reply_hours: float = setting(6.0, "a reply older than this is delivered with a word about its age")
    upload_mb: int = setting(100, "largest file taken from a chat")
    grace_seconds: float = setting(10.0, "how long a stop waits for running turns before it parks them")
    notify_seconds: float = setting(
        45.0, "when a turn took longer, its end pings the person who asked; 0: only who wants it by `/notify`"
    )
    earlier_messages: int = setting(30, "messages of a thread that are read as context when the bot is called into it")


@dataclass(frozen=True, slots=True)
class CatchUpConfig:
    """What is read again after an absence, where the platform keeps no events for a bot that is away."""

    hours: float = setting(24.0, "how old a missed message may be to be answered still; 0: none is looked for")
    messages: int = setting(200, "the most that is read of one chat", least=1)


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """When a conversation is summarized: state stays bounded, a turn's cost flat."""

    trigger_tokens: int = setting(48_000, "summarize when a conversation is longer than so many tokens …", least=1000)
    trigger_messages: int = setting(160, "… or so many messages", least=4)
    keep_messages: int = setting(40, "messages that stay word for word", least=2)
    output_chars: int = setting(12_000, "a longer tool output goes to a file, the model sees a synopsis", least=500)


@dataclass(frozen=True, slots=True)
class LogConfig:
    level: Literal["debug", "info", "warning", "error"] = setting("info", "least important level that is logged")
    format: Literal["text", "json"] = setting("text", "one line per event, for people or for machines")


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the service is told. `source` says where it came from."""

    data_dir: Path = field(
        default=Path("data"), metadata={"help": "database and the threads' folders; one process per folder"}
    )
    models: tuple[ModelSettings, ...] = setting((), "the models, see below; none: the built-in demo model answers")
    roles: ModelRoles = field(default_factory=ModelRoles)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    channels: tuple[ChannelConfig, ...] = ()
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    catch_up: CatchUpConfig = field(default_factory=CatchUpConfig)
    context: ContextConfig = field(default_factory=ContextConfig)
    keep_days: int = setting(90, "finished rows and threads' folders that nobody used for so long are deleted", least=1)
    time_zone: str = setting("", "IANA name such as Europe/Berlin; empty: the machine's")
    log: LogConfig = field(default_factory=LogConfig)
    source: str = field(default="built-in defaults", metadata={"internal": True})
