"""What every channel, tool and sandbox provider promises, as tests that code outside of Fawn can run.

Subclass a suite in a test module of yours, and give it the fixture that it names (docs/extend.md). The suites need
pytest and pytest-asyncio; nothing here is imported by the service.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("channel", "recording", "sandbox", "tool")))
