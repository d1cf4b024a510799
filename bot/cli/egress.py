"""`fawn egress`: print every host and port that the configuration lets the service reach."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from bot.base.exit_codes import OK
from bot.cli.command import ConfiguredCommand
from bot.config.schema import Config
from catalogue import _

FORMATS = ("text", "list", "networkpolicy", "cilium", "json")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    words = _("text for people (default), a firewall's list, a NetworkPolicy of Kubernetes or Cilium, or JSON")
    parser.add_argument("--format", choices=FORMATS, default="text", help=words)
    parser.add_argument("--resolve", action="store_true", help=_("list: the addresses that the names have now"))
    words = _("policies: their name, and the label `app` of the pods; default: fawn")
    parser.add_argument("--name", default="fawn", metavar="NAME", help=words)


def _egress(arguments: argparse.Namespace, config: Config) -> int:
    from bot.status import egress

    found, notes = egress.list_destinations(config)
    match arguments.format:
        case "list":
            print(egress.render_list(found, resolve=arguments.resolve))
        case "networkpolicy":
            print(egress.render_policy(found, arguments.name), end="")
        case "cilium":
            print(egress.render_cilium(found, arguments.name), end="")
        case "json":
            print(json.dumps({"destinations": [asdict(each) for each in found], "notes": notes}))
        case _:
            print(egress.render_text(found, notes))
    return OK


COMMAND = ConfiguredCommand(_egress, _add_arguments, accounts=True, audited=lambda _given: "egress")
