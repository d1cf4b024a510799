"""The rule that makes the demo ask for an approval."""

from __future__ import annotations

from agent.permissions.rules import Rule

APPROVED_FILE = "/mnt/user-data/outputs/approved.txt"
DEMO_RULES = (Rule("ask", "write_file", APPROVED_FILE, builtin=True),)
