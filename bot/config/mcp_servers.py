"""MCP servers of `mcp.servers` and of `mcpServers`, the form that other programs read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.settings.mcp import McpServerSettings
from bot.config.decoder import EXPECTED, describe, validate
from bot.config.document import Document
from bot.config.excerpt import Location
from catalogue import _

FOREIGN_SECTION = "mcpServers"
_OF_PROGRAMS = ("args", "env", "cwd", "sandbox", "read", "network")  # settings of servers with `command`
_OF_URLS = ("token", "headers", "auth", "oauth")


def read_foreign_servers(document: Document, sections: dict[str, Any]) -> tuple[McpServerSettings, ...]:
    """Check all servers, and return those of `mcpServers`, which this removes from the sections."""
    foreign = sections.pop(FOREIGN_SECTION, None)
    if not isinstance(foreign, dict | None):
        wrong = _(EXPECTED, expected=_("a section (name: value)"), found=describe(foreign))
        document.fault((FOREIGN_SECTION,), wrong, _("write the name of a server, a colon, and its settings"))
        foreign = {}
    mcp = sections.get("mcp")
    entries = mcp.get("servers") if isinstance(mcp, dict) else None
    names: set[str] = set()
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            _check_server(document, entry, ("mcp", "servers", number), names)
    found = []
    for name, entry in (foreign or {}).items():
        at = (FOREIGN_SECTION, name)
        if isinstance(entry, dict):
            entry["name"] = str(name)
            if "disabled" in entry:
                entry["enabled"] = not entry.pop("disabled")
            _rename_foreign_client(entry)
            _check_server(document, entry, at, names)
        found.append(validate(document, McpServerSettings, entry, at))
    return tuple(settings for settings in found if settings)


def _rename_foreign_client(entry: dict[str, Any]) -> None:
    """Rename the settings of Claude Code for a client with which people sign in."""
    oauth = entry.get("oauth")
    if not isinstance(oauth, dict) or not oauth.keys() & {"clientId", "callbackPort"}:
        return
    entry.setdefault("auth", "oauth")
    if "clientId" in oauth:
        oauth["client_id"] = oauth.pop("clientId")
    if "callbackPort" in oauth:
        oauth["redirect_uri"] = f"http://localhost:{oauth.pop('callbackPort')}/callback"


def _check_server(document: Document, entry: Mapping[str, Any], at: Location, names: set[str]) -> None:
    """Check what a single setting does not show."""
    name, url = str(entry.get("name", "")), entry.get("url")
    if name in names:
        document.fault((*at, "name"), _("another server has the same name"), _("give it its own name"))
    names.add(name)
    if entry.get("type") == "sse":
        document.fault(
            (*at, "type"), _("the SSE transport is not supported"), _("use the server's streamable-HTTP URL")
        )
    if url and entry.get("command"):
        document.fault(at, _("has both `command` and `url`"), _("remove one of them"))
    elif not url and not entry.get("command") and (*at, "url") not in document.faulty:
        document.fault(at, _("needs either `command` or `url`"), _("a program on this machine, or an HTTP server"))
    _check_program(document, entry.get("command"), (*at, "command"))
    _check_transport(document, entry, at)
    oauth = entry.get("oauth")
    signs_in = entry.get("auth") == "oauth"
    if signs_in and entry.get("token"):
        document.fault((*at, "token"), _("not possible together with `auth: oauth`"), _("remove one of them"))
    secret = "client_secret" if signs_in else "client_id"  # what the server must not send elsewhere
    if isinstance(oauth, dict) and oauth.get(secret) and not oauth.get("issuer"):
        document.fault((*at, "oauth", "issuer"), _("is missing"), _("add the URL of the authorization server"))


def _check_transport(document: Document, entry: Mapping[str, Any], at: Location) -> None:
    """Settings of the other transport would have no effect, such as a sandbox that is none."""
    if bool(entry.get("url")) == bool(entry.get("command")):
        return
    has, others, types = (
        ("url", _OF_PROGRAMS, ("http", "streamable-http"))
        if entry.get("url")
        else (
            "command",
            _OF_URLS,
            ("stdio",),
        )
    )
    for name in filter(entry.get, others):
        wrong = _("has no effect on a server with `{setting}`", setting=has)
        document.fault((*at, name), wrong, _("remove the line"))
    if (named := entry.get("type")) and named in ("stdio", "http", "streamable-http") and named not in types:
        wrong = _("does not fit to `{setting}`", setting=has)
        document.fault((*at, "type"), wrong, _("remove the line"))


def _check_program(document: Document, command: object, at: Location) -> None:
    """A program and its arguments are two settings: no shell splits them."""
    words = [str(word) for word in command] if isinstance(command, list) else []
    words = command.split() if isinstance(command, str) else words
    if len(words) > 1 and not words[0].startswith(("/", "~", ".")):  # a path may have blanks
        wrong = _("is a program with its arguments")
        document.fault(
            at, wrong, _("write only {program} here, and the other words into `args: […]`", program=words[0])
        )
