"""`fawn mcp`: list the MCP servers, and sign in to one with a browser. It works on files that the service reads."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping

from agent.late_imports import import_in_thread
from agent.settings.mcp import McpServerSettings
from agent.settings.mcp_tokens import TokenFile
from bot.admin.doctor import render_finding
from bot.admin.redirect import RedirectWaiter, open_redirect, pasted_lines
from bot.admin.service_checks import check_mcp_server
from bot.base.exit_codes import CONFIG, FAULT, OK, fail
from bot.base.stored_secrets import token_folder
from bot.cli.command import Command, ConfiguredCommand
from bot.config.schema import Config
from catalogue import _, list_items

SIGN_IN_SECONDS = 600.0


class McpCommandFailed(Exception):
    """The command failed; the text says why and what to do."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", default="list", choices=("list", "login", "logout"))
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help=_("the server to sign in to, or out of"))


def _run(arguments: argparse.Namespace, config: Config) -> int:
    action, name = arguments.action, arguments.name
    try:
        if bool(name) is (action == "list"):
            raise McpCommandFailed(_("usage: fawn mcp [list] | login NAME | logout NAME"))
        if action == "list":
            print("\n".join(_describe_server(each, config) for each in config.mcp.servers) or _("No MCP servers."))
            return OK
        server = _find_server(name, config)
        if action == "login":
            return asyncio.run(log_in(server, config))
        asyncio.run(_log_out(server, config))
    except McpCommandFailed as error:
        return fail(error, FAULT)
    return OK


def _find_server(name: str, config: Config) -> McpServerSettings:
    servers = {server.name: server for server in config.mcp.servers}
    if name not in servers:
        names = list_items(servers) or _("none")
        raise McpCommandFailed(_("There is no MCP server {name}. Configured: {names}.", name=name, names=names))
    server = servers[name]
    if server.command:
        raise McpCommandFailed(_("{name} is a program on this machine and needs no sign-in.", name=name))
    if not server.allows_sign_in:
        text = _(
            "{name} uses the credentials of its configuration. To sign in instead, remove them or set `auth: oauth`.",
            name=name,
        )
        raise McpCommandFailed(text)
    return server


def _describe_server(server: McpServerSettings, config: Config) -> str:
    return f"{server.name}\t{server.url or server.command}\t{_describe_state(server, config)}"


def _describe_state(server: McpServerSettings, config: Config) -> str:
    if not server.enabled:
        return _("disabled")
    if server.command:
        return _("needs no sign-in")
    if not server.allows_sign_in:
        return _("uses the credentials of its configuration")
    tokens = TokenFile(token_folder(config), server).read()
    if tokens is None and server.auth != "oauth":
        return _("not signed in; if it asks for that: `fawn mcp login {name}`", name=server.name)
    if tokens is None:
        return _("not signed in: `fawn mcp login {name}`", name=server.name)
    if tokens.refresh_token:
        return _("signed in; the token is renewed automatically")
    if not tokens.is_fresh:
        return _("the sign-in has ended: `fawn mcp login {name}`", name=server.name)
    if tokens.expires_at:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(tokens.expires_at))
        return _("signed in until {when}", when=when)
    return _("signed in")


async def log_in(server: McpServerSettings, config: Config, seconds: float = SIGN_IN_SECONDS) -> int:
    """Sign in and store the tokens, then use them once. Return the exit code."""
    flow = await import_in_thread("agent.mcp.sign_in")
    try:
        async with asyncio.timeout(seconds), open_redirect(server.oauth.redirect_uri) as waiter:

            async def ask(address: str) -> Mapping[str, str]:
                return await _ask_person(server.name, address, waiter, flow.state_of(address), seconds)

            tokens = await flow.sign_in(server, waiter.redirect_uri, ask)
    except flow.SignInNotNeeded:
        print(_("{name} answers without a sign-in. You need not do anything.", name=server.name))
        return OK
    except flow.SignInFailed as error:
        raise McpCommandFailed(str(error)) from error
    except TimeoutError as error:
        minutes = seconds / 60
        text = _(
            "Nobody signed in within {n:g} minutes. Run `fawn mcp login {name}` again.", n=minutes, name=server.name
        )
        raise McpCommandFailed(text) from error
    file = TokenFile(token_folder(config), server)
    async with file.locked():
        await asyncio.to_thread(file.write, tokens)
    print(_("You are signed in to {name}. A running service uses it from now on.", name=server.name))
    finding = await check_mcp_server(server, token_folder(config))
    print(render_finding(finding))
    return OK if finding.ok else CONFIG


async def _ask_person(name: str, address: str, waiter: RedirectWaiter, state: str, seconds: float) -> Mapping[str, str]:
    """Show the address, and wait for the redirect."""
    print(_("Open this address in a browser, and sign in to {name}:", name=name), f"\n  {address}\n", sep="\n")
    if waiter.is_listening:
        print(_("If the browser runs on another machine, its last page does not load. That is expected."))
    print(_("In that case, copy the address of that page from the address bar, paste it here and press Enter."))
    print(_("I wait for {n:g} minutes … (Ctrl-C leaves)", n=seconds / 60), flush=True)

    def take(line: str) -> None:
        print(waiter.accept(line), flush=True)

    async with pasted_lines(_stdin(), take):
        return await waiter.wait(state)


def _stdin() -> int:
    return 0 if sys.stdin else os.open(os.devnull, os.O_RDONLY)


async def _log_out(server: McpServerSettings, config: Config) -> None:
    file = TokenFile(token_folder(config), server)
    async with file.locked():
        removed = await asyncio.to_thread(file.remove)
    if not removed:
        print(_("Nobody is signed in to {name}.", name=server.name))
        return
    print(_("Removed the tokens of {name}. A running service no longer uses them.", name=server.name))
    print(_("You can also revoke the access of Fawn in your account there."))


COMMANDS: Mapping[str, Command] = {
    "mcp": ConfiguredCommand(
        _run,
        _add_arguments,
        accounts=True,
        audited=lambda given: "" if given.action == "list" else f"mcp {given.action}",
    )
}
