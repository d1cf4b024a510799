"""Which limit a command met, in words for the model and the person who reads along."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sandbox.base import Result

FILE_SIGNAL = 128 + 25  # SIGXFSZ
# What bash, Python and Node say when the kernel refuses another process or thread (EAGAIN of fork and clone).
NO_PROCESS = ("fork: Resource temporarily unavailable", "can't start new thread", "EAGAIN", "Cannot fork", "[Errno 11]")
NO_FILE = ("File size limit exceeded", "File too large", "EFBIG")
NO_SPACE = ("No space left on device", "ENOSPC")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox may have; `memory_mb` of the whole of it."""

    memory_mb: int
    processes: int
    file_mb: int
    tmp_mb: int

    def told(self, result: Result, *, out_of_memory: bool = False) -> Result:
        """The result, with a line at its end for each limit that stopped the command."""
        words = []
        if out_of_memory:
            words.append(f"killed: out of memory (limit {self.memory_mb} MB for the whole sandbox)")
        if result.exit_code != 0:
            said = result.output
            if any(mark in said for mark in NO_PROCESS):
                words.append(f"refused: the sandbox may have at most {self.processes} processes at once")
            if result.exit_code == FILE_SIGNAL or any(mark in said for mark in NO_FILE):
                words.append(f"stopped: a file may have at most {self.file_mb} MB")
            if any(mark in said for mark in NO_SPACE):
                part = self.tmp_mb // 4
                words.append(f"full: /tmp holds {self.tmp_mb} MB, /home/agent and /dev/shm {part} MB each")
        return replace(result, output=result.output + "".join(f"[{word}]\n" for word in words)) if words else result
