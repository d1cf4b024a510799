"""Each flag of a container, checked from inside, and the attacks on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.base import WORKSPACE, Sandbox, SandboxGone, ShellCommand
from sandbox.docker.provider import DockerProvider
from sandbox.users import FIRST_USER_ID, USER_COUNT
from tests.fakes.server import until
from tests.support.engines import docker_provider, docker_settings

# The same attacks, on a container.
from tests.unit.sandbox.test_attacks import (  # noqa: F401  collected here, with the provider below
    out,
    test_52_links_resolve_inside,
    test_74_hostile_outputs_are_refused_with_a_reason,
    test_75_a_changed_output_is_noticed_with_a_forged_time,
    test_a_fork_bomb_times_out_and_the_sandbox_survives,
    test_a_hostile_regular_expression_times_out,
    test_a_link_swap_race_never_leaks,
    test_a_write_race_never_leaves_the_folder,
    test_an_archive_never_includes_host_files_in_a_swap_race,
    test_commands_have_no_privileges,
    test_commands_never_run_as_host_root,
    test_file_size_is_limited,
    test_host_writes_do_not_follow_links,
    test_invalid_file_names_are_sanitized,
    test_only_the_folders_are_writable,
    test_pipes_devices_and_folders_do_not_block_file_tools,
    test_the_only_network_is_its_loopback,
    test_the_three_folders_cannot_be_replaced,
    test_tmpfs_size_is_limited,
)


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[DockerProvider]:
    settings = docker_settings(tmp_path, memory_mb=128, processes=64, file_mb=8, tmp_mb=16)
    settings.skills.mkdir()
    (settings.skills / "SKILL.md").write_text("# A skill\n")
    async with docker_provider(settings) as made:
        yield made


async def test_every_lock_of_the_configuration_works(sandbox: Sandbox, folder: Path) -> None:
    """Each line checks a flag of `sandbox.docker.spec` from inside the same sandbox."""
    status = dict(
        line.split(":\t", 1) for line in (await out(sandbox, "cat /proc/self/status")).splitlines() if ":\t" in line
    )
    owner = (folder / "workspace").stat().st_uid
    assert {*status["Uid"].split(), *status["Gid"].split(), *status["Groups"].split()} == {str(owner)}
    assert owner == os.geteuid() or owner in range(FIRST_USER_ID, FIRST_USER_ID + USER_COUNT)
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"  # ours: test_attacks checks what it refuses
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (await out(sandbox, "cat /proc/self/oom_score_adj")) == "500\n"
    assert (await out(sandbox, "ulimit -Hf; ulimit -Hn; ulimit -Hc")) == f"{8 << 10}\n512\n0\n"
    assert (await out(sandbox, "cat /etc/hostname; whoami; echo $HOME; pwd")).split() == [
        "sandbox", "agent", "/home/agent", "/mnt/user-data/workspace",
    ]  # fmt: skip
    mounts = {
        line.split()[1]: line.split()[3].split(",") for line in (await out(sandbox, "cat /proc/mounts")).splitlines()
    }
    for place in ("/", "/mnt/skills", "/run/fawn", "/etc/passwd", "/etc/group", "/proc/sys"):
        assert "ro" in mounts[place], place
    for place, size in (("/tmp", "16384k"), ("/home/agent", "4096k"), ("/dev/shm", "4096k")):
        assert {"rw", "nosuid", "nodev", f"size={size}"} <= set(mounts[place]), (place, mounts[place])
    assert {place for place in mounts if place.startswith("/mnt/")} == {
        "/mnt/skills", "/mnt/user-data/workspace", "/mnt/user-data/uploads", "/mnt/user-data/outputs",
    }  # fmt: skip
    ours = await out(sandbox, "grep /mnt/ /proc/self/mountinfo")
    assert not {"shared", "master"} & {word.partition(":")[0] for word in ours.split()}  # propagation is private
    assert (await out(sandbox, "ls /sys/class/net")) == "lo\n"
    for kind in ("ipc", "net", "pid", "mnt", "uts"):
        assert (await out(sandbox, f"readlink /proc/self/ns/{kind}")).strip() != os.readlink(f"/proc/self/ns/{kind}")
    assert (await out(sandbox, "find /dev -type b")) == ""  # a privileged container sees the host's disks
    assert (await out(sandbox, "cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null")) == "64\n"
    limits = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null"
    assert (await out(sandbox, limits)) == f"{128 << 20}\n"
    swap = "cd /sys/fs/cgroup; cat memory.swap.max memory/memory.memsw.limit_in_bytes 2>/dev/null"
    assert (await out(sandbox, swap)) in ("0\n", f"{128 << 20}\n", "")  # "": this kernel does not count swap
    if os.geteuid() == 0:
        sockets = "cat /sys/fs/cgroup/memory/memory.kmem.tcp.limit_in_bytes 2>/dev/null"
        assert (await out(sandbox, sockets)) in (f"{32 << 20}\n", "")  # "": cgroup v2 charges for them
    share = "cd /sys/fs/cgroup; cat cpu.weight cpu/cpu.shares 2>/dev/null"
    assert (await out(sandbox, share)) in ("10\n", "256\n")
    quota = "cd /sys/fs/cgroup; cat cpu.max 2>/dev/null || cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us | xargs"
    assert (await out(sandbox, quota)) == "100000 100000\n"


async def test_the_host_is_invisible(sandbox: Sandbox, folder: Path) -> None:
    assert await out(sandbox, f"ls {folder} /root 2>/dev/null") == ""
    assert await out(sandbox, "ls /var/run/docker.sock /run/docker.sock 2>/dev/null") == ""
    assert await out(sandbox, "cat /etc/shadow 2>/dev/null") == ""
    assert "root" not in await out(sandbox, "cat /etc/passwd")
    assert not {"FAWN", "TOKEN", "KEY"} & {name.partition("_")[0] for name in (await out(sandbox, "env")).splitlines()}
    assert int(await out(sandbox, "ls -d /proc/[0-9]* 2>/dev/null | wc -l")) < 10
    for hidden in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware/*"):
        assert await out(sandbox, f"head -c1 {hidden} 2>/dev/null | wc -c") == "0\n", hidden
    assert (await sandbox.run(ShellCommand("dmesg; echo x > /proc/sysrq-trigger || exit 1"))).exit_code != 0


async def test_the_command_server_cannot_be_inspected(sandbox: Sandbox) -> None:
    look = (
        "for p in /proc/[0-9]*; do if grep -q need $p/cmdline; then echo found;"
        " cat $p/environ $p/mem; ls $p/fd $p/root; fi; done 2>/dev/null"
    )
    assert await out(sandbox, look) == "found\n"


async def test_pid_1_cannot_be_killed_from_inside(sandbox: Sandbox) -> None:
    # Not `-1`, which would be every process. The `sleep` of PID 1 is killed, and restarted.
    await sandbox.run(
        ShellCommand("kill -9 1; kill -TERM 1; kill -INT 1; pkill -9 -x sleep; setsid sleep 300 & disown")
    )
    assert await out(sandbox, "cat /proc/1/comm") == "bash\n"


async def test_killing_every_process_leads_to_a_new_sandbox(provider: DockerProvider, folder: Path) -> None:
    async with provider.acquire("t", folder) as first:
        with pytest.raises(SandboxGone, match="files are intact"):
            await first.run(ShellCommand("echo kept > kept; kill -9 -1; sleep 9"))
    async with provider.acquire("t", folder) as second:
        assert await out(second, "cat kept") == "kept\n"


async def test_a_memory_limit_is_reported(sandbox: Sandbox) -> None:
    result = await sandbox.run(ShellCommand("python3 -c 'x = bytearray(1 << 30)'"))
    assert result.exit_code == 137
    assert result.output.endswith("[killed: out of memory (limit 128 MB for the whole sandbox)]\n")
    hold = "import time; x = bytearray(60 << 20); time.sleep(5)"
    many = await sandbox.run(ShellCommand(f"for i in 1 2 3; do python3 -c '{hold}' & done; wait"))
    assert "out of memory" in many.output
    # Another kill is not reported as a memory limit.
    assert "memory" not in (await sandbox.run(ShellCommand("kill -9 $$"))).output


async def test_a_process_limit_is_reported(sandbox: Sandbox) -> None:
    bomb = "import subprocess as s\nfor i in range(80): s.Popen(['sleep', '300'])"
    result = await sandbox.run(ShellCommand(f'python3 -c "{bomb}"'))
    assert result.output.endswith("[refused: the sandbox may have at most 64 processes at once]\n")
    await sandbox.write(f"{WORKSPACE}/a", b"files still work")
    # Only few processes can be started, so the shell itself has to do it.
    everybody = 'read -rd "" name < $p/cmdline; [ "$name" = sleep ] && kill -9 ${p#/proc/}'
    await sandbox.run(ShellCommand(f"for p in /proc/[0-9]*; do {everybody}; done 2>/dev/null"))
    count = "n=$(ls -d /proc/[0-9]* 2>/dev/null | wc -l)"
    assert (
        int(await out(sandbox, f"for i in $(seq 150); do {count}; [ $n -lt 10 ] && break; sleep 0.1; done; echo $n"))
        < 10
    )


async def test_a_sandbox_full_of_leftover_processes_is_replaced(provider: DockerProvider, folder: Path) -> None:
    """No process can be started any more, so only a new sandbox helps."""
    async with provider.acquire("t", folder) as sandbox:
        fill = "while True:\n try: os.fork() or time.sleep(500)\n except OSError: time.sleep(0.01); open('full', 'w')"
        await sandbox.write(f"{WORKSPACE}/fill.py", f"import os, time\n{fill}".encode())
        assert await out(sandbox, "python3 fill.py & until [ -e full ]; do :; done; echo left") == "left\n"

        async def until_it_is_full() -> None:
            while True:
                await sandbox.run(ShellCommand("true"))

        with pytest.raises(SandboxGone, match=r"cannot start another process .* stopped with all its processes"):
            await asyncio.wait_for(until_it_is_full(), 60)
    async with provider.acquire("t", folder) as fresh:
        assert await out(fresh, "ls -d /proc/[0-9]* 2>/dev/null | wc -l") != "64\n"


async def test_other_limits_are_reported(sandbox: Sandbox) -> None:
    assert "[stopped: a file may have at most 8 MB]" in await out(sandbox, "head -c 20M /dev/zero > big")
    assert "[full: /tmp holds 16 MB" in await out(
        sandbox, "for i in 1 2 3; do head -c 7M /dev/zero > /tmp/$i || exit; done"
    )
    assert "[" not in await out(sandbox, "echo File too large")


async def test_stopping_the_server_ends_the_sandbox(provider: DockerProvider, folder: Path) -> None:
    """Commands have the server's user and can stop it. A cancellation must still end them."""
    async with provider.acquire("t", folder) as sandbox:
        stop = "for p in /proc/[0-9]*; do grep -q need $p/cmdline && kill -STOP ${p#/proc/}; done"
        running = asyncio.create_task(sandbox.run(ShellCommand(f"{stop}; touch stopped; exec sleep 600")))
        await until((folder / "workspace" / "stopped").exists, what="the end of the loop")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        async with asyncio.timeout(60):
            while not sandbox.gone:
                await asyncio.sleep(0.1)
    async with provider.acquire("t", folder) as fresh:
        assert await out(fresh, "echo fresh") == "fresh\n"
