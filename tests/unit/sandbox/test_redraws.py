"""Progress bars, colours and backspaces in the output of commands, in pieces of any size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.inside.redraws import RedrawFolder

BAR = b"".join(b"\r%3d%%|####| %d/4000" % (number // 40, number) for number in range(1, 4001))


def folded(data: bytes, size: int = 1 << 16) -> bytes:
    folder = RedrawFolder()
    return b"".join(folder.fold(data[at : at + size]) for at in range(0, len(data), size)) + folder.flush()


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain\ntext", b"plain\ntext"),
        (b"a\r\nb\r\n", b"a\r\nb\r\n"),
        (BAR + b"\ndone\n", b"100%|####| 4000/4000\ndone\n"),
        (b"start" + BAR + b"\n", b"start\n100%|####| 4000/4000\n"),
        (BAR + b"ERROR 4711\n" + BAR, b"100%|####| 4000/4000ERROR 4711\n100%|####| 4000/4000"),
        (b"50%\r100%\r\ndone", b"50%\n100%\r\ndone"),
        (b"50%\r", b"50%"),
        (b"\r50%\r      \rdone\n", b"done\n"),
        (b"\x1b[31mred\x1b[0m \x1b[1;32mgreen\x1b[0m\n", b"red green\n"),
        (b"\x1b]0;a title\x07x\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\\n", b"xlink\n"),
        (b"\x1b[?25l\x1b[2K\x1b[1Gwait\x1b[?25h\x1b(B\n", b"wait\x1b(B\n"),
        (b"abc\b\b\bxyz\n", b"xyz\n"),
        ("ä€😀\b\b\bz\n".encode(), b"z\n"),
        (b"\b\bx\n", b"x\n"),
        (b"|\b/\b-\b\\\b done\n", b" done\n"),
        (b"\x1b", b"\x1b"),
        (b"", b""),
    ],
)
@pytest.mark.parametrize("size", [1 << 16, 1000])
def test_the_last_draw_of_a_line_remains(data: bytes, shown: bytes, size: int) -> None:
    assert folded(data, size) == shown


@given(st.lists(st.sampled_from([b"a", b"bc", b"\r", b"\n", b"\r\n", b"\x1b[31m", b"\x1b[0m", b" 5%"]), max_size=30))
def test_pieces_of_any_size_show_the_same(parts: list[bytes]) -> None:
    whole = folded(b"".join(parts))
    assert folded(b"".join(parts), 1) == whole
    assert folded(b"".join(parts), 3) == whole
    assert b"\x1b" not in whole


@given(st.binary(max_size=200))
def test_plain_output_is_unchanged_and_all_output_is_taken(data: bytes) -> None:
    plain = data.translate(None, b"\r\b\x1b")
    assert folded(plain, 7) == plain
    folded(data, 1)


def test_a_line_without_an_end_is_not_held_for_ever() -> None:
    folder = RedrawFolder()
    shown = folder.fold(b"\r" + b"x" * 200_000) + folder.fold(b"y" * 100)
    assert shown == b"x" * 200_000 + b"y" * 100
