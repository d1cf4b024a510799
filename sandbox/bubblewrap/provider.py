"""The local provider: one long-lived bubblewrap per thread, with the command server inside as PID 1.

New user, pid, network, ipc and uts namespaces, no capabilities, read-only /usr and skills, the three folders as real
binds, sized tmpfs for the rest, no network but its own loopback. No daemon and no root is needed; when the service is
root each sandbox is run by an unprivileged user of its own, so that no root stands behind it.
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
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import orjson

from sandbox import system_calls
from sandbox.base import FOLDERS, ROOT, SKILLS, WORKSPACE, Sandbox, SandboxGone, SandboxUnavailable
from sandbox.bubblewrap.cgroup import ControlGroup
from sandbox.bubblewrap.cgroup import make_control_group as make_group
from sandbox.bubblewrap.socket_dir import make_socket_dir
from sandbox.disk.removal import remove_tree
from sandbox.disk.safe_files import make_folders
from sandbox.inside.environment import HOME, SYSTEM
from sandbox.network.proxy import Ends
from sandbox.network.rules import SOCKET_FOLDER as DOOR
from sandbox.network.service import EgressService
from sandbox.pool import SandboxPool
from sandbox.settings import MAX_DESCRIPTORS, SOCKET_BUFFERS, SandboxSettings
from sandbox.users import SandboxUsers
from sandbox.wire.client import StreamSandbox
from sandbox.wire.connection import SERVER_COMMAND, prefix_size

log = logging.getLogger(__name__)

INSIDE_UID = "1000"  # user and group as seen inside
MAX_PARALLEL_STARTS = 8  # at once
SPARE_PROCESSES = (
    24  # processes of a control group that are not commands: bubblewrap, the server, what it keeps for itself
)
START_SECONDS = 30.0
HOST_FILES = ("alternatives", "ssl", "ld.so.cache", "localtime", "mime.types", "fonts")  # of /etc, all public
OWN_FILES = {
    "passwd": f"agent:x:{INSIDE_UID}:{INSIDE_UID}:agent:/home/agent:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/:/bin/false\n",
    "group": f"agent:x:{INSIDE_UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class ProcessStream:
    """A `Stream` over stdin and stdout of bubblewrap."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        if not (process.stdin and process.stdout and process.stderr):
            raise ValueError("the process was started without its three pipes")
        self._name = name
        self._process, self._in, self._out = process, process.stdin, process.stdout
        # Not Process.kill(): that looks for the exit status itself and can take it away from the loop's child watcher.
        self._handle = os.pidfd_open(process.pid)
        self.complaint = ""
        self._errors = asyncio.create_task(self._read_stderr(process.stderr), name=f"sandbox-stderr:{name}")

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        while data := await stderr.read(4096):
            self.complaint = (self.complaint + data.decode("utf-8", "replace"))[:2000]

    async def read(self) -> bytes:
        return await self._out.read(1 << 16)

    async def write(self, data: bytes) -> None:
        if self._in.is_closing():
            raise BrokenPipeError("bubblewrap has ended")
        self._in.write(data)
        await self._in.drain()

    async def close(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)  # with --die-with-parent everything inside goes too
            os.close(handle)
        if not self._in.is_closing():
            self._in.transport.abort()  # without what nobody takes any more
        await self._process.wait()
        await self._errors
        if self.complaint:
            log.warning("bubblewrap said: %s", self.complaint.strip(), extra={"sandbox": self._name})


class BubblewrapSandbox(StreamSandbox):
    """One bubblewrap."""

    def __init__(self, pipes: ProcessStream, name: str, settings: SandboxSettings, group: ControlGroup) -> None:
        super().__init__(pipes, name, settings)
        self._group = group

    async def kills(self) -> int:
        return await asyncio.to_thread(self._group.oom_kills)

    async def close(self) -> None:
        """End it, with all that runs in it."""
        await super().close()
        await asyncio.to_thread(self._group.remove)


class BubblewrapProvider:
    """See `SandboxProvider`."""

    name = "bubblewrap"
    runs_commands = True

    def __init__(self, settings: SandboxSettings, egress: EgressService | None = None) -> None:
        self._settings = settings
        self._scratch = None if egress else make_socket_dir()
        self._egress = egress or EgressService(settings.network, self._scratch or Path())
        self._pool = SandboxPool(self._start_sandbox, self._stop_sandbox, settings.live)
        self._starts = asyncio.Semaphore(MAX_PARALLEL_STARTS)
        self._users = SandboxUsers() if os.geteuid() == 0 else None
        self._options: list[str] | None = None

    async def check(self) -> None:
        """Run `true` in a sandbox. Raises SandboxUnavailable with the fix."""
        with tempfile.TemporaryDirectory(prefix="fawn-") as folder:
            try:
                async with self.acquire("check", Path(folder)) as sandbox:
                    result = await sandbox.run("true", timeout=20)
            except SandboxGone as error:
                raise SandboxUnavailable(f"A sandbox of bubblewrap stops at once: {error}") from error
            finally:
                await self.destroy("check")
        if result.exit_code != 0:
            raise SandboxUnavailable(f"bubblewrap starts but cannot run `true`: {result.output[:200]}")

    def acquire(self, key: str, folder: Path) -> AbstractAsyncContextManager[Sandbox]:
        """See `SandboxProvider.acquire`. Two who come at once get the same sandbox, started once."""
        return self._pool.acquire(key, folder)

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
        folders["door"] = str(await self._egress.open(key, owner))
        plan = await self._launch_plan(folders, owner)
        group = await asyncio.to_thread(
            make_group, settings.memory_mb, settings.processes + SPARE_PROCESSES, settings.cpus
        )
        process = await asyncio.create_subprocess_exec(
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
        except (SandboxGone, OSError) as error:  # a TimeoutError is one
            await sandbox.close()
            raise SandboxUnavailable(_explain_failure(pipes.complaint)) from error
        except asyncio.CancelledError:
            await sandbox.close()
            raise
        return sandbox

    async def _stop_sandbox(self, key: str, sandbox: BubblewrapSandbox | None) -> None:
        if sandbox:
            await sandbox.close()
        await self._egress.close(key)
        if self._users:
            self._users.release_user(key)

    def _prepare_folders(self, folder: Path, owner: int | None) -> dict[str, str]:
        """Make the thread's folders; gives what is to be bound, by name."""
        make_folders(folder, owner)
        folders = {name: str(folder.absolute() / name) for name in FOLDERS}
        if self._settings.skills.is_dir():
            folders["skills"] = str(self._settings.skills.resolve())
        return folders

    async def _launch_plan(self, folders: dict[str, str], owner: int | None) -> dict[str, object]:
        """For `sandbox.bubblewrap.launcher`."""
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
        argv += ["--ro-bind", "{door}", DOOR]
        for name in OWN_FILES:
            argv += ["--perms", "0644", "--file", f"{{{name}}}", f"/etc/{name}"]
        files = dict(OWN_FILES)
        if filter_ := system_calls.seccomp_program():
            files["calls"] = filter_.decode("latin-1")
            argv += ["--seccomp", "{calls}"]
        argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--clearenv"]
        for name, value in {"PATH": SYSTEM, **settings.network.environment()}.items():
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

    @asynccontextmanager
    async def dial(self, key: str, folder: Path, port: int) -> AsyncIterator[Ends]:
        """See `sandbox.disk.quota.PortDialer`."""
        async with self._pool.acquire(key, folder) as machine, self._egress.dial(key, machine, port) as ends:
            yield ends

    async def reap(self, idle: float) -> list[str]:
        """See `SandboxProvider.reap`."""
        return await self._pool.reap(idle)

    async def destroy(self, key: str) -> None:
        """See `SandboxProvider.destroy`."""
        await self._pool.stop_now(key)

    async def close(self) -> None:
        """See `SandboxProvider.close`."""
        await self._pool.close()
        await self._egress.aclose()
        if self._scratch:
            await asyncio.to_thread(remove_tree, self._scratch)


async def _machine_options() -> list[str]:
    """The part of the command line that depends on this machine: program, namespaces, system folders. Raises
    SandboxUnavailable when bubblewrap is not installed."""
    program = await asyncio.to_thread(shutil.which, "bwrap")
    if not program:
        raise SandboxUnavailable(
            "bubblewrap is not installed: `sudo apt install bubblewrap` (or your system's package manager)."
        )
    if not await asyncio.to_thread(shutil.which, "python3", path=SYSTEM):
        raise SandboxUnavailable("The sandbox needs Python below /usr: `sudo apt install python3`.")
    process = await asyncio.create_subprocess_exec(program, "--version", stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    version = tuple(map(int, re.findall(rb"\d+", said)[:2]))
    options = [program, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    options += [
        "--unshare-cgroup-try",
        "--uid",
        INSIDE_UID,
        "--gid",
        INSIDE_UID,
        "--hostname",
        "sandbox",
        "--cap-drop",
        "ALL",
    ]
    options += ["--die-with-parent", "--new-session", "--as-pid-1"]
    if version >= (0, 8):
        options += ["--disable-userns"]  # no namespaces inside namespaces: a large part of the kernel's attack surface
    return options + await asyncio.to_thread(_system_binds)


def _system_binds() -> list[str]:
    """The machine's programs and the few files of /etc that they need."""
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


def further_groups() -> list[str]:
    """The service's groups beside its first, which stay with bubblewrap's commands unless the service is root: the
    kernel lets nobody else leave them."""
    if os.geteuid() == 0:
        return []
    return sorted(_group_name(number) for number in set(os.getgroups()) - {os.getegid()})


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _counts_per_sandbox() -> bool:
    """RLIMIT_NPROC counts per user namespace since Linux 5.14; before, all processes of the user count."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (5, 14)


def _explain_failure(complaint: str) -> str:
    """Why bubblewrap did not start and what to do, in one sentence, from what can be seen of this machine."""
    if not complaint.startswith("bwrap:"):
        return f"bubblewrap could not be started: {_last_line(complaint)}."
    if _file_says("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
        return (
            "bubblewrap may not make namespaces because AppArmor forbids it (Ubuntu since 23.10): give /usr/bin/bwrap "
            "a profile with `userns,` as docs/security.md shows, or "
            "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`."
        )
    if _file_says("/proc/sys/kernel/unprivileged_userns_clone", "0"):
        return "bubblewrap may not make namespaces: `sudo sysctl -w kernel.unprivileged_userns_clone=1`."
    if _file_says("/proc/sys/user/max_user_namespaces", "0"):
        return "bubblewrap may not make namespaces: `sudo sysctl -w user.max_user_namespaces=10000`."
    if any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv")):
        return (
            "bubblewrap may not make namespaces in this container: start it with "
            "`--security-opt seccomp=unconfined --security-opt systempaths=unconfined` (on Ubuntu hosts also "
            "`--security-opt apparmor=unconfined`)."
        )
    return f"bubblewrap does not start here ({_last_line(complaint)}): try `bwrap --unshare-all --ro-bind / / true`."


def _last_line(complaint: str) -> str:
    """Its last line, without paths of the host."""
    lines = complaint.strip().splitlines() or ["no reason given"]
    return re.sub(r"/\S+", "…", lines[-1])[:200]


def _file_says(path: str, text: str) -> bool:
    try:
        return Path(path).read_text(encoding="ascii").strip() == text
    except OSError:
        return False
