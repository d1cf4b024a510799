"""Background tasks: what outlives a turn or runs without one."""
