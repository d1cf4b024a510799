"""Fawn for Python programs: `async with Fawn(config="config.yaml") as fawn: async for block in fawn.ask("…")`."""

from fawn.client import Answer, Fawn, FawnError
from fawn.sync import FawnSync

__all__ = ["Answer", "Fawn", "FawnError", "FawnSync"]
