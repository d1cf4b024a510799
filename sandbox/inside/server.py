"""The command server: runs commands and file operations inside a sandbox.

It is the only program that Fawn adds to a sandbox, and reads its requests from stdin. In bubblewrap it is PID 1. A
frame, in both directions, is two 4-byte big-endian lengths, then JSON, then the bytes of a file or of output.

    to the server     {"id": 1, "op": "run", "command": …, "cwd": …, "env": {…}, "timeout": s, "max": bytes}
                      {"stdin": 1} with bytes of input, for a "run" with "stdin": true; without bytes: its end
                      {"id": 2, "op": "write", "path": …, "append": …, …} and the bytes to be written
                      {"id": 3, "op": "read" | "stat" | "realpath" | "ls" | "glob" | "grep", "timeout": s, "max": …, …}
                      {"id": 4, "op": "dial", "port": …, "socket": one of the host, "ticket": …, …}
                      {"kill": 1}
    from the server   {"hello": 1}, then per id: {"id": 1} with bytes of output, any number of them, then
                      {"id": 1, "exit": code, "dropped": bytes, "cwd": …} or {"id": 1, "error": …}

Every request is a job: a child process with a pipe. A command's bash is a child subreaper (Linux prctl 36, kept over
execve), so all descendants, even daemons, stay below it until it ends, and killing the job kills that tree. Processes
left after a normal end move to PID 1 and run on. File operations are jobs, too, so a pipe, a huge folder or a hostile
expression can be killed like a command (`sandbox.inside.jobs`).

The server is single-threaded and has no locks. Descriptor 1 is moved first, so only frames reach the stream. Standard
library only, Python 3.9+.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from sandbox.inside import environment, relay
from sandbox.inside.jobs import exec_shell, prctl, run_file_operation
from sandbox.inside.redraws import RedrawFolder

PR_SET_DUMPABLE, PR_SET_PDEATHSIG = 4, 1  # prctl options
CHUNK_BYTES = 1 << 16
FRAME_HEADER = struct.Struct(">II")
LATE_OUTPUT_SECONDS = 0.02  # for a late writer (a process substitution) after its shell ended
RESERVED_PROCESSES = 16  # for the server alone, so that it can still clean up a full sandbox


def descendant_pids(root: int) -> list[int]:
    """List the process `root` and all its descendants."""
    children: dict[int, list[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # "pid (any name) state ppid …": the name may have spaces and brackets, so split behind the last one.
            children.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(int(pid))
    found, todo = [], [root]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def kill_tree(root: int) -> None:
    """Stop all processes until no new one appears (a fork bomb outruns a plain kill), then kill them."""
    seen: set[int] = set()
    quiet = 0
    for _ in range(500):
        new = set(descendant_pids(root)) - seen
        quiet = 0 if new else quiet + 1
        if quiet == 2:
            break
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        seen |= new
        if quiet:
            time.sleep(0.001)
    for pid in seen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Job:
    """A running request. The first half of its `most` bytes of output is sent at once. Of the rest the last half is
    kept for the end, where a long log has its error message."""

    def __init__(self, id_: int, pid: int, out: int, most: int, seconds: float, place: int = -1) -> None:
        self.id, self.pid, self.out, self.cwd_pipe = id_, pid, out, place
        self.deadline = time.monotonic() + seconds
        self.head_bytes = most - most // 2
        self.tail_bytes = most // 2
        self.tail = bytearray()
        self.dropped = 0
        self.folder: RedrawFolder | None = None  # of a command that nothing talks to
        self.stdin = -1
        self.stdin_waiting = bytearray()
        self.stdin_ended = False
        self.exit: int | None = None
        self.timed_out = False
        self.eof = False

    def buffer_output(self, data: bytes) -> bytes:
        """Keep the tail of `data`; return what to send now."""
        data = self.folder.fold(data) if self.folder else data
        now, later = data[: self.head_bytes], data[self.head_bytes :]
        self.head_bytes -= len(now)
        self.tail += later
        over = len(self.tail) - self.tail_bytes
        if over > 0:
            del self.tail[:over]
            self.dropped += over
        return now

    def final_cwd(self) -> str:
        """Return the shell's last folder, or ""."""
        if self.cwd_pipe < 0:
            return ""
        os.set_blocking(self.cwd_pipe, False)
        try:
            text = os.read(self.cwd_pipe, 4096).decode("utf-8", "replace")
        except BlockingIOError:
            text = ""
        os.close(self.cwd_pipe)
        return text[:-1] if text.endswith("\n") else ""


class Server:
    """Reads frames from `source`, runs jobs, writes frames to `sink`. `processes` limits a command's processes.
    `egress` is the socket of the host's proxy, or ""."""

    def __init__(self, source: int, sink: int, processes: int, egress: str) -> None:
        self.source, self.sink, self.processes, self.egress = source, sink, processes, egress
        self.incoming = bytearray()
        self.jobs: dict[int, Job] = {}
        self.running = True
        self.selector = selectors.DefaultSelector()
        self.wake, self.waker = os.pipe()
        for fd in (self.wake, self.waker):
            os.set_blocking(fd, False)

    def serve(self) -> None:
        """Serve until the stream ends."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the wake-up descriptor needs a handler
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        self.selector.register(self.source, selectors.EVENT_READ, self.read_frames)
        self.selector.register(self.wake, selectors.EVENT_READ, self.reap_children)
        with contextlib.suppress(OSError):  # a command has taken the port, and loses the network
            listener = relay.open_listener()
            self.selector.register(listener, selectors.EVENT_READ, lambda: self.accept_egress(listener))
        try:
            self.send_frame({"hello": 1})
            while self.running:
                for key, _ in self.selector.select(self.next_timeout()):
                    key.data()
                self.expire_jobs()
        finally:
            # If this is not PID 1, jobs would outlive the stream.
            for job in self.jobs.values():
                kill_tree(job.pid)

    def accept_egress(self, listener: socket.socket) -> None:
        """Accept a connection for the proxy; a child process relays it."""

        def child(_: int) -> None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            relay.relay_to_proxy(client, self.egress)

        try:
            client = listener.accept()[0]
        except OSError:
            return
        with client, contextlib.suppress(OSError):  # no process can be started: the client sees the connection end
            os.close(self.fork_child(child)[1])

    def send_frame(self, frame: dict[str, Any], data: bytes = b"") -> None:
        head = json.dumps(frame).encode()
        rest = memoryview(FRAME_HEADER.pack(len(head), len(data)) + head + data)
        while rest:
            rest = rest[os.write(self.sink, rest) :]

    def read_frames(self) -> None:
        data = os.read(self.source, CHUNK_BYTES)
        if not data:
            self.running = False
        self.incoming += data
        while len(self.incoming) >= FRAME_HEADER.size:
            head, size = FRAME_HEADER.unpack_from(self.incoming)
            start = FRAME_HEADER.size + head
            end = start + size
            if len(self.incoming) < end:
                break
            frame = json.loads(self.incoming[FRAME_HEADER.size : start])
            if "stdin" in frame and "id" not in frame:
                if job := self.jobs.get(frame["stdin"]):
                    job.stdin_waiting += self.incoming[start:end]
                    job.stdin_ended = start == end
                    self.write_stdin(job)
            elif "kill" not in frame:
                with memoryview(self.incoming)[start:end] as body:  # not copied: the job is a fork
                    self.start_job(frame, body)
            elif frame["kill"] in self.jobs:
                kill_tree(self.jobs[frame["kill"]].pid)
            del self.incoming[:end]

    def start_job(self, frame: dict[str, Any], body: memoryview) -> None:
        """Start the job of `frame`, or report that no process can be started."""
        cwd_pipe, stdin = -1, -1
        try:
            if frame["op"] == "run":
                cwd_pipe, cwd_writer = os.pipe()
                source, stdin = os.pipe() if frame.get("stdin") else (os.open("/dev/null", os.O_RDONLY), -1)
                try:
                    pid, out = self.fork_child(lambda out: exec_shell(frame, source, out, cwd_writer, self.processes))
                finally:
                    os.close(cwd_writer)
                    os.close(source)
            else:
                pid, out = self.fork_child(lambda out: run_file_operation(frame, body, out))
        except OSError as error:
            for fd in (cwd_pipe, stdin):
                if fd >= 0:
                    os.close(fd)
            self.send_frame(
                {"id": frame["id"], "error": f"The sandbox cannot start another process ({error.strerror})."}
            )
            return
        os.set_blocking(out, False)
        job = self.jobs[frame["id"]] = Job(frame["id"], pid, out, frame["max"], frame["timeout"], cwd_pipe)
        if stdin >= 0:
            os.set_blocking(stdin, False)
            job.stdin = stdin
        elif cwd_pipe >= 0:
            job.folder = RedrawFolder()
        self.selector.register(out, selectors.EVENT_READ, lambda: self.drain_output(job))

    def write_stdin(self, job: Job) -> None:
        """Write what the job's stdin takes; the selector calls this again for the rest."""
        if job.stdin < 0:
            return
        before = job.stdin in self.selector.get_map()
        try:
            while job.stdin_waiting:
                del job.stdin_waiting[: os.write(job.stdin, job.stdin_waiting)]
        except BlockingIOError:
            if not before:
                self.selector.register(job.stdin, selectors.EVENT_WRITE, lambda: self.write_stdin(job))
            return
        except BrokenPipeError:  # it does not read any more
            job.stdin_waiting.clear()
            job.stdin_ended = True
        if before:
            self.selector.unregister(job.stdin)
        if job.stdin_ended:
            os.close(job.stdin)
            job.stdin = -1

    def fork_child(self, child: Callable[[int], None]) -> tuple[int, int]:
        """Fork a process that runs `child` with the write end of a pipe. Returns its pid and the read end."""
        out, into = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(out)
            os.close(into)
            raise
        if pid:
            os.close(into)
            return pid, out
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            child(into)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001  an exception must not unwind into the server's loop
            os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(125)

    def drain_output(self, job: Job) -> None:
        """Read the job's pipe. After the job has ended, discard the data but keep the pipe moving."""
        if job.eof:
            return  # `reap_children` closed it in this round
        for _ in range(64):
            try:
                data = os.read(job.out, CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                self.selector.unregister(job.out)
                os.close(job.out)
                job.eof = True
                if job.exit is not None:
                    self.finish_job(job)
                return
            if job.id in self.jobs:
                self.send_output(job, job.buffer_output(data))

    def send_output(self, job: Job, data: bytes) -> None:
        for start in range(0, len(data), CHUNK_BYTES):
            self.send_frame({"id": job.id}, data[start : start + CHUNK_BYTES])

    def reap_children(self) -> None:
        """Reap every process that ended: jobs, and orphans if this is PID 1."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wake, CHUNK_BYTES):
                pass
        by_pid = {job.pid: job for job in self.jobs.values()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            job = by_pid.get(pid)
            if job:
                code = os.waitstatus_to_exitcode(status)
                job.exit = code if code >= 0 else 128 - code
                job.deadline = time.monotonic() + LATE_OUTPUT_SECONDS
                if job.eof:
                    self.finish_job(job)
                else:
                    self.drain_output(job)

    def finish_job(self, job: Job) -> None:
        """Report the end of the job."""
        if self.jobs.pop(job.id, None):
            job.stdin_waiting.clear()
            job.stdin_ended = True
            self.write_stdin(job)
            if job.folder:
                rest, job.folder = job.folder.flush(), None
                self.send_output(job, job.buffer_output(rest))
            self.send_output(job, bytes(job.tail))
            code = None if job.timed_out else job.exit
            self.send_frame({"id": job.id, "exit": code, "dropped": job.dropped, "cwd": job.final_cwd()})

    def next_timeout(self) -> float | None:
        """Return the seconds until the next deadline."""
        if not self.jobs:
            return None
        return max(0.0, min(job.deadline for job in self.jobs.values()) - time.monotonic())

    def expire_jobs(self) -> None:
        """Finish jobs that have ended, kill those that timed out."""
        now = time.monotonic()
        for job in [job for job in self.jobs.values() if job.deadline <= now]:
            if job.exit is not None:
                self.finish_job(job)
            else:
                job.timed_out = True
                job.deadline = now + 1  # once more, for a process that was missed
                kill_tree(job.pid)


def main(processes: int) -> None:
    """Serve stdin and stdout. `processes` limits the processes of commands; 0 does not."""
    sink = os.dup(1)
    os.dup2(2, 1)  # a stray print must not corrupt the stream
    # Commands may not read this process's memory or descriptors, and SIGINT from inside must not end PID 1.
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.getpid() == 1:  # otherwise the parent is a helper of the engine, which ends after the start
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if processes:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes + RESERVED_PROCESSES, processes + RESERVED_PROCESSES))
    egress = os.environ.pop("FAWN_EGRESS", "")  # noqa: TID251  the sandbox's own environment, not the service's
    with contextlib.suppress(OSError):  # commands work without the scripts, too
        environment.install_environment()
    Server(0, sink, processes, egress).serve()
