"""`fawn status`: show the state of the running service."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from bot.admin.service_client import NotRunning, call_service
from bot.base.exit_codes import FAULT, NOT_RUNNING, OK, fail
from bot.cli.command import Command, ConfiguredCommand
from bot.config.schema import Config
from bot.database.data_lock import is_held
from bot.service.crashes import describe_crash, latest_crash
from bot.status.replica_report import describe_replica
from bot.storage.jobs import JobCounts
from bot.storage.outcomes import FeedbackCounts
from catalogue import N_, _, current_language, list_items, use_language

HEALTH_NAMES = {"starting": N_("starting"), "ready": N_("ready"), "down": N_("down")}  # of channels


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=_("print it as one JSON object"))


def _status(arguments: argparse.Namespace, config: Config) -> int:
    try:
        with use_language("en" if arguments.json else current_language()):
            report = asyncio.run(call_service(config.data_dir, "status", {}))
    except NotRunning as error:
        if crash := latest_crash(config.data_dir, time.time(), is_dead=not is_held(config.data_dir)):
            print(describe_crash(crash), file=sys.stderr)
        return fail(error, NOT_RUNNING)
    if "error" in report:
        return fail(report["error"], FAULT)
    if arguments.json:
        print(json.dumps(report))
        return OK if report["healthy"] else FAULT
    _print_report(report)
    return OK if report["healthy"] else FAULT


def _print_report(report: dict[str, Any]) -> None:
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
    for trouble in report["troubles"]:
        if trouble["part"] not in ("agent", "disk", *report["channels"]):  # which have lines of their own
            print(_("{part} since {since}: {why}", **trouble))
    print(*filter(None, [report["disk"], report["crash"]]), *report["mcp_sign_ins"], report["sandbox"], sep="\n")
    for name, channel in report["channels"].items():
        health = f"{_(HEALTH_NAMES[channel['health']])}{' — ' + channel['detail'] if channel['detail'] else ''}"
        print(_("channel {name}: {health}", name=name, health=health))
    for replica in report["replicas"]:
        print(describe_replica(replica))
    print(*report["differences"], sep="\n", end="\n" if report["differences"] else "")
    for name, hook in report["hooks"].items():
        print(_("hook {name}: {kept} deliveries, {waiting} waiting, {refused} refused", name=name, **hook))
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
    replies = _(
        "undelivered replies: {n} (oldest {oldest:.0f} s), waiting for a person: {waiting}, dead letters: {dead}",
        n=report["undelivered"],
        oldest=report["undelivered_seconds"],
        waiting=report["waiting_for_people"],
        dead=report["dead"],
    )
    print(replies)
    if report["waiting_for_people"]:
        print(_("They are delivered when the person comes or writes. A notice is dropped after a week."))
    for row in report["late"]:
        why = row["error"] or _("its channel is not connected, or another reply comes first")
        print(_("not delivered for {age:.0f} s to {thread}: {why}", age=row["age"], thread=row["thread"], why=why))
    print(JobCounts(**report["jobs"]), FeedbackCounts(**report["feedback"]), sep="\n")


COMMANDS: Mapping[str, Command] = {"status": ConfiguredCommand(_status, _add_arguments)}
