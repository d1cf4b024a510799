"""`fawn sandbox build`: build the image of Docker sandboxes."""

from __future__ import annotations

import argparse
import asyncio

from bot.base.exit_codes import FAULT, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.config.schema import Config
from catalogue import _
from sandbox.base import SandboxError
from sandbox.docker.image_build import build_image


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("build",))
    words = _("base image, a Debian with Python; default: python:3.12-slim")
    parser.add_argument("--base", metavar="IMAGE", default="", help=words)
    parser.add_argument("--libreoffice", action="store_true", help=_("include LibreOffice (500 MB)"))


def _build(arguments: argparse.Namespace, config: Config) -> int:
    try:
        built = build_image(
            config.sandbox.docker_host, config.sandbox.image, arguments.base, libreoffice=arguments.libreoffice
        )
        asyncio.run(built)
    except SandboxError as error:
        return fail(error, FAULT)
    print(_("Built the image {image}. `fawn check` shows which sandbox Fawn uses.", image=config.sandbox.image))
    return OK


COMMAND = ConfiguredCommand(_build, _add_arguments)
