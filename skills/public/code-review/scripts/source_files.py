"""Files of a repository: languages, tests, generated files; git without its hooks and external programs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

MAX_FILES = 20_000
MAX_FILE_BYTES = 2 << 20
GIT_SECONDS = 60
SKIPPED_FOLDERS = frozenset(
    (".git", "node_modules", "__pycache__", ".venv", "venv", "dist", "build", "target", "vendor", ".tox", ".mypy_cache")
)
LANGUAGES = {
    suffix: language
    for language, suffixes in {
        "Python": ".py .pyi", "JavaScript": ".js .mjs .cjs .jsx", "TypeScript": ".ts .tsx .mts", "Go": ".go",
        "Rust": ".rs",
        "Java": ".java", "Kotlin": ".kt .kts", "Scala": ".scala", "C": ".c .h", "C++": ".cc .cpp .cxx .hpp .hh",
        "C#": ".cs", "Swift": ".swift", "Objective-C": ".m", "Ruby": ".rb", "PHP": ".php", "Perl": ".pl .pm",
        "Lua": ".lua",
        "Shell": ".sh .bash .zsh", "PowerShell": ".ps1", "SQL": ".sql", "R": ".r", "Julia": ".jl", "Dart": ".dart",
        "Elixir": ".ex .exs", "Erlang": ".erl", "Haskell": ".hs", "Clojure": ".clj", "Vue": ".vue", "Svelte": ".svelte",
        "HTML": ".html .htm", "CSS": ".css .scss .less", "Markdown": ".md", "YAML": ".yml .yaml", "JSON": ".json",
        "TOML": ".toml", "XML": ".xml", "Terraform": ".tf", "Protocol Buffers": ".proto",
    }.items()
    for suffix in suffixes.split()
}  # fmt: skip
TEXT_LANGUAGES = ("Markdown", "YAML", "JSON", "TOML", "XML", "HTML", "CSS")
TEST_FILE = re.compile(
    r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)(?:test_[^/]*|[^/]*(?:_test|\.test|\.spec|Test|Spec))\.\w+$"
)
GENERATED_FILE = re.compile(
    r"(?:^|/)(?:package-lock\.json|yarn\.lock|pnpm-lock\.yaml|poetry\.lock|uv\.lock|Cargo\.lock|go\.sum|Gemfile\.lock|"
    r"composer\.lock)$|\.min\.(?:js|css)$|_pb2(?:_grpc)?\.py$|\.pb\.go$|\.snap$|\.map$|(?:^|/)(?:vendor|node_modules|dist)/"
)


class Problem(Exception):
    """The work cannot be done. The text says why and what to do."""


def language_of(name: str) -> str:
    return LANGUAGES.get(os.path.splitext(name)[1].lower(), "")


def is_test(name: str) -> bool:
    return bool(TEST_FILE.search(name))


def is_generated(name: str) -> bool:
    return bool(GENERATED_FILE.search(name))


def run_git(folder: Path, *words: str) -> str:
    """Return what git says; "" where there is no git or no repository. Raises Problem for what git refuses.

    The repository is somebody else's: none of its hooks, filters or external programs run.
    """
    settings = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "safe.directory=*", "core.quotePath=false")
    options = [word for setting in settings for word in ("-c", setting)]
    try:
        done = subprocess.run(
            ["git", *options, "-C", str(folder), "--no-pager", *words],
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return ""
    except subprocess.TimeoutExpired:
        raise Problem(f"git {words[0]} took longer than {GIT_SECONDS} s.") from None
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode and "not a git repository" not in said.lower():
        raise Problem(f"git {words[0]}: {said.strip()[:300]}")
    return "" if done.returncode else done.stdout.decode("utf-8", "replace")


def list_files(folder: Path) -> Iterator[str]:
    """Yield the regular files below a folder, relative to it, without those of tools; links are not followed."""
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(names):
            path = Path(place, name)
            if path.is_symlink() or not path.is_file():
                continue
            count += 1
            if count > MAX_FILES:
                return
            yield path.relative_to(folder).as_posix()


def read_text(path: Path) -> str | None:
    """Return the text of a file; None if it is large or no text."""
    if path.stat().st_size > MAX_FILE_BYTES:
        return None
    data = path.read_bytes()
    return None if b"\0" in data[:8000] else data.decode("utf-8", "replace")
