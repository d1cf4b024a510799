"""The bubblewrap provider: one process per conversation.

The command server inside is PID 1. The sandbox has its own user, pid, network, ipc and uts namespaces, no
capabilities, a read-only /usr and /mnt/skills, the three folders as bind mounts, bounded tmpfs, and only a loopback
network. It needs neither a daemon nor root. If the service is root, each sandbox runs as its own unprivileged user.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import orjson

from catalogue import N_, LazyText
from sandbox import system_calls
from sandbox.base import (
    FOLDERS,
    NO_REASON,
    ROOT,
    SKILL_PACKAGES,
    SKILLS,
    WORKSPACE,
    SandboxGone,
    SandboxUnavailable,
    ShellCommand,
)
from sandbox.bubblewrap.cgroup import ControlGroup, make_control_group
from sandbox.bubblewrap.socket_dir import make_socket_dir
from sandbox.disk.folders import remove_tree
from sandbox.disk.safe_files import make_folders
from sandbox.disk.usage import run_helper
from sandbox.inside.environment import HOME, SYSTEM_PATH
from sandbox.network.service import EgressService
from sandbox.pool.pool import ConnectedPool
from sandbox.processes import start_process
from sandbox.rules import SOCKET_FOLDER
from sandbox.settings import MAX_DESCRIPTORS, SOCKET_BUFFERS, SandboxSettings
from sandbox.users import SandboxUsers, account_files
from sandbox.wire.client import StreamSandbox
from sandbox.wire.connection import SERVER_COMMAND, prefix_size, write_all

log = logging.getLogger(__name__)

INSIDE_UID = 1000  # user and group inside
MAX_PARALLEL_STARTS = 8
SPARE_PROCESSES = 24  # of a control group, for bubblewrap and the command server
START_SECONDS = 30.0
NO_NAMESPACES = N_("bubblewrap may not make namespaces: `sudo sysctl -w {setting}`.")
# In /etc; all are public. Without its own folder LibreOffice does not start.
HOST_FILES = ("alternatives", "ssl", "ld.so.cache", "localtime", "mime.types", "fonts", "libreoffice")
OWN_FILES = {
    **account_files(INSIDE_UID, INSIDE_UID),
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class ProcessStream:
    """A `ByteStream` over stdin and stdout of bubblewrap."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        if not (process.stdin and process.stdout and process.stderr):
            raise ValueError("the process was started without its three pipes")
        self._name = name
        self._process, self._in, self._out = process, process.stdin, process.stdout
        # Not Process.kill(): it may reap the process before the loop's child watcher does.
        self._handle = os.pidfd_open(process.pid)
        self.stderr = ""
        self._errors = asyncio.create_task(self._read_stderr(process.stderr), name=f"sandbox-stderr:{name}")

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        while data := await stderr.read(4096):
            self.stderr = (self.stderr + data.decode("utf-8", "replace"))[:2000]

    async def read(self) -> bytes:
        return await self._out.read(1 << 16)

    async def write(self, data: bytes) -> None:
        await write_all(self._in, data)

    async def close(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)  # --die-with-parent kills everything inside, too
            os.close(handle)
        if not self._in.is_closing():
            self._in.transport.abort()  # drop data that was not read
        await self._process.wait()
        await self._errors
        if self.stderr:
            log.warning("bubblewrap.stderr text=%s", self.stderr.strip(), extra={"sandbox": self._name})


class BubblewrapSandbox(StreamSandbox):
    """A sandbox in bubblewrap."""

    def __init__(self, pipes: ProcessStream, name: str, settings: SandboxSettings, group: ControlGroup) -> None:
        super().__init__(pipes, name, settings)
        self._group = group

    async def oom_kills(self) -> int:
        return await asyncio.to_thread(self._group.oom_kills)

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self._group.remove)


class BubblewrapProvider(ConnectedPool[BubblewrapSandbox]):
    """Runs sandboxes with bubblewrap. See `SandboxProvider`."""

    name = "bubblewrap"
    runs_commands = True

    def __init__(self, settings: SandboxSettings, egress: EgressService | None = None) -> None:
        self._scratch = None if egress else make_socket_dir()
        egress = egress or EgressService(settings.network, self._scratch or Path(), report=settings.report_egress)
        super().__init__(self._start_sandbox, self._stop_sandbox, settings.live, egress)
        self._settings = settings
        self._starts = asyncio.Semaphore(MAX_PARALLEL_STARTS)
        self._users = SandboxUsers() if os.geteuid() == 0 else None
        self._options: list[str] | None = None

    async def check(self) -> None:
        """Run `true` in a sandbox. Raises SandboxUnavailable with the fix."""
        with tempfile.TemporaryDirectory(prefix=f"fawn-{os.getpid()}-") as folder:  # `make_socket_dir` knows its name
            try:
                async with self.acquire("check", Path(folder)) as sandbox:
                    result = await sandbox.run(ShellCommand("true", timeout_seconds=20))
            except SandboxGone as error:
                raise SandboxUnavailable(N_("A sandbox of bubblewrap stops at once: {error}"), error=error) from error
            finally:
                await self.destroy("check")
        if result.exit_code != 0:
            raise SandboxUnavailable(
                N_("bubblewrap starts but cannot run `true`: {output}"), output=result.output[:200]
            )

    async def _start_sandbox(self, key: str, folder: Path) -> BubblewrapSandbox:
        async with self._starts:
            owner = await asyncio.to_thread(self._users.assign_user, key, folder) if self._users else None
            try:
                return await self._launch_process(key, folder, owner)
            except BaseException:
                await self._stop_sandbox(key, None)
                raise

    async def _launch_process(self, key: str, folder: Path, owner: int | None) -> BubblewrapSandbox:
        settings = self._settings
        folders = await asyncio.to_thread(self._prepare_folders, folder, owner)
        folders["egress"] = str(await self._egress.open_proxy(key, owner))
        plan = await self._launch_plan(folders, owner)
        processes = settings.processes + SPARE_PROCESSES
        group = await asyncio.to_thread(make_control_group, settings.memory_mb, processes, settings.cpus)
        process = await start_process(
            sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py")),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.defpath},
        )  # fmt: skip
        pipes = ProcessStream(process, key)
        sandbox = BubblewrapSandbox(pipes, key, settings, group)
        try:
            async with asyncio.timeout(START_SECONDS):
                await pipes.write(prefix_size(orjson.dumps({**plan, "groups": group.join_files})))
                await sandbox.start(settings.processes if _counts_per_sandbox() else 0)
        except (SandboxGone, OSError) as error:  # includes TimeoutError
            await sandbox.close()
            raise explain_failure(pipes.stderr) from error
        except asyncio.CancelledError:
            await sandbox.close()
            raise
        return sandbox

    async def _stop_sandbox(self, key: str, sandbox: BubblewrapSandbox | None) -> None:
        if sandbox:
            await sandbox.close()
        await self._egress.close_proxy(key)
        if self._users:
            self._users.release_user(key)

    def _prepare_folders(self, folder: Path, owner: int | None) -> dict[str, str]:
        """Make the conversation's folders. Returns the paths to mount, by name."""
        make_folders(folder, owner)
        folders = {name: str(folder.absolute() / name) for name in FOLDERS}
        if self._settings.skills.is_dir():
            folders["skills"] = str(self._settings.skills.resolve())
        if self._settings.skill_packages and self._settings.skill_packages.is_dir():
            folders["skill_packages"] = str(self._settings.skill_packages.resolve())
        return folders

    async def _launch_plan(self, folders: dict[str, str], owner: int | None) -> dict[str, object]:
        """Build the plan for `sandbox.bubblewrap.launcher`."""
        settings = self._settings
        if self._options is None:
            self._options = await _machine_options()
        argv = [*self._options[1:], "--proc", "/proc", "--dev", "/dev", "--dir", SKILLS, "--dir", ROOT]
        for place, part in (("/tmp", 1), (HOME, 4), ("/dev/shm", 4)):  # noqa: S108  inside the sandbox
            argv += ["--perms", "1777", "--size", str((settings.tmp_mb << 20) // part), "--tmpfs", place]
        for name in FOLDERS:
            argv += ["--bind", f"{{{name}}}", f"{ROOT}/{name}"]
        if "skills" in folders:
            argv += ["--ro-bind", "{skills}", SKILLS]
        if "skill_packages" in folders:
            argv += ["--ro-bind", "{skill_packages}", SKILL_PACKAGES]
        argv += ["--ro-bind", "{egress}", SOCKET_FOLDER]
        for name in OWN_FILES:
            argv += ["--perms", "0644", "--file", f"{{{name}}}", f"/etc/{name}"]
        files = dict(OWN_FILES)
        if filter_ := system_calls.seccomp_program():
            files["calls"] = filter_.decode("latin-1")
            argv += ["--seccomp", "{calls}"]
        argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--clearenv"]
        for name, value in {"PATH": SYSTEM_PATH, **settings.network.environment()}.items():
            argv += ["--setenv", name, value]
        return {
            "argv": [self._options[0], "--args", "{arguments}", "--", *SERVER_COMMAND],
            "arguments": [*argv, "--chdir", WORKSPACE],
            "folders": folders,
            "files": files,
            "user": owner or 0,
            "limits": {
                "RLIMIT_FSIZE": settings.file_mb << 20,
                "RLIMIT_DATA": settings.memory_mb << 20,
                "RLIMIT_NOFILE": MAX_DESCRIPTORS,
                "RLIMIT_CORE": 0,
            },
            "network": SOCKET_BUFFERS,
        }

    async def close(self) -> None:
        await super().close()
        if self._scratch:
            await asyncio.to_thread(remove_tree, self._scratch)


async def _machine_options() -> list[str]:
    """Build the options that depend only on this machine. Raises SandboxUnavailable without bubblewrap or Python."""
    program = await asyncio.to_thread(shutil.which, "bwrap")
    if not program:
        raise SandboxUnavailable(
            N_("bubblewrap is not installed: `sudo apt install bubblewrap` (or your system's package manager).")
        )
    if not await asyncio.to_thread(shutil.which, "python3", path=SYSTEM_PATH):
        raise SandboxUnavailable(N_("The sandbox needs Python below /usr: `sudo apt install python3`."))
    said, _errors = await run_helper(program, "--version")
    version = tuple(map(int, re.findall(rb"\d+", said)[:2]))
    options = [program, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    options += ["--uid", str(INSIDE_UID), "--gid", str(INSIDE_UID), "--hostname", "sandbox", "--cap-drop", "ALL"]
    options += ["--die-with-parent", "--new-session", "--as-pid-1"]
    if version >= (0, 8):
        options += ["--disable-userns"]  # nested namespaces expose much of the kernel
    return options + await asyncio.to_thread(system_binds)


def system_binds() -> list[str]:
    """Mount the machine's programs and the few files of /etc that they need."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        top = Path("/", name)
        if top.is_symlink():
            options += ["--symlink", str(top.readlink()), str(top)]
        elif top.is_dir():
            options += ["--ro-bind", str(top), str(top)]
    for name in HOST_FILES:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return options


def supplementary_groups() -> list[str]:
    """List groups that commands keep, because the kernel lets only root drop them."""
    if os.geteuid() == 0:
        return []
    names = []
    for number in set(os.getgroups()) - {os.getegid()}:
        try:
            names.append(grp.getgrgid(number).gr_name)
        except KeyError:
            names.append(str(number))
    return sorted(names)


def _counts_per_sandbox() -> bool:
    """RLIMIT_NPROC counts per user namespace since Linux 5.14, before that per user."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (5, 14)


def explain_failure(complaint: str, root: Path = Path("/")) -> SandboxUnavailable:
    """Return the error that says why bubblewrap did not start on the machine at `root`, and how to fix that."""
    reason = _last_line(complaint)
    if not complaint.startswith("bwrap:"):
        return SandboxUnavailable(N_("bubblewrap could not be started: {reason}."), reason=reason)
    if _file_contains(root / "proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
        return SandboxUnavailable(
            N_(
                "bubblewrap may not make namespaces because AppArmor forbids it (Ubuntu since 23.10): give"
                " /usr/bin/bwrap a profile with `userns,` in /etc/apparmor.d/bwrap, as docs/security.md shows, or"
                " `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`."
            )
        )
    if _file_contains(root / "proc/sys/kernel/unprivileged_userns_clone", "0"):
        return SandboxUnavailable(NO_NAMESPACES, setting="kernel.unprivileged_userns_clone=1")
    if _file_contains(root / "proc/sys/user/max_user_namespaces", "0"):
        return SandboxUnavailable(NO_NAMESPACES, setting="user.max_user_namespaces=10000")
    if any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv")):
        return SandboxUnavailable(
            N_(
                "bubblewrap may not make namespaces in this container: start it with"
                " `--security-opt seccomp=unconfined --security-opt systempaths=unconfined` (on Ubuntu hosts also"
                " `--security-opt apparmor=unconfined`)."
            )
        )
    text = N_("bubblewrap does not start here ({reason}): try `bwrap --unshare-all --ro-bind / / true`.")
    return SandboxUnavailable(text, reason=reason)


def _last_line(complaint: str) -> LazyText | str:
    """Return the last line of bubblewrap's own, without host paths: advice with addresses may follow it."""
    lines = complaint.strip().splitlines()
    lines = [line for line in lines if line.startswith("bwrap:")] or lines
    return re.sub(r"/\S+", "…", lines[-1])[:200] if lines else LazyText(NO_REASON)


def _file_contains(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="ascii").strip() == text
    except OSError:
        return False
