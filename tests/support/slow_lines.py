"""Lines of the shell that take long to judge."""

from __future__ import annotations

from agent.permissions.defaults import OUTSIDE_RULES
from agent.permissions.rules import Subject, ToolUse, parse_rules

ALLOWED = ("git *", "echo *", "cat *", "ls *", "cd *", "head *", "true", ":")
RULES = parse_rules(deny=["bash(rm *)"], allow=[f"bash({text})" for text in ALLOWED])
MANY_RULES = (
    *parse_rules(deny=[f"bash(tool{number} *-x * {number})" for number in range(100)]),
    *RULES,
    *OUTSIDE_RULES,
)
SLOW_LINES = [
    "/mnt/user-data/workspace/project/$NAME/run.sh",
    "/mnt/user-data/workspace/scripts/build$n --help",
    "a" * 8000 + "$x",
    "a" * 8000 + "@",
    "'a'" * 2500 + "{",
    "\\a" * 4000 + "~",
    "a|" * 4000,
    "a|" * 32_000,
    "a" + "|a" * 700,
    "sudo " * 1600 + "x",
    "sudo " * 5000 + "git push",
    "a;" * 5000,
    "$a;" * 5000,
    "<<a " * 20_000,
    "${a" * 2500,
    "x=" * 4000,
    "bash -c " * 1000,
    "\x00" * 9000,
    "rm $a;" * 1100,
    "timeout 5 " * 800 + "$x",
    "env " * 1500 + "$x",
    "git config a $x;" * 500,
    "git - " * 15_000,
    "git -" * 200_000,
    "curl -d@x -XPOST $x;" * 400,
    # many nodes of the grammar, and texts of which parts are known only when they run
    "a $(b);" * 1000,
    "`a`;" * 2000,
    "a<b;" * 2000,
    "a && " * 1600,
    "a>b " * 2000,
    "<(a) " * 1600,
    '"$a" ' * 1600,
    "xargs " * 1300,
]


def shell_call(line: str) -> ToolUse:
    """Return a call of bash with this line."""
    return ToolUse("bash", {"command": line}, Subject("command", "shell"))
