"""The environment of commands: pip and npm install into the workspace.

The first `pip` (or `python -m pip`) makes a virtual environment on top of the system's packages, and its programs come
first from then on. `pip install --user`, `npm install -g` and the caches use the workspace, too. The command server
writes the scripts for this, the same with every provider. Standard library only, Python 3.9+.
"""

from __future__ import annotations

import os

WORKSPACE = "/mnt/user-data/workspace"
SHARED_MODULES = "/mnt/skills/.lib"  # of the skills' scripts
HOME = "/home/agent"
VENV = f"{WORKSPACE}/.venv"
SCRIPT_FOLDER = f"{HOME}/.fawn"  # our scripts
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

# Of PATH, before the machine's own folders.
PATH_PREFIX = f"{VENV}/bin:{WORKSPACE}/.npm/bin:{SCRIPT_FOLDER}:{WORKSPACE}/.local/bin"
COMMAND_VARIABLES = {
    "HOME": HOME,
    "USER": "agent",
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",  # shows a program's progress while it runs
    "XDG_CACHE_HOME": f"{WORKSPACE}/.cache",
    "PYTHONUSERBASE": f"{WORKSPACE}/.local",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",  # they are read-only, so pip installs into PYTHONUSERBASE
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "GIT_CONFIG_SYSTEM": f"{SCRIPT_FOLDER}/gitconfig",
    "npm_config_cache": f"{WORKSPACE}/.cache/npm",
    "npm_config_prefix": f"{WORKSPACE}/.npm",
    "npm_config_update_notifier": "false",
    "npm_config_audit": "false",
    "npm_config_fund": "false",
}

# The system's packages stay visible, usually pip among them; otherwise the venv gets its own.
# The lock is for concurrent first calls.
PIP_SCRIPT = f"""#!/bin/sh
exec 9>/tmp/.venv.lock; flock 9 2>/dev/null
if [ ! -x {VENV}/bin/python ]; then
    $PYTHON -m venv --clear --system-site-packages --without-pip {VENV} || exit
    $PYTHON -c 'import pip' 2>/dev/null || {VENV}/bin/python -m ensurepip >/dev/null || exit
    for name in pip pip3; do
        printf '#!/bin/sh\\nexec {SCRIPT_FOLDER}/pip "$@"\\n' > {VENV}/bin/$name
        chmod 755 {VENV}/bin/$name
    done
fi
exec 9>&-
exec {VENV}/bin/python -m pip "$@"
"""
PYTHON_SCRIPT = f"""#!/bin/sh
[ ! -x {SHARED_MODULES} ] || case ":${{PYTHONPATH}}:" in
    *:{SHARED_MODULES}:*) ;;
    *) export PYTHONPATH="${{PYTHONPATH:+${{PYTHONPATH}}:}}{SHARED_MODULES}" ;;
esac
[ "$1 $2" != "-m pip" ] || {{ shift 2; exec {SCRIPT_FOLDER}/pip "$@"; }}
exec $PYTHON "$@"
"""
# git refuses to commit without a name; /etc/gitconfig and the conversation can set another.
GIT_CONFIG = "[user]\n\tname = Agent\n\temail = agent@localhost\n[include]\n\tpath = /etc/gitconfig\n"


def install_environment() -> None:
    """Set the variables and write the scripts. Raises OSError if the home is not writable."""
    path = os.environ.get("PATH", SYSTEM_PATH)  # noqa: TID251  the sandbox's own environment, not the service's
    os.environ.update(COMMAND_VARIABLES, PATH=f"{PATH_PREFIX}:{path}")  # noqa: TID251  the same
    if os.access(SHARED_MODULES, os.X_OK):  # pip ends at a folder of the path that it may not read
        os.environ["PYTHONPATH"] = SHARED_MODULES  # noqa: TID251  a command that sets it has them by PYTHON_SCRIPT
    python = next((f"{place}/python3" for place in path.split(":") if os.access(f"{place}/python3", os.X_OK)), "")
    os.makedirs(SCRIPT_FOLDER, exist_ok=True)
    with open(f"{SCRIPT_FOLDER}/gitconfig", "w", encoding="utf-8") as file:
        file.write(GIT_CONFIG)
    for text, names in ((PIP_SCRIPT, ("pip", "pip3")), (PYTHON_SCRIPT, ("python", "python3"))):
        for name in names:
            draft = f"{SCRIPT_FOLDER}/.{name}.{os.getpid()}"
            with open(draft, "w", encoding="utf-8") as file:
                file.write(text.replace("$PYTHON", python))
            os.chmod(draft, 0o755)  # noqa: S103  commands run these scripts
            os.replace(draft, f"{SCRIPT_FOLDER}/{name}")  # an older one may be running
