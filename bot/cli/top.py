"""`fawn top`: show the turns in progress, live in a terminal, or once."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from agent.foreign_text import printable_line
from bot.admin.service_client import NotRunning, call_service
from bot.base.exit_codes import FAULT, NOT_RUNNING, OK, fail
from bot.cli.command import Command, ConfiguredCommand
from bot.config.schema import Config
from catalogue import _, format_duration

REFRESH_SECONDS = 1.0
WIDE = 80  # columns, from which on there is room for a turn's numbers
WIDE_WITH_HOSTS = 118  # from which on there is room for the whole name of a host
HOST_CHARS, SHORT_HOST_CHARS = 24, 8
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
OTHER_SCREEN, OWN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=_("print it as one JSON object"))
    parser.add_argument("--once", action="store_true", help=_("print it once, as where there is no terminal"))


def _top(arguments: argparse.Namespace, config: Config) -> int:
    once = arguments.once or arguments.json or not sys.stdout.isatty()
    try:
        return asyncio.run(_show(config, once=once, as_json=arguments.json))
    except NotRunning as error:
        return fail(error, NOT_RUNNING)
    except KeyboardInterrupt:
        return OK


async def _show(config: Config, *, once: bool, as_json: bool) -> int:
    """Print what goes on; again every second unless `once`. Raises NotRunning."""
    try:
        while True:
            report = await call_service(config.data_dir, "top", {})
            if "error" in report:
                return fail(report["error"], FAULT)
            if once:
                print(json.dumps(report) if as_json else "\n".join(render_top(report, 200)))
                return OK
            size = shutil.get_terminal_size()
            lines = render_top(report, size.columns)[: size.lines - 1]
            body = "".join(f"{line}{CLEAR_LINE}\r\n" for line in lines)
            print(f"{OTHER_SCREEN}{HOME}{body}{CLEAR_BELOW}", end="", flush=True)
            await asyncio.sleep(REFRESH_SECONDS)
    finally:
        if not once:
            print(OWN_SCREEN, end="", flush=True)


def render_top(report: dict[str, Any], width: int) -> list[str]:
    """Return the numbers of the service and a line for each turn, the longest first."""
    down = [name for name, ready in report["channels"].items() if not ready]
    head = _(
        "turns {turns}, queued {queued} (oldest {age:.0f} s), undelivered {outbox}, dead letters {dead}, jobs {jobs},"
        " sandboxes {sandboxes}",
        turns=len(report["turns"]),
        queued=report["queue_conversations"],
        age=report["queue_age_seconds"],
        outbox=report["outbox_rows"],
        dead=report["dead_letters"],
        jobs=report["jobs_waiting"],
        sandboxes=report["sandboxes_in_use"],
    )
    lines = [head, *([_("not connected: {names}", names=", ".join(down))] if down else []), ""]
    with_numbers = width >= WIDE
    is_shared = any(turn.get("host") for turn in report["turns"])
    host_width = (HOST_CHARS if width >= WIDE_WITH_HOSTS else SHORT_HOST_CHARS) + 2 if is_shared else 0
    name_width = min(36, max(8, (width - host_width - (43 if with_numbers else 20)) // 2))
    numbers = f" {'CALLS':>5} {'TOKENS':>10} {'STEPS':>5}" if with_numbers else ""
    lines.append(f"{'RUN':>8} {'TIME':>9}{numbers}  {_column('HOST', host_width)}{'THREAD':<{name_width}} DOING")
    for turn in sorted(report["turns"], key=lambda each: -each["seconds"]):
        took, name = format_duration(turn["seconds"]), printable_line(turn["thread"], name_width)
        numbers = f" {turn['calls']:>5} {turn['tokens']:>10,} {turn['steps']:>5}" if with_numbers else ""
        host = _column(turn.get("host", "")[-host_width + 2 :], host_width)  # its end tells two of a machine apart
        lines.append(f"{turn['run']:>8} {took:>9}{numbers}  {host}{name:<{name_width}} {printable_line(turn['doing'])}")
    return [line[:width] for line in lines]


def _column(text: str, width: int) -> str:
    """Return a text as a column with two spaces behind it; "" for a column without a width."""
    return f"{text[: width - 2]:<{width}}" if width else ""


COMMANDS: Mapping[str, Command] = {"top": ConfiguredCommand(_top, _add_arguments)}
