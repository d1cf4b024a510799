"""Which rules are in force for a configuration, and what an answer grants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.blocks import Approve
from agent.demo.rules import DEMO_RULES
from agent.messages import Author, Kind, Message, Thread
from agent.models.settings import ModelSettings
from agent.permissions.defaults import OUTSIDE_RULES
from agent.permissions.rules import Grant, RuleText
from agent.sections import PermissionConfig
from bot import questions
from bot.approvals import question_columns
from bot.config.schema import Config, SandboxConfig
from bot.permissions import rules_in_force
from bot.storage import grants
from bot.storage.database import Database, Execute
from bot.storage.grants import GrantRow
from bot.storage.migrate import migrate_database
from bot.storage.questions import store_question
from catalogue import use_language
from sandbox.network.rules import NetworkRules
from tests.support.current_config import OPEN_ACCESS

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
    click = Message(thread, "k1", "9", jane, "始终允许", 1.0, Kind.CLICK, target="a")
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
        return grants.list_grants(execute, "c")

    migrate_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db") as store:
        rows = await store.run(answer)
        given = await store.run(lambda execute: questions.given_answers(execute, "c"))
    assert [(row.conversation, row.tool, row.subject, row.person) for row in rows] == [
        ("c", "bash", "make test", "42"),
        (grants.EVERYWHERE, "bash", "make deploy", "42"),
    ]
    assert [each.text for each in given] == ["Always allow", "Allow in this conversation"]
