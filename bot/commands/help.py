"""`/help`: what there is, in groups. The commands stand one a line, each after its name."""

from __future__ import annotations

from collections.abc import Iterable

from agent.blocks import command_hint
from catalogue import N_, _
from channels.base import CommandInfo

WHAT_I_DO = N_(
    "Tell me what you need. I work in a private sandbox: send me files to use, and I send back what I make."
    " You can keep writing while I work."
)
GROUPS = (
    (N_("Work"), ("new", "stop", "retry", "plan", "goal", "search")),
    (N_("Who answers, and how"), ("model", "models", "agents", "skills", "language")),
    (N_("Later, and in the background"), ("waiting", "schedule", "zone", "tasks", "task", "notify")),
    (N_("You"), ("whoami", "link", "unlink", "memory", "usage", "privacy", "export", "forget")),
    (N_("The service and its rules"), ("help", "status", "permissions", "access", "audit", "hooks", "reload")),
)
OTHERS = N_("More")


def describe_commands(commands: Iterable[CommandInfo]) -> str:
    """Return what I do and the commands, as Markdown: each group has a title line."""
    left = {command.name: command.help for command in commands}
    groups = [(title, {name: left.pop(name) for name in names if name in left}) for title, names in GROUPS]
    paragraphs = [
        "\n".join([f"**{_(title)}**", *(f"`{command_hint(name)}` {_(words)}" for name, words in group.items())])
        for title, group in (*groups, (OTHERS, left))
        if group
    ]
    return "\n\n".join([_(WHAT_I_DO), *paragraphs])
