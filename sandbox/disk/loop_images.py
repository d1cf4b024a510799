"""A file system per conversation: an ext4 image, mounted while it is in use.

The kernel enforces its size. This needs root. At rest an image takes only the space of its content. Before a mount for
writing, its full size is allocated, because a full host disk would lose writes without an error. Existing folders
without an image stay plain.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import secrets
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from catalogue import N_, LazyText
from sandbox.base import OUTPUTS, SandboxError, SandboxProvider, SandboxUnavailable
from sandbox.disk.file_threads import run_mount_work
from sandbox.disk.folders import LINGER_SECONDS, ConversationFolders
from sandbox.disk.removal import remove_tree

log = logging.getLogger(__name__)

PROBE_MB = 16
SPARE_SHARE = 20  # one part in so many of the disk is never allocated to images: the service needs it
PROGRAM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
SUFFIX, DRAFT = ".img", ".draft"
# One inode per 8 KiB; a small journal, so that a power cut loses only the last seconds.
MKFS_OPTIONS = ("-q", "-F", "-m", "0", "-i", "8192", "-J", "size=4")
FSCK_OPTIONS = ("-f", "-E", "discard")
MOUNT_OPTIONS = "loop,nosuid,nodev,noatime,noinit_itable"
DISK_UNAVAILABLE = N_(
    "The disk of this conversation cannot be mounted. Nothing was deleted; the operator finds the reason in the log."
)


@dataclass(slots=True)
class _FolderUse:
    """The number of users of a folder, and when the last one left."""

    users: int = 0
    since: float = field(default_factory=time.monotonic)


class LoopImageFolders(ConversationFolders):
    """Folders in images. With `make`, new ones get an image of `size_mb`; existing images are always mounted."""

    def __init__(self, root: Path, size_mb: int, *, make: bool) -> None:
        super().__init__(root, size_mb)
        self.make = make
        self._uses: dict[Path, _FolderUse] = {}
        self._space_lock = threading.Lock()

    @property
    def description(self) -> LazyText:
        if not self.make:
            return super().description
        return LazyText(N_("{size} MB of files each (in an image)"), size=self.size >> 20)

    @asynccontextmanager
    async def open_folder(self, folder: Path, *, writes: bool = True) -> AsyncIterator[bool]:
        use = self._uses.setdefault(folder, _FolderUse())
        use.users += 1
        try:
            yield await run_mount_work(self._mount_image, folder, writes)
        finally:
            use.users -= 1
            use.since = time.monotonic()

    def list_folders(self) -> list[Path]:
        """See `ConversationFolders.list_folders`. Includes images that are not mounted."""
        links = set(self.list_links())
        named = (path for path in self.root.glob("*") if path.suffix in ("", SUFFIX) and path not in links)
        return sorted({path.with_suffix("") for path in named} - links)

    async def adopt_leftovers(self) -> None:
        for folder in await run_mount_work(self._leftover_folders):
            self._uses.setdefault(folder, _FolderUse())

    async def release_idle(self, idle: float = LINGER_SECONDS, keep: Collection[Path] = ()) -> None:
        """See `ConversationFolders.release_idle`. Also frees the space that an image does not need."""
        before = time.monotonic() - idle
        unused = [folder for folder, use in self._uses.items() if use.since <= before and folder not in keep]
        await asyncio.gather(*map(self.release_folder, unused))

    async def release_folder(self, folder: Path) -> None:
        use = self._uses.get(folder)
        if use is None:
            return
        since = use.since
        if await run_mount_work(_unmount_if_idle, folder, use) and not use.users and use.since == since:
            self._uses.pop(folder, None)

    async def remove_folder(self, folder: Path) -> bool:
        self._uses.pop(folder, None)
        return await run_mount_work(_unmount_and_remove, folder)

    async def check(self, provider: SandboxProvider) -> None:
        if not self.make:
            return
        other = "`sandbox: {disk: measured}`"
        if os.geteuid() != 0:
            text = N_("Disk images need root (`sandbox.disk: images`): run Fawn as root, or set {other}.")
            raise SandboxUnavailable(text, other=other)
        key = f"check-{secrets.token_hex(8)}"
        folder = self.root / key
        probe = LoopImageFolders(self.root, PROBE_MB, make=True)
        try:
            async with probe.open_folder(folder), provider.acquire(key, folder) as sandbox:
                await sandbox.write(f"{OUTPUTS}/seen", b"seen")
                seen = await run_mount_work((folder / "outputs" / "seen").exists)
        except SandboxError as error:
            cause = error.__cause__
            reason = str(cause.strerror if isinstance(cause, OSError) else error).partition("\n")[0]
            text = N_("Disk images do not work here ({reason}). Fix that, or set {other}.")
            reason = reason.replace(str(folder), "…").removesuffix(".")
            raise SandboxUnavailable(text, reason=reason, other=other) from error
        finally:
            await provider.destroy(key)
            await probe.remove_folder(folder)
        if not seen:
            raise SandboxUnavailable(N_("Sandboxes do not see the disks that Fawn mounts: set {other}."), other=other)

    def _mount_image(self, folder: Path, writes: bool) -> bool:
        plain = folder.exists()  # checked first: an image is made before its folder
        image = _image_path(folder)
        try:
            if not image.exists():
                if plain or not self.make:
                    return False
                self._create_image(image)
            with _locked_image(image) as fd:
                if not os.path.ismount(folder):
                    self._attach_image(folder, image, fd, writes)
                elif writes:
                    self._reserve_space(fd)
                return os.fstat(fd).st_size <= self.size
        except OSError as error:
            log.error("disk.closed image=%s reason=%s", image, error)  # noqa: TRY400  the reason is enough
            if error.errno == errno.ENOSPC:
                text = N_(
                    "This machine does not have {size} MB of free disk space for this conversation. Nothing was"
                    " deleted; the operator has to free some."
                )
                raise SandboxError(text, size=self.size >> 20) from error
            raise SandboxError(DISK_UNAVAILABLE) from error

    def _create_image(self, image: Path) -> None:
        """Make an empty image. Concurrent callers get the same one."""
        image.parent.mkdir(parents=True, exist_ok=True)
        fd, draft = tempfile.mkstemp(DRAFT, dir=image.parent)
        try:
            os.truncate(fd, self.size)
            _run_program("mkfs.ext4", *MKFS_OPTIONS, draft)
            with suppress(FileExistsError):
                os.link(draft, image)
        finally:
            os.close(fd)
            os.unlink(draft)

    def _attach_image(self, folder: Path, image: Path, fd: int, writes: bool) -> None:
        folder.mkdir(mode=0o711, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError(errno.EEXIST, "files lie where the image belongs: move them away", str(folder))
        # If a container that outlived the service uses the image, the same device is mounted again.
        if not _is_attached(image, fd):
            _repair_image(image, fd)
            if _formatted_bytes(fd) < self.size:
                _repair_image(image, fd, "-f")
                os.truncate(fd, self.size)
                _run_program("resize2fs", str(image), fd=fd)
            if writes:
                self._reserve_space(fd)
        _run_program("mount", "-o", MOUNT_OPTIONS, str(image), str(folder), fd=fd)
        folder.chmod(0o711)

    def _reserve_space(self, fd: int) -> None:
        """Allocate the image's full size. Raises OSError if that would leave the disk too little."""
        with self._space_lock:
            disk, image = os.fstatvfs(fd), os.fstat(fd)
            missing = image.st_size - image.st_blocks * 512
            if missing > 0:
                if (disk.f_bavail - disk.f_blocks // SPARE_SHARE) * disk.f_frsize < missing:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.posix_fallocate(fd, 0, image.st_size)

    def _leftover_folders(self) -> list[Path]:
        for draft in self.root.glob(f"*{DRAFT}"):
            draft.unlink(missing_ok=True)
        found = [(image, image.with_suffix("")) for image in self.root.glob(f"*{SUFFIX}")]
        return [folder for image, folder in found if os.path.ismount(folder) or _is_fully_allocated(image)]


def conversation_folders(root: Path, size_mb: int, *, images: bool) -> ConversationFolders:
    """Return the folders; without `images`, new ones stay plain, but existing images are still mounted."""
    if images or any(root.glob(f"*{SUFFIX}")):
        return LoopImageFolders(root, size_mb, make=images)
    return ConversationFolders(root, size_mb)


def _unmount_if_idle(folder: Path, use: _FolderUse) -> bool:
    """Unmount an image and free its unused space. Returns whether nothing is left to do."""
    image = _image_path(folder)
    if not image.exists():
        return True
    with _locked_image(image) as fd:
        if use.users:
            return False
        try:
            if os.path.ismount(folder):
                _run_program("umount", str(folder), fd=fd)
            if _is_attached(image, fd):
                return False
        except OSError as error:
            log.warning("disk.busy folder=%s reason=%s", folder, error)  # the next release tries again
            return False
        try:
            if _is_fully_allocated(image):
                _repair_image(image, fd, *FSCK_OPTIONS)
        except OSError as error:
            log.error("disk.damaged image=%s reason=%s", image, error)  # noqa: TRY400  the reason is enough
        return True


def _unmount_and_remove(folder: Path) -> bool:
    with suppress(FileNotFoundError), _locked_image(_image_path(folder)) as fd:
        if os.path.ismount(folder):
            _run_program("umount", "--lazy", str(folder), fd=fd)
        _image_path(folder).unlink()
    return not remove_tree(folder)


def _image_path(folder: Path) -> Path:
    return folder.with_name(folder.name + SUFFIX)


@contextmanager
def _locked_image(image: Path) -> Iterator[int]:
    """Open and lock an image, also against helper programs of a killed service."""
    with image.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _run_program(program: str, *arguments: str, fd: int = -1, good: Collection[int] = (0,)) -> str:
    """Run a program that inherits `fd` and thus its lock. Returns its output. Raises OSError if it fails."""
    try:
        done = subprocess.run(
            [program, *arguments], env={"PATH": PROGRAM_PATH, "LC_ALL": "C"}, pass_fds=[fd] if fd >= 0 else [],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        )  # fmt: skip
    except FileNotFoundError as error:
        raise OSError(errno.ENOENT, f"{program} is missing: apt install mount e2fsprogs") from error
    if done.returncode not in good:
        raise OSError(errno.EIO, (done.stderr + done.stdout).strip()[-500:] or f"{program} failed")
    return done.stdout


def _is_attached(image: Path, fd: int) -> bool:
    """Whether a loop device uses it, perhaps for a mount in another namespace."""
    return bool(_run_program("losetup", "-j", str(image), fd=fd))


def _repair_image(image: Path, fd: int, *options: str) -> None:
    """Repair what does not need a decision. Raises OSError."""
    _run_program("e2fsck", "-p", *options, str(image), fd=fd, good=(0, 1))


def _is_fully_allocated(image: Path) -> bool:
    status = image.stat()
    return status.st_blocks * 512 >= status.st_size


def _formatted_bytes(fd: int) -> int:
    """Read the size of an ext4 file system from its superblock."""
    blocks, scale = struct.unpack("<4xI16xI", os.pread(fd, 28, 1024))
    return int(blocks << (10 + scale))
