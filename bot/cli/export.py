"""`fawn export`: write the transcript of a thread."""

from __future__ import annotations

import argparse
import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

from bot.base.exit_codes import FAULT, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.cli.service_call import OperationFailed, ask_service
from bot.config.schema import Config
from bot.status.transcript_format import render_entry
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    words = _("its address, as the log shows it, or the beginning of it")
    parser.add_argument("thread", metavar="THREAD", help=words)
    words = _("Markdown (default) or JSON lines")
    parser.add_argument("--format", choices=("md", "jsonl"), default="md", help=words)
    words = _("file to write; default: standard output")
    parser.add_argument("-o", dest="file", metavar="FILE", type=Path, help=words)


def _export(arguments: argparse.Namespace, config: Config) -> int:
    try:
        text = asyncio.run(_render_thread(config, arguments.thread, arguments.format))
        if arguments.file is None:
            print(text, end="")
        else:
            with open(arguments.file, "w", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
                file.write(text)
    except (OperationFailed, OSError) as error:
        return fail(error, FAULT)
    return OK


async def _render_thread(config: Config, thread: str, form: str) -> str:
    """Return the transcript of a thread as Markdown (`form` md) or JSON lines. Raises OperationFailed."""
    arguments: dict[str, Any] = {"thread": thread, "after": 0}
    chunks: list[str] = []
    conversation = ""
    while entries := (answer := await ask_service(config, "export", arguments))["entries"]:
        for entry in entries:
            if form == "md" and entry["conversation"] != conversation:
                conversation = entry["conversation"]
                chunks.append(f"## {entry['title'] or conversation}\n\n")
            chunks.append(render_entry(entry, form))
        arguments = {"thread": answer["thread"], "after": entries[-1]["id"]}
    return "".join([f"# {answer['thread']}\n\n" * (form == "md"), *chunks])


COMMAND = ConfiguredCommand(_export, _add_arguments, audited=lambda _arguments: "export")
