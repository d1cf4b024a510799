"""Run `fawn` as a process that stops when its parent ends, however that happens."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == 1:  # the parent has ended before
        sys.exit(1)
    from bot.__main__ import main

    sys.exit(main())
