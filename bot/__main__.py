"""The entry of the program: run one command of the command line."""

from __future__ import annotations

import gc
import io
import logging
import os
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

from agent.late_imports import defer_packages
from bot.base.exit_codes import CONFIG, FAULT, INTERRUPTED, fail
from bot.cli.command import PlainCommand
from bot.cli.program import command_first, command_line_parser, find_command
from bot.config.loader import (
    ConfigError,
    apply_network,
    configured_elsewhere,
    load_config,
    silence_libraries,
    terminal_language,
)
from catalogue import N_, LocalizedError, _, set_language, use_language
from sandbox.named_code import PATIENCE, log_waiting


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code, one of `bot.base.exit_codes`."""
    defer_packages()
    PATIENCE.set(replace(PATIENCE.get(), say=_say_waiting))
    if isinstance(sys.stdout, io.TextIOWrapper):  # of a terminal that is not UTF-8; stderr replaces already
        sys.stdout.reconfigure(errors="replace")
    with use_language(terminal_language()):
        return _run_command(sys.argv[1:] if argv is None else argv)


def _say_waiting(use: str) -> None:
    """Name code of the operator that is waited for: in the log, or for a command that has none, on stderr."""
    if logging.getLogger().hasHandlers():  # a service has set its log up
        log_waiting(use)
    else:
        text = N_("Still waiting for `{use}`, which the configuration names by `use:`, to be imported or made …")
        print(_(text, use=use), file=sys.stderr, flush=True)


def _run_command(words: list[str]) -> int:
    os.umask(0o077)  # databases, logs and backups hold people's messages
    gc.set_threshold(100_000, 50, 50)  # what a start imports stays; App sets the thresholds of the running service
    if logging.lastResort:  # a command without a log says itself what it finds; no raw warnings between
        logging.lastResort.setLevel(logging.ERROR)
    words = command_first(words)
    arguments = command_line_parser(words).parse_args(words)
    command = find_command(arguments.command)
    if isinstance(command, PlainCommand):
        return command.run(arguments)
    if arguments.config is None and (file := configured_elsewhere()):
        arguments.config = str(file)
        print(_("Configuration: {file}", file=file), file=sys.stderr)
    try:
        accounts = command.accounts and not getattr(arguments, "url", "")  # a service elsewhere has them
        config = load_config(Path(arguments.config) if arguments.config else None, accounts=accounts)
        silence_libraries(config)
        apply_network(config)
        if config.language != "auto":
            set_language(config.language)
        if name := command.audited(arguments):
            from bot.cli.service_call import note_command

            note_command(config, name)
        return command.run(arguments, config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return CONFIG
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULT
    except LocalizedError as error:
        return fail(error, FAULT)
    except (OSError, sqlite3.Error) as error:
        from bot.status.local_checks import describe_system_error

        return fail(" → ".join(describe_system_error(error)), FAULT)


if __name__ == "__main__":
    sys.exit(main())
