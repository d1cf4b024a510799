"""Each column of the schema that names a person or a place is one that forgetting handles, or one with a reason."""

from __future__ import annotations

import importlib
import re
import sqlite3
from pathlib import Path

import pytest

from bot.main.features import gather_personal
from bot.storage.personal import PersonalTable
from tests.support.rehearsed_database import make_empty_database

NAMES_PERSON = re.compile(
    r"(?i)(^|_)(person|people|author|owner|requester|who|by|subject|giver|deputy|account|name|reader|approvers|barred"
    r"|audience|chat|root)($|_)"
)
TABLES = gather_personal()
HANDLED = {f"{table.table}.{column}" for table in TABLES for column in table.columns}
EXEMPT = {
    "conversations.owner": "the process that works in it",
    "jobs.owner": "the process that runs it",
    "heard.chat": "a chat, with a time and nothing said there",
    "listening.chat": "the same",
    "permission_grants.subject": "the call that was allowed, with its grant",
    "questions.grant_subject": "the same",
    "calls.subject": "the call, which goes with its person",
    "memory.superseded_by": "another memory",
    "waiting_numbers.subject": "a digest of the question, its call and its options",
    "hand_overs.subject": "the same, of what was handed over alone",
    "hook_groups.root": "a message of the bot that begins a thread",
    "shared_files.name": "a path, of tokens of a server",
    "skill_versions.name": "a skill",
    "web_files.name": "a file, which goes with its person",
    "outcomes.name": "a model, tool or skill",
    "outcome_errors.name": "the same",
    "leases.name": "a loop, or a platform's account, of the service",
    **dict.fromkeys(("outbox.owner", "tasks.owner", "usage.owner", "leases.owner"), "the process that holds the row"),
}

WITH_CONVERSATION = "it goes with its conversation"
NO_PEOPLE = {
    "addresses": "which conversation an address has",
    "ledger": WITH_CONVERSATION,
    "run_steps": WITH_CONVERSATION,
    "outputs": WITH_CONVERSATION,
    "exposures": WITH_CONVERSATION,
    "checkpoints": WITH_CONVERSATION,
    "checkpoint_writes": WITH_CONVERSATION,
    "plan_holds": "sums of money that a run reserves, while it works",
    "budget_holds": "sums of money that a model call holds, while it works",
    "gaps": "times at which a channel was not connected",
    "memory_vectors": "numbers of a memory, with which they go",
    "audit": "names are in audit_names; retention keeps its chain",
    "audit_anchors": "heads of the chain",
    "listening": "chats whose talk is kept, with a time",
    "leases": "what a process alone does, such as listening to an account",
    "tool_uses": "calls of tools that have a limit, with a time",
    "skill_versions": "files of skills, which all processes have",
    "shared_files": "tokens of MCP servers, and decisions about skills, which all processes have",
    "replicas": "the processes that work on the database, with their machines",
    "identity": "the number of this installation",
    "alembic_version": "the revision of the schema",
}


def personal_columns(path: Path) -> set[str]:
    """Return the columns, as `table.column`, whose names say that they hold a person or a place."""
    with sqlite3.connect(path) as store:
        tables = [str(row[0]) for row in store.execute("SELECT name FROM sqlite_schema WHERE type='table'")]
        own = [name for name in tables if not re.search(r"^sqlite_|_index_(data|idx|content|docsize|config)$", name)]
        found = {f"{table}.{row[1]}" for table in own for row in store.execute(f"PRAGMA table_info('{table}')")}
    return {each for each in found if NAMES_PERSON.search(each.partition(".")[2])}


def test_every_column_that_names_a_person_is_forgotten_or_has_a_reason(tmp_path: Path) -> None:
    make_empty_database(tmp_path / "fawn.db")
    found = personal_columns(tmp_path / "fawn.db")
    unknown = found - HANDLED - {*EXEMPT}
    assert not unknown, "declare them in Feature.personal (bot/storage/personal.py), or say why not"
    assert not HANDLED - found, "these columns are gone"


def test_every_table_is_declared_or_has_a_reason(tmp_path: Path) -> None:
    make_empty_database(tmp_path / "fawn.db")
    with sqlite3.connect(tmp_path / "fawn.db") as store:
        names = {str(row[0]) for row in store.execute("SELECT name FROM sqlite_schema WHERE type='table'")}
    own = {name for name in names if not re.search(r"^sqlite_|_index_(data|idx|content|docsize|config)$", name)}
    assert own - {table.table for table in TABLES} == NO_PEOPLE.keys()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.table)
def test_a_table_says_how_it_ends_is_forgotten_and_exported(table: PersonalTable) -> None:
    """What no statement of the list does is named: a function that is about the table, or a reason."""
    assert bool(table.finished) is not bool(table.ends)
    if table.forgotten_by:
        module, _, name = table.forgotten_by.partition(".")
        package = "database" if module.startswith("audit") else "storage"
        assert callable(getattr(importlib.import_module(f"bot.{package}.{module}"), name))
        code = (Path(__file__).parents[3] / "bot" / package / f"{module}.py").read_text("utf-8")
        assert re.search(rf"(?:FROM|UPDATE|INTO) {table.table}\b|\"{table.table}\"", code), "it is about other tables"
    if table.columns:
        assert bool(table.forget) is not bool(table.forgotten_by)
        assert bool(table.export) is not bool(table.shown)


def test_what_is_declared_of_a_table_is_declared_once_and_fits_the_schema(tmp_path: Path) -> None:
    """Each statement is one that SQLite understands, about its own table, and nobody else's."""
    assert len({table.table for table in TABLES}) == len(TABLES)
    make_empty_database(tmp_path / "fawn.db")
    store = sqlite3.connect(tmp_path / "fawn.db")
    for table in TABLES:
        assert bool(table.export) is bool(table.exported), table.table
        finished = f"DELETE FROM {table.table} WHERE {table.finished}" if table.finished else ""  # noqa: S608 — constants
        for statement in filter(None, (finished, table.export, *table.forget)):
            assert re.search(rf"(?:FROM|UPDATE) {table.table}\b", statement), statement
            store.execute(f"EXPLAIN {statement}", dict.fromkeys(re.findall(r":(\w+)", statement)))
    store.close()
