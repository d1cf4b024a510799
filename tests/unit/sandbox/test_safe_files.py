"""Host access to files, without an attacker."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.base import SandboxFileError
from sandbox.disk import safe_files
from sandbox.inside.search import WalkBounds


def test_write_makes_folders_and_is_atomic(tmp_path: Path) -> None:
    safe_files.write_file(tmp_path, "a/b/c.txt", b"one")
    safe_files.write_file(tmp_path, "a/b/c.txt", b"two")
    safe_files.append_file(tmp_path, "a/b/c.txt", b" three")
    safe_files.append_file(tmp_path, "new.txt", b"begun")
    assert safe_files.read_file(tmp_path, "a/b/c.txt") == b"two three"
    assert safe_files.read_file(tmp_path, "a/b/c.txt", 3, 4) == b"thr"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "c.txt", "new.txt"]


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(SandboxFileError):
        safe_files.write_file(tmp_path, "taken", b"x")
    with pytest.raises(SandboxFileError, match="not a file name"):
        safe_files.write_file(tmp_path, "a\0b", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_files_are_copied_in_and_out(tmp_path: Path) -> None:
    (tmp_path / "ours").write_bytes(b"x" * 3_000_000)
    (tmp_path / "root").mkdir()
    with (tmp_path / "ours").open("rb") as ours:
        assert safe_files.copy_in(tmp_path / "root", "in/a.bin", ours) == 3_000_000
    assert safe_files.copy_out(tmp_path / "root", "in/a.bin", tmp_path / "out", 3_000_000) == 3_000_000
    assert (tmp_path / "out").read_bytes() == b"x" * 3_000_000
    with pytest.raises(SandboxFileError, match=r"bigger than 1\.9 MB"):
        safe_files.copy_out(tmp_path / "root", "in/a.bin", tmp_path / "out2", 2_000_000)
    assert not (tmp_path / "out2").exists()


def test_a_file_that_has_more_than_its_size_says_is_refused(tmp_path: Path) -> None:
    """As one that grows while it is copied: files of /proc have 0 bytes until they are read."""
    with pytest.raises(SandboxFileError, match="bigger than"):
        safe_files.copy_out(Path("/proc/self"), "status", tmp_path / "out", 100)
    assert not (tmp_path / "out").exists()


def test_74_a_sparse_file_of_5_tb_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with open(tmp_path / "root" / "sparse", "wb") as file:
        try:
            file.truncate(5 << 40)
        except OSError:
            file.truncate(1 << 36)  # this file system does not support larger ones
    with pytest.raises(SandboxFileError, match=r"bigger than 50\.0 MB"):
        safe_files.copy_out(tmp_path / "root", "sparse", tmp_path / "out", 50 << 20)
    assert len(safe_files.read_file(tmp_path / "root", "sparse", 1000)) == 1000


def test_a_listing_is_bounded_and_empty_without_a_folder(tmp_path: Path) -> None:
    for i in range(30):
        safe_files.write_file(tmp_path, f"d{i % 3}/{i}", b"")
    left: list[str] = []

    def snapshot(root: Path, entries: int) -> int:
        return len(safe_files.list_files(root, WalkBounds(entries), lambda rel, _: left.append(rel)))

    assert snapshot(tmp_path, 100) == 30
    assert snapshot(tmp_path / "none", 100) == 0
    assert left == []
    assert snapshot(tmp_path, 10) == 7  # folders count, too
    assert left == ["d0/9"]


@pytest.mark.parametrize(
    ("given_name", "safe"),
    [
        ("../../x", "x"),
        ("C:\\temp\\a b.txt", "a b.txt"),
        ("", "file"),
        (".", "file"),
        ("..", "file"),
        ("...bashrc", "bashrc"),
        ("报告 最终.pdf", "报告 最终.pdf"),
        ("a\nb\x00c\x1b[31m.png", "a_b_c_[31m.png"),
        ("x" * 300 + ".tar", "x" * 116 + ".tar"),
        ("e\u0301.txt", "\u00e9.txt"),
        ("what?<>.txt", "what___.txt"),
        ("-rf", "-rf"),
        ("\u202egpj.exe", "_gpj.exe"),
    ],
)
def test_73_names_of_uploads_become_safe(given_name: str, safe: str) -> None:
    assert safe_files.safe_name(given_name) == safe


@given(st.text(max_size=400))
def test_73_every_name_becomes_one_path_component(name: str) -> None:
    safe = safe_files.safe_name(name)
    assert safe == safe_files.safe_name(safe)
    assert safe not in ("", ".", "..")
    assert not safe.startswith(".")
    assert safe.isprintable()
    assert "/" not in safe
    assert len(safe.encode()) <= 240


class Replacing(io.BytesIO):
    """A file, and each time that it is read, the folder of its copy is replaced by an empty one."""

    def __init__(self, data: bytes, folder: Path, times: int) -> None:
        super().__init__(data)
        self._folder, self._times = folder, times

    def read(self, size: int | None = -1, /) -> bytes:
        if self._times and (entries := list(self._folder.iterdir())):
            self._times -= 1
            for entry in entries:
                entry.unlink()
            self._folder.rmdir()
            self._folder.mkdir()
        return super().read(size)


@pytest.mark.parametrize("times", [1, 3])
def test_a_file_whose_folder_is_replaced_while_it_is_copied_arrives(tmp_path: Path, times: int) -> None:
    folder = tmp_path / "uploads"
    folder.mkdir()
    assert safe_files.copy_in(folder, "a.bin", Replacing(b"whole", folder, times)) == 5
    assert [each.name for each in folder.iterdir()] == ["a.bin"]
    assert (folder / "a.bin").read_bytes() == b"whole"


def test_73_the_same_name_twice_gets_a_number(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        name = safe_files.free_name(tmp_path, "a.tar")
        safe_files.write_file(tmp_path, name, b"")
        names.append(name)
    assert names == ["a.tar", "a-2.tar", "a-3.tar"]
    (tmp_path / "plain").symlink_to("/nowhere")
    assert safe_files.free_name(tmp_path, "plain") == "plain-2"


def test_existing_folders_are_kept(tmp_path: Path) -> None:
    safe_files.make_folders(tmp_path / "t")
    safe_files.write_file(tmp_path / "t" / "workspace", "a", b"")
    safe_files.make_folders(tmp_path / "t")
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["outputs", "uploads", "workspace"]
    assert (tmp_path / "t" / "workspace").stat().st_mode & 0o777 == 0o700
    assert safe_files.read_file(tmp_path / "t" / "workspace", "a") == b""


@pytest.mark.parametrize("opener", ["_openat2", "_open_by_component"])
def test_a_link_is_not_followed_though_it_stays_inside(tmp_path: Path, opener: str) -> None:
    """What it leads to can change between a check and the use."""
    safe_files.write_file(tmp_path, "real/file", b"x")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "file").symlink_to("real/file")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        os.close(getattr(safe_files, opener)(folder, "real/file", os.O_RDONLY))
        for link in ("folder/file", "file"):
            with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
                getattr(safe_files, opener)(folder, link, os.O_RDONLY)
    finally:
        os.close(folder)


OTHER_MOUNT = """
import os, subprocess, sys
from pathlib import Path
from sandbox.base import SandboxFileError
from sandbox.disk import safe_files
root = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "none", root / "mounted"], check=True)
(root / "mounted" / "file").write_text("of another file system")
for opener in (safe_files._openat2, safe_files._open_by_component):
    try:
        opener(os.open(root, os.O_RDONLY), "mounted/file", os.O_RDONLY)
    except OSError as error:
        print(os.strerror(error.errno))
"""


def test_a_mount_inside_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "mounted").mkdir()
    command = ["unshare", "--mount", "--map-root-user", sys.executable, "-c", OTHER_MOUNT, str(tmp_path)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare failed" in made.stderr or "mount" in made.stderr:
        pytest.skip("this machine forbids user namespaces")
    assert made.stdout.splitlines() == ["Invalid cross-device link"] * 2, made.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away: run the tests as root")
def test_root_gives_folders_and_files_to_their_owner(tmp_path: Path) -> None:
    safe_files.make_folders(tmp_path / "t")
    uploads = tmp_path / "t" / "uploads"
    safe_files.write_file(uploads, "d/before", b"")
    safe_files.make_folders(tmp_path / "t", 61_000)
    safe_files.write_file(uploads, "e/after", b"")
    assert {path.stat().st_uid for path in [uploads, *uploads.rglob("*")]} == {61_000}
    assert (tmp_path / "t").stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away: run the tests as root")
def test_a_file_of_several_names_changes_its_owner_with_its_folder_only_if_both_had_the_same(tmp_path: Path) -> None:
    safe_files.make_folders(tmp_path / "t", 61_000)
    uploads = tmp_path / "t" / "uploads"
    for name, owner in (("own", 61_000), ("another", 62_000)):
        (tmp_path / name).write_bytes(b"")
        os.chown(tmp_path / name, owner, owner)
        (uploads / name).hardlink_to(tmp_path / name)
    safe_files.make_folders(tmp_path / "t", 63_000)
    assert {name: (uploads / name).stat().st_uid for name in ("own", "another")} == {"own": 63_000, "another": 62_000}
