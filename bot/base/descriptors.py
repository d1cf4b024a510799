"""The limit of open files of this process."""

from __future__ import annotations

import resource

MAX_DESCRIPTORS = 65_536  # where the system does not set a hard limit


def raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors, which is 1024 on most systems, to the hard limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
