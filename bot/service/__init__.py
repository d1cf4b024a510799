"""Serve every part of the process: jobs, loops, folders, log."""
