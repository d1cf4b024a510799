"""Every screen of the demo on the console, at three widths, as it was reviewed.

After a deliberate change: python -m tests.support.console_screens, and review each difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.console_screens import COLUMNS, SCREENS, as_page, play_scenes


@pytest.mark.slow
@pytest.mark.parametrize("columns", COLUMNS)
def test_the_screens_of_the_demo_are_as_reviewed(tmp_path: Path, bubblewrap: None, columns: int) -> None:
    assert as_page(play_scenes(columns, tmp_path)) == (SCREENS / f"{columns}.txt").read_text()
