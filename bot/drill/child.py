"""Run a command of Fawn that ends with the drill: `python -m bot.drill.child COMMAND …`."""

from __future__ import annotations

import sys

from bot.drill.isolation import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    from bot.__main__ import main

    sys.exit(main(sys.argv[1:]))
