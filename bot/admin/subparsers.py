"""Arguments of `fawn skills`, `mcp`, `audit` and `permissions`, which `bot/__main__.py` adds to its parser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bot.admin import commands
from catalogue import _


def add_skills(add: Callable[..., Any]) -> None:
    """Add `fawn skills`."""
    skills = add("skills", _("list, install and change skills"), commands.run_skills)
    skills.add_argument(
        "action", choices=("list", "install", "enable", "disable", "diff", "accept", "decline", "rollback")
    )
    words = _("the skill; to install: its archive, folder or git address")
    skills.add_argument("word", nargs="?", default="", metavar="NAME | SOURCE", help=words)


def add_audit(add: Callable[..., Any]) -> None:
    """Add `fawn audit`."""
    audit = add("audit", _("verify or export the audit, or print its head, to be kept elsewhere"), commands.run_audit)
    audit.add_argument("action", choices=("verify", "export", "head"))
    audit.add_argument(
        "--anchor", action="append", default=[], metavar="SEQ:HASH", help=_("verify: an earlier head; repeatable")
    )
    audit.add_argument("--since", default="", metavar="TIME", help=_("export: from this time on, such as 2026-11-23"))
    audit.add_argument("--who", default="", metavar="PERSON", help=_("export: what this platform id did"))
    audit.add_argument("--kind", default="", metavar="KIND", help=_("export: events of this kind, such as tool.call"))
    audit.add_argument(
        "-o", dest="file", metavar="FILE", type=Path, help=_("export: the file; default: standard output")
    )


def add_mcp(add: Callable[..., Any]) -> None:
    """Add `fawn mcp`."""
    text = _("list the MCP servers, or sign in to one with a browser")
    mcp = add("mcp", text, commands.run_mcp, accounts=True)
    mcp.add_argument("action", nargs="?", default="list", choices=("list", "login", "logout"))
    mcp.add_argument("name", nargs="?", default="", metavar="NAME", help=_("the server to sign in to, or out of"))


def add_permissions(add: Callable[..., Any]) -> None:
    """Add `fawn permissions`."""
    text = _("try other rules, roles and budgets on what was recorded, before they are in force")
    permissions = add("permissions", text, commands.run_permissions, accounts=True)
    permissions.add_argument("action", choices=("try",))
    words = _("a configuration, or a file with only `permissions`, `team`, `budgets` or `rate_limits`")
    permissions.add_argument("file", metavar="FILE", type=Path, help=words)
    permissions.add_argument("--days", type=int, default=30, metavar="N", help=_("of the last N days; default: 30"))
    permissions.add_argument("--json", action="store_true", help=_("print it as one JSON object"))
