"""Sandbox settings, and which limit a command met, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from sandbox.base import CommandResult
from sandbox.network.rules import NetworkRules

FILE_SIGNAL = 128 + 25  # SIGXFSZ
# What bash, Python and Node say when the kernel refuses another process or thread (EAGAIN of fork and clone).
NO_PROCESS = ("Resource temporarily unavailable", "can't start new thread", "EAGAIN", "Cannot fork", "[Errno 11]")
NO_MEMORY = ("MemoryError", "Cannot allocate memory", "ENOMEM", "heap out of memory", "std::bad_alloc")
NO_FILE = ("File size limit exceeded", "File too large", "EFBIG")
NO_SPACE = ("No space left on device", "ENOSPC")
# What curl, git, pip, Node and the C library say when the proxy refused or there is no way to a host.
REFUSED_PATTERN = re.compile(
    r"CONNECT tunnel failed, response 403|Received HTTP code 403 from proxy|Tunnel connection failed: 403"
    r"|from versions: none|Network is unreachable|ENETUNREACH"
)
UNKNOWN_HOST_PATTERN = re.compile(
    r"Could not resolve|Temporary failure in name res|Name or service not known|ENOTFOUND|EAI_AGAIN"
)

MAX_DESCRIPTORS = 512  # that a process may have open
MAX_SOCKET_MB = 32  # of the kernel's memory for what stands in sockets, where that is counted for itself (cgroup v1)
# Elsewhere nobody counts it, so each socket gets little: without these, 136 of them held half a gigabyte.
SOCKET_BUFFERS = {"net.ipv4.tcp_rmem": "4096 4096 65536", "net.ipv4.tcp_wmem": "4096 4096 65536"}


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """What every kind of machine is told. `skills` is shown read-only at /mnt/skills (nothing, if it is not there).
    `memory_mb`, `cpus` and `processes` are of a whole sandbox, where the machine lets us bound that; `tmp_mb` is the
    size of /tmp (home and /dev/shm get a quarter of that each), `file_mb` the largest file, `command_seconds` the
    longest command, `live` the sandboxes that may run at once."""

    skills: Path
    memory_mb: int = 1024
    cpus: float = 1.0
    processes: int = 256
    file_mb: int = 2048
    tmp_mb: int = 256
    command_seconds: float = 600.0
    live: int = 100
    network: NetworkRules = field(default_factory=NetworkRules)

    def with_limit_notes(self, result: CommandResult, *, out_of_memory: bool = False) -> CommandResult:
        """The result, with a line at its end for each limit that stopped the command."""
        words = self._network_note(result.output)
        if out_of_memory:
            words.append(f"killed: out of memory (limit {self.memory_mb} MB for the whole sandbox)")
        if result.exit_code != 0:
            said = result.output
            if any(mark in said for mark in NO_MEMORY) and not out_of_memory:
                words.append(f"refused: no more memory (limit {self.memory_mb} MB)")
            if any(mark in said for mark in NO_PROCESS):
                words.append(f"refused: the sandbox may have at most {self.processes} processes at once")
            if result.exit_code == FILE_SIGNAL or any(mark in said for mark in NO_FILE):
                words.append(f"stopped: a file may have at most {self.file_mb} MB")
            if any(mark in said for mark in NO_SPACE):
                part = self.tmp_mb // 4
                words.append(f"full: /tmp holds {self.tmp_mb} MB, /home/agent and /dev/shm {part} MB each")
        return replace(result, output=result.output + "".join(f"[{word}]\n" for word in words)) if words else result

    def _network_note(self, said: str) -> list[str]:
        """What the network allows, where a program failed for it and did not pass on the proxy's own words."""
        failed = REFUSED_PATTERN.search(said) or (self.network.mode != "on" and UNKNOWN_HOST_PATTERN.search(said))
        return [self.network.description()] if failed and "sandbox.network." not in said else []
