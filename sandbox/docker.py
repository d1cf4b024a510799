"""The Docker provider: one container per thread, with the command server on the stream of one exec."""

from __future__ import annotations
