"""Say what ended with a person's offboarding, for the command line and for operators in a chat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bot.config.schema import Config
from catalogue import _, list_items, ngettext


def describe_offboarding(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the receipt: what was ended, and what was handed over."""
    left = answer["left"]
    numbers = {"ended": answer["ended"], "handed": answer["handed"], "tasks": left["tasks"]}
    listed = {name: list_items([str(number) for number in found]) for name, found in numbers.items()}
    yield _("Offboarded {person} on {channel}.", person=answer["person"], channel=answer["channel"])
    if answer["handed"]:
        yield _("Schedules that {other} has now: {numbers}.", other=answer["to"], numbers=listed["handed"])
    if answer["ended"]:
        yield _("Schedules that were ended: {numbers}.", numbers=listed["ended"])
    if left["tasks"]:
        yield _("Background tasks that were cancelled: {numbers}.", numbers=listed["tasks"])
    if left["runs"]:
        n = len(left["runs"])
        yield ngettext("{n} request at work is being stopped.", "{n} requests at work are being stopped.", n)
    if left["grants"]:
        yield ngettext("{n} grant was taken back.", "{n} grants were taken back.", left["grants"])
    if left["keys"]:
        yield ngettext("{n} key of the API was revoked.", "{n} keys of the API were revoked.", left["keys"])
    if left["sessions"]:
        yield ngettext("{n} session of the page has ended.", "{n} sessions of the page have ended.", left["sessions"])
    if left["links"]:
        n = left["links"]
        yield ngettext("{n} link with another account has ended.", "{n} links with other accounts have ended.", n)
    if left["pairing"]:
        yield _("What pairing allowed has ended.")


def describe_rest(config: Config, answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield what else ended, and what still lets a person in who was put out."""
    if roles := answer.get("roles") or answer.get("left", {}).get("roles"):
        names = list_items(dict.fromkeys(roles))
        yield _("The roles that people gave in chats have ended, too: {roles}.", roles=names)
    rules = next((each.access for each in config.channels if each.name == answer["channel"]), None)
    for setting in rules.settings_naming(answer["person"]) if rules else ():
        at = f"channels.{answer['channel']}.access.{setting}"
        yield _("STILL LET IN by the configuration: `{setting}`. Change it there.", setting=at)
