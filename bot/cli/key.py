"""`fawn key`: make, list and revoke the keys with which programs act for people over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import time

from bot.admin.operations import Answer
from bot.base.exit_codes import CONFIG, FAULT, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.cli.service_call import OperationFailed, ask_service
from bot.config.schema import Config
from bot.storage.api_keys import DEFAULT_SCOPES, SCOPES
from catalogue import _, list_items

ACTIONS = ("add", "list", "revoke")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help=_("the name of the key"))
    parser.add_argument("--person", metavar="CHANNEL/PERSON", default="", help=_("as whom it acts, by id or name"))
    default = ",".join(DEFAULT_SCOPES)
    scopes = _("what it may do, of {scopes}; default: {default}", scopes=list_items(SCOPES), default=default)
    parser.add_argument("--scopes", metavar="A,B", default=default, help=scopes)
    parser.add_argument("--expires", metavar="90d", default="", help=_("after how many days it ends; default: never"))


def _run(arguments: argparse.Namespace, config: Config) -> int:
    given = {"name": arguments.name}
    if arguments.action == "add":
        given |= {name: getattr(arguments, name) for name in ("person", "scopes", "expires")}
    if arguments.action == "list":
        given = {}
    elif not arguments.name or not given.get("person", "-"):
        usage = _("write `fawn key add NAME --person CHANNEL/PERSON`, `fawn key revoke NAME` or `fawn key list`")
        return fail(usage, CONFIG)
    try:
        answer = asyncio.run(ask_service(config, f"key.{arguments.action}", given))
    except OperationFailed as error:
        return fail(error, FAULT)
    print({"add": _describe_added, "list": _describe_list, "revoke": _describe_revoked}[arguments.action](answer))
    return OK


def _describe_added(answer: Answer) -> str:
    text = _(
        "The key {name} acts as {person} on {channel}. It is shown this once; keep it like a password:",
        **_names(answer),
    )
    return f"{text}\n{answer['key']}"


def _describe_list(answer: Answer) -> str:
    return "\n".join(map(_describe_key, answer["keys"])) or _("There are no keys.")


def _describe_key(row: Answer) -> str:
    ends = _("never ends")
    if row["expires"]:
        ends = _("ended") if row["expires"] <= time.time() else _("ends on {day}", day=_day(row["expires"]))
    used = _("last used on {day}", day=_day(row["used"])) if row["used"] else _("never used")
    return "\t".join([row["name"], f"{row['channel']}/{row['person']}", ",".join(row["scopes"]), ends, used])


def _describe_revoked(answer: Answer) -> str:
    return _("Revoked the key {name} of {person} on {channel}.", **_names(answer))


def _names(answer: Answer) -> dict[str, str]:
    return {name: answer[name] for name in ("name", "person", "channel")}


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


COMMAND = ConfiguredCommand(_run, _add_arguments)
