"""Sealed texts and files: they open under their keys alone, and not when something in them was changed."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from sandbox.disk.archive import Archive
from sandbox.disk.sealing import CHUNK_BYTES, HEADER_BYTES, SEALED_BYTES, NotOpened, Sealer
from sandbox.disk.unpacking import UnpackRefused, unpack_backup

OLD, NEW = "an-old-key-of-32-characters-or-more", "a-new-key-of-32-characters-or-more!"


def sealed(data: bytes, key: str = NEW) -> bytes:
    file = io.BytesIO()
    writer = Sealer([key]).writer(file)
    for begin in range(0, len(data), 300_001):
        writer.write(data[begin : begin + 300_001])
    writer.close()
    return file.getvalue()


def opened(data: bytes, *keys: str) -> bytes:
    return Sealer(keys or (NEW,)).reader(io.BytesIO(data)).read()


def test_a_text_opens_for_its_purpose_under_each_key() -> None:
    stored = Sealer([OLD]).seal("https://api.day.app/KEY", "bark")
    assert "KEY" not in stored
    assert stored != Sealer([OLD]).seal("https://api.day.app/KEY", "bark"), "equal texts look different"
    both = Sealer([NEW, OLD])
    assert both.open(stored, "bark") == "https://api.day.app/KEY"
    assert (both.is_current(stored), Sealer([OLD]).is_current(stored)) == (False, True)
    assert both.is_current(both.seal("x", "bark"))
    for sealer, text, purpose in (
        (Sealer([NEW]), stored, "bark"),
        (both, stored, "mcp:other"),
        (both, f"{stored[:-6]}AAAAAA", "bark"),
        (both, f"{stored[:30]}", "bark"),
        (Sealer(), stored, "bark"),
    ):
        with pytest.raises(NotOpened):
            sealer.open(text, purpose)


def test_without_a_key_texts_and_files_stay_as_they_are() -> None:
    plain, file = Sealer(), io.BytesIO(b"as it is")
    assert plain.seal("text", "bark") == plain.open("text", "bark") == "text"
    assert plain.writer(file) is file
    assert plain.reader(file).read() == Sealer([NEW]).reader(io.BytesIO(b"as it is")).read() == b"as it is"
    assert (plain.is_current("text"), Sealer([NEW]).is_current("text")) == (True, False)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3_000_000])
def test_a_file_opens_whole_and_at_any_place(size: int) -> None:
    data = os.urandom(size)
    stored = sealed(data)
    assert opened(stored, OLD, NEW) == data
    reader = Sealer([NEW]).reader(io.BytesIO(stored))
    for at in (size // 2, 0, max(0, size - 5)):
        reader.seek(at)
        assert reader.read(10) == data[at : at + 10]


def test_a_file_that_was_cut_swapped_or_changed_does_not_open() -> None:
    data = os.urandom(2 * CHUNK_BYTES + 100)
    stored = sealed(data)
    first, second = (stored[HEADER_BYTES + n * SEALED_BYTES :][:SEALED_BYTES] for n in (0, 1))
    head, rest = stored[:HEADER_BYTES], stored[HEADER_BYTES + 2 * SEALED_BYTES :]
    changed = bytearray(stored)
    changed[HEADER_BYTES + 5] ^= 1
    for broken in (
        stored[:-1],
        head + first + second,  # the last chunk is gone
        head + first,
        head,
        head + second + first + rest,
        bytes(changed),
        sealed(data)[:HEADER_BYTES] + stored[HEADER_BYTES:],  # the head of another file
    ):
        with pytest.raises(NotOpened):
            opened(broken)
    with pytest.raises(NotOpened):
        opened(stored, OLD)


def test_a_sealed_archive_is_unpacked_under_its_key_alone(tmp_path: Path) -> None:
    source, file = tmp_path / "source", tmp_path / "backup.tar.gz"
    source.mkdir()
    (source / "a").write_bytes(os.urandom(1_500_000))
    os.link(source / "a", source / "linked")
    (tmp_path / "fawn.db").write_text("the database")
    archive = Archive(file, Sealer([OLD]))
    archive.add_file(tmp_path / "fawn.db", "fawn.db")
    archive.add_folder(source, "threads")
    archive.finish()
    assert not tarfile.is_tarfile(file)
    for sealer, words in ((Sealer(), "another key"), (Sealer([NEW]), "another key")):
        with pytest.raises(UnpackRefused, match=words):
            unpack_backup(file, tmp_path, "fawn.db", ("threads",), sealer)
    (target := tmp_path / "target").mkdir()
    assert unpack_backup(file, target, "fawn.db", ("threads",), Sealer([NEW, OLD]))[0] == 2
    assert (target / "threads" / "linked").read_bytes() == (source / "a").read_bytes()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnpackRefused, match="was changed or cut"):
        unpack_backup(file, target, "fawn.db", ("threads",), Sealer([OLD]))
