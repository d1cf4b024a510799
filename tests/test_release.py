"""A release: the same bytes twice, every package of the lock in SBOM and licences, and checksums that are signed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PINS = {
    (name.lower(), version)
    for name, version in re.findall(
        r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    )
}


def release(target: Path, umask: int = 0o022, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script. The tests' own commit may have changes beside it."""
    return subprocess.run(
        [sys.executable, ROOT / "packaging" / "release"],
        env={**os.environ, "DIST": str(target), **environment},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_release_is_the_same_twice_and_says_what_is_in_it(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fawn", "-f", key], check=True)
    first, second = tmp_path / "first", tmp_path / "second"
    done = release(first, DRAFT="1", SIGNING_KEY=str(key))
    assert done.returncode == 0, done.stderr
    assert release(second, 0o077, DRAFT="1", TZ="Asia/Tokyo").returncode == 0
    sums = (first / "SHA256SUMS").read_text()
    assert (second / "SHA256SUMS").read_text() == sums
    assert {line.split()[1] for line in sums.splitlines()} == {file.name for file in second.iterdir()} - {"SHA256SUMS"}

    (tmp_path / "signers").write_text(f"fawn {key.with_suffix('.pub').read_text()}")
    verify: list[str | Path] = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        tmp_path / "signers",
        "-I",
        "fawn",
        "-n",
        "fawn-release",
    ]
    verify += ["-s", first / "SHA256SUMS.sig"]
    assert subprocess.run(verify, input=sums, text=True, capture_output=True, check=False).returncode == 0
    assert subprocess.run(verify, input=f"{sums} ", text=True, capture_output=True, check=False).returncode != 0
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=first, check=True)

    [sbom] = first.glob("*.cdx.json")
    found = json.loads(sbom.read_text())
    assert (found["bomFormat"], found["metadata"]["component"]["name"]) == ("CycloneDX", "fawn")
    assert {(each["name"].lower(), each["version"]) for each in found["components"]} >= PINS
    assert all(each["purl"].startswith("pkg:pypi/") for each in found["components"])
    [licences] = first.glob("*-licences.txt")
    text = licences.read_text().lower()
    assert [f"{name} {version}" for name, version in PINS if f"\n{name} {version}\n" not in text] == []

    [sdist] = first.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        entries = archive.getmembers()
    assert {(each.uid, each.gid, each.uname) for each in entries} == {(0, 0, "")}
    assert len({each.mtime for each in entries}) == 1


def test_what_is_no_release_is_refused(tmp_path: Path) -> None:
    done = release(tmp_path / "dist")
    assert done.returncode == 1
    assert re.search(r"changes without a commit|has no tag|no heading", done.stderr), done.stderr
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "old.whl").touch()
    done = release(tmp_path / "full", DRAFT="1")
    assert (done.returncode, "is not empty (old.whl)" in done.stderr) == (1, True)
