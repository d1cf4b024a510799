"""Size limits hold whatever size a platform announces."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from agent.messages import Attachment
from channels.base import Refused
from channels.shared.files import limit_chunks


@pytest.mark.parametrize("size", [None, 1])
async def test_a_file_larger_than_announced_is_refused(size: int | None) -> None:
    given, closed = 0, False

    async def endless() -> AsyncGenerator[bytes, None]:
        nonlocal given, closed
        try:
            while True:
                given += 1
                yield bytes(1 << 20)
        finally:
            closed = True

    async def open_endless(attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return endless()

    with pytest.raises(Refused, match="exceeds the 3 MB download limit"):
        async for _ in limit_chunks(3 << 20, Attachment("x", "x", size=size), open_endless):
            pass
    assert (given, closed) == (4, True)
