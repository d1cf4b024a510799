"""Describe what `fawn setup` shows for a platform. A channel defines `GUIDE` in its module `setup_guide`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SetupGuide:
    """Where to get each secret, in the order of the platform, and how the first person reaches the bot.

    `contact` gets the channel's settings, the sentence of its `probe`, and a word that proves who wrote to the bot.
    """

    contact: Callable[[Any, str, str], str]
    steps: Mapping[str, Callable[[], str]] = field(default_factory=dict)  # setting → what to do to get it
