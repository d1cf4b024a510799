"""`fawn check`: test the configuration, and print the findings as they come."""

from __future__ import annotations

import argparse
import asyncio

from bot.admin.doctor import render_finding, run_checks
from bot.cli.command import ConfiguredCommand
from bot.cli.exit_codes import CONFIG, OK
from bot.config.schema import Config


def _check(_arguments: argparse.Namespace, config: Config) -> int:
    findings = asyncio.run(run_checks(config, lambda finding: print(render_finding(finding), flush=True)))
    return OK if all(finding.ok for finding in findings) else CONFIG


COMMAND = ConfiguredCommand(_check, accounts=True)
