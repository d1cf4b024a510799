"""The optional packages: which belong to which extra, and how an extra is installed from its lock."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from catalogue import N_, LazyText

EXTRAS: Mapping[str, tuple[str, ...]] = {  # what `make setup EXTRAS=NAME` installs → the modules that it brings
    "anthropic": ("langchain_anthropic", "anthropic"),
    "ddgs": ("ddgs",),
    "postgres": ("psycopg",),
}
CHANNELS: Mapping[str, tuple[str, ...]] = {  # the modules of a channel's SDK; `make setup` installs all of them
    "discord": ("discord",),
    "feishu": ("lark_oapi",),
    "matrix": ("pyromark", "vodozemac"),
    "slack": ("slack_bolt", "slack_sdk"),
    "telegram": ("telegram", "pyromark"),
}
INSTALL_CHANNEL = N_(
    "`pip install 'fawn[{name}]'`; in a checkout `make setup CHANNELS=\"{name} …\"`, for an image `docker build"
    " --build-arg CHANNELS=…`, each with all channels that you use"
)
INSTALL_EXTRA = N_("`make setup EXTRAS={extra}`, for an image `docker build --build-arg EXTRAS={extra}`")
INSTALL_PACKAGE = N_("`.venv/bin/pip install {package}`, with the Python that runs Fawn")


def describe_install(module: str) -> LazyText:
    """Return how to install the package of a module: from a lock if an extra brings it."""
    extra = next((name for name, modules in EXTRAS.items() if module in modules), "")
    if extra:
        return LazyText(INSTALL_EXTRA, extra=extra)
    return LazyText(INSTALL_PACKAGE, package=module.replace("_", "-"))


def lacks_sdk(channel: str) -> bool:
    """Return whether a channel of ours cannot work, because a package that it needs was left out."""
    return any(importlib.util.find_spec(module) is None for module in CHANNELS.get(channel, ()))


def describe_channel_install(channel: str) -> LazyText:
    """Return how to install the SDK of a channel."""
    return LazyText(INSTALL_CHANNEL, name=channel)
