"""`fawn init`: set Fawn up, from nothing to the first answer."""

from __future__ import annotations

import argparse
from pathlib import Path

from bot.admin.first_answers import PROGRESS_NAME, Answers, has_terminal, read_answers
from bot.admin.first_run import first_run
from bot.admin.setup import SetupLeft, SetupStopped
from bot.admin.terminal import say
from bot.base.exit_codes import FAULT, INTERRUPTED, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.config.schema import Config
from catalogue import _

FLAGS = ("where", "provider", "base_url", "key", "model", "access", "sandbox", "budget")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    file = _("answers, one `name: value` a line; what it lacks is asked on a terminal")
    parser.add_argument("--answers", metavar="FILE", type=Path, help=file)
    texts = {
        "where": _("`console` or the name of a platform"),
        "provider": _("a preset of docs/models.md, `other` or `demo`"),
        "base_url": _("URL of a server that speaks OpenAI's protocol"),
        "key": _("`$NAME`, the variable that has the model's key"),
        "model": _("name of the model"),
        "access": _("`pairing` or `open`"),
        "sandbox": _("`auto` or `none`"),
        "budget": _("dollars a day, or tokens where no price is known"),
    }
    for name in FLAGS:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=texts[name])
    words = _("without a terminal: wait for the person who sends the printed word")
    parser.add_argument("--wait", action="store_true", help=words)


def _init(arguments: argparse.Namespace, _config: Config) -> int:
    file = Path(arguments.config) if arguments.config else None
    progress = (Path.cwd() / (file or "config.yaml")).parent / PROGRESS_NAME
    try:
        given = read_answers(arguments.answers) if arguments.answers else {}
        given |= {name: value for name in FLAGS if (value := getattr(arguments, name)) is not None}
        first_run(file, Answers(given, progress, terminal=has_terminal()), wait=arguments.wait)
    except SetupStopped as error:
        return fail(error, FAULT)
    except (EOFError, KeyboardInterrupt):
        print()
        if progress.exists():
            say(_("The answers so far are kept: `fawn init` goes on with them."))
        return INTERRUPTED
    except SetupLeft as left:
        say("", left)
        return INTERRUPTED
    return OK


COMMAND = ConfiguredCommand(_init, _add_arguments, audited=lambda _given: "init")
