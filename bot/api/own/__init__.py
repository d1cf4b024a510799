"""Serve what is the caller's own, beside threads and runs: choices, skills, memory, schedules, tasks, usage."""
