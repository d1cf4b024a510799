"""Which tests `make quick` leaves out."""

from __future__ import annotations

from tests.support.quick_choice import LIST, OPTION, ROOT, choose

PRINTED = """\
0.20s setup    tests/unit/a/test_a.py::test_slow[one]
0.20s call     tests/unit/a/test_a.py::test_slow[one]
0.31s call     tests/unit/a/test_a.py::test_now_and_then[x y]
0.02s call     tests/unit/a/test_a.py::test_now_and_then[z]
5.01s call     tests/unit/a/test_b.py::test_many[0]
0.10s call     tests/unit/a/test_b.py::test_quick
1 passed in 9.00s
"""


def test_what_takes_long_is_left_out() -> None:
    many = [f"0.05s call     tests/unit/a/test_b.py::test_many[{number}]" for number in range(1, 90)]
    assert choose([*PRINTED.splitlines(), *many]) == [
        "tests/unit/a/test_a.py::test_slow",
        "tests/unit/a/test_b.py::test_many",
    ]


def test_the_list_names_tests_that_exist() -> None:
    for line in LIST.read_text("utf-8").splitlines():
        file, _, function = line.removeprefix(OPTION).partition("::")
        assert f"def {function}(" in (ROOT / file).read_text("utf-8"), line
