"""Contract of conversation folders, with and without a separate image each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.loop_images import LoopImageFolders, conversation_folders
from sandbox.disk.safe_files import make_folders, read_file, write_file
from tests.support.engines import need_images, unmounted


@pytest.fixture(params=["plain", "images"])
def folders(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConversationFolders]:
    if request.param == "plain":
        yield ConversationFolders(tmp_path / "threads", 16)
        return
    need_images()
    with unmounted(tmp_path):
        yield LoopImageFolders(tmp_path / "threads", 16, make=True)


async def test_stored_files_stay_until_the_folder_is_removed(folders: ConversationFolders) -> None:
    one, two = folders.root / "one", folders.root / "two"
    for folder in (one, two):
        async with folders.open_folder(folder) as bound:
            assert bound is isinstance(folders, LoopImageFolders)
            await asyncio.to_thread(make_folders, folder)
            await asyncio.to_thread(write_file, folder / "uploads", "note", folder.name.encode())
    assert folders.list_folders() == [one, two]
    await folders.release_folder(one)
    await folders.release_idle(0, keep=[two])
    async with folders.open_folder(one, writes=False), folders.open_folder(one):  # two who come at once
        assert read_file(one / "uploads", "note") == b"one"
        await folders.release_folder(one)  # not under them
        assert read_file(one / "uploads", "note") == b"one"
    await folders.remove_folder(one)
    assert folders.list_folders() == [two]
    assert not one.exists()
    async with folders.open_folder(one):
        await asyncio.to_thread(make_folders, one)
        assert not os.listdir(one / "uploads")
    for folder in (one, two):
        await folders.remove_folder(folder)
    assert not list(folders.root.iterdir())


async def test_the_next_process_can_use_the_folders(folders: ConversationFolders, tmp_path: Path) -> None:
    folder = folders.root / "one"
    async with folders.open_folder(folder):
        await asyncio.to_thread(make_folders, folder)
        await asyncio.to_thread(write_file, folder / "uploads", "note", b"kept")
    after = conversation_folders(folders.root, 16, images=False)  # the setting may have changed
    assert type(after) is type(folders)
    await after.adopt_leftovers()
    async with after.open_folder(folder):
        assert read_file(folder / "uploads", "note") == b"kept"
    await after.check(FilesOnlyProvider(tmp_path / "skills"))
    assert str(folders.description).startswith("16 MB of files each (")
    await after.remove_folder(folder)
