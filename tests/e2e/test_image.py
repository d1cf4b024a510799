"""The image of the service: built without a network, run as Compose runs it, talked to, and stopped."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.engines import IMAGE, need_docker

ROOT = Path(__file__).parents[2]
BASE, TAG = "fawn-base:test", "fawn:test"
BASE_PACKAGES = (
    "passwd", "login", "python3-minimal", "python3.11", "python3.11-venv", "python3-pip-whl", "python3-setuptools-whl",
    "bubblewrap", "ca-certificates", "libgcc-s1", "libstdc++6", "tzdata",
    "libpam0g", "libpam-modules", "libpam-runtime", "libaudit1", "libaudit-common",
    "libsemanage2", "libsemanage-common", "libsepol2", "libbsd0", "libmd0", "media-types", "debconf", "openssl",
)  # fmt: skip
SETTINGS = f"""
encryption: {{key: $FAWN_KEY}}
http: {{listen: 0.0.0.0:8080, peers: [172.16.0.0/12]}}
sandbox: {{provider: docker, image: "{IMAGE}"}}
"""


def docker(*words: str | Path, check: bool = True) -> str:
    """Run the client and return what it prints."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return (done.stdout + ("" if check else done.stderr)).strip()


@pytest.fixture(scope="module")
def image() -> str:
    """Build the image. Layers that were built before are there still."""
    need_docker()
    subprocess.run([ROOT / "packaging" / "test-image", BASE, *BASE_PACKAGES], check=True, capture_output=True)
    words = [str(ROOT / "packaging" / "image"), "service", "--base", BASE, "--tag", TAG, "--channels", "slack"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return TAG


@pytest.fixture
def names() -> Iterator[dict[str, str]]:
    """Names of a volume and two containers of this test alone, which are removed after it."""
    mark = secrets.token_hex(4)
    made = {name: f"fawn-test-{name}-{mark}" for name in ("data", "engine", "service", "proxy")}
    yield made
    docker("rm", "-f", made["service"], made["proxy"], check=False)
    docker("volume", "rm", "-f", made["data"], made["engine"], check=False)


def as_in_compose(name: str) -> list[str]:
    """Return the options of `docker run` by which Compose starts a service, so that the test and the file agree."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"][name]
    words = ["--init", *(["--read-only"] if service["read_only"] else [])]
    for option, key in (("--cap-drop", "cap_drop"), ("--cap-add", "cap_add"), ("--security-opt", "security_opt")):
        words += [word for value in service.get(key, ()) for word in (option, value)]
    words += [word for value in service.get("tmpfs", ()) for word in ("--tmpfs", value)]
    words += ["--pids-limit", str(service["pids_limit"]), "--memory", service["mem_limit"]]
    for option, key in (("--user", "user"), ("--network", "network_mode")):
        words += [option, service[key]] if key in service else []
    return words


def wait_until_healthy(container: str) -> None:
    """Wait for what the engine itself finds by the image's health check."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        state = json.loads(docker("inspect", container, "--format", "{{json .State}}"))
        assert state["Running"], docker("logs", container, check=False)
        if state["Health"]["Status"] == "healthy":
            return
        time.sleep(0.5)
    pytest.fail(docker("logs", container, check=False))


@pytest.mark.slow
def test_the_service_runs_in_its_image(image: str, names: dict[str, str], tmp_path: Path) -> None:
    """With a read-only root, no capability, an ordinary user, a key from a file, and sandboxes through the proxy."""
    settings, key = tmp_path / "config.local.yaml", tmp_path / "key"
    settings.write_text(SETTINGS)
    key.write_text(base64.b64encode(bytes(range(32))).decode() + "\n")
    for file in (settings, key):
        file.chmod(0o644)
    tmp_path.chmod(0o755)
    engine, proxy = names["engine"], ["python", "-m", "sandbox.docker.socket_proxy"]
    socket = "/var/run/docker.sock"
    docker(
        "run", "-d", "--name", names["proxy"], *as_in_compose("engine"), "-v", f"{socket}:{socket}",
        "-v", f"{engine}:/engine", "-v", f"{names['data']}:/data:ro", "--entrypoint", proxy[0], image,
        *proxy[1:], "--listen", "/engine/docker.sock", "--data", "/data", "--image", IMAGE,
    )  # fmt: skip
    docker(
        "run", "-d", "--name", names["service"], *as_in_compose("service"), "-v", f"{names['data']}:/var/lib/fawn",
        "-v", f"{engine}:/run", "-v", f"{settings}:/var/lib/fawn/config.local.yaml:ro",
        "-v", f"{key}:/run/secrets/key:ro", "-e", "FAWN_KEY_FILE=/run/secrets/key", "--health-interval", "2s",
        "-p", "127.0.0.1:0:8080", image,
    )  # fmt: skip
    wait_until_healthy(names["service"])
    inside = ["exec", names["service"]]
    assert docker(*inside, "id", "-u") == "10001"
    assert docker(*inside, "touch", "/opt/fawn/x", check=False).endswith("Read-only file system")

    port = docker("port", names["service"], "8080").rpartition(":")[2]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
        assert json.loads(answer.read()) == {"ready": True, "troubles": []}

    asked = json.loads(docker(*inside, "fawn", "ask", "--json", "--quiet", "plot"))
    assert [Path(file).suffix for file in asked["files"]], asked  # written by a program in a sandbox

    checked = docker(*inside, "fawn", "check")
    assert "note  encryption" not in checked
    assert f"sandbox: Docker, one isolated container of {IMAGE}" in checked
    docker("stop", "--time", "60", names["service"])  # then it would be killed, with another exit code
    assert json.loads(docker("inspect", names["service"], "--format", "{{json .State.ExitCode}}")) == 0
    assert "app.stopped" in docker("logs", names["service"], check=False)


@pytest.mark.slow
def test_a_channel_whose_sdk_was_left_out_says_what_installs_it(image: str, names: dict[str, str]) -> None:
    """CHANNELS=slack leaves out the SDKs of all other platforms."""
    token = "TELEGRAM_BOT_TOKEN=123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0"
    said = docker(
        "run", "--rm", "--name", names["service"], "--network", "none", "-e", token, image, "run", check=False
    )
    assert "the package of telegram is not installed" in said, said
    assert "CHANNELS=" in said


@pytest.mark.slow
def test_the_archive_of_an_image_is_the_same_twice(image: str, tmp_path: Path) -> None:
    """Of one build; that two builds agree is tried where a release is made (docs/operations.md)."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600"}
    script = str(ROOT / "packaging" / "image")
    pack = "import pathlib, runpy, sys; f = runpy.run_path(sys.argv[1])\n"
    pack += "print(f['pack'](sys.argv[2], pathlib.Path(sys.argv[3]), f['epoch']()))"
    found = set()
    for name in ("a.tar", "b.tar"):
        words = [sys.executable, "-c", pack, script, BASE, str(tmp_path / name)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        found |= {(done.stdout, (tmp_path / name).stat().st_size)}
    assert len(found) == 1
    [(digest, _size)] = found
    assert digest.startswith("sha256:")
    loaded = docker("load", "-i", tmp_path / "a.tar")
    assert BASE in loaded
