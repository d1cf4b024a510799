"""Be `fawn` in a process that the fork server makes: `python forked_program.py ADDRESS ARGUMENTS`.

It passes on its stdin, stdout, stderr, folder, variables and signals, and ends as the program does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGWINCH,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def main(address: str, *arguments: str) -> None:
    """Run the program to its end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        socket.send_fds(server, [b"\n"], [0, 1, 2])
        server.sendall(json.dumps(request).encode() + b"\n")
        answers = server.makefile()
        pid = int(answers.readline())
        for number in PASSED_ON:
            signal.signal(number, lambda sent, _frame: os.kill(pid, sent))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        status = int(answers.readline().split()[0])
    if status < 0:
        if -status in PASSED_ON:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
