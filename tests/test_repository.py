"""Repository rules that no other tool checks."""

from __future__ import annotations

import ast
import gzip
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from agent.late_imports import CHANNELS, EXTRAS
from bot.config.loader import load_config
from bot.config.schema import SandboxConfig
from sandbox.docker.image_build import CONTEXT

ROOT = Path(__file__).parents[1]
SOURCES = ("bot", "channels", "agent", "sandbox", "catalogue")
LONGEST_FUNCTION = 80  # lines
# Written backwards, so that this file does not find itself.
MACHINES = tuple(
    word[::-1] for word in ("/krow/", "/toor/", "/rennur/emoh/", "ipyp/tpo/", "gro.ipyp", "detsohnohtyp", ".baltig")
)

# Cases of docs/cases.md without a test, with the reason. A comment above its test names every other case.
LATER = {
    6: "an event starts one run only (5); /retry repeats a failed one",
    44: "accounts are not bound; 4 covers access",
    53: "settings per person are not implemented yet; /model belongs to a conversation",
}
CASES = set(range(1, 91)) - LATER.keys()


def tracked() -> list[Path]:
    """Return the files of the repository, or of the folder if it is not a repository."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    hidden = {".venv", ".git", "data", "__pycache__"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not hidden & {*path.relative_to(ROOT).parts}]


def python(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in tracked():
        if path.suffix == ".png":
            continue
        content = (
            gzip.decompress(path.read_bytes()).decode("latin-1") if path.suffix == ".gz" else path.read_text("utf-8")
        )
        found += [f"{path.relative_to(ROOT)}: {word}" for word in MACHINES if word in content]
    assert found == []


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("requirements.lock", 50),
        ("requirements-dev.lock", 50),
        ("requirements-skills.lock", 20),
        ("sandbox/docker/requirements.lock", 50),
        *((f"packaging/extras/{extra}.lock", 1) for extra in {**EXTRAS, **CHANNELS}),
    ],
)
def test_a_lock_file_has_hashes_and_does_not_name_hosts(name: str, least: int) -> None:
    lock = (ROOT / name).read_text("utf-8")
    assert not re.search(r"https?://|--(?:extra-)?index-url|--find-links|@ ", lock)
    pins = re.split(r"\n(?=[a-z0-9])", lock.partition("\n#    make lock\n")[2])
    assert len(pins) >= least
    assert [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin or "==" not in pin.split()[0]] == []


def test_the_runtime_lock_has_the_tested_versions() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^[a-z0-9._-]+==\S+", (ROOT / name).read_text("utf-8"), re.MULTILINE))

    everywhere = pins("requirements.lock")
    assert everywhere <= pins("requirements-dev.lock")
    for extra in {**EXTRAS, **CHANNELS}:  # it has what it adds, which replaces nothing
        assert pins(f"packaging/extras/{extra}.lock") <= pins("requirements-dev.lock") - everywhere


def test_every_extra_has_a_lock_and_is_known_to_the_faults() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {name for name, packages in project["optional-dependencies"].items() if packages} - {"dev", "all"}
    assert extras == {*EXTRAS, *CHANNELS} == {path.stem for path in (ROOT / "packaging/extras").iterdir()}
    per_channel = {each for name in CHANNELS for each in project["optional-dependencies"][name]}
    assert sorted(project["optional-dependencies"]["all"]) == sorted(per_channel)


def run_make(*words: str) -> subprocess.CompletedProcess[str]:
    """Ask make what it would do."""
    return subprocess.run(
        ["make", "-n", "-W", "pyproject.toml", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_setup_installs_the_extras_that_are_asked_for_from_their_locks() -> None:
    plan = run_make("setup", "EXTRAS=mcp anthropic").stdout
    assert "packaging/install requirements.lock packaging/extras/anthropic.lock" in plan
    refused = run_make("setup", "EXTRAS=anthropic nope")
    assert refused.returncode != 0
    assert 'There is no extra "nope". There are: anthropic ddgs' in refused.stderr


def test_setup_installs_only_the_channels_that_are_asked_for() -> None:
    plan = run_make("setup", "CHANNELS=slack").stdout
    assert "packaging/install requirements.lock packaging/extras/slack.lock\n" in plan
    every = " ".join(f"packaging/extras/{name}.lock" for name in sorted(CHANNELS))
    assert f"packaging/install requirements.lock {every}\n" in run_make("setup", "CHANNELS=all").stdout


@pytest.mark.parametrize(
    ("environment", "locks"),
    [
        ({"EXTRAS": "mcp ddgs"}, [*sorted(CHANNELS), "ddgs"]),
        ({"CHANNELS": "slack telegram"}, ["slack", "telegram"]),
        ({"CHANNELS": "all"}, sorted(CHANNELS)),
    ],
)
def test_the_image_installs_channels_and_extras_from_their_locks(environment: dict[str, str], locks: list[str]) -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert "ARG EXTRAS=" in text
    assert "ARG CHANNELS=" in text
    assert "COPY requirements.lock packaging/extras/ locks/" in text
    command = text[text.index("RUN python3 -m venv") + 4 :].partition("\nCOPY")[0].replace("\\\n", " ")
    script = 'pip() { echo pip "$@"; }; ' + command.replace("python3 -m venv .venv", "true").replace(
        "PIP_NO_INDEX=$PIP_NO_INDEX .venv/bin/pip", "pip"
    ).replace("rm -rf locks", "true")
    found = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "--require-hashes" in found.stdout
    assert re.findall(r"-r locks/(\S+)\.lock", found.stdout) == ["requirements", *locks]


FLEET = ("fleet-1", "fleet-2", "fleet-3")


def test_compose_gives_the_engine_to_nothing_but_the_proxy() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    services = compose["services"]
    by_profile = {name: service.get("profiles", []) for name, service in services.items()}
    assert by_profile == {
        "service": [],
        "engine": [],
        "sandbox-image": ["sandbox"],
        "plain": ["plain"],
        "fleet-1": ["fleet"],
        "fleet-2": ["fleet"],
        "fleet-3": ["fleet"],
        "search": ["search"],
        "postgres": ["postgres", "fleet"],
    }
    for name, service in services.items():
        assert not any(entry["required"] for entry in service.get("env_file", ())), name  # a start needs no .env
        reaches = any("docker.sock" in each for each in service.get("volumes", ()))
        assert reaches == (name == "engine"), name
        assert not service.get("privileged"), name
    for name in ("service", "engine", "plain", *FLEET):
        assert services[name]["read_only"], name
        assert services[name]["cap_drop"] == ["ALL"], name
        assert services[name]["security_opt"] == ["no-new-privileges:true"], name
    assert services["engine"]["network_mode"] == "none"
    assert services["engine"]["cap_add"] == ["DAC_READ_SEARCH"]
    assert services["sandbox-image"]["image"] == f"${{SANDBOX_IMAGE:-{SandboxConfig().image}}}"
    assert (ROOT / services["sandbox-image"]["build"]["context"] / "Dockerfile").is_file()
    assert {each.partition(":")[0] for each in services["service"]["volumes"]} == {
        "data",
        "engine",
        "./packaging/container.yaml",
    }


def test_the_fleet_of_compose_shares_a_database_and_no_folder() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    folders = [compose["services"][name]["volumes"][0] for name in FLEET]
    assert folders == [f"{name}:/var/lib/fawn" for name in FLEET]
    assert set(FLEET) <= compose["volumes"].keys()
    for name in FLEET:
        service = compose["services"][name]
        assert service["depends_on"] == {"postgres": {"condition": "service_healthy"}}
        assert service["volumes"][1:] == [
            "./packaging/container.yaml:/var/lib/fawn/config.yaml:ro",
            "${FLEET_CONFIG:-./packaging/fleet.yaml}:/var/lib/fawn/config.local.yaml:ro",
        ]
    settings = yaml.safe_load((ROOT / "packaging/fleet.yaml").read_text("utf-8"))["database"]
    assert (settings["replicas"], settings["password"]) == (True, "$POSTGRES_PASSWORD")
    assert settings["url"].startswith("postgresql://fawn@postgres/fawn")


def test_compose_ships_settings_that_can_be_used() -> None:
    config = load_config(ROOT / "packaging/container.yaml", {})
    assert (config.http.listen, config.channels) == ("127.0.0.1:8080", ())
    search = yaml.safe_load((ROOT / "packaging/searxng/settings.yml").read_text("utf-8"))
    assert "json" in search["search"]["formats"]


def test_the_packages_of_the_images_are_locked() -> None:
    """Debian's by exact versions, with the day of the mirrors; Python's by hashes."""
    for kind, least in (("service", 100), ("sandbox", 300)):
        head, *lines = (ROOT / f"packaging/debian/{kind}.lock").read_text("utf-8").splitlines()
        assert re.fullmatch(
            rf"# Debian \w+, \w+, the mirrors of \d{{8}}T000000Z; LOCK=1 packaging/base-image {kind}", head
        )
        assert len(lines) > least
        assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.:-]+=[A-Za-z0-9.+:~-]+", line) for line in lines)
    named = re.findall(r"(?m)^([a-z0-9.+-]+)$", (ROOT / "sandbox/docker/packages.txt").read_text("utf-8"))
    locked = {line.partition("=")[0].partition(":")[0] for line in lines}
    assert set(named) <= locked
    dockerfile = (ROOT / "sandbox/docker/Dockerfile").read_text("utf-8")
    copied = re.findall(r"(?m)^COPY (.+) \S+$", dockerfile)
    assert [word for words in copied for word in words.split() if "*" not in word] == [*CONTEXT[1:]]
    python = re.findall(r"(?m)^([a-z][a-z0-9-]*)", (ROOT / "sandbox/docker/requirements.in").read_text("utf-8"))
    pins = (ROOT / "sandbox/docker/requirements.lock").read_text("utf-8")
    assert [name for name in python if f"\n{name}==" not in pins] == []
    assert "apt-get install -y --no-install-recommends $packages" in (ROOT / "sandbox/docker/Dockerfile").read_text(
        "utf-8"
    )


def test_every_imported_package_is_declared_with_a_reason() -> None:
    """A package that is installed only for another package can disappear or change without notice."""
    imported: dict[str, Path] = {}
    for path in python(*SOURCES):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [node.module]
            imported |= {module.partition(".")[0]: path for module in modules}
    foreign = imported.keys() - sys.stdlib_module_names - {*SOURCES, "fawn"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [each for name, entries in project["optional-dependencies"].items() if name != "dev" for each in entries]
    declared = {plain(re.split(r"[><=;\[ ]", entry)[0]) for entry in [*project["dependencies"], *extras]}
    owners = packages_distributions()
    undeclared = {name: str(imported[name]) for name in foreign if not declared & {*map(plain, owners.get(name, ()))}}
    assert undeclared == {}
    reasons = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/dependencies.md").read_text("utf-8"), re.MULTILINE)
    assert declared - {plain(name) for names in reasons for name in names.split(", ")} == set()


def plain(name: str) -> str:
    """Return a distribution's name in the form in which registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_functions_are_at_most_80_lines() -> None:
    long = []
    for path in python(*SOURCES):
        if "migrations" in path.parts:  # a schema is a long list
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length} lines")
    assert long == []


def test_tenant_folders_are_accessed_only_by_the_safe_helpers() -> None:
    """`sandbox/disk` opens them by descriptors that follow no link, because a path may point elsewhere by the time
    it is used. Only a few modules know the path of a conversation's folder, and no other module walks, lists or
    packs folders by path."""
    by_path = {"rmtree", "walk", "rglob", "iterdir", "scandir", "listdir", "copytree", "tarfile", "threads"}
    ours = {
        "sandbox/bubblewrap/cgroup.py: iterdir": "cgroups, which the kernel creates",
        "bot/relay/server.py: iterdir": "what waits in a relay, which has no conversations",
        "sandbox/docker/host_paths.py: copytree": "the skills, which belong to the operator",
        "sandbox/docker/image_build.py: tarfile": "the files of this package, for the engine",
    }
    where = {"bot/service/sandbox_setup.py", "bot/cli/service_call.py", "bot/base/data_dir.py"}
    found = set()
    for path in python("bot", "sandbox"):
        place = str(path.relative_to(ROOT))
        if place.startswith(("sandbox/disk/", "sandbox/inside/")):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            names = {called.attr} if isinstance(called, ast.Attribute) else set()
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", "")}
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and place not in where:
                names = {"threads"} if isinstance(node.right, ast.Constant) and node.right.value == "threads" else set()
            found |= {f"{place}: {name}" for name in names & by_path}
    assert sorted(found - ours.keys()) == []


def test_suppressions_give_a_reason() -> None:
    bare = re.compile(r"# (?:type: ignore(?:\[[\w, -]+\])?|noqa(?:: [A-Z0-9, ]+)?)\s*$")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in python(*SOURCES, "tests", "bench")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if bare.search(line)
    ]
    assert found == []


def test_every_case_has_a_test_or_a_reason() -> None:
    named: set[int] = set()
    for path in python("tests"):
        for numbers in re.findall(r"# Cases? ([\d and]+) of docs/cases\.md", path.read_text("utf-8")):
            named |= {int(number) for number in numbers.split(" and ")}
    assert sorted(CASES - named) == [], "these cases have no test named after them"


SQL = re.compile(r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|PRAGMA|WITH|ALTER|DROP|BEGIN|COMMIT|SAVEPOINT)\b")
WHERE_SQL_STANDS = (
    "bot/database/",
    "bot/storage/",
    "agent/turn/checkpointer.py",
    "agent/turn/checkpoint_rows.py",
)  # the latter has a database of its own


def strings(tree: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Every string that is not a docstring; of an f-string its whole, not its pieces."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            yield node
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            nodes += ast.iter_child_nodes(node)


def sql_strings(path: Path) -> list[ast.Constant | ast.JoinedStr]:
    """The SQL statements in a file, by their first word."""
    found = []
    for node in strings(ast.parse(path.read_text("utf-8"))):
        first = node if isinstance(node, ast.Constant) else node.values[0]
        if isinstance(first, ast.Constant) and SQL.match(str(first.value)):
            found.append(node)
    return found


def test_sql_stands_in_the_storage_package_only() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python(*SOURCES)
        if not str(path.relative_to(ROOT)).startswith(WHERE_SQL_STANDS)
        for node in sql_strings(path)
    ]
    assert found == []
    assert len([node for path in python("bot/storage") for node in sql_strings(path)]) > 50  # the measure itself


def test_sql_contains_constants_only() -> None:
    """Values are named parameters. A state is a constant, for a partial index, and has its name in `states.py`."""
    constant = re.compile(
        r"_?[A-Z][A-Z_]+|(?:(?:Inbox|Outbox|Run|Conversation|Question|Pairing|Schedule|Task)State|(?:Outbox|Memory|Entry|Task|Question)?Kind)\.\w+"
    )
    ours = {
        "audit.py": {"wanted"},  # names of parameters
        "database.py": {"pragma", "name", "table"},  # a name of the program's own; those of the schema
        "inbox.py": {"kinds"},  # of Kind
        "forgetting.py": {"table", "rows", "'TRUE' if private else 'requester=:person'"},
        "memory.py": {"sql"},  # another statement of the module
        "early_data.py": {"table", "both", "names", "rows"},  # of the schema
        "migrate.py": {"upkeep.INCREMENTAL"},
        "upkeep.py": {"patience", "pragma"},  # a number that SQLite gave; one of two
        "wake_ups.py": {"name", "statements", "table", "condition", "written", "says"},  # of TRIGGERS
        "moved_chats.py": {"table", "name", "of_channel"},  # of MOVED
        "people.py": {"wanted"},  # names of parameters
        "postgres.py": {"lock_seconds * 1000"},  # a number
        "postgres_copy.py": {  # names of the schema, and a number
            *("table.names", "table.name", "places", "name", "table", "column", "sequence", "following"),
        },
        "postgres_schema.py": {"name", "statements", "table", "spell_for_postgresql(condition)", "written", "says"},
        "memory_search.py": {"', '.join(counts)"},  # one for each word
        "outbox.py": {"states"},  # three of OutboxState
        "retention.py": {"table", "finished"},  # of FINISHED
        "usage.py": {"_WHERE[scope]", "column"},  # of three
        "rows.py": {
            *("table", "columns", "parameters", "key", "', '.join(rows[0])", "'), ('.join(lines)", "name", "number"),
            "f'UPDATE SET {changes}' if changes else 'NOTHING'",
        },
    }
    spelled, other = [], []
    for path in sorted([*(ROOT / "bot/database").glob("*.py"), *(ROOT / "bot/storage").glob("*.py")]):
        for node in strings(ast.parse(path.read_text("utf-8"))):
            if re.search(r"\bstate\s*(?:=|<>|<|>|IN)\s*\(?\s*(?:'\w|\d)", ast.unparse(node)):
                spelled.append(f"{path.name}:{node.lineno}")
        for statement in sql_strings(path):
            for value in statement.values if isinstance(statement, ast.JoinedStr) else ():
                name = ast.unparse(value.value) if isinstance(value, ast.FormattedValue) else "CONSTANT"
                if not constant.fullmatch(name) and name not in ours.get(path.name, ()):
                    other.append(f"{path.name}:{statement.lineno} {name}")
    assert spelled == []
    assert other == []
