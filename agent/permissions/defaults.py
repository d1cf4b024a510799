"""The built-in rules. A rule of the configuration that matches a call replaces them."""

from __future__ import annotations

from agent.permissions.rules import Rule

OUTSIDE_PATTERNS = (
    "git push *",
    "ssh *",
    "scp *",
    "sftp *",
    "rsync *:*",
    "gh *",
    "npm publish *",
    "twine upload *",
    "curl -X *",
    "curl -d *",
    "curl -F *",
    "curl -T *",
    "curl -Q *",
    "wget --post-*",
    "wget --body-*",
    "wget --method *",
    "wget --execute *",
)
OUTSIDE_RULES = tuple(Rule("ask", "bash", pattern, builtin=True) for pattern in OUTSIDE_PATTERNS)
"""Ask before commands that act on other systems. They matter where the sandbox has a network."""
