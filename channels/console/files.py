"""Files of the console: those that a person names are copied for the service, those of the agent are saved."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from agent.messages import Attachment
from catalogue import N_, _
from channels.base import OutgoingFile, Refused, TryLater
from channels.console.view import human_size, strip_controls
from channels.shared.files import CHUNK

MAX_FILES = 10  # of one message
KEEP_UPLOADS_SECONDS = 7 * 86400.0  # a message may wait that long for its turn

MISSING = N_("There is no file {path}, so nothing was sent. To send the words as they are, write the @ in quotes.")
NO_FILE = N_("There is no file {path}, so nothing was sent.")
NOT_A_FILE = N_("{path} is not a file, so nothing was sent.")
TOO_BIG = N_("{path} has more than {limit} MB, so nothing was sent.")
TOO_MANY = N_("A message can have {limit} files, so nothing was sent.")
NOT_COPIED = N_("{path} could not be read ({reason}), so nothing was sent.")

_PATH = r"""(?:"[^"\n]+"|'[^'\n]+'|(?:\\.|[^\s\\])+)"""
_NAMED = re.compile(rf"(?<!\S)@({_PATH})")
_DROPPED = re.compile(rf"\s*({_PATH})(?=\s|$)")
_LOOKS_LIKE_A_PATH = re.compile(r"[~.]{0,2}/|.*\.\w{1,8}$")


class NotSent(Exception):
    """A file of a message cannot be sent; the text says why."""


def find_files(text: str) -> tuple[str, list[Path]]:
    """Return the text with names in place of paths, and the files: each `@path`, and paths at the beginning, which a
    terminal types when a file is dropped on it. Raises NotSent for an `@path` that does not exist."""
    files: list[Path] = []

    def take(path: Path) -> str:
        files.append(path)
        return path.name

    beginning = ""
    while (dropped := _DROPPED.match(text)) and (path := _as_path(dropped[1])).is_absolute() and _exists(path):
        beginning, text = f"{beginning}{take(path)} ", text[dropped.end() :]

    def replace(found: re.Match[str]) -> str:
        path = _as_path(found[1])
        if _exists(path):
            return take(path)
        if _LOOKS_LIKE_A_PATH.fullmatch(found[1].strip("'\"")) or found[1].startswith(("/", "~/", "./", "../")):
            raise NotSent(_(NOT_A_FILE if path.exists() else MISSING, path=path))
        return found[0]  # a mention

    return (beginning + _NAMED.sub(replace, text).lstrip()).strip() if beginning else _NAMED.sub(replace, text), files


def _as_path(typed: str) -> Path:
    if typed[0] in "'\"":
        typed = typed[1:-1]
    elif typed.startswith("file://"):
        typed = unquote(urlsplit(typed).path)
    else:
        typed = re.sub(r"\\(.)", r"\1", typed)
    return Path(os.path.expanduser(typed))


def _exists(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):  # too long, or not a name at all
        return False


def stage_files(paths: list[Path], folder: Path, limit_mb: int) -> tuple[Attachment, ...]:
    """Copy files to `folder`, where the service reads them when the turn begins. Raises NotSent."""
    if len(paths) > MAX_FILES:
        raise NotSent(_(TOO_MANY, limit=MAX_FILES))
    for path in paths:
        if not _exists(path):
            raise NotSent(_(NO_FILE, path=path))
        if path.stat().st_size > limit_mb << 20:
            raise NotSent(_(TOO_BIG, path=path, limit=limit_mb))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_old_copies(folder)
    return tuple([_stage(path, folder) for path in paths])


def stage_text(text: str, name: str, folder: Path) -> Attachment:
    """Do the same for a text. Raises NotSent."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as own:
        path = Path(own) / name
        path.write_text(text, encoding="utf-8")
        return _stage(path, folder)


def _stage(path: Path, folder: Path) -> Attachment:
    copy = folder / uuid4().hex
    try:
        copy.touch(mode=0o600)
        shutil.copyfile(path, copy)
        owner = folder.stat()
        if os.geteuid() == 0 and owner.st_uid:  # root on a console of the service's own user
            os.chown(copy, owner.st_uid, owner.st_gid)
    except OSError as error:
        copy.unlink(missing_ok=True)
        raise NotSent(_(NOT_COPIED, path=path, reason=error.strerror)) from None
    mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Attachment(copy.name, path.name, mime, copy.stat().st_size, "image" if mime.startswith("image/") else "file")


def _remove_old_copies(folder: Path) -> None:
    for copy in folder.iterdir():
        if copy.stat().st_mtime < time.time() - KEEP_UPLOADS_SECONDS:
            copy.unlink(missing_ok=True)


async def read_staged(attachment: Attachment, folder: Path) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a staged file. Raises Refused where it does not exist any more."""
    try:
        file: BinaryIO = await asyncio.to_thread((folder / Path(attachment.ref).name).open, "rb")
    except OSError:
        raise Refused(_("does not exist any more; please send it again")) from None
    with file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk


def save_download(file: OutgoingFile, folder: Path) -> Path:
    """Copy a file to `folder` under a free name. Raises Refused or TryLater."""
    name = Path(strip_controls(file.name).replace("\n", " ")).name or "file"
    stem, suffix = Path(name).stem, Path(name).suffix
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            path = folder / (name if number == 1 else f"{stem}-{number}{suffix}")
            try:
                with path.open("xb") as target, file.path.open("rb") as source:
                    shutil.copyfileobj(source, target)
                return path.resolve()
            except FileExistsError:
                continue
    except PermissionError:
        raise Refused(_("the folder {folder} is not writable", folder=folder)) from None
    except OSError as error:
        raise TryLater(f"the file could not be saved: {error.strerror}", 5.0) from None
    raise Refused(_("the folder {folder} has too many files called {name}", folder=folder, name=name))


def describe_download(file: OutgoingFile, place: str) -> str:
    """Return a line about a saved file, with its caption."""
    name, size = strip_controls(file.name), human_size(file.size)
    line = _("File: {name} ({size}) → {path}", name=name, size=size, path=place)
    return f"{line} — {strip_controls(file.caption)}" if file.caption else line


def short_path(path: Path) -> str:
    """Return a path relative to the working directory, where it is below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
