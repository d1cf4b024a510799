"""Recorded calls under other rules, roles, grants, budgets and limits; and what a recorded call keeps."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.core.context import JudgedCall
from agent.messages import Author, Thread
from agent.permissions.rules import Grant, RuleText, Subject, ToolUse, Verdict, judge, parse_rules
from agent.settings.models import ModelSettings
from agent.settings.sections import PermissionConfig
from agent.spending import ModelCall
from bot.admin.replay import PRICE, RATE, REFUSED, ROLE, Replay
from bot.config.loader import ConfigError
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.config.source import load_variant
from bot.config.spending import BudgetConfig, Money, RateLimitConfig, TokenCount
from bot.config.team import ApprovalRule, RoleAssignment, TeamConfig
from bot.database.database import Database, Execute
from bot.main.features import table_of
from bot.storage import calls, forgetting, usage
from bot.storage.forgetting import PersonKey
from bot.storage.retention import delete_finished
from bot.storage.usage import Payer, PricedCall
from tests.fakes.telegram import TOKEN
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

THREAD = Thread("slack", "T1", "C1", "7")
PAYER = Payer(1, f"{THREAD}#1", THREAD, "U1")
BASH, PATH = Subject("command", "shell"), Subject("path", "path")
NOW = time.time()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as opened:
        yield opened


def shell(command: str, key: str = "", verdict: str = "allow", at: float = NOW - 100) -> JudgedCall:
    return JudgedCall(key or command, ToolUse("bash", {"command": command}, BASH, "allow"), verdict, at)


async def record(store: Database, *judged: JudgedCall, payer: Payer = PAYER) -> None:
    def work(execute: Execute) -> None:
        for each in judged:
            calls.add_call(execute, payer, each)

    await store.run(work)


async def spend(store: Database, *rows: tuple[Payer, float, int | None]) -> None:
    """Record model calls: who pays, at what time, the micro-dollars."""

    def work(execute: Execute) -> None:
        for payer, at, cost in rows:
            call = ModelCall("lead", "main", "turn", 100, 10, 0, 0, 0.1, at)
            usage.record_calls(execute, payer, [PricedCall(call, cost, "")])

    await store.run(work)


async def replayed(store: Database, config: Config, days: float = 30) -> tuple[list[tuple[str, str, str]], Replay]:
    """Return (subject, verdict then, verdict now) of each call, and the replay."""

    def work(execute: Execute) -> tuple[list[tuple[str, str, str]], Replay]:
        replay = Replay(execute, config, NOW - days * 86400)
        return [(each.row.subject, each.row.verdict, each.verdict) for each in replay.run()], replay

    return await store.run(work)


def config_of(*, roles: Mapping[str, str] | None = None, **more: Any) -> Config:
    entries = tuple(RoleAssignment(role, (who,)) for who, role in (roles or {}).items())
    access = AccessConfig(open=True, roles=entries)
    return Config(
        channels=(ChannelConfig("slack", None, access),), models=(ModelSettings("main"),), time_zone="UTC", **more
    )


def rules(deny: Sequence[str] = (), ask: Sequence[str] = (), allow: Sequence[str] = ()) -> PermissionConfig:
    return PermissionConfig(tuple(map(RuleText, deny)), tuple(map(RuleText, ask)), tuple(map(RuleText, allow)))


FOLDER = Subject("path", "folder", "/mnt/user-data")
USES = (
    ToolUse("bash", {"command": "cd x && git push"}, BASH, "allow"),
    ToolUse("write_file", {"path": "../uploads/a", "content": "x" * 9000}, PATH, "allow"),
    ToolUse("write_file", {"path": "link"}, PATH, "allow", real=("/mnt/user-data/uploads/a",)),
    ToolUse("grep", {"pattern": "x"}, FOLDER, "allow"),
    ToolUse("present_files", {"files": [{"path": "b"}, {"path": "uploads/a"}]}, Subject("files", "paths"), "allow"),
    ToolUse("run_skill", {"name": "data_analysis", "args": "y"}, Subject("name", "skill"), "allow"),
    ToolUse("mcp__x__delete", {"repo": "fawn", "force": True, "deep": {"a": ["production"]}}),
    ToolUse("web_fetch", {"url": "https://example.org/a"}, Subject("url"), "allow"),
    ToolUse("tool", {}, Subject("what")),
)
RULES = (
    "bash(git push *)",
    "write_file(/mnt/user-data/uploads/*)",
    "grep(/mnt/user-data/uploads/*)",
    "present_files(*uploads/a)",
    "run_skill(data-analysis)",
    "mcp__*(*production*)",
    "mcp__*(fawn)",
    "web_fetch(https://example.org/*)",
    "tool",
    "bash(ls)",
)


@pytest.mark.parametrize("use", USES, ids=lambda use: use.name)
async def test_a_recorded_call_gets_the_verdict_that_the_call_itself_gets(store: Database, use: ToolUse) -> None:
    await record(store, JudgedCall("k", use, "allow"))
    [row] = await store.run(lambda execute: calls.read_calls(execute, 0.0, 0, 10))
    assert len(row.subject) < 2000
    assert "xxxx" not in row.subject, "only what rules compare"
    verdicts: tuple[Verdict, ...] = ("deny", "ask", "allow")
    for text in RULES:
        for verdict in verdicts:
            rule = parse_rules(**{verdict: [text]})
            assert judge(rule, row.use) == judge(rule, use), (text, verdict)
    assert judge((), row.use) == judge((), use)


async def test_a_long_subject_is_cut_and_says_so(store: Database) -> None:
    long = ToolUse("mcp__x", {"text": "rm -rf " + "y" * 5000})
    await record(store, shell("git push " + "x" * 5000, "a"), JudgedCall("b", long, "ask"))
    first, second = await store.run(lambda execute: calls.read_calls(execute, 0.0, 0, 10))
    assert (first.is_cut, len(first.subject), second.is_cut) == (True, 2000, True)
    assert judge(parse_rules(deny=["bash(git push *)"]), first.use).verdict == "deny"
    assert judge(parse_rules(deny=["mcp__x(*rm -rf*)"]), second.use).verdict == "deny"


async def test_a_call_is_recorded_once_with_its_first_verdict(store: Database) -> None:
    await record(store, shell("make", "k", "ask"), shell("make", "k", "allow"))
    await record(store, shell("make", "k", "deny"))
    found, _replay = await replayed(store, config_of())
    assert found == [("make", "ask", "allow")]


async def test_calls_are_judged_by_the_rules_and_by_the_roles_that_people_would_have(store: Database) -> None:
    await record(store, shell("git push"), shell("make deploy", verdict="ask"), shell("ls"))
    await record(store, shell("cat x"), payer=replace(PAYER, run=2, requester="U2", conversation="other"))
    config = config_of(permissions=rules(["bash(git push *)"], ["bash(ls)"]), roles={"U2": "viewer"})
    found, _replay = await replayed(store, config)
    assert found == [
        ("git push", "allow", "deny"),
        ("make deploy", "ask", "allow"),
        ("ls", "allow", "ask"),
        ("cat x", "allow", "deny"),
    ]


async def test_a_grant_answers_what_came_after_it_unless_others_decide(store: Database) -> None:
    await record(store, shell("make", "a", "ask", NOW - 200), shell("make", "b", "granted", NOW - 50))
    await record(store, shell("make test", "c", "granted"))  # the grant is gone
    give = calls.store_grant
    await store.run(
        lambda execute: give(execute, PAYER.conversation, Grant("bash", "make"), THREAD, Author("U1", "J"), NOW - 100)
    )
    asks = rules(ask=["bash(make *)"])
    found, _replay = await replayed(store, config_of(permissions=asks))
    assert [verdict for _, _, verdict in found] == ["ask", "granted", "granted"]
    team = TeamConfig(approvals=(ApprovalRule((RuleText("bash(make *)"),), ("operator",)),))
    found, _replay = await replayed(store, config_of(permissions=asks, team=team))
    assert [verdict for _, _, verdict in found] == ["ask", "ask", "ask"], "a member's grant does not count there"


async def test_limits_of_tools_count_what_would_have_run(store: Database) -> None:
    await record(store, *(shell(f"ls {n}", at=NOW - 100 + n) for n in range(4)))
    limits = (RateLimitConfig("tool", "bash", count=2, seconds=3600.0),)
    found, _replay = await replayed(store, config_of(rate_limits=limits, permissions=rules(["bash(ls 0)"])))
    assert [verdict for _, _, verdict in found] == ["deny", "allow", "allow", RATE]


async def test_a_budget_refuses_from_where_it_is_used_up_and_saves_the_rest_of_the_request(store: Database) -> None:
    second, third = replace(PAYER, run=2), replace(PAYER, run=3, requester="U2")
    spent = [(PAYER, 300.0, 600), (PAYER, 290.0, 600), (second, 200.0, 500), (second, 190.0, 50), (third, 180.0, 70)]
    await spend(store, *((payer, NOW - ago, cost) for payer, ago, cost in spent))
    await record(store, shell("before", at=NOW - 295))
    await record(store, shell("never", at=NOW - 195), payer=second)
    found, replay = await replayed(store, config_of(budgets=(BudgetConfig("person", money=Money(1200)),)))
    [work] = replay.refused
    assert (work.run, work.person, work.reason, work.cost, work.calls) == (2, "slack:U1", "person", 550, 2)
    assert work.at == pytest.approx(NOW - 200)
    assert found == [("before", "allow", "allow"), ("never", "allow", REFUSED)]
    assert replay.cost == 1820
    _found, replay = await replayed(store, config_of(budgets=(BudgetConfig("turn", tokens=TokenCount(200)),)))
    assert replay.refused == [], "110 tokens a call: the second one passes the budget of the request and is the last"
    _found, replay = await replayed(store, config_of(budgets=(BudgetConfig("turn", tokens=TokenCount(110)),)))
    assert [(each.run, each.cost) for each in replay.refused] == [(1, 600), (2, 50)]


async def test_what_was_spent_before_the_days_counts_in_its_month(store: Database) -> None:
    base = 1_790_000_000.0  # in the middle of a month
    await spend(store, (PAYER, base, 900), (replace(PAYER, run=2), base + 86400, 40))

    def work(execute: Execute) -> list[int]:
        replay = Replay(execute, config_of(budgets=(BudgetConfig("chat", money=Money(900)),)), base + 3600)
        assert [*replay.run()] == []
        assert replay.cost == 40
        return [each.run for each in replay.refused]

    assert await store.run(work) == [2]


async def test_roles_without_work_and_models_without_a_price_are_refused(store: Database) -> None:
    await spend(store, (PAYER, NOW - 10, 40), (replace(PAYER, run=2, requester="U2"), NOW - 5, None))
    config = config_of(roles={"U1": "viewer"}, budgets=(BudgetConfig("everything", money=Money(10**6)),))
    _found, replay = await replayed(store, config)
    assert [(each.run, each.reason, each.cost, each.unpriced) for each in replay.refused] == [
        (1, ROLE, 40, 0),
        (2, PRICE, 0, 1),
    ]


async def test_retention_and_forgetting_delete_calls_of_a_person_and_of_those_who_joined_them(store: Database) -> None:
    other = replace(PAYER, run=2, requester="U2")
    await record(store, shell("old", at=10.0), shell("mine"))
    await record(store, shell("theirs"), payer=other)
    await record(store, shell("joined"), payer=replace(other, run=3))
    joined = "UPDATE calls SET people='U2 U1' WHERE run=3"
    await store.run(lambda execute: execute(joined, {}))
    assert await store.run(lambda execute: delete_finished(execute, table_of("calls"), 1000.0, 10)) == 1
    person = PersonKey("slack", "U1")
    assert await store.run(partial(forgetting.forget_calls, person=person, key=PAYER.conversation, after="")) is None
    assert [row.subject for row in await store.run(lambda execute: calls.read_calls(execute, 0.0, 0, 10))] == ["theirs"]


BASE = "config_version: 1\nteam:\n  default_role: viewer\npermissions:\n  deny: [bash]\nlimits: {live_turns: 3}\n"


@pytest.mark.parametrize(
    ("text", "role", "denied", "turns"),
    [
        ("permissions: {deny: [ls]}", "viewer", ("ls",), 3),
        ("config_version: 1\nteam: {default_role: member}", "member", ("bash",), 3),
        ("config_version: 1\npermissions: {deny: [ls]}\nlimits: {live_turns: 5}", "member", ("ls",), 5),
    ],
)
def test_a_file_is_a_configuration_or_replaces_sections(
    tmp_path: Path, text: str, role: str, denied: tuple[str, ...], turns: int
) -> None:
    (tmp_path / "config.yaml").write_text(BASE)
    (tmp_path / "rules.yaml").write_text(text)
    config = load_variant(tmp_path / "rules.yaml", tmp_path / "config.yaml")
    found = config.team.default_role, config.permissions.deny, config.limits.live_turns
    assert found == (role, denied, turns)


def test_sections_replace_those_of_a_base_in_two_files(tmp_path: Path) -> None:
    people = f"channels: {{telegram: {{token: '{TOKEN}', access: {{allow: [11111111]}}}}}}\n"
    (tmp_path / "config.yaml").write_text(f"config_version: 1\ndata_dir: {tmp_path}\n{people}")
    (tmp_path / "config.local.yaml").write_text("limits: {live_turns: 4}\npermissions: {ask: [bash]}\n")
    (tmp_path / "rules.yaml").write_text("permissions: {deny: [ls]}\n")
    config = load_variant(tmp_path / "rules.yaml", tmp_path / "config.yaml")
    assert [channel.access.allow for channel in config.channels if channel.name == "telegram"] == [("11111111",)]
    assert (config.permissions.deny, config.permissions.ask, config.limits.live_turns) == (("ls",), (), 4)
    (tmp_path / "rules.yaml").write_text("permissions: {deny: ['b(']}\n")
    with pytest.raises(ConfigError, match=r"rules.yaml:1: permissions.deny"):
        load_variant(tmp_path / "rules.yaml", tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("permissions: {deny: ['b(']}", "rules.yaml:1: permissions.deny"),
        ("permissions:\n  denied: [bash]", "rules.yaml:2: permissions.denied"),
        ("team: {default_role: trainee}", "rules.yaml:1: team.default_role: no role has this name"),
        ("budgets: [{scope: person}]", "rules.yaml:1: budgets[0]: limits nothing"),
        ("permissions: [", "YAML syntax"),
        ("limits: {live_turns: 5}", "config_version: is missing"),
        ("", "config_version: is missing"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "config.yaml").write_text(BASE)
    (tmp_path / "rules.yaml").write_text(text)
    with pytest.raises(ConfigError, match=fault.replace("[", r"\[").replace(".", r"\.")):
        load_variant(tmp_path / "rules.yaml", tmp_path / "config.yaml")
