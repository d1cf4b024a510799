"""`fawn reload`: have the running service read its configuration again."""

from __future__ import annotations

import argparse
import asyncio
import sys

from bot.admin.service_client import NotRunning, call_service
from bot.base.exit_codes import CONFIG, FAULT, NOT_RUNNING, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.config.schema import Config
from catalogue import _, list_items


def _reload(_arguments: argparse.Namespace, config: Config) -> int:
    try:
        answer = asyncio.run(call_service(config.data_dir, "reload", {}))
    except NotRunning as error:
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
    for line in answer["others"]:
        print(line)
    return OK


COMMAND = ConfiguredCommand(_reload)
