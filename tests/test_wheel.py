"""The wheel: it holds every file that the packages need, and Fawn works when only the wheel is installed."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, PackagePath, distribution, packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("agent", "bot", "catalogue", "channels", "sandbox", "skills")
LIST_SKILLS = """
import bot
from pathlib import Path
from agent.skills.library import SkillFolders, SkillLibrary
library = SkillLibrary(SkillFolders(Path("custom")), Path("data"))
library.reload()
print(Path(bot.__file__).parents[1], *sorted(library.current.skills))
"""


def test_no_package_that_is_installed_with_fawn_has_one_of_its_names() -> None:
    """Otherwise one would overwrite the other: pipx gives Fawn an environment with exactly these packages."""
    ours = {"fawn", "contracts", *PACKAGES}
    owners = {name: {*found} for name, found in packages_distributions().items() if name in ours}
    assert {name: found for name, found in owners.items() if found != {"fawn"}} == {}
    script = runpy.run_path(str(ROOT / "packaging" / "release"))
    pins = re.findall(r"(?m)^([a-z0-9._-]+)==", script["read_lock"]("service"))
    files = [(name, file.parts[0]) for name in pins for file in _files_of(name)]
    assert len({name for name, _ in files}) > 80
    assert [found for found in files if found[1].removesuffix(".py") in ours] == []


def _files_of(name: str) -> Iterable[PackagePath]:
    try:
        return distribution(name).files or ()
    except PackageNotFoundError:  # for other systems
        return ()


@pytest.mark.slow
def test_a_wheel_has_all_files_and_its_skills_are_found(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [name for name in tracked.splitlines() if (ROOT / name).is_file()]
    for name in files:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / "source" / name)
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), "./source"]
    subprocess.run([sys.executable, "-m", *build], cwd=tmp_path, check=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in files if name.startswith(PACKAGES)} <= {*archive.namelist()}
    install = [
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-compile",
        "--target",
        "installed",
        str(wheel),
    ]
    subprocess.run([sys.executable, "-m", *install], cwd=tmp_path, check=True)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}  # before the installed source
    listed = subprocess.run(
        [sys.executable, "-c", LIST_SKILLS], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    place, *skills = listed.stdout.split()
    assert Path(place) == tmp_path / "installed"
    assert skills == sorted(path.name for path in (ROOT / "skills" / "public").iterdir())
