"""The command server: the one program Fawn puts into a sandbox, fed over stdin/stdout. In bubblewrap it is PID 1.

Frames, both ways: two 4-byte big-endian lengths, then so many bytes of JSON, and of a file or of output as they are.

    to the server     {"id": 1, "op": "run", "command": …, "cwd": …, "env": {…}, "timeout": s, "max": bytes}
                      {"id": 2, "op": "write", "path": …, "append": …, …} and the bytes to be written
                      {"id": 3, "op": "read" | "stat" | "ls" | "glob" | "grep", "timeout": s, "max": …, …}
                      {"id": 4, "op": "dial", "port": …, "socket": one of the host, "ticket": …, …}
                      {"kill": 1}
    from the server   {"hello": 1}, then per id: {"id": 1} with bytes of output, any number of them, then
                      {"id": 1, "exit": code, "dropped": bytes, "cwd": …} or {"id": 1, "error": …}

Every request is a job: a child process with a pipe. A command's bash is made a *child subreaper* (Linux prctl 36, kept
over execve), so every descendant, even a daemon, stays below it until it ends: stopping the job means stopping and
killing that tree. What is left after a normal end moves to PID 1 and lives on. File operations are jobs too, so that a
pipe, a huge folder or a hostile expression can be killed like any command (`sandbox.inside.jobs`).

The server is single-threaded and has no locks; only its own frames reach the stream, because descriptor 1 is moved
away before anything else runs. Standard library only, Python 3.9+.
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
from sandbox.inside.jobs import prctl, shell, work

DUMPABLE, PARENT_DEATH = 4, 1  # prctl options
CHUNK = 1 << 16
HEAD = struct.Struct(">II")
LINGER = 0.02  # seconds that a late writer (a process substitution) gets after its shell ended
RESERVE = 16  # processes that only the server may start, so that a full machine can still be cleaned up


def tree(root: int) -> list[int]:
    """The process `root` and all its descendants."""
    children: dict[int, list[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # "pid (any name) state ppid …": the name may hold spaces and brackets, so cut behind the last one.
            children.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(int(pid))
    found, todo = [], [root]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def kill_tree(root: int) -> None:
    """Stop until two looks find nobody new (a fork bomb would outrun a plain kill), then kill them all."""
    seen: set[int] = set()
    quiet = 0
    for _ in range(500):
        new = set(tree(root)) - seen
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
    """One request that is being worked on. Of its output the first half of `most` bytes is sent while it comes, of the
    rest the last half is kept for the end: an error message stands at the end of a long log."""

    def __init__(self, id_: int, pid: int, out: int, most: int, seconds: float, place: int = -1) -> None:
        self.id, self.pid, self.out, self.place = id_, pid, out, place
        self.deadline = time.monotonic() + seconds
        self.room = most - most // 2
        self.keep = most // 2
        self.tail = bytearray()
        self.dropped = 0
        self.exit: int | None = None
        self.timed_out = False
        self.eof = False

    def take(self, data: bytes) -> bytes:
        """What of `data` is to be sent now."""
        now, later = data[: self.room], data[self.room :]
        self.room -= len(now)
        self.tail += later
        over = len(self.tail) - self.keep
        if over > 0:
            del self.tail[:over]
            self.dropped += over
        return now

    def where(self) -> str:
        """Where the shell ended; "" when it did not say."""
        if self.place < 0:
            return ""
        os.set_blocking(self.place, False)
        try:
            said = os.read(self.place, 4096).decode("utf-8", "replace")
        except BlockingIOError:
            said = ""
        os.close(self.place)
        return said[:-1] if said.endswith("\n") else ""


class Server:
    """Takes frames from `source`, runs jobs, sends frames to `sink`. `processes` bounds what a command may start,
    `egress` is where the host's proxy listens, "" without a network."""

    def __init__(self, source: int, sink: int, processes: int, egress: str) -> None:
        self.source, self.sink, self.processes, self.egress = source, sink, processes, egress
        self.incoming = bytearray()
        self.jobs: dict[int, Job] = {}
        self.open = True
        self.selector = selectors.DefaultSelector()
        self.wake, self.waker = os.pipe()
        for fd in (self.wake, self.waker):
            os.set_blocking(fd, False)

    def serve(self) -> None:
        """Work until the stream ends."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the wake-up descriptor needs a handler to exist
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        self.selector.register(self.source, selectors.EVENT_READ, self.listen)
        self.selector.register(self.wake, selectors.EVENT_READ, self.reap)
        with contextlib.suppress(OSError):  # somebody inside has taken the port: no network is their loss
            door = relay.listen()
            self.selector.register(door, selectors.EVENT_READ, lambda: self.let_out(door))
        try:
            self.send({"hello": 1})
            while self.open:
                for key, _ in self.selector.select(self.patience()):
                    key.data()
                self.expire()
        finally:
            # Not PID 1 everywhere: what nobody waits for any more must not outlive the stream.
            for job in self.jobs.values():
                kill_tree(job.pid)

    def let_out(self, door: socket.socket) -> None:
        """A connection for the proxy: a child carries it."""

        def child(_: int) -> None:
            prctl(PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
            relay.carry(client, self.egress)

        try:
            client = door.accept()[0]
        except OSError:
            return
        with client, contextlib.suppress(OSError):  # no process can be started: it sees the connection end
            os.close(self.fork(child)[1])

    # ------------------------------------------------------------ frames

    def send(self, frame: dict[str, Any], data: bytes = b"") -> None:
        head = json.dumps(frame).encode()
        rest = memoryview(HEAD.pack(len(head), len(data)) + head + data)
        while rest:
            rest = rest[os.write(self.sink, rest) :]

    def listen(self) -> None:
        data = os.read(self.source, CHUNK)
        if not data:
            self.open = False
        self.incoming += data
        while len(self.incoming) >= HEAD.size:
            head, size = HEAD.unpack_from(self.incoming)
            start = HEAD.size + head
            end = start + size
            if len(self.incoming) < end:
                break
            frame = json.loads(self.incoming[HEAD.size : start])
            if "kill" not in frame:
                with memoryview(self.incoming)[start:end] as body:  # not copied: the job is a fork
                    self.begin(frame, body)
            elif frame["kill"] in self.jobs:
                kill_tree(self.jobs[frame["kill"]].pid)
            del self.incoming[:end]

    # ------------------------------------------------------------ jobs

    def begin(self, frame: dict[str, Any], body: memoryview) -> None:
        """Start the job that `frame` asks for; where no process can be started, say so."""
        place = -1
        try:
            if frame["op"] == "run":
                place, said = os.pipe()
                try:
                    pid, out = self.fork(lambda out: shell(frame, out, said, self.processes))
                finally:
                    os.close(said)
            else:
                pid, out = self.fork(lambda out: work(frame, body, out))
        except OSError as error:
            if place >= 0:
                os.close(place)
            self.send({"id": frame["id"], "error": f"The sandbox cannot start another process ({error.strerror})."})
            return
        os.set_blocking(out, False)
        job = self.jobs[frame["id"]] = Job(frame["id"], pid, out, frame["max"], frame["timeout"], place)
        self.selector.register(out, selectors.EVENT_READ, lambda: self.pump(job))

    def fork(self, child: Callable[[int], None]) -> tuple[int, int]:
        """Start a process that runs `child` with the writing end of a pipe; gives its pid and the reading end."""
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
        except BaseException as error:  # noqa: BLE001  nothing may unwind from here into the server's own loop
            os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(125)

    def pump(self, job: Job) -> None:
        """Move what is in the job's pipe; once the job has ended, throw it away but keep the pipe flowing."""
        if job.eof:
            return  # `reap` came first in this round and has closed it
        for _ in range(64):
            try:
                data = os.read(job.out, CHUNK)
            except BlockingIOError:
                return
            if not data:
                self.selector.unregister(job.out)
                os.close(job.out)
                job.eof = True
                if job.exit is not None:
                    self.finish(job)
                return
            if job.id in self.jobs:
                self.pass_on(job, job.take(data))

    def pass_on(self, job: Job, data: bytes) -> None:
        for start in range(0, len(data), CHUNK):
            self.send({"id": job.id}, data[start : start + CHUNK])

    def reap(self) -> None:
        """Collect every process that ended: jobs, and the orphans that came to PID 1."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wake, CHUNK):
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
                job.deadline = time.monotonic() + LINGER
                if job.eof:
                    self.finish(job)
                else:
                    self.pump(job)

    def finish(self, job: Job) -> None:
        """Say how the job ended."""
        if self.jobs.pop(job.id, None):
            self.pass_on(job, bytes(job.tail))
            code = None if job.timed_out else job.exit
            self.send({"id": job.id, "exit": code, "dropped": job.dropped, "cwd": job.where()})

    def patience(self) -> float | None:
        """Seconds until the next deadline."""
        if not self.jobs:
            return None
        return max(0.0, min(job.deadline for job in self.jobs.values()) - time.monotonic())

    def expire(self) -> None:
        """End jobs that are over, kill those that took too long."""
        now = time.monotonic()
        for job in [job for job in self.jobs.values() if job.deadline <= now]:
            if job.exit is not None:
                self.finish(job)
            else:
                job.timed_out = True
                job.deadline = now + 1  # once more, should somebody have slipped through
                kill_tree(job.pid)


def main(processes: int) -> None:
    """Serve stdin and stdout. `processes` is how many commands may have alive, 0 for no limit."""
    sink = os.dup(1)
    os.dup2(2, 1)  # a stray print must not corrupt the stream
    # Nobody inside may look into this process or its descriptors, and Ctrl-C from inside must not end PID 1.
    prctl(DUMPABLE, 0, 0, 0, 0)
    if os.getpid() == 1:  # else the parent is a helper of the engine that ends when we have begun
        prctl(PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if processes:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes + RESERVE, processes + RESERVE))
    egress = os.environ.pop("FAWN_EGRESS", "")  # noqa: TID251  the sandbox's own environment, not the service's
    with contextlib.suppress(OSError):  # without a home there are no scripts, and still commands
        environment.install()
    Server(0, sink, processes, egress).serve()
