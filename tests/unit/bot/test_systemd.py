"""What systemd receives from the service."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.base.process import SystemdNotifier
from bot.config.loader import load_config
from bot.config.schema import SystemdConfig

UNIT = Path(__file__).parents[3] / "packaging" / "fawn.service"
MOST_EXPOSURE = 3.0


@pytest.fixture(params=["path", "abstract"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind("\0" + address[1:] if address.startswith("@") else address)
        opened.setblocking(False)
        yield address, opened


async def test_the_states_reach_the_socket(receiver: tuple[str, socket.socket]) -> None:
    address, received = receiver
    notifier = SystemdNotifier(SystemdConfig(address, watchdog_seconds=0.01))
    notifier.send("READY=1")
    await notifier.feed_watchdog()
    assert [received.recv(100), received.recv(100)] == [b"READY=1", b"WATCHDOG=1"]


def test_without_systemd_or_its_socket_nothing_happens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    SystemdNotifier(SystemdConfig()).send("READY=1")
    assert not caplog.records
    SystemdNotifier(SystemdConfig(str(tmp_path / "gone"))).send("READY=1")
    assert "systemd.unreachable" in caplog.text


def test_the_environment_names_socket_and_watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "60000000"}
    assert load_config(None, environ).systemd == SystemdConfig("/run/n", 60.0)
    assert load_config(None, {"WATCHDOG_USEC": "x"}).systemd == SystemdConfig()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_valid_and_takes_away_what_can_be_taken_away(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/fawn/.venv/bin/fawn", shutil.which("true") or ""))
    checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    words: list[str | Path] = ["systemd-analyze", "security", "--offline=true", "--no-pager", unit]
    judged = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    level = re.search(r"Overall exposure level for fawn\.service: (\d+\.\d)", judged)
    assert level, judged
    assert float(level[1]) <= MOST_EXPOSURE, judged
