"""The environment of a sandbox's commands: what pip and npm install lands in the workspace and outlives the machine.

`pip` (or `python -m pip`) makes a virtual environment at its first use, on top of what the system's Python has;
from then on its programs come first. What is installed past it (`--user`, by a program with the system's Python), `npm
install -g` and the caches stay in the workspace too. The same for every provider: the command server writes the few
scripts that this needs. Standard library only, Python 3.9+.
"""

from __future__ import annotations

import os

WORKSPACE = "/mnt/user-data/workspace"
HOME = "/home/agent"
VENV = f"{WORKSPACE}/.venv"
TOOLS = f"{HOME}/.fawn"  # our scripts
SYSTEM = "/usr/local/bin:/usr/bin:/bin"

FIRST = f"{VENV}/bin:{WORKSPACE}/.npm/bin:{TOOLS}:{WORKSPACE}/.local/bin"  # of PATH, before what the machine has
VARIABLES = {
    "HOME": HOME,
    "USER": "agent",
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",  # progress of a program is seen while it runs
    "XDG_CACHE_HOME": f"{WORKSPACE}/.cache",
    "PYTHONUSERBASE": f"{WORKSPACE}/.local",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",  # they are read-only: pip goes to the place above then
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "GIT_CONFIG_SYSTEM": f"{TOOLS}/gitconfig",
    "npm_config_cache": f"{WORKSPACE}/.cache/npm",
    "npm_config_prefix": f"{WORKSPACE}/.npm",
    "npm_config_update_notifier": "false",
    "npm_config_audit": "false",
    "npm_config_fund": "false",
}

# With the system's packages, so that what the image brings is there; pip itself is one of them, and if it is not, the
# venv gets its own. The lock is for two who come first at once.
PIP = f"""#!/bin/sh
exec 9>/tmp/.venv.lock; flock 9 2>/dev/null
if [ ! -x {VENV}/bin/python ]; then
    $PYTHON -m venv --clear --system-site-packages --without-pip {VENV} || exit
    $PYTHON -c 'import pip' 2>/dev/null || {VENV}/bin/python -m ensurepip >/dev/null || exit
    for name in pip pip3; do
        printf '#!/bin/sh\\nexec {TOOLS}/pip "$@"\\n' > {VENV}/bin/$name
        chmod 755 {VENV}/bin/$name
    done
fi
exec 9>&-
exec {VENV}/bin/python -m pip "$@"
"""
PYTHON = f"""#!/bin/sh
[ "$1 $2" != "-m pip" ] || {{ shift 2; exec {TOOLS}/pip "$@"; }}
exec $PYTHON "$@"
"""
# Who commits, unless the image or the conversation says otherwise: without a name git refuses.
GIT = "[user]\n\tname = Agent\n\temail = agent@localhost\n[include]\n\tpath = /etc/gitconfig\n"


def install() -> None:
    """Set the variables, and put the scripts where PATH leads. Raises OSError when there is no place for them."""
    path = os.environ.get("PATH", SYSTEM)  # noqa: TID251  the sandbox's own environment, not the service's
    os.environ.update(VARIABLES, PATH=f"{FIRST}:{path}")  # noqa: TID251  the same
    python = next((f"{place}/python3" for place in path.split(":") if os.access(f"{place}/python3", os.X_OK)), "")
    os.makedirs(TOOLS, exist_ok=True)
    with open(f"{TOOLS}/gitconfig", "w", encoding="utf-8") as file:
        file.write(GIT)
    for text, names in ((PIP, ("pip", "pip3")), (PYTHON, ("python", "python3"))):
        for name in names:
            draft = f"{TOOLS}/.{name}.{os.getpid()}"
            with open(draft, "w", encoding="utf-8") as file:
                file.write(text.replace("$PYTHON", python))
            os.chmod(draft, 0o755)  # noqa: S103  a script that everybody inside may run
            os.replace(draft, f"{TOOLS}/{name}")  # an older one may be running
