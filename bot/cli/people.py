"""The commands about people: `pair`, `key`, `web`, `forget` and `offboard`."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from bot.admin.operations import Answer
from bot.admin.terminal import confirm, say
from bot.base.exit_codes import CONFIG, FAULT, OK, fail
from bot.cli.command import Command, ConfiguredCommand
from bot.cli.service_call import CliAction, OperationFailed, ask_service, run_action
from bot.config.addresses import parse_person
from bot.config.schema import Config
from bot.rights.access import LOCAL_CHANNEL
from bot.storage.api_access import DEFAULT_SCOPES, SCOPES
from catalogue import _, list_items, ngettext


class NamedPerson(argparse.Action):
    """The address of a person, or the channel and the id as two words: sets `channel` and `person`."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        try:
            namespace.channel, namespace.person = _parse_words(values)
        except ValueError:
            parser.error(_("{words} is not the address of a person: write CHANNEL/ID", words=" ".join(values)))


def _add_person_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "person",
        nargs="+",
        metavar="CHANNEL/ID",
        action=NamedPerson,
        help=_("the person, as `fawn pair list` shows them"),
    )


def _parse_words(words: Sequence[str]) -> tuple[str, str]:
    """Return channel and id. Raises ValueError."""
    if len(words) > 2 or (len(words) == 2 and re.search("[/:]", words[0])):  # two addresses are two people
        raise ValueError
    return parse_person(words[0]) if len(words) == 1 else (words[0], words[1])


# ------------------------------------------------------------ fawn pair


def _add_pair_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(PAIR_ACTIONS))
    words = _("the code, or whose access to revoke")
    parser.add_argument("words", nargs="*", metavar="CODE | CHANNEL/ID", help=words)


def _pair(arguments: argparse.Namespace, config: Config) -> int:
    words = arguments.words
    if arguments.action == "revoke":
        with suppress(ValueError):  # the action says how it is written
            words = _parse_words(words) if words else words
    return asyncio.run(run_action(config, PAIR_ACTIONS[arguments.action], words))


def _describe_pair_list(_config: Config, answer: Answer) -> str:
    return "\n".join(_describe_person(row) for row in answer["people"]) or _("No paired users.")


def _describe_accepted(_config: Config, answer: Answer) -> str:
    return _(
        "{name} ({person}) can now talk to the bot on {channel}.",
        name=answer["name"],
        person=answer["person"],
        channel=answer["channel"],
    )


def _describe_declined(_config: Config, answer: Answer) -> str:
    return _(
        "Declined {name} ({person}) on {channel}.",
        name=answer["name"],
        person=answer["person"],
        channel=answer["channel"],
    )


def _describe_revoked_pair(config: Config, answer: Answer) -> str:
    from bot.team.offboarding import describe_rest

    words = _("Revoked the access of {person} on {channel}.", person=answer["person"], channel=answer["channel"])
    return "\n".join([words, *describe_rest(config, answer)])


def _describe_person(row: Answer) -> str:
    decided = {-1: _("declined"), 1: _("operator") if row["operator"] else _("paired")}
    state = decided.get(row["allowed"], _("waiting, code {code}", code=row["code"]))
    return f"{row['channel']}\t{row['person']}\t{row['name']}\t{state}"


PAIR_ACTIONS: Mapping[str, CliAction] = {
    "list": CliAction("pair.list", _describe_pair_list),
    "accept": CliAction("pair.accept", _describe_accepted, ("code",)),
    "decline": CliAction("pair.decline", _describe_declined, ("code",)),
    "revoke": CliAction("pair.revoke", _describe_revoked_pair, ("channel", "person")),
}


# ------------------------------------------------------------ fawn key


KEY_ACTIONS = ("add", "list", "revoke")


def _add_key_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=KEY_ACTIONS)
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help=_("the name of the key"))
    parser.add_argument("--person", metavar="CHANNEL/PERSON", default="", help=_("as whom it acts, by id or name"))
    default = ",".join(DEFAULT_SCOPES)
    scopes = _("what it may do, of {scopes}; default: {default}", scopes=list_items(SCOPES), default=default)
    parser.add_argument("--scopes", metavar="A,B", default=default, help=scopes)
    parser.add_argument("--expires", metavar="90d", default="", help=_("after how many days it ends; default: never"))


def _key(arguments: argparse.Namespace, config: Config) -> int:
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
    print(
        {"add": _describe_added, "list": _describe_key_list, "revoke": _describe_revoked_key}[arguments.action](answer)
    )
    return OK


def _describe_added(answer: Answer) -> str:
    text = _(
        "The key {name} acts as {person} on {channel}. It is shown this once; keep it like a password:",
        **_names(answer),
    )
    return f"{text}\n{answer['key']}"


def _describe_key_list(answer: Answer) -> str:
    return "\n".join(map(_describe_key, answer["keys"])) or _("There are no keys.")


def _describe_key(row: Answer) -> str:
    ends = _("never ends")
    if row["expires"]:
        ends = _("ended") if row["expires"] <= time.time() else _("ends on {day}", day=_day(row["expires"]))
    used = _("last used on {day}", day=_day(row["used"])) if row["used"] else _("never used")
    return "\t".join([row["name"], f"{row['channel']}/{row['person']}", ",".join(row["scopes"]), ends, used])


def _describe_revoked_key(answer: Answer) -> str:
    return _("Revoked the key {name} of {person} on {channel}.", **_names(answer))


def _names(answer: Answer) -> dict[str, str]:
    return {name: answer[name] for name in ("name", "person", "channel")}


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


# ------------------------------------------------------------ fawn web


def _add_web_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("link",))
    text = _("who signs in, by id or name; default: you, as on the console")
    parser.add_argument("--person", metavar="CHANNEL/PERSON", default="", help=text)


def _web(arguments: argparse.Namespace, config: Config) -> int:
    from channels.console import ConsoleSettings, person_name

    person = arguments.person or f"{LOCAL_CHANNEL}/{person_name(ConsoleSettings())}"
    try:
        answer = asyncio.run(ask_service(config, "web.link", {"person": person}))
    except OperationFailed as error:
        return fail(error, FAULT)
    names = {name: answer[name] for name in ("channel", "person")}
    print(_("Opened once within 10 minutes, this signs you in as {person} of {channel}:", **names))
    print(answer["link"])
    return OK


# ------------------------------------------------------------ fawn forget


def _add_forget_arguments(parser: argparse.ArgumentParser) -> None:
    _add_person_argument(parser)
    parser.add_argument("--yes", action="store_true", help=_("do not ask"))


def _forget(arguments: argparse.Namespace, config: Config) -> int:
    given = {"channel": arguments.channel, "person": arguments.person}
    try:
        look = asyncio.run(ask_service(config, "forget.look", given))
        if not look["known"]:
            raise OperationFailed(
                _("nothing is stored of {person} on {channel}: `fawn pair list` shows the ids of people", **given)
            )
        if not arguments.yes and not _is_sure(_describe_traces(look, **given)):
            say(_("Nothing has changed."))
            return FAULT
        answer = asyncio.run(ask_service(config, "forget", given))
    except OperationFailed as error:
        return fail(error, FAULT)
    say(
        _(
            "Fawn forgets {person} on {channel} within moments; if it does not run, after its next start.",
            person=answer["person"],
            channel=answer["channel"],
        )
    )
    if look["paired"]:
        say(_("They may still talk to Fawn. To end that: `fawn pair revoke {channel} {person}`.", **given))
    return OK


def _is_sure(traces: str) -> bool:
    """Ask with what is stored. Raises OperationFailed where nobody can be asked, and KeyboardInterrupt."""
    say(traces)
    if not sys.stdin.isatty():
        raise OperationFailed(_("not forgotten: add --yes where nobody can be asked"))
    try:
        return confirm(_("Forget them for ever? [y/N] "), default=False)
    except EOFError:
        return False
    except KeyboardInterrupt:
        say("", _("Nothing has changed."))
        raise


def _describe_traces(look: Answer, channel: str, person: str) -> str:
    name = _("{name} ({person})", name=look["name"], person=person) if look["name"] else person
    counts = list_items(
        [
            ngettext("{n} message", "{n} messages", look["messages"]),
            ngettext("{n} conversation", "{n} conversations", look["conversations"]),
            ngettext("{n} memory", "{n} memories", look["memories"]),
            ngettext("{n} schedule", "{n} schedules", look["schedules"]),
            ngettext("{n} background task", "{n} background tasks", look["tasks"]),
        ]
    )
    return _("{name} on {channel}: {counts}.", name=name, channel=channel, counts=counts)


# ------------------------------------------------------------ fawn offboard


def _add_offboard_arguments(parser: argparse.ArgumentParser) -> None:
    _add_person_argument(parser)
    parser.add_argument("--to", metavar="OTHER", default="", help=_("the platform id of who gets the schedules"))


def _offboard(arguments: argparse.Namespace, config: Config) -> int:
    return asyncio.run(run_action(config, OFFBOARD, (arguments.channel, arguments.person, arguments.to)))


def _describe_offboarded(config: Config, answer: Answer) -> str:
    from bot.team.offboarding import describe_offboarding, describe_rest

    return "\n".join([*describe_offboarding(answer), *describe_rest(config, answer)])


OFFBOARD = CliAction("offboard", _describe_offboarded, ("channel", "person", "to"))


COMMANDS: Mapping[str, Command] = {
    "pair": ConfiguredCommand(_pair, _add_pair_arguments),
    "key": ConfiguredCommand(_key, _add_key_arguments),
    "web": ConfiguredCommand(_web, _add_web_arguments),
    "forget": ConfiguredCommand(_forget, _add_forget_arguments),
    "offboard": ConfiguredCommand(_offboard, _add_offboard_arguments),
}
