"""For all tests: generated examples are the same in every run; `pytest --hypothesis-profile=default` draws new ones."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
settings.load_profile("steady")
