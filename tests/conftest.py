"""Settings for all tests: generated examples are the same in every run.

`pytest --hypothesis-profile=default` draws new examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from sandbox.disk.removal import remove_tree

settings.register_profile("steady", derandomize=True)
settings.load_profile("steady")


@pytest.fixture
def deep_tree_removed(tmp_path: Path) -> Iterator[None]:
    """Remove `tmp_path` after the test: pytest cannot delete thousands of levels and would fail in a later run."""
    yield
    remove_tree(tmp_path)
