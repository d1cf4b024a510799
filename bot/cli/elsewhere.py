"""The arguments that name a service elsewhere."""

from __future__ import annotations

import argparse

from catalogue import _


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names a service elsewhere."""
    parser.add_argument("--url", default="", metavar="URL", help=_("talk with the service at this address over HTTP"))
    parser.add_argument("--key", default="", metavar="KEY", help=_("the key for --url, which `fawn key add` printed"))
