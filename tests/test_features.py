"""Features stay behind their doors: who may import whom, and how much a module may know."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from agent.blocks import Final
from agent.messages import Author, Kind, Message, Origin, Thread
from bot.commands.feature import Feature
from bot.config.schema import AccessConfig
from bot.main.features import FEATURES
from bot.storage import inbox
from channels.base import Receipt
from tests.support.current_config import current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.reception import command_runner, command_service, open_inbox
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

ROOT = Path(__file__).parents[1]
SOURCES = ("fawn", "bot", "channels", "agent", "sandbox", "catalogue")
ROOMS = [feature.name for feature in FEATURES]
COMMAND_LINE = {  # the command line makes keys, pairs, offboards and forgets, too
    "api": {"bot.admin.operations", "fawn.embedded"},
    "drill": {"bot.cli.look"},
    "team": {"bot.admin.operations", "bot.cli.people"},
    "privacy": {"bot.admin.operations"},
}


@cache
def paths() -> Mapping[str, Path]:
    """Return module → its file."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for source in SOURCES
        for path in (ROOT / source).rglob("*.py")
        if "migrations" not in path.parts
    }


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Return module → the own modules that it imports, those for types only included."""
    found = {}
    for name, path in paths().items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                parts = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= {part if part in paths() else node.module for part in parts}
            elif isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
        found[name] = frozenset(each for each in named if each in paths() and each != name)
    return found


def room_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def test_only_the_list_imports_a_feature() -> None:
    """Nothing else names one: not its commands, nor its tables, nor what `fawn check` tries for it."""
    outside: dict[str, set[str]] = {room: set() for room in ROOMS}
    for name, named in imports().items():
        for room in ROOMS:
            if room_of(name) != f"bot.{room}" and f"bot.{room}" in map(room_of, named):
                outside[room].add(name)
    for room, names in outside.items():
        assert names - COMMAND_LINE.get(room, set()) == {"bot.main.features"}, room


def test_the_list_imports_only_the_doors_of_the_features() -> None:
    rooms = {name for name in imports()["bot.main.features"] if name.split(".")[1] in ROOMS}
    assert rooms == {f"bot.{room}.feature" for room in ROOMS}


def test_features_and_the_way_of_a_message_know_no_feature() -> None:
    rooms = {f"bot.{room}" for room in ROOMS}
    known = {
        (name, each)
        for name, named in imports().items()
        if room_of(name) in {*rooms, "bot.journey", "bot.rights", "bot.service", "bot.commands", "bot.storage"}
        for each in named
        if room_of(each) in rooms and room_of(each) != room_of(name)
    }
    assert known == set()


def find_circle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return the first circle of a graph, [] if it has none."""
    open_, done = list[str](), set[str]()

    def visit(name: str) -> list[str]:
        if name in open_:
            return open_[open_.index(name) :]
        if name not in done:
            open_.append(name)
            for each in sorted(graph[name]):
                if circle := visit(each):
                    return circle
            open_.pop()
            done.add(name)
        return []

    return next(filter(None, map(visit, graph)), [])


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Also not for types only: a reader of one would have to read all of them."""
    assert find_circle(imports()) == []


def test_no_folders_import_each_other_in_a_circle() -> None:
    """A module of a folder stands for its folder, the program's root folders included."""
    folders = {
        name: (name if path.name == "__init__.py" else name.rpartition(".")[0]) for name, path in paths().items()
    }
    graph: dict[str, set[str]] = {folder: set() for folder in folders.values()}
    for name, named in imports().items():
        graph[folders[name]] |= {folders[each] for each in named} - {folders[name]}
    assert find_circle(graph) == []


def example() -> Feature:
    """Return the feature of CONTRIBUTING.md."""
    [code] = re.findall(r"(?s)## A new feature.*?```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    found: dict[str, object] = {"__name__": "dice"}
    exec(compile(code, "CONTRIBUTING.md", "exec"), found)  # noqa: S102 — our own page
    feature = found["FEATURE"]
    assert isinstance(feature, Feature)
    return feature


async def test_the_feature_of_the_contributing_page_works_with_one_line_outside(tmp_path: Path) -> None:
    """Its command asks, its button answers once, and a press cannot be typed."""
    features = (*FEATURES, example())
    current = current_of(telegram=AccessConfig(open=True))
    make_empty_database(tmp_path / "fawn.db")
    sent = Message(
        Thread("telegram", "1", "42"), "k1", "1", Author("42", "Jane"), "dice 20", 1.0, Kind.COMMAND,
        private=True, origin=Origin.PERSON,
    )  # fmt: skip
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        reception = open_inbox(store, current, IDLE_TURNS, features=features)

        async def offer(event: Message) -> Receipt:
            [receipt] = await reception.receive([event])
            service = command_service(current, features=features)
            serving = asyncio.create_task(command_runner(store, service, features).serve())
            async with asyncio.timeout(60):
                while await store.run(lambda execute: inbox.pending_commands(execute, 1)):
                    await asyncio.sleep(0.01)
            serving.cancel()
            await asyncio.wait([serving])
            return receipt

        async def said() -> list[str]:
            rows = await store.run(lambda execute: execute("SELECT payload FROM outbox ORDER BY id", {}))
            return [Final.load(row["payload"]).text for row in rows]

        press = replace(sent, kind=Kind.CLICK, target="dice:20")
        assert await offer(sent) is Receipt.ACCEPTED
        assert await said() == ["Shall I roll a die with 20 sides?"]
        assert await offer(replace(press, key="k2", text="Roll")) is Receipt.ACCEPTED
        assert re.fullmatch(r"You rolled \d+\.", (await said())[-1])
        assert await offer(replace(press, key="k2", text="Roll")) is Receipt.DUPLICATE
        assert await offer(replace(press, key="k3", text="Whatever")) is Receipt.DUPLICATE
        assert await offer(replace(press, key="k4", text="Leave it")) is Receipt.ACCEPTED
        assert (await said())[-1] == "Nothing was rolled."
        assert len(await said()) == 3
