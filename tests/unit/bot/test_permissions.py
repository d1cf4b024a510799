"""Which rules are in force for a configuration, and what an answer grants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Approve
from agent.demo.approval_rule import DEMO_RULES
from agent.messages import Author, Kind, Message, Origin, Thread
from agent.permissions.defaults import OUTSIDE_RULES
from agent.permissions.rules import Grant, RuleText, ToolUse
from agent.settings.models import ModelSettings
from agent.settings.sections import PermissionConfig
from bot.config.schema import AccessConfig, ChannelConfig, Config, SandboxConfig
from bot.config.team import ApprovalRule, Right, RoleAssignment, RoleConfig, TeamConfig
from bot.database.database import Execute
from bot.journey import claims, questions
from bot.rights.approvals import question_columns
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.rights.permissions import TurnPermissions, rules_in_force
from bot.storage import calls, conversations, inbox, runs
from bot.storage.calls import GrantRow
from bot.storage.questions import store_question
from catalogue import use_language
from sandbox.rules import NetworkRules
from tests.support.current_config import OPEN_ACCESS
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

MODELS = (ModelSettings("main"),)
ONLINE = SandboxConfig(network=NetworkRules(mode="on"))


def test_without_a_network_nothing_asks() -> None:
    assert rules_in_force(Config(models=MODELS)) == ()


def test_the_built_in_rules_hold_where_the_sandbox_has_a_network() -> None:
    permissions = PermissionConfig(ask=(RuleText("bash(make deploy)"),))
    rules = rules_in_force(Config(models=MODELS, sandbox=ONLINE, permissions=permissions))
    assert [str(rule) for rule in rules[:2]] == ["bash(make deploy)", "bash(git push *)"]
    assert tuple(rules[1:]) == OUTSIDE_RULES


def test_the_demo_has_a_rule_that_asks() -> None:
    assert rules_in_force(Config()) == DEMO_RULES


async def test_a_grant_is_stored_once_with_its_answer_in_any_language(tmp_path: Path) -> None:
    thread, jane = Thread("telegram", "1", "42"), Author("42", "Jane")
    click = Message(thread, "k1", "9", jane, "始终允许", 1.0, Kind.CLICK, target="a", origin=Origin.PERSON)
    approve = Approve("a", "May I?", call="bash", grant=Grant("bash", "make deploy"), option_count=4)
    here = Approve("b", "May I?", call="bash", grant=Grant("bash", "make test"), option_count=3)

    def answer(execute: Execute) -> list[GrantRow]:
        answerers = question_columns(approve, "42")
        with use_language("zh"):
            for number, each in enumerate((approve, here), 1):
                store_question(execute, each, "c", run=1, number=number, answerers=answerers, now=1.0)
        for text, target in (("始终允许", "a"), ("拒绝", "a"), ("始终允许", "b"), ("在本对话中允许", "b")):
            message = replace(click, key=f"{text}{target}", text=text, target=target)
            questions.record_answers(execute, OPEN_ACCESS, "c", [message], 2.0)
        return calls.list_grants(execute, "c")

    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        rows = await store.run(answer)
        given = await store.run(lambda execute: questions.given_answers(execute, "c"))
    assert [(row.conversation, row.tool, row.subject, row.person) for row in rows] == [
        ("c", "bash", "make test", "42"),
        (calls.EVERYWHERE, "bash", "make deploy", "42"),
    ]
    assert [each.text for each in given] == ["Always allow", "Allow in this conversation"]


TRAINEE = RoleConfig(
    "trainee", (Right.TALK, Right.APPROVE), deny=(RuleText("mcp__*"),), ask=(RuleText("ls"),), skills=("sum",)
)
DEPLOY = ApprovalRule((RuleText("deploy"),), ("operator",))


@pytest.mark.parametrize(
    ("people", "tool", "args", "verdict"),
    [
        ("member", "bash", {}, "allow"),
        ("operator", "mcp__x__y", {}, "ask"),  # the default of what is outside
        ("trainee", "mcp__x__y", {}, "deny"),
        ("operator trainee", "mcp__x__y", {}, "deny"),  # the strictest of those whose messages the run answers
        ("trainee", "ls", {}, "ask"),
        ("member", "ls", {}, "allow"),
        ("trainee", "web_fetch", {}, "deny"),
        ("member", "web_fetch", {}, "allow"),
        ("trainee", "bash", {}, "deny"),  # the sandbox has a network
        ("trainee", "run_skill", {"name": "sum"}, "deny"),
        ("trainee", "invoke_agent", {"agent": "codex"}, "deny"),
        ("trainee", "read_file", {}, "allow"),
        ("member", "deploy", {}, "ask"),
        ("operator", "deploy", {}, "ask"),
        ("viewer", "read_file", {}, "deny"),
        ("viewer", "task", {}, "deny"),
        ("member viewer", "read_file", {}, "deny"),
        ("stranger", "read_file", {}, "deny"),
    ],
)
async def test_every_call_is_bounded_by_the_roles_of_the_turns_people(
    tmp_path: Path, people: str, tool: str, args: Mapping[str, str], verdict: str
) -> None:
    ids = people.split()
    roles = tuple(RoleAssignment(role, (role,)) for role in ("viewer", "member", "operator", "trainee"))
    config = Config(
        channels=(ChannelConfig("slack", None, AccessConfig(roles=roles)),),
        team=TeamConfig(roles=(TRAINEE,), approvals=(DEPLOY,)),
        sandbox=SandboxConfig(network=NetworkRules(mode="on")),
        models=(ModelSettings(name="m"),),
    )
    place = Thread("slack", "T1", "C1")
    message = Message(place, "k", "1", Author(ids[0], ids[0]), "go", 1.0, origin=Origin.PERSON)
    use = ToolUse(tool, args, default="ask" if tool.startswith("mcp") else "allow")
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:

        def claim(execute: Execute) -> ClaimedRun:
            conversation = conversations.current_conversation(execute, place, 1.0)
            inbox.store_message(execute, message, conversation, ready=1.0, received=1.0)
            conversations.refresh_pending(execute, conversation)
            [job] = claims.claim_conversations(execute, OPEN_ACCESS, "w", 2.0, 10.0, 1)  # roles change later
            runs.add_people(execute, job.run, ids)
            return job

        permissions = TurnPermissions(store, Current(config), await store.run(claim))
        assert (await permissions.judge(use)).verdict == verdict
        assert permissions.hides(tool) == (verdict == "deny" and "viewer" not in people and people != "stranger")
