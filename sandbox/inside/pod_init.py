"""Be PID 1 of a pod: reap orphans, and end the pod if it runs more processes and threads than it may.

A pod cannot limit its processes, and RLIMIT_NPROC counts those of all pods with the same user on a node. So PID 1
looks at the control group's count ten times a second, and exits above the limit: the kernel then kills every process
of the pod at once. Signals from inside do not reach PID 1, and no process may trace it. Standard library only, Python
3.9+.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

TOO_MANY_EXIT_CODE = 97  # the service reads it in the pod's status
LOOK_SECONDS = 0.1
PR_SET_DUMPABLE = 4  # of prctl
COUNTERS = ("/sys/fs/cgroup/pids.current", "/sys/fs/cgroup/pids/pids.current")  # of cgroup v2 and v1


def count_tasks() -> int:
    """Count the processes and threads of this pod."""
    for path in COUNTERS:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            return int(file.read())
    count = 0  # gVisor has no such file
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has just ended
            count += len(os.listdir(f"/proc/{name}/task"))
    return count


def reap_children() -> None:
    """Collect the status of each process that has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main(most: int) -> None:
    """Watch until there are more than `most` processes and threads."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # commands have the same user, and may not trace this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python handles it, so it would reach this process
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while count_tasks() <= most:
        signal.sigtimedwait({signal.SIGCHLD}, LOOK_SECONDS)
        reap_children()
        time.sleep(0.01)  # many short-lived processes must not keep this one busy
    sys.stderr.write(f"more than {most} processes and threads\n")
    os._exit(TOO_MANY_EXIT_CODE)


if __name__ == "__main__":
    main(int(sys.argv[1]))
