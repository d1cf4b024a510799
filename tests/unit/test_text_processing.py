"""Foreign text does not block the event loop longer than its length explains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_text_processing_is_not_quadratic() -> None:
    """The limit is CPU time in a separate process, so a busy machine does not matter."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.adversarial_texts"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert run.returncode == 0, f"{run.stdout.splitlines()[-1:]} was given up: {run.stderr[-2000:]}"
    assert run.stdout.endswith("done\n")
