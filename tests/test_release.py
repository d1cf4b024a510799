"""A release: the same bytes twice, every package of the lock in SBOM and licences, and checksums that are signed."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.markers import default_environment

from bot.base.version import VERSION
from tests.support.lazy_modules import lazy_module

cyclonedx, validation = lazy_module("cyclonedx.schema"), lazy_module("cyclonedx.validation.json")  # 1.7 s of CPU
ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "packaging" / "release"))
PINS = {
    (name.lower(), version)
    for name, version in re.findall(
        r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", SCRIPT["read_lock"]("service"), re.MULTILINE
    )
}


def release(target: Path, umask: int = 0o022, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script. The tests' own commit may have changes beside it."""
    return subprocess.run(
        [sys.executable, ROOT / "packaging" / "release"],
        env={**os.environ, "DIST": str(target), "IMAGES": "", **environment},
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


@pytest.mark.skipif(not shutil.which("minisign"), reason="minisign is not there: apt-get install minisign")
def test_checksums_are_signed_by_a_key_of_minisign(tmp_path: Path) -> None:
    words = ["minisign", "-G", "-W", "-p", str(tmp_path / "key.pub"), "-s", str(tmp_path / "key")]
    subprocess.run(words, check=True, capture_output=True)
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("0  a\n")
    assert SCRIPT["sign"](sums, tmp_path / "key", "fawn 1.2") == "SHA256SUMS.minisig"
    verify = ["minisign", "-V", "-p", str(tmp_path / "key.pub"), "-m", str(sums)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (done.returncode, "Trusted comment: fawn 1.2" in done.stdout) == (0, True), done.stderr
    sums.write_text("1  a\n")
    assert subprocess.run(verify, capture_output=True, check=False).returncode != 0


def test_a_key_that_is_not_there_signs_nothing(tmp_path: Path) -> None:
    with pytest.raises(SCRIPT["NotReleased"], match="SIGNING_KEY cannot be read"):
        SCRIPT["sign"](tmp_path / "SHA256SUMS", tmp_path / "key", "")


def test_what_is_no_release_is_refused(tmp_path: Path) -> None:
    done = release(tmp_path / "dist")
    assert done.returncode == 1
    assert re.search(r"changes without a commit|has no tag|no heading", done.stderr), done.stderr
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "old.whl").touch()
    done = release(tmp_path / "full", DRAFT="1")
    assert (done.returncode, "is not empty (old.whl)" in done.stderr) == (1, True)


def test_a_version_leaves_data_for_those_after_it() -> None:
    """Of the schema that it has: it is written again where a migration came later."""
    file = ROOT / f"tests/support/released/fawn-{VERSION}.tar.gz"
    with tarfile.open(file) as saved:
        assert "fawn.db" in saved.getnames()
    check_data = SCRIPT["check_data"]
    with pytest.raises(SCRIPT["NotReleased"], match=r"of an earlier commit \(schema \d{4}, not 9999\): python -m"):
        check_data(file, "9999")
    with pytest.raises(SCRIPT["NotReleased"], match=r"there is no fawn-9\.tar\.gz with the data of this version"):
        check_data(file.with_name("fawn-9.tar.gz"), "9999")


# ---------------------------------------------------------------- images


def test_the_sbom_of_an_image_is_valid_and_complete() -> None:
    lock = (ROOT / "packaging/debian/service.lock").read_text().splitlines()
    components = [*SCRIPT["debian_components"](lock[1:], lock)]
    components += SCRIPT["python_components"](
        {"fawn": "0.1.0", "Aiohttp": "3.1", "pip": "23"}, {("aiohttp", "3.1")}, ""
    )
    text = SCRIPT["image_sbom"]("fawn:0.1.0", "sha256:" + "0a" * 32, components, 1767225600)
    assert validation.JsonStrictValidator(cyclonedx.SchemaVersion.V1_6).validate_str(text) is None
    found = json.loads(text)
    assert found["metadata"]["timestamp"] == "2026-01-01T00:00:00Z"
    assert len(found["components"]) == len(lock) - 1 + 3
    assert len({each["bom-ref"] for each in found["components"]}) == len(found["components"])


def test_wheels_of_an_image_are_those_for_its_python() -> None:
    """Debian's 3.11.2 takes another soupsieve than the 3.11.7 that may build the image: pip judges by its own."""
    image = runpy.run_path(str(ROOT / "packaging" / "image"))
    here = json.loads(subprocess.run([sys.executable, "-c", image["LOOK"]], capture_output=True, check=True).stdout)
    assert here == {**default_environment(), "platform_version": here["platform_version"]}
    lock = "".join(
        f"soupsieve=={version} ; python_full_version {mark} '3.11.5' \\\n    --hash=sha256:{'0' * 64}\n    # via x\n"
        for version, mark in (("2.10", "<"), ("4.1.3", ">="))
    )
    lock += (ROOT / "requirements.lock").read_text("utf-8")
    chosen = {}
    for version in ("3.11.2", "3.11.7"):
        lines = [*image["pins_for"]({**here, "python_full_version": version}, lock)]
        chosen[version] = {line.partition(" ")[0] for line in lines}
        assert all(re.fullmatch(r"\S+==\S+( --hash=sha256:[0-9a-f]{64})+\n", line) for line in lines)
    assert len(chosen["3.11.2"]) == len(chosen["3.11.7"]) > 50
    assert chosen["3.11.2"] ^ chosen["3.11.7"] == {"soupsieve==2.10", "soupsieve==4.1.3"}


def test_an_image_with_a_package_that_no_lock_names_is_refused() -> None:
    with pytest.raises(SCRIPT["NotReleased"], match=r"bash=5\.9, which its lock does not name"):
        [*SCRIPT["debian_components"](["bash=5.9"], ["bash=5.2"])]
    for found, pins in (({"evil": "1"}, set[tuple[str, str]]()), ({"aiohttp": "3.2"}, {("aiohttp", "3.1")})):
        with pytest.raises(SCRIPT["NotReleased"], match="which its lock does not name"):
            [*SCRIPT["python_components"](found, pins, "")]
    assert [*SCRIPT["python_components"]({"PyYAML": "6"}, set(), "# …\npython3-pyyaml=6.0-1\n")]
