"""config.yaml and the environment, parsed into frozen typed values. The only file that reads the environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agent.models import ModelSettings


@dataclass(frozen=True, slots=True)
class Access:
    """Who may talk to the bot on a channel: deny by default."""

    open: bool = False  # everybody may talk
    allow: tuple[str, ...] = ()  # platform user ids
    operators: tuple[str, ...] = ()  # platform user ids; may also stop other people's turns
    pairing: bool = True  # an unknown person gets a code in a private chat that the operator accepts


@dataclass(frozen=True, slots=True)
class ChannelConfig:
    """One entry of `channels:`; `settings` is an instance of that channel module's own Settings dataclass."""

    name: str
    settings: Any
    access: Access


@dataclass(frozen=True, slots=True)
class Roles:
    """Which model does what; "" = the first model (lead), or no model call at all (title)."""

    lead: str = ""
    title: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The system prompt: `file` replaces agent/prompt.md, `extend` is added to it."""

    file: str = ""
    extend: str = ""


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """`auto` takes the best that works here, `local` insists on bubblewrap, `none` offers files only."""

    provider: Literal["auto", "local", "none"] = "auto"
    idle_minutes: float = 15.0
    command_seconds: float = 600.0  # the longest a single command may run
    memory_mb: int = 1024  # per process (address space) where the machine allows no better
    processes: int = 256
    file_mb: int = 2048  # largest single file
    tmp_mb: int = 256
    skills: str = "skills"  # folder mounted read-only at /mnt/skills


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the service."""

    live_turns: int = 400
    turn_seconds: float = 7200.0
    attempts: int = 3  # tries of one run that a crash interrupted
    flood_messages: int = 20  # from one person …
    flood_seconds: float = 10.0  # … in this time; what is over waits
    queue: int = 10_000  # messages waiting in all
    reply_hours: float = 6.0  # a reply older than this is delivered only with a word about its age
    upload_mb: int = 100
    grace_seconds: float = 10.0  # how long a stop waits for turns


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """When a conversation is summarized: state stays bounded, a turn's cost flat."""

    trigger_tokens: int = 48_000
    trigger_messages: int = 160
    keep_messages: int = 40
    output_chars: int = 12_000  # a longer tool output goes to a file


@dataclass(frozen=True, slots=True)
class Log:
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the service is told. `source` says where it came from."""

    data_dir: Path = Path("data")
    models: tuple[ModelSettings, ...] = ()
    roles: Roles = field(default_factory=Roles)
    prompt: Prompt = field(default_factory=Prompt)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    channels: tuple[ChannelConfig, ...] = ()
    limits: Limits = field(default_factory=Limits)
    context: ContextConfig = field(default_factory=ContextConfig)
    keep_days: int = 90
    time_zone: str = ""  # IANA name, "" = the machine's
    log: Log = field(default_factory=Log)
    source: str = "built-in defaults"
