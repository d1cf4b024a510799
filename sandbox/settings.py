"""Sandbox settings, and the notes that name the limit a command reached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sandbox.base import CommandResult
from sandbox.rules import NetworkRules, ReportEgress, report_nothing

SIGXFSZ_EXIT_CODE = 128 + 25  # SIGXFSZ
# Messages of bash, Python and Node if the kernel refuses a process or thread (EAGAIN of fork and clone).
NO_PROCESS_MARKS = ("Resource temporarily unavailable", "can't start new thread", "EAGAIN", "Cannot fork", "[Errno 11]")
NO_MEMORY_MARKS = ("MemoryError", "Cannot allocate memory", "ENOMEM", "heap out of memory", "std::bad_alloc")
FILE_SIZE_MARKS = ("File size limit exceeded", "File too large", "EFBIG")
DISK_FULL_MARKS = ("No space left on device", "ENOSPC")
# Messages of curl, git, pip, Node and the C library if the proxy refused, or a host is unreachable.
REFUSED_PATTERN = re.compile(
    r"CONNECT tunnel failed, response 403|Received HTTP code 403 from proxy|Tunnel connection failed: 403"
    r"|from versions: none|Network is unreachable|ENETUNREACH"
)
UNKNOWN_HOST_PATTERN = re.compile(
    r"Could not resolve|Temporary failure in name res|Name or service not known|ENOTFOUND|EAI_AGAIN"
)

MAX_DESCRIPTORS = 512  # open, per process
MAX_SOCKET_MB = 32  # kernel memory for socket buffers, where that is counted separately (cgroup v1)
# With cgroup v2 it is not, so each socket gets little: otherwise, 136 of them held half a gigabyte.
SOCKET_BUFFERS = {"net.ipv4.tcp_rmem": "4096 4096 65536", "net.ipv4.tcp_wmem": "4096 4096 65536"}


def parse_oom_kills(text: str) -> int | None:
    """Parse memory.events (cgroup v2) or memory.oom_control (v1); None if it has no count."""
    found = re.search(r"^oom_kill ([0-9]{1,18})", text, re.MULTILINE)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """`sandbox.kubernetes` in config.yaml: the cluster that runs the sandboxes of `provider: kubernetes`."""

    claim: str = field(
        default="", metadata={"help": "the persistent volume claim that holds `data_dir`; sandboxes mount parts of it"}
    )
    claim_path: str = field(
        default="",
        metadata={"help": "where the service has it mounted; empty: the volume that `data_dir` is on", "path": True},
    )
    namespace: str = field(default="", metadata={"help": "namespace of the sandboxes; empty: the service's own"})
    runtime_class: str = field(
        default="", metadata={"help": "runtime class of the pods, such as `gvisor` or `kata`; empty: the default"}
    )
    pull_secret: str = field(default="", metadata={"help": "secret with which the cluster pulls `sandbox.image`"})
    node_selector: Mapping[str, str] = field(
        default_factory=dict, metadata={"help": "labels of the nodes that may run sandboxes"}
    )
    cpu_request: float = field(
        default=0.05, metadata={"help": "processors that each sandbox reserves on its node", "ge": 0.0}
    )
    memory_request_mb: int = field(default=128, metadata={"help": "memory that each sandbox reserves", "ge": 16})
    start_seconds: float = field(
        default=120.0, metadata={"help": "how long a pod may take to run, with the pull of its image", "ge": 1}
    )
    ready_pods: int = field(
        default=0,
        metadata={
            "help": "pods that run ahead, each for the next conversation that needs one; 0: none",
            "ge": 0,
            "le": 100,
        },
    )
    kubeconfig: str = field(
        default="",
        metadata={
            "help": "file with the cluster's address and a token, a certificate or a program that prints one; empty: as"
            " a pod of the cluster",
            "path": True,
        },
    )
    context: str = field(default="", metadata={"help": "context of that file; empty: its current one"})


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Settings of all providers. `skills` is mounted read-only at /mnt/skills if it exists; `skill_packages`, Python
    packages of this machine for their scripts, by bubblewrap only: the others have an image. `memory_mb`, `cpus` and
    `processes` limit a whole sandbox where the machine allows that. `tmp_mb` is the size of /tmp; home and /dev/shm get
    a quarter of it each. `live` is how many sandboxes may run at once."""

    skills: Path
    skill_packages: Path | None = None
    memory_mb: int = 1024
    cpus: float = 1.0
    processes: int = 256
    file_mb: int = 2048
    tmp_mb: int = 256
    command_seconds: float = 600.0
    live: int = 100
    network: NetworkRules = field(default_factory=NetworkRules)
    kubernetes: KubernetesOptions = field(default_factory=KubernetesOptions)
    use: str = ""  # the operator's own provider
    options: Mapping[str, Any] = field(default_factory=dict)  # its further arguments
    report_egress: ReportEgress = report_nothing  # gets each request of a sandbox

    def with_limit_notes(self, result: CommandResult, *, out_of_memory: bool = False) -> CommandResult:
        """Add a line to the output for each limit that the command reached."""
        words = self._network_note(result.output)
        if out_of_memory:
            words.append(f"killed: out of memory (limit {self.memory_mb} MB for the whole sandbox)")
        if result.exit_code != 0:
            output = result.output
            if any(mark in output for mark in NO_MEMORY_MARKS) and not out_of_memory:
                words.append(f"refused: no more memory (limit {self.memory_mb} MB)")
            if any(mark in output for mark in NO_PROCESS_MARKS):
                words.append(f"refused: the sandbox may have at most {self.processes} processes at once")
            if result.exit_code == SIGXFSZ_EXIT_CODE or any(mark in output for mark in FILE_SIZE_MARKS):
                words.append(f"stopped: a file may have at most {self.file_mb} MB")
            if any(mark in output for mark in DISK_FULL_MARKS):
                part = self.tmp_mb // 4
                words.append(f"full: /tmp holds {self.tmp_mb} MB, /home/agent and /dev/shm {part} MB each")
        return replace(result, output=result.output + "".join(f"[{word}]\n" for word in words)) if words else result

    def _network_note(self, output: str) -> list[str]:
        """Describe the network if a program failed because of it and did not print the proxy's reason."""
        failed = REFUSED_PATTERN.search(output) or (self.network.mode != "on" and UNKNOWN_HOST_PATTERN.search(output))
        return [self.network.description()] if failed and "sandbox.network." not in output else []
