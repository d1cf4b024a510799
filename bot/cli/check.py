"""`fawn check`: test the configuration, print the findings as they come, and mend what is safe to mend."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable

from bot.admin.doctor import render_finding, run_checks
from bot.base.exit_codes import CONFIG, OK
from bot.base.findings import Finding
from bot.cli.command import ConfiguredCommand
from bot.config.schema import Config
from bot.main.features import gather_checks
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fix", action="store_true", help=_("do what is safe of it, such as `chmod 600 .env`"))
    parser.add_argument("--json", action="store_true", help=_("print the findings as JSON"))


def _check(arguments: argparse.Namespace, config: Config) -> int:
    def report(finding: Finding) -> None:
        if not arguments.json:
            print(render_finding(finding), flush=True)

    findings = asyncio.run(run_checks(config, gather_checks, report))
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


COMMAND = ConfiguredCommand(_check, _add_arguments, accounts=True)
