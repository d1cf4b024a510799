"""The walk through hostile folders, and their deletion."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.disk.folders import remove_tree
from sandbox.disk.safe_files import open_below
from sandbox.inside.search import WalkBounds, walk_folder
from tests.support.folder_trees import create_deep_tree, remove_afterwards

_opens: list[str] = []
_watched: list[int] = []  # threads whose opens are counted


def _count(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and threading.get_ident() in _watched:
        _opens.append(str(arguments[0]))


sys.addaudithook(_count)


@contextmanager
def counted() -> Iterator[list[str]]:
    """Count the opens in this thread."""
    _opens.clear()
    _watched.append(threading.get_ident())
    try:
        yield _opens
    finally:
        _watched.clear()


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    with remove_afterwards(tmp_path / "tree") as folder:
        folder.mkdir()
        yield folder


def everything(folder: Path, bounds: WalkBounds) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the paths of a walk, and those that it skips."""
    skipped: list[tuple[str, str]] = []
    with open_below(folder) as top:
        found = [rel for rel, _, _ in walk_folder(top, bounds, lambda rel, why: skipped.append((rel, str(why))))]
    return found, skipped


# ---------------------------------------------------------------- walking


def test_each_folder_is_opened_once(tree: Path) -> None:
    for chain in range(30):
        (tree / f"{chain}").mkdir()
        create_deep_tree(tree / f"{chain}", 60)
    with counted() as opens:
        found, skipped = everything(tree, WalkBounds())
    assert len(found) == 30 * 62
    assert skipped == []
    assert len(opens) < 30 * 61 + 10


def test_a_walk_yields_entries_before_deeper_ones(tree: Path) -> None:
    (tree / "a" / "x").mkdir(parents=True)
    for file in ("a/1", "a/x/2", "b"):
        (tree / file).touch()
    assert everything(tree, WalkBounds())[0] == ["a", "b", "a/1", "a/x", "a/x/2"]


def test_only_the_folders_of_the_current_path_are_open(tree: Path) -> None:
    for chain in range(20):
        (tree / f"{chain}").mkdir()
        create_deep_tree(tree / f"{chain}", 10)
    before = len(os.listdir("/proc/self/fd"))
    with open_below(tree) as top:
        walked = walk_folder(top)
        assert max(len(os.listdir("/proc/self/fd")) for _ in walked) <= before + 14
        for _ in walk_folder(top):
            break
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("bounds", "count", "why"),
    [
        (WalkBounds(entries=25), 25, "more than 25 files and folders"),
        (WalkBounds(depth=10), 10, "more than 10 folders deep"),
        (WalkBounds(path_bytes=19), 10, "longer than 19 bytes"),
        (WalkBounds(seconds=0), 0, "longer than 0 seconds"),
    ],
)
def test_every_limit_of_a_walk_is_reported(tree: Path, bounds: WalkBounds, count: int, why: str) -> None:
    create_deep_tree(tree, 40)
    found, skipped = everything(tree, bounds)
    assert len(found) == count
    ((_, told),) = skipped
    assert why in told


def test_closed_folders_are_reported_and_skipped(tree: Path) -> None:
    (tree / "a").mkdir()
    (tree / "b").mkdir()
    (tree / "b" / "file").touch()
    skipped: list[tuple[str, str]] = []
    found = []
    with open_below(tree) as top:
        for rel, _, _ in walk_folder(top, WalkBounds(), lambda rel, why: skipped.append((rel, str(why)))):
            found.append(rel)
            if rel == "a":  # swapped between stat and open
                (tree / "a").rmdir()
                (tree / "a").symlink_to("/etc")
    assert found == ["a", "b", "b/file"]
    assert skipped == [("a", "Not a directory")]


# ---------------------------------------------------------------- deleting


def test_thousands_of_levels_are_deleted(tree: Path) -> None:
    create_deep_tree(tree, 3_000)
    assert remove_tree(tree) == []
    assert not tree.exists()


def test_deletion_needs_few_descriptors(tree: Path) -> None:
    (tree / "wide").mkdir()
    for chain in range(10):
        (tree / "wide" / f"{chain}").mkdir()
        create_deep_tree(tree / "wide" / f"{chain}", 100)
    script = (
        "import resource, sys; from pathlib import Path; from sandbox.disk.folders import remove_tree\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24)); print(remove_tree(Path(sys.argv[1])))"
    )
    done = subprocess.run([sys.executable, "-c", script, tree], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
    assert not tree.exists()


def test_a_slow_deletion_can_be_continued(tree: Path) -> None:
    create_deep_tree(tree, 20)
    assert remove_tree(tree, 0) == ["it was not empty after 0 seconds"]
    assert remove_tree(tree) == []


def test_deletion_accepts_a_missing_folder_and_refuses_a_link(tree: Path, tmp_path: Path) -> None:
    (tree / "file").touch()
    (tmp_path / "link").symlink_to(tree)
    assert remove_tree(tmp_path / "none") == []
    assert remove_tree(tmp_path / "link") == ["link: Not a directory"]
    assert (tree / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files that cannot be deleted: run the tests as root")
def test_remaining_paths_are_reported(tree: Path) -> None:
    create_deep_tree(tree, 30)
    (tree / "kept").mkdir()
    for number in range(10):
        (tree / "kept" / f"{number}").touch()
    subprocess.run(["chattr", "+i", *(tree / "kept").iterdir()], check=True)
    try:
        left = remove_tree(tree)
        assert [path.name for path in tree.iterdir()] == ["kept"]
    finally:
        subprocess.run(["chattr", "-i", *(tree / "kept").iterdir()], check=True)
    assert left[0] == "kept/0: Operation not permitted"
    assert len(left) <= 5
    assert remove_tree(tree) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else: run the tests as root")
def test_an_ordinary_user_deletes_closed_folders() -> None:
    script = (
        "import os, sys; from pathlib import Path; from sandbox.disk.folders import remove_tree\n"
        "from tests.support.folder_trees import create_deep_tree\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "top = Path(sys.argv[1]); (top / 'shut').mkdir(); create_deep_tree(top / 'shut', 20); (top / 'shut').chmod(0)\n"
        "os.makedirs(top / 'read' / 'only' / 'x'); (top / 'read' / 'only').chmod(0o500)\n"
        "print(remove_tree(top))"
    )
    with remove_afterwards(Path(tempfile.mkdtemp(prefix="fawn-test-", dir="/tmp"))) as folder:
        (folder / "tree").mkdir()
        for place in (folder, folder / "tree"):
            os.chown(place, 65534, 65534)
        done = subprocess.run(
            [sys.executable, "-c", script, folder / "tree"], capture_output=True, text=True,
            cwd=Path(__file__).parents[3],
        )  # fmt: skip
        assert done.stdout == "[]\n", done.stderr
        assert not (folder / "tree").exists()


def test_a_deletion_race_never_leaves_the_folder(tree: Path, tmp_path: Path) -> None:
    """Exchange a folder with a link to another one (RENAME_EXCHANGE) in a loop."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for number in range(50):
        (outside / f"{number}").touch()
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            exchange(-100, os.fsencode(tree / "a"), -100, os.fsencode(tree / "b"), 2)

    for _ in range(20):
        (tree / "a").mkdir(parents=True)
        (tree / "b").symlink_to(outside)
        for number in range(200):
            (tree / "a" / f"{number}").touch()
        swapper = threading.Thread(target=swap, name="swapper")
        ended.clear()
        swapper.start()
        remove_tree(tree)
        ended.set()
        swapper.join()
        assert len(list(outside.iterdir())) == 50
        remove_tree(tree)
