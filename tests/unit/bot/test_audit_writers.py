"""Whatever a person or the command line changes has a row in the audit, or a reason here why it has none.

tests/unit/bot/test_deeds.py drives every command of the chat and every operation of the command line.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.user_message import MessageFormatter
from agent.messages import Kind, Message, Origin
from agent.policies.permission import PermissionPolicy
from agent.settings.sections import AgentSettings
from agent.turn import chains
from bot.accounts import command as linking
from bot.cli import data, look
from bot.cli.people import OFFBOARD, PAIR_ACTIONS
from bot.cli.program import command_line_parser
from bot.cli.skills import ACTIONS, READING, changes_skills
from bot.commands import waits
from bot.database import audit
from bot.database.audit import AuditKind
from bot.database.database import Execute
from bot.database.states import InboxState, ScheduleState
from bot.journey import addressing
from bot.main.features import FEATURES
from bot.privacy import command as forgetting
from bot.service import schedule_words
from bot.skills import decisions
from bot.storage import account_links, hand_overs, inbox
from bot.storage.hand_overs import HandOverRow
from bot.team import pairing
from bot.waiting import hand_over
from tests.support.schedule_rows import add_schedule
from tests.unit.bot.test_deeds import BOSS, EVE, GROUP, OPERATIONS, Team, rows_of, team

__all__ = ["team"]  # the fixture

ROOT = Path(__file__).parents[3]
ROWS = {  # a command that changes something → the kind of its row, and where a test reads it
    **dict.fromkeys(
        ("init", "setup", "export", "audit export", "egress", "mcp login", "mcp logout"),
        (AuditKind.COMMAND, "tests/e2e/test_audit.py"),
    ),
    "dead requeue": (AuditKind.DEAD_REQUEUED, "tests/unit/bot/test_deeds.py"),
    "dead drop": (AuditKind.DEAD_DROPPED, "tests/unit/bot/test_deeds.py"),
    "pair accept": (AuditKind.PAIRING_ACCEPTED, "tests/unit/bot/test_deeds.py"),
    "pair decline": (AuditKind.PAIRING_DECLINED, "tests/unit/bot/test_deeds.py"),
    "pair revoke": (AuditKind.PAIRING_REVOKED, "tests/unit/bot/test_deeds.py"),
    "offboard": (AuditKind.PERSON_OFFBOARDED, "tests/unit/bot/test_deeds.py"),
    "key add": (AuditKind.KEY_ADDED, "tests/e2e/test_api.py"),
    "key revoke": (AuditKind.KEY_REVOKED, "tests/e2e/test_api.py"),
    "web link": (AuditKind.PAGE_LINK, "tests/e2e/test_page.py"),
    "backup": (AuditKind.BACKUP, "tests/unit/bot/test_deeds.py"),
    "drill": (AuditKind.DRILL, "tests/unit/bot/test_deeds.py"),
    "restore": (AuditKind.RESTORE, "tests/unit/bot/test_restore.py"),
    "migrate": (AuditKind.DATABASE_COPIED, "tests/unit/bot/test_engine_change.py"),
    "forget": (AuditKind.PERSON_FORGOTTEN, "tests/unit/bot/test_audit_writers.py"),
    "reload": (AuditKind.CONFIG_CHANGED, "tests/e2e/test_reload.py"),
    "run": (AuditKind.SERVICE_STARTED, "tests/e2e/test_audit.py"),
    "chat": (AuditKind.SERVICE_STARTED, "tests/e2e/test_audit.py"),
    "ask": (AuditKind.MESSAGE, "tests/e2e/test_audit.py"),
    **{
        f"skills {action}": (AuditKind.SKILL, "tests/e2e/test_skills.py")
        for action in ("install", *ACTIONS)
        if action not in READING
    },
}
KINDS = {  # where a test drives what makes a row of the kind, and reads the row
    AuditKind.SERVICE_STARTED: "tests/e2e/test_audit.py",
    AuditKind.CONFIG_CHANGED: "tests/e2e/test_reload.py",
    AuditKind.DRILL: "tests/e2e/test_drill.py",
    AuditKind.DATABASE_COPIED: "tests/unit/bot/test_engine_change.py",
    AuditKind.EGRESS: "tests/unit/bot/test_egress_records.py",
    AuditKind.MESSAGE: "tests/e2e/test_audit.py",
    AuditKind.TURN_ENDED: "tests/e2e/test_budgets.py",
    AuditKind.TOOL_CALL: "tests/e2e/test_audit.py",
    AuditKind.TOOL_RESULT: "tests/e2e/test_audit.py",
    AuditKind.APPROVAL_ASKED: "tests/e2e/test_audit.py",
    AuditKind.APPROVAL_ANSWERED: "tests/e2e/test_audit.py",
    AuditKind.APPROVAL_EXPIRED: "tests/e2e/test_permissions.py",
    AuditKind.GRANT_GIVEN: "tests/e2e/test_audit.py",
    AuditKind.GRANT_REVOKED: "tests/e2e/test_audit.py",
    AuditKind.HAND_OVER: "tests/unit/bot/test_hand_over.py",
    AuditKind.ACCOUNT_LINK: "tests/unit/bot/test_links.py",
    AuditKind.COMMAND: "tests/e2e/test_audit.py",
    AuditKind.CHOICE: "tests/e2e/test_audit.py",
    AuditKind.SKILL: "tests/e2e/test_skills.py",
    AuditKind.PAIRING_ASKED: "tests/e2e/test_audit.py",
    AuditKind.PAIRING_ACCEPTED: "tests/unit/bot/test_deeds.py",
    AuditKind.PAIRING_DECLINED: "tests/unit/bot/test_deeds.py",
    AuditKind.PAIRING_REVOKED: "tests/unit/bot/test_deeds.py",
    AuditKind.ACCESS_CHANGED: "tests/e2e/test_roles.py",
    AuditKind.ACCESS_DENIED: "tests/e2e/test_audit.py",
    AuditKind.BUDGET_REFUSED: "tests/e2e/test_budgets.py",
    AuditKind.BUDGET_CHANGED: "tests/e2e/test_reload.py",
    AuditKind.SCHEDULE_CHANGED: "tests/e2e/test_schedules.py",
    AuditKind.SCHEDULE_FIRED: "tests/e2e/test_schedules.py",
    AuditKind.HOOK_TAKEN: "tests/e2e/test_hooks.py",
    AuditKind.TASK_CHANGED: "tests/e2e/test_tasks.py",
    AuditKind.DELIVERY: "tests/e2e/test_audit.py",
    AuditKind.DEAD_LETTER: "tests/unit/bot/test_inbox.py",
    AuditKind.DEAD_REQUEUED: "tests/unit/bot/test_deeds.py",
    AuditKind.DEAD_DROPPED: "tests/unit/bot/test_deeds.py",
    AuditKind.PERSON_FORGOTTEN: "tests/unit/bot/test_audit_writers.py",
    AuditKind.FEEDBACK: "tests/unit/bot/test_deeds.py",
    AuditKind.PUSH: "tests/e2e/test_push.py",
    AuditKind.BACKUP: "tests/unit/bot/test_deeds.py",
    AuditKind.RESTORE: "tests/unit/bot/test_restore.py",
    AuditKind.PERSON_OFFBOARDED: "tests/unit/bot/test_deeds.py",
    AuditKind.KEY_ADDED: "tests/e2e/test_api.py",
    AuditKind.PAGE_LINK: "tests/e2e/test_page.py",
    AuditKind.PAGE_SIGNED_IN: "tests/e2e/test_page.py",
    AuditKind.CHANNEL_SIGN_IN: "tests/e2e/test_page_sign_in.py",
    AuditKind.PAGE_SIGNED_OUT: "tests/e2e/test_page.py",
    AuditKind.KEY_REVOKED: "tests/e2e/test_api.py",
    AuditKind.PRUNED: "tests/unit/bot/test_audit_check.py",
}
READS = {
    "check", "doctor", "status", "dead list", "pair list", "key list", "skills list", "skills diff", "mcp list",
    "audit verify", "audit head", "permissions try", "why", "trace", "logs", "top",
    "help", "version", "completion", "slack manifest",
    "relay",  # it has no database: what it hands over has its rows where it is stored
}  # fmt: skip
EXEMPT = {
    "sandbox build": "it makes an image of the engine: nothing that Fawn keeps",
}


def subcommands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[str]:
    """Yield the commands of a parser, each with its action if it has some."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, child in action.choices.items():
                yield from subcommands(child, f"{name} {word}".strip())
            return
    for action in parser._actions:
        if action.dest == "action" and action.choices:
            yield from (f"{name} {choice}" for choice in action.choices)
            return
    yield name


def test_every_command_of_the_command_line_has_a_row_or_a_reason() -> None:
    found = {*subcommands(command_line_parser())}
    assert found == {*ROWS, *READS, *EXEMPT}
    assert not {*ROWS} & {*READS, *EXEMPT}


@pytest.mark.parametrize("command", ROWS)
def test_a_test_reads_the_row_of_each_command(command: str) -> None:
    kind, path = ROWS[command]
    text = (ROOT / path).read_text("utf-8")
    assert str(kind) in text or kind.name in text


@pytest.mark.parametrize("kind", AuditKind)
def test_a_test_reads_a_row_of_each_kind(kind: AuditKind) -> None:
    text = (ROOT / KINDS[kind]).read_text("utf-8")
    family, _dot, _rest = kind.partition(".")
    found = (f'"{kind}"', f"AuditKind.{kind.name}", f'f"{family}.{{', f'"kind":"{kind}"')
    assert any(words in text for words in found), KINDS[kind]


def test_the_operations_of_the_command_line_are_those_that_are_driven() -> None:
    actions = (*look.ACTIONS.values(), *PAIR_ACTIONS.values(), OFFBOARD, data.BACKUP)
    assert {action.operation for action in actions if action.words} <= {*OPERATIONS}


def test_only_reading_actions_of_skills_have_no_row() -> None:
    assert {action for action in ACTIONS if not changes_skills(action, "minutes")} == {"list", "diff"}


# A press on a list of `/waiting` becomes one on its question, with the row of that one.
PRESSES = {  # what the boss presses, and the kind of its row: a stale or foreign question is refused
    pairing.PREFIX: (pairing.LET_IN, "MALLORYS", AuditKind.PAIRING_ACCEPTED),
    decisions.PREFIX: (decisions.ACCEPT, "a" * 32, AuditKind.COMMAND),
    schedule_words.PREFIX: ("Yes", "1", AuditKind.ACCESS_DENIED),
    forgetting.PREFIX: ("Yes", "7", AuditKind.ACCESS_DENIED),
    addressing.PREFIX: (addressing.NEITHER, "1", AuditKind.ACCESS_DENIED),
    waits.LIST_PREFIX: (waits.SHOW_LIST, "", AuditKind.ACCESS_DENIED),  # in a group
    hand_over.PREFIX: (hand_over.TAKE_BACK, f"{hand_over.END}-1", AuditKind.ACCESS_DENIED),
    linking.PREFIX: (linking.MINE, "1", AuditKind.ACCESS_DENIED),
}


@pytest.mark.parametrize(
    "decision", [prefix for feature in FEATURES for prefix in feature.presses if prefix != waits.PREFIX]
)
async def test_every_decision_button_has_its_row(team: Team, decision: str) -> None:
    def propose(execute: Execute) -> None:
        """Store a schedule, a message and a hand-over about which somebody else has to decide."""
        held = Message(GROUP, "held", "9", EVE, "csv", 1.0, origin=Origin.PERSON)
        assert inbox.store_message(execute, held, "c", ready=1.0, received=1.0) == 1
        inbox.set_state(execute, 1, InboxState.DONE, addressing.HELD)
        schedule = add_schedule(execute, 1.0, owner=EVE.id, thread=str(GROUP), state=ScheduleState.PROPOSED)
        assert schedule.id == int(PRESSES[schedule_words.PREFIX][1])
        given = HandOverRow(0, "telegram", EVE.id, "", "8", "", "", 0, 0.0, 9e9, None)
        assert hand_overs.add_hand_over(execute, given).id == 1
        account_links.add_request(execute, "telegram", EVE, "CODE", 9e9)

    await team.store.run(propose)
    label, id, kind = PRESSES[decision]
    await team.send(BOSS, label, Kind.CLICK, f"{decision}{id}")
    assert await rows_of(team, f'"kind":"{kind}"') == 1


async def test_who_is_forgotten_by_the_command_line_has_a_row(team: Team) -> None:
    await team.store.run(lambda execute: audit.forget_person(execute, "telegram", "7"))
    assert await rows_of(team, f'"kind":"{AuditKind.PERSON_FORGOTTEN}"', '"via":"command line"') == 1


def test_the_calls_of_all_tools_pass_the_policy_that_records_them() -> None:
    """tests/e2e/test_audit.py reads the rows of a call, its approval and its result."""
    worker = chains.worker_policies(AgentSettings(), None, "worker")
    assert any(isinstance(policy, PermissionPolicy) for policy in worker.tool)
    lead = chains.lead_policies(AgentSettings(), None, None, MessageFormatter("UTC"), "lead")
    assert any(isinstance(policy, PermissionPolicy) for policy in lead.tool)
