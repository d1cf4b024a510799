"""Check the sandbox of this installation from inside.

Covers folders, commands, packages, skills, network, limits, and a local server. Prints a Markdown table or JSON.
Exits with 1 if something that every installation has does not work.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import importlib.util
import json
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/mnt/user-data")
SKILLS = Path("/mnt/skills")
REQUIRED_COMMANDS = ("bash", "python3")
USEFUL_COMMANDS = ("node", "git", "curl", "jq", "rg", "pandoc", "pdftotext", "convert", "dot")
PACKAGES = {
    "bs4": "beautifulsoup4", "defusedxml": "defusedxml", "docx": "python-docx",
    "imageio": "imageio", "matplotlib": "matplotlib",
    "numpy": "numpy", "openpyxl": "openpyxl", "pandas": "pandas", "pdf2image": "pdf2image",
    "pdfplumber": "pdfplumber", "PIL": "pillow",
    "pptx": "python-pptx", "pypdf": "pypdf", "pypdfium2": "pypdfium2", "python_calamine": "python-calamine",
    "reportlab": "reportlab",
}  # fmt: skip
NETWORK_SECONDS = 8


class Check(NamedTuple):
    """A result: "ok", "missing" (optional), "off" (by the operator's choice) or "failed"."""

    what: str
    state: str
    detail: str
    fix: str = ""


def check_folders() -> list[Check]:
    """Write, read and delete a file in each folder; the skills must be read-only."""
    checks = []
    for name in ("workspace", "uploads", "outputs"):
        probe = ROOT / name / ".smoke-test"
        try:
            probe.write_bytes(b"x" * 1000)
            size = len(probe.read_bytes())
            probe.unlink()
            free = shutil.disk_usage(ROOT / name).free >> 20
            checks.append(Check(f"folder {name}", "ok", f"{size} bytes written and read, {free} MB free"))
        except OSError as error:
            checks.append(Check(f"folder {name}", "failed", str(error), "see docs/sandbox.md, Troubleshooting"))
    found = sorted(path.parent.name for path in SKILLS.glob("*/SKILL.md"))
    try:
        (SKILLS / ".smoke-test").write_bytes(b"")
        (SKILLS / ".smoke-test").unlink()
        checks.append(Check("skills", "failed", f"{SKILLS} can be written", "mount it read-only"))
    except OSError:
        checks.append(
            Check(
                "skills",
                "ok" if found else "missing",
                f"read-only, {len(found)}: {', '.join(found)}" if found else "none",
                "" if found else "an operator enables them: /skills enable NAME",
            )
        )
    return checks


def check_commands() -> list[Check]:
    checks = []
    for name in REQUIRED_COMMANDS:
        checks.append(
            Check(f"command {name}", "ok" if shutil.which(name) else "failed", shutil.which(name) or "not installed")
        )
    absent = [name for name in USEFUL_COMMANDS if not shutil.which(name)]
    there = [name for name in USEFUL_COMMANDS if name not in absent]
    checks.append(
        Check(
            "further commands",
            "missing" if absent else "ok",
            summary(there, absent),
            "the image fawn-sandbox has them (`fawn sandbox build`)" if absent else "",
        )
    )
    started = time.monotonic()
    done = subprocess.run(["bash", "-c", "echo $((6 * 7)) | cat"], capture_output=True, text=True, check=False)
    state = "ok" if done.stdout == "42\n" else "failed"
    return [
        *checks,
        Check("a pipeline in bash", state, f"{done.stdout.strip()} in {(time.monotonic() - started) * 1000:.0f} ms"),
    ]


def check_packages() -> list[Check]:
    absent = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
    there = [package for package in PACKAGES.values() if package not in absent]
    fix = f"pip install {' '.join(absent)} (needs sandbox.network), or use the image fawn-sandbox" if absent else ""
    checks = [
        Check("Python", "ok", f"{platform.python_version()} on {platform.machine()}"),
        Check("packages", "missing" if absent else "ok", summary(there, absent), fix),
    ]
    fonts = [
        path.name for folder in ("/usr/share/fonts", "/usr/local/share/fonts") for path in Path(folder).glob("**/*CJK*")
    ]
    return [
        *checks,
        Check(
            "Chinese, Japanese, Korean fonts",
            "ok" if fonts else "missing",
            fonts[0] if fonts else "none: charts show boxes",
            "" if fonts else "apt install fonts-noto-cjk",
        ),
    ]


def summary(there: list[str], absent: list[str]) -> str:
    return f"{len(there)} of {len(there) + len(absent)}" + (f"; not installed: {', '.join(absent)}" if absent else "")


def check_network(url: str) -> list[Check]:
    """Ask for a page through the proxy. A refusal is the operator's choice, not a failure."""
    proxy = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or ""
    request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "FawnSmokeTest/1.0"})
    try:
        with urllib.request.urlopen(request, timeout=NETWORK_SECONDS) as response:
            return [Check("network", "ok", f"{url}: HTTP {response.status}")]
    except urllib.error.HTTPError as error:
        refused = error.code == 403 and bool(proxy)
        return [
            Check(
                "network",
                "off" if refused else "ok",
                f"{url}: HTTP {error.code}",
                "sandbox.network in config.yaml allows hosts" if refused else "",
            )
        ]
    except OSError as error:
        return [
            Check(
                "network",
                "off",
                f"{url}: {getattr(error, 'reason', error)}",
                "sandbox.network in config.yaml allows hosts",
            )
        ]


def check_isolation() -> list[Check]:
    """See that the sandbox is none of the host's root, and has no network device but the loopback."""
    devices = sorted(name for _, name in socket.if_nameindex()) if hasattr(socket, "if_nameindex") else []
    privileges = re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text("ascii"))
    held = int(privileges[1], 16) if privileges else 0
    checks = [
        Check(
            "user",
            "failed" if os.geteuid() == 0 else "ok",
            f"uid {os.geteuid()}",
            "" if os.geteuid() else "commands must not run as root",
        )
    ]
    checks.append(Check("capabilities", "failed" if held else "ok", f"{held:#x}"))
    return [
        *checks,
        Check("network devices", "ok" if devices in ([], ["lo"]) else "failed", ", ".join(devices) or "none"),
    ]


def check_limits() -> list[Check]:
    """Report the limits, and see that a file larger than allowed is refused."""

    def shown(value: int, unit: int = 1) -> str:
        return "unlimited" if value == resource.RLIM_INFINITY else str(value // unit)

    memory = next(
        (
            text
            for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
            if Path(name).is_file()
            and (text := Path(name).read_text("ascii").strip()).isdigit()
            and int(text) < 1 << 50  # version 1 writes a huge number for "no limit"
        ),
        "",
    )
    size = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    details = [
        f"memory {int(memory) >> 20 if memory else shown(resource.getrlimit(resource.RLIMIT_DATA)[0], 1 << 20)} MB",
        f"CPUs {len(os.sched_getaffinity(0))}",
        f"processes {shown(resource.getrlimit(resource.RLIMIT_NPROC)[0])}",
        f"one file {shown(size, 1 << 20)} MB",
        f"/tmp {shutil.disk_usage('/tmp').total >> 20} MB",  # noqa: S108  the sandbox's own
    ]
    checks = [Check("limits", "ok", ", ".join(details))]
    if size != resource.RLIM_INFINITY:
        probe = ROOT / "workspace/.smoke-test-size"
        code = f"import os; f = os.open({str(probe)!r}, os.O_CREAT | os.O_WRONLY); os.pwrite(f, b'x', {size})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        probe.unlink(missing_ok=True)
        checks.append(
            Check(
                "a file beyond the limit",
                "ok" if done.returncode else "failed",
                "refused" if done.returncode else "was written",
            )
        )
    return checks


def check_server() -> list[Check]:
    """Serve a page on the loopback, which is what a preview needs, and read it back."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"smoke-test")

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            body = direct.open(f"http://127.0.0.1:{server.server_port}/", timeout=5).read()
        except OSError as error:
            return [Check("a local server", "failed", str(error))]
        finally:
            server.shutdown()
    return [
        Check(
            "a local server",
            "ok" if body == b"smoke-test" else "failed",
            f"port {server.server_port} answered; `expose` makes a link to such a port",
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--url", default="https://example.com/", help="the page for the check of the network")
    options = parser.parse_args()
    parts: list[Callable[[], list[Check]]] = [
        check_folders, check_commands, check_packages, functools.partial(check_network, options.url), check_isolation,
        check_limits, check_server,
    ]  # fmt: skip
    checks = [check for part in parts for check in part()]
    failed = [check for check in checks if check.state == "failed"]
    if options.json:
        print(
            json.dumps(
                {"ok": not failed, "checks": [check._asdict() for check in checks]}, ensure_ascii=False, indent=1
            )
        )
    else:
        print("| check | state | detail | fix |\n| --- | --- | --- | --- |")
        for check in checks:
            print("| " + " | ".join(cell.replace("|", "\\|") for cell in check) + " |")
        print(f"\n{len(checks)} checks, {len(failed)} failed.")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
