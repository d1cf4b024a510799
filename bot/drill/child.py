"""Run a command of Fawn that ends with the drill: `python -m bot.drill.child COMMAND …`."""

from __future__ import annotations

import runpy

from bot.drill.isolation import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    runpy.run_module("bot", run_name="__main__", alter_sys=True)
