"""The commands of the command line that operators use: `check`, `status`, `dead`, `pair`, `backup` and others."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from bot.admin.exit_codes import CONFIG, FAULT, NOT_RUNNING, OK, fail
from bot.config.schema import Config
from catalogue import N_, _, current_language, list_items, localized, use_language

HEALTH_NAMES = {"starting": N_("starting"), "ready": N_("ready"), "down": N_("down")}  # of channels


def run_check(arguments: argparse.Namespace, config: Config) -> int:
    """Test the configuration and print the findings as they come. Return the exit code."""
    from bot.admin.doctor import render_finding, run_checks

    findings = asyncio.run(run_checks(config, lambda finding: print(render_finding(finding), flush=True)))
    return OK if all(finding.ok for finding in findings) else CONFIG


def print_status(arguments: argparse.Namespace, config: Config) -> int:
    """Print the state of the running service. Return the exit code."""
    from bot.admin import operations

    try:
        with use_language("en" if arguments.json else current_language()):
            report = asyncio.run(operations.call_service(config.data_dir, "status", {}))
    except operations.NotRunning as error:
        return fail(error, NOT_RUNNING)
    if "error" in report:
        return fail(report["error"], FAULT)
    if arguments.json:
        print(json.dumps(report))
        return OK if report["healthy"] else FAULT
    _print_report(report)
    return OK if report["healthy"] else FAULT


def _print_report(report: dict[str, Any]) -> None:
    from bot.storage.feedback import FeedbackCounts
    from bot.storage.jobs import JobCounts

    state = _("healthy") if report["healthy"] else _("UNHEALTHY")
    if not report["ready"]:
        state = _("starting, the agent is loading")
    print(
        _("Fawn {version}, up {uptime:.0f} s: {state}", version=report["version"], uptime=report["uptime"], state=state)
    )
    print(
        _(
            "process: {pid}, data_dir: {data_dir}, configuration: {config}",
            pid=report["pid"],
            data_dir=report["data_dir"],
            config=report["config"],
        )
    )
    print(_("model: {model}", model=report["model"]))
    if trouble := report["model_error"]:
        print(
            _(
                "last model error, {age:.0f} s ago: {model}: {text}",
                age=trouble["age"],
                model=trouble["model"],
                text=trouble["text"],
            )
        )
    for server in report["model_servers"]:
        if server["down"]:
            models, count = list_items(server["models"]), server["failures"]
            print(_("down: the server of {models} ({count} failures in a row)", models=models, count=count))
    print(*filter(None, [report["disk"]]), *report["mcp_sign_ins"], report["sandbox"], sep="\n")
    for name, channel in report["channels"].items():
        health = f"{_(HEALTH_NAMES[channel['health']])}{' — ' + channel['detail'] if channel['detail'] else ''}"
        print(_("channel {name}: {health}", name=name, health=health))
    print(
        _(
            "running turns: {live}, queued messages: {queued} (oldest {oldest:.0f} s)",
            live=report["live"],
            queued=report["queued"],
            oldest=report["oldest"],
        )
    )
    print(_("people who wait to be paired: {count}", count=report["unpaired"]), end="")
    print(" (`fawn pair list`)" if report["unpaired"] else "")
    print(_("undelivered replies: {n}, dead letters: {dead}", n=report["undelivered"], dead=report["dead"]))
    print(JobCounts(**report["jobs"]), FeedbackCounts(**report["feedback"]), sep="\n")
    for proposal in report["proposals"]:
        print(_("proposal: {text}", text=proposal))


def reload_config(arguments: argparse.Namespace, config: Config) -> int:
    """Let the running service read its configuration again, and print the outcome. Return the exit code."""
    from bot.admin import operations

    try:
        answer = asyncio.run(operations.call_service(config.data_dir, "reload", {}))
    except operations.NotRunning as error:
        return fail(error, NOT_RUNNING)
    if "error" in answer:
        return fail(answer["error"], FAULT)
    if faults := answer["faults"]:
        print("\n".join(faults), file=sys.stderr)
        return fail(_("the new configuration was refused; the one before stays in force"), CONFIG)
    if changed := answer["changed"]:
        print(_("The configuration is reloaded. Changed: {sections}.", sections=list_items(changed)))
    else:
        print(_("The configuration is reloaded. No section has changed."))
    if needs_restart := answer["not_applied"]:
        print(_("A restart is needed for: {sections}.", sections=list_items(needs_restart)))
    return OK


def build_sandbox_image(arguments: argparse.Namespace, config: Config) -> int:
    """Build the image of Docker sandboxes. Return the exit code."""
    from sandbox.base import SandboxError
    from sandbox.docker.image_build import build_image

    try:
        built = build_image(
            config.sandbox.docker_host, config.sandbox.image, arguments.base, libreoffice=arguments.libreoffice
        )
        asyncio.run(built)
    except SandboxError as error:
        return fail(error, FAULT)
    print(_("Built the image {image}. `fawn check` shows which sandbox Fawn uses.", image=config.sandbox.image))
    return OK


def set_up_channel(arguments: argparse.Namespace, config: Config) -> int:
    """Connect a platform. Return the exit code."""
    from bot.admin import setup

    file = Path(arguments.config) if arguments.config else None
    try:
        setup.set_up_channel(setup.SetupOptions(arguments.channel, file, arguments.token_stdin, arguments.wait), config)
    except setup.SetupStopped as error:
        return fail(error, FAULT)
    except (EOFError, KeyboardInterrupt):
        print()
    return OK


def run_operation(arguments: argparse.Namespace, config: Config) -> int:
    """Run an operation on dead letters, paired users or a backup. Return the exit code."""
    from bot.admin import cli

    words = arguments.words
    if arguments.action == "backup":  # the service can have another working directory
        words = [str(Path(words[0]).absolute())]
    return asyncio.run(cli.run_operation(config, arguments.group, arguments.action, words))


def run_forget(arguments: argparse.Namespace, config: Config) -> int:
    """Delete what is stored of a person, after a question. Return the exit code."""
    from bot.admin import cli

    return asyncio.run(cli.ask_and_forget(config, arguments.channel, arguments.person, is_sure=arguments.yes))


def run_why(arguments: argparse.Namespace, config: Config) -> int:
    """Say why a message has no answer. Return the exit code."""
    from bot.admin import cli

    return asyncio.run(cli.print_reasons(config, arguments.what))


def offboard_person(arguments: argparse.Namespace, config: Config) -> int:
    """End what a person has who is gone. Return the exit code."""
    from bot.admin import cli

    words = [arguments.channel, arguments.person, arguments.to]
    return asyncio.run(cli.run_operation(config, "", "offboard", words))


def run_skills(arguments: argparse.Namespace, config: Config) -> int:
    """List or change the skills. Return the exit code."""
    from bot.admin.cli import OperationFailed, note_skill_change
    from bot.admin.skill_cli import SkillCommandFailed, changes_skills, run_skill_command
    from bot.service.skill_library import clone_bounds, open_library
    from bot.storage.audit import digest

    library, action, word = open_library(config), arguments.action, arguments.word
    code, result = OK, "done"
    try:
        print(run_skill_command(library, action, word, clone_bounds(config)))
    except SkillCommandFailed as error:
        code, result = fail(error, FAULT), "failed"
    if changes_skills(action, word):
        skill = word if library.current.find(word) else digest(word)
        try:
            asyncio.run(note_skill_change(config, action, skill, result))
        except OperationFailed as error:
            return fail(_("the audit has no row of this: {error}", error=localized(error)), FAULT)
    return code


def run_mcp(arguments: argparse.Namespace, config: Config) -> int:
    """List the MCP servers, or sign in to one or out of it. Return the exit code."""
    from bot.admin import mcp_cli

    return mcp_cli.run_mcp(arguments.action, arguments.name, config)


def run_audit(arguments: argparse.Namespace, config: Config) -> int:
    """Verify or export the audit, or print its head. Return the exit code."""
    from bot.admin import audit_cli

    return audit_cli.run_audit(arguments, config)


def run_permissions(arguments: argparse.Namespace, config: Config) -> int:
    """Try other rules on recorded calls. Return the exit code."""
    from bot.admin import permissions_cli

    return permissions_cli.run_permissions(arguments, config)


def export_thread(arguments: argparse.Namespace, config: Config) -> int:
    """Write the transcript of a thread. Return the exit code."""
    from bot.admin import cli

    try:
        text = asyncio.run(cli.render_thread(config, arguments.thread, arguments.format))
        if arguments.file is None:
            print(text, end="")
        else:
            with open(arguments.file, "w", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
                file.write(text)
    except (cli.OperationFailed, OSError) as error:
        return fail(error, FAULT)
    return OK
