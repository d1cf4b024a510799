"""The commands that set Fawn up: `init`, `setup`, `check`, `sandbox` and `slack`."""

from __future__ import annotations

import argparse
import asyncio
import json
import pkgutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import channels
from bot.admin.doctor import render_finding, run_checks
from bot.admin.first_answers import PROGRESS_NAME, Answers, has_terminal, read_answers
from bot.admin.first_run import first_run
from bot.admin.setup import SetupLeft, SetupOptions, SetupStopped, set_up_channel
from bot.admin.terminal import say
from bot.base.exit_codes import CONFIG, FAULT, INTERRUPTED, OK, fail
from bot.base.findings import Finding
from bot.cli.command import Command, ConfiguredCommand, PlainCommand
from bot.config.schema import Config
from bot.main.features import gather_checks
from catalogue import _
from sandbox.base import SandboxError

# ------------------------------------------------------------ fawn init


FLAGS = ("where", "provider", "base_url", "key", "model", "access", "sandbox", "budget")


def _add_init_arguments(parser: argparse.ArgumentParser) -> None:
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


# ------------------------------------------------------------ fawn setup


def _add_setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("channel", choices=_platform_names(), help=_("the platform"))
    parser.add_argument("--token-stdin", action="store_true", help=_("read the tokens from stdin, a line each"))
    words = _("without a terminal: wait for the person who sends the printed word")
    parser.add_argument("--wait", action="store_true", help=words)


def _platform_names() -> list[str]:
    """Return the channels that have an account, without importing them."""
    others = ("base", "shared", "console")
    return sorted(info.name for info in pkgutil.iter_modules(channels.__path__) if info.name not in others)


def _set_up(arguments: argparse.Namespace, config: Config) -> int:
    file = Path(arguments.config) if arguments.config else None
    try:
        set_up_channel(SetupOptions(arguments.channel, file, arguments.token_stdin, arguments.wait), config)
    except SetupStopped as error:
        return fail(error, FAULT)
    except SetupLeft as left:
        say("", left)
        return INTERRUPTED
    return OK


# ------------------------------------------------------------ fawn check


def _add_check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fix", action="store_true", help=_("do what is safe of it, such as `chmod 600 .env`"))
    parser.add_argument("--json", action="store_true", help=_("print the findings as JSON"))


def _check(arguments: argparse.Namespace, config: Config) -> int:
    def report(finding: Finding) -> None:
        if not arguments.json:
            print(render_finding(finding), flush=True)

    is_new = not config.data_dir.exists()
    findings = asyncio.run(run_checks(config, gather_checks, report))
    if is_new:  # what the checks made for themselves goes
        for folder in (config.data_dir / "sandbox", config.data_dir):
            with suppress(OSError):
                folder.rmdir()
    mended = [_mend(each, each.mend) if arguments.fix and each.mend else "" for each in findings]
    if arguments.json:
        print(json.dumps([_as_json(each, done) for each, done in zip(findings, mended, strict=True)], indent=2))
    else:
        for text in filter(None, mended):
            print(text)
    return OK if all(finding.ok for finding in findings) else CONFIG


def _mend(finding: Finding, mend: Callable[[], object]) -> str:
    """Do what a finding's fix says; return what was done, or why it was not."""
    try:
        mend()
    except OSError as error:
        return _("not done: {fix} ({why})", fix=finding.fix, why=error.strerror)
    return _("done: {fix}", fix=finding.fix)


def _as_json(finding: Finding, done: str) -> dict[str, str]:
    values = {"state": finding.state, "subject": finding.subject, "text": finding.text, "fix": finding.fix}
    return values | ({"done": done} if done else {})


# ------------------------------------------------------------ fawn sandbox


def _add_sandbox_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("build",))
    words = _("base image, a Debian with Python; default: python:3.12-slim")
    parser.add_argument("--base", metavar="IMAGE", default="", help=words)
    parser.add_argument("--libreoffice", action="store_true", help=_("include LibreOffice (500 MB)"))


def _build(arguments: argparse.Namespace, config: Config) -> int:
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


# ------------------------------------------------------------ fawn slack


def _add_slack_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("manifest",))


def _manifest(_arguments: argparse.Namespace) -> int:
    from channels.slack.manifest import app_manifest

    print(app_manifest())
    return OK


COMMANDS: Mapping[str, Command] = {
    "init": ConfiguredCommand(_init, _add_init_arguments, audited=lambda _given: "init"),
    "setup": ConfiguredCommand(_set_up, _add_setup_arguments, audited=lambda given: f"setup {given.channel}"),
    "check": ConfiguredCommand(_check, _add_check_arguments, accounts=True),
    "sandbox": ConfiguredCommand(_build, _add_sandbox_arguments),
    "slack": PlainCommand(_manifest, _add_slack_arguments),
}
