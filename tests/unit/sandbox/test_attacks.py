"""Attacks from inside a sandbox, and races against host access."""

from __future__ import annotations

import asyncio
import os
import socket
import tarfile
import threading
import time
from pathlib import Path

import pytest

from sandbox.base import OUTPUTS, UPLOADS, WORKSPACE, Sandbox, SandboxFileError, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk import safe_files
from sandbox.disk.archive import Archive
from sandbox.inside.search import WalkBounds
from tests.fakes.server import until

BOUNDS = WalkBounds()


async def out(sandbox: Sandbox, command: str, timeout: float = 20) -> str:
    return (await sandbox.run(ShellCommand(command, timeout_seconds=timeout))).output


# ---------------------------------------------------------------- visibility and write access


async def test_commands_have_no_privileges(sandbox: Sandbox) -> None:
    status = await out(sandbox, "grep -E '^(Cap(Eff|Prm|Bnd)|NoNewPrivs)' /proc/self/status")
    assert status.split() == ["CapPrm:", "0" * 16, "CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    for forbidden in ("unshare -U true", "unshare -n true", "mount -t tmpfs x /mnt", "mknod /tmp/m c 1 3", "chroot /"):
        assert (await sandbox.run(ShellCommand(forbidden))).exit_code != 0, forbidden


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user to run sandboxes as: run the tests as root")
async def test_commands_never_run_as_host_root(sandbox: Sandbox, folder: Path) -> None:
    await sandbox.write(f"{OUTPUTS}/a", b"x")
    assert (folder / "outputs" / "a").stat().st_uid != 0
    secret = folder.parent / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    assert "0" not in (await out(sandbox, "cut -f1 /proc/self/loginuid; id -u")).split()


async def test_the_host_is_invisible(sandbox: Sandbox, folder: Path) -> None:
    assert set((await out(sandbox, "ls /")).split()) <= {
        "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "mnt", "proc", "run", "sbin", "tmp", "usr",
    }  # fmt: skip
    assert await out(sandbox, f"ls {folder} /root /var /sys /opt /srv 2>/dev/null") == ""
    assert await out(sandbox, "find /run") == "/run\n/run/fawn\n/run/fawn/egress.sock\n"
    assert await out(sandbox, "cat /etc/shadow 2>/dev/null") == ""
    assert await out(sandbox, "cat /etc/passwd | cut -d: -f1") == "agent\nnobody\n"
    assert "FAWN" not in await out(sandbox, "env")
    async with asyncio.timeout(60):  # the last ones may still be ending
        while int(await out(sandbox, "ls -d /proc/[0-9]* 2>/dev/null | wc -l")) >= 10:
            pass


async def test_the_server_cannot_be_inspected_or_killed(sandbox: Sandbox) -> None:
    assert (
        await out(sandbox, "cat /proc/1/environ /proc/1/mem 2>/dev/null; ls /proc/1/fd /proc/1/root 2>/dev/null") == ""
    )
    assert await out(sandbox, "kill -9 1; kill -STOP 1; kill -INT 1; kill -TERM 1; kill -9 -1; echo alive") != ""
    assert await out(sandbox, "echo still") == "still\n"


@pytest.mark.parametrize("place", ["/usr/bin/x", "/x", "/etc/passwd", "/dev/x", "/mnt/x", "/mnt/skills/SKILL.md"])
async def test_only_the_folders_are_writable(sandbox: Sandbox, place: str) -> None:
    assert (await sandbox.run(ShellCommand(f"echo evil > {place}"))).exit_code != 0
    assert (await sandbox.run(ShellCommand(f"rm -f {place}; touch {place}"))).exit_code != 0
    assert await out(sandbox, "cat /mnt/skills/SKILL.md") == "# A skill\n"


async def test_the_three_folders_cannot_be_replaced(sandbox: Sandbox) -> None:
    assert (await sandbox.run(ShellCommand("cd /; mv /mnt/user-data/uploads /mnt/user-data/u2"))).exit_code != 0
    assert (
        await sandbox.run(ShellCommand("cd /; rm -rf /mnt/user-data/uploads; ln -sT /etc /mnt/user-data/uploads"))
    ).exit_code != 0
    assert (await sandbox.stat(UPLOADS)).folder


async def test_the_only_network_is_its_loopback(sandbox: Sandbox) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104  reachable on every address of this host
        port = server.getsockname()[1]
        try_all = (
            "import socket\n"
            "for host in ('127.0.0.1', '10.0.2.2', '172.17.0.1', '169.254.169.254', '1.1.1.1', 'example.com'):\n"
            f"    for port in ({port}, 80):\n"
            "        try: socket.create_connection((host, port), 1); print('REACHED', host)\n"
            "        except OSError: pass\n"
            "print([name for _, name in socket.if_nameindex()])"
        )
        assert await out(sandbox, f'python3 -c "{try_all}"') == "['lo']\n"


# ---------------------------------------------------------------- resource limits


async def test_a_fork_bomb_times_out_and_the_sandbox_survives(sandbox: Sandbox) -> None:
    result = await sandbox.run(ShellCommand(":(){ :|:& };: ; sleep 30", timeout_seconds=1))
    assert result.timed_out
    assert await out(sandbox, "echo works") == "works\n"


async def test_leftover_processes_up_to_the_limit_can_be_killed(sandbox: Sandbox) -> None:
    await sandbox.run(ShellCommand("for i in $(seq 60); do sleep 500 & done"))
    await sandbox.write(f"{WORKSPACE}/a", b"files still work")
    # No process can be started any more, so the shell itself has to do it.
    everybody = "for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = $$ ] || kill -9 $p 2>/dev/null; done; echo done"
    assert await out(sandbox, everybody) == "done\n"
    async with asyncio.timeout(60):  # the last ones may still be ending
        while int(await out(sandbox, "ls -d /proc/[0-9]* 2>/dev/null | wc -l")) >= 10:
            pass


async def test_process_memory_is_limited(sandbox: Sandbox) -> None:
    assert "MemoryError" in await out(sandbox, "python3 -c 'x = bytearray(300 << 20)' 2>&1")
    assert await out(sandbox, "python3 -c 'x = bytearray(100 << 20); print(1)'") == "1\n"


@pytest.mark.parametrize("place", ["/tmp", "/home/agent", "/dev/shm"])
async def test_tmpfs_size_is_limited(sandbox: Sandbox, place: str) -> None:
    told = await out(sandbox, f"for i in 1 2 3 4; do head -c 7M /dev/zero > {place}/$i; done; du -sm {place} | cut -f1")
    assert "No space left" in told
    assert int(told.split()[-1]) <= 16
    assert await out(sandbox, "echo works") == "works\n"


async def test_file_size_is_limited(sandbox: Sandbox, folder: Path) -> None:
    result = await sandbox.run(ShellCommand("head -c 20M /dev/zero > big"))
    assert result.exit_code != 0
    assert (folder / "workspace" / "big").stat().st_size <= 8 << 20
    assert (await sandbox.run(ShellCommand("truncate -s 5T sparse"))).exit_code != 0


async def test_other_limits_are_set(sandbox: Sandbox) -> None:
    assert await out(sandbox, "ulimit -Hc; ulimit -Hn; ulimit -Hu") == "0\n512\n64\n"


async def test_a_hostile_regular_expression_times_out(sandbox: Sandbox) -> None:
    await sandbox.write(f"{WORKSPACE}/a.txt", b"a" * 400)
    search = asyncio.create_task(sandbox.grep("(a|a)*b", WORKSPACE))
    await asyncio.sleep(0.3)
    assert await out(sandbox, "echo meanwhile") == "meanwhile\n"
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    async with asyncio.timeout(60):
        while int(await out(sandbox, "ls -d /proc/[0-9]* 2>/dev/null | wc -l")) >= 10:
            await asyncio.sleep(0.05)


# ---------------------------------------------------------------- links as the agent sees them


async def test_52_links_resolve_inside(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("HOST-SECRET")
    await sandbox.run(
        ShellCommand(f"ln -s {tmp_path}/secret s; ln -s /etc/passwd p; ln -s /nowhere dangling; ln -s ../outputs o")
    )
    with pytest.raises(SandboxFileError, match="No such file"):
        await sandbox.read(f"{WORKSPACE}/s")
    assert b"root" not in await sandbox.read(f"{WORKSPACE}/p")  # the sandbox's own
    with pytest.raises(SandboxFileError, match="only files below"):
        await sandbox.write(f"{WORKSPACE}/p", b"evil")
    with pytest.raises(SandboxFileError):
        await sandbox.write(f"{WORKSPACE}/dangling", b"evil")
    await sandbox.write(f"{WORKSPACE}/o/a.txt", b"through a link inside")
    assert await sandbox.read(f"{OUTPUTS}/a.txt") == b"through a link inside"
    assert (tmp_path / "secret").read_text() == "HOST-SECRET"


async def test_pipes_devices_and_folders_do_not_block_file_tools(sandbox: Sandbox) -> None:
    await sandbox.run(ShellCommand("mkfifo pipe; ln -s /dev/zero zero; ln -s . loop; ln -s loop2 loop2"))
    for name in ("pipe", "zero", "loop", "loop2"):
        with pytest.raises(SandboxFileError):
            await sandbox.read(f"{WORKSPACE}/{name}")
        with pytest.raises(SandboxFileError):
            await sandbox.write(f"{WORKSPACE}/{name}", b"x")
    assert await sandbox.glob("**", WORKSPACE) == []
    assert await sandbox.grep("x", WORKSPACE) == []
    kinds = {entry.path.rpartition("/")[2]: entry.kind for entry in await sandbox.ls(WORKSPACE, depth=9)}
    assert kinds == {"pipe": "pipe", "zero": "link", "loop": "link", "loop2": "link"}


async def test_invalid_file_names_are_sanitized(sandbox: Sandbox) -> None:
    await sandbox.run(
        ShellCommand("touch \"$(printf 'a\\nb')\" \"$(printf '\\033[31mred')\" \"$(printf '\\xff\\xfe')\"")
    )
    shown = [entry.path for entry in await sandbox.ls(WORKSPACE)]
    assert len(shown) == 3
    assert all(path.isprintable() for path in shown)


# ---------------------------------------------------------------- access from the host

TRAPS = (
    "ln -s {secret} report.txt; ln -s {secret}/.. shadowdir; ln -s ../../../../../../../../../etc/shadow up.txt; "
    "mkfifo pipe; mkdir d; echo ok > d/fine.txt; ln -s /proc/self/environ env.txt; ln -s d inner; ln d/fine.txt hard; "
    "truncate -s 7M sparse.bin; echo x > \"$(printf 'a\\nb')\"; python3 -c 'import socket; "
    'socket.socket(socket.AF_UNIX).bind("sock")\'; echo fine > fine2.txt; mkdir deep; ln -s /etc deep/etc'
)


async def test_74_hostile_outputs_are_refused_with_a_reason(sandbox: Sandbox, tmp_path: Path, folder: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("HOST-SECRET")
    assert (await sandbox.run(ShellCommand(TRAPS.format(secret=secret), cwd=OUTPUTS))).exit_code == 0
    root, target = folder / "outputs", tmp_path / "copy"
    bad = ["report.txt", "shadowdir/secret", "up.txt", "pipe", "env.txt", "inner/fine.txt", "hard", "d/fine.txt"]
    bad += ["sock", "../workspace/x", "/etc/passwd", "d/../fine2.txt/..", "deep/etc/passwd", "d", ".", "", "none"]
    for rel in bad:
        for attempt in (
            lambda rel=rel: safe_files.read_file(root, rel),
            lambda rel=rel: safe_files.copy_out(root, rel, target, 99),
        ):
            with pytest.raises(SandboxFileError) as caught:
                attempt()
            assert str(tmp_path) not in str(caught.value)
        assert not target.exists()
    with pytest.raises(SandboxFileError, match="bigger"):
        safe_files.copy_out(root, "sparse.bin", target, 1 << 20)
    assert safe_files.copy_out(root, "fine2.txt", target, 99) == 5

    found = safe_files.list_files(root, BOUNDS, print)
    sendable = sorted(rel for rel, stamp in found.items() if not stamp.problem)
    assert sendable == ["fine2.txt", "sparse.bin"]
    told = {rel: str(stamp.problem) for rel, stamp in found.items() if stamp.problem}
    assert "link" in told["report.txt"]
    assert "hard link" in told["hard"]
    assert "pipe" in told["pipe"]
    assert "socket" in told["sock"]
    assert "line break" in told["a\nb"]
    assert not any(rel.startswith(("shadowdir/", "inner/", "deep/etc/")) for rel in found)


async def test_75_a_changed_output_is_noticed_with_a_forged_time(sandbox: Sandbox, folder: Path) -> None:
    await sandbox.run(ShellCommand("echo 1 > a; echo 1 > b", cwd=OUTPUTS))
    before = safe_files.list_files(folder / "outputs", BOUNDS, print)
    await sandbox.run(ShellCommand("touch -r a mark; echo 2 > a; touch -r mark a; rm mark", cwd=OUTPUTS))
    after = safe_files.list_files(folder / "outputs", BOUNDS, print)
    assert [rel for rel in after if after[rel] != before[rel]] == ["a"]


async def test_host_writes_do_not_follow_links(sandbox: Sandbox, tmp_path: Path, folder: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / "dir").mkdir()
    await sandbox.run(
        ShellCommand(f"ln -s {victim} a.txt; ln -s {tmp_path}/dir sub; ln -s /nowhere dangling", cwd=UPLOADS)
    )
    root = folder / "uploads"
    safe_files.write_file(root, "a.txt", b"new")
    assert victim.read_text() == "untouched"
    assert (root / "a.txt").read_text() == "new"
    for attempt in ("sub/x", "../x", "/tmp/x", "..", "", "a.txt/x"):
        with pytest.raises(SandboxFileError):
            safe_files.write_file(root, attempt, b"evil")
    with pytest.raises(SandboxFileError):
        safe_files.append_file(root, "dangling", b"evil")
    assert list((tmp_path / "dir").iterdir()) == []
    assert safe_files.free_name(root, "dangling") == "dangling-2"


@pytest.mark.parametrize("way", [safe_files._openat2, safe_files._open_by_component])
async def test_a_link_swap_race_never_leaks(sandbox: Sandbox, tmp_path: Path, folder: Path, way: object) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "good").write_text("HOST-SECRET")
    attack = f"""
import os
os.chdir('{OUTPUTS}')
os.mkdir('d'); open('d/good', 'w').write('good'); open('good', 'w').write('good')
while True:
    os.rename('good', 't'); os.symlink('{host}/good', 'good'); os.unlink('good'); os.rename('t', 'good')
    os.rename('d', 'u'); os.symlink('{host}', 'd'); os.unlink('d'); os.rename('u', 'd')
"""
    attacker = asyncio.create_task(sandbox.run(ShellCommand(f"python3 -c {_quoted(attack)}", timeout_seconds=60)))
    root = folder / "outputs"
    while not (root / "good").exists():
        await asyncio.sleep(0.01)
    read = await asyncio.to_thread(_read_often, root, way)
    attacker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attacker
    assert read.keys() <= {b"good", b""}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _read_often(root: Path, way: object) -> dict[bytes, int]:
    """Read until both happened often, however fast the machine is: otherwise there was no race."""
    assert callable(way)
    read: dict[bytes, int] = {b"good": 0}
    refused = 0
    end = time.monotonic() + 60
    top = os.open(root, os.O_PATH | os.O_DIRECTORY)
    while read[b"good"] <= 50 or refused <= 50:
        assert time.monotonic() < end, (read, refused)
        for rel in ("good", "d/good"):
            try:
                fd = way(top, rel, os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                refused += 1
                continue
            data = os.read(fd, 100)
            os.close(fd)
            read[data] = read.get(data, 0) + 1
    os.close(top)
    return read


async def test_a_write_race_never_leaves_the_folder(
    sandbox: Sandbox, provider: BubblewrapProvider, tmp_path: Path, folder: Path
) -> None:
    host = tmp_path / "host"
    host.mkdir()
    attack = f"""
import os
os.chdir('{UPLOADS}')
n = 0
while True:
    n += 1
    try:
        os.mkdir('d'); os.rename('d', f'd{{n}}'); os.symlink('{host}', 'd'); os.unlink('d')
    except OSError:
        try: os.rename('d', f'd{{n}}')
        except OSError: pass
"""
    attacker = asyncio.create_task(sandbox.run(ShellCommand(f"python3 -c {_quoted(attack)}", timeout_seconds=60)))
    root = folder / "uploads"
    done = {"written": 0, "refused": 0}
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            try:
                safe_files.write_file(root, "d/x", b"data")
                done["written"] += 1
            except SandboxFileError:
                done["refused"] += 1

    writer = asyncio.create_task(asyncio.to_thread(write))
    try:
        await until(lambda: done["written"] > 20 and done["refused"] > 5, what="a race")
    finally:
        stop.set()
    await writer
    attacker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attacker
    assert list(host.iterdir()) == []


async def test_an_archive_never_includes_host_files_in_a_swap_race(
    sandbox: Sandbox, tmp_path: Path, folder: Path
) -> None:
    """Exchange a file and a folder with links, each in one system call, in a loop."""
    host = tmp_path / "host"
    host.mkdir()
    (host / "good").write_text("HOST-SECRET")
    attack = f"""
import ctypes, os
os.chdir('{OUTPUTS}')
os.mkdir('folder'); open('folder/good', 'w').write('good'); open('file', 'w').write('good')
os.symlink('{host}/good', 'file-link'); os.symlink('{host}', 'folder-link'); os.mkfifo('pipe'); open('plain', 'w')
exchange = ctypes.CDLL(None).renameat2
while True:
    for one, other in ((b'file', b'file-link'), (b'folder', b'folder-link'), (b'plain', b'pipe')):
        exchange(-100, one, -100, other, 2)
"""
    attacker = asyncio.create_task(sandbox.run(ShellCommand(f"python3 -c {_quoted(attack)}", timeout_seconds=120)))
    while not (folder / "outputs" / "pipe").exists():
        await asyncio.sleep(0.01)
    contents, raced = await asyncio.to_thread(_archive_until_raced, folder, tmp_path / "saved.tar.gz", 200)
    attacker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attacker
    assert contents == {b"good", b""}
    assert raced


def _archive_until_raced(folder: Path, target: Path, times: int) -> tuple[set[bytes], bool]:
    """Write that many archives, and more until one says that a file became a link. Return all contents, and whether."""
    contents, raced = set(), False
    for done in range(1, 100 * times):
        archive = Archive(target)
        raced |= any("became a link" in line for line in archive.add_folder(folder, "x"))
        archive.finish()
        with tarfile.open(target) as tar:
            contents |= {file.read() for member in tar if member.isreg() and (file := tar.extractfile(member))}
        if raced and done >= times:
            break
    return contents, raced
