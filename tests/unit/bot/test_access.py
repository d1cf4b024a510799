"""Which role a person has where, and what it lets them do."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.messages import Author, Message, Origin, Thread
from agent.permissions.rules import RuleText
from bot.config.schema import AccessConfig
from bot.config.team import BUILTIN_ROLES, Right, RoleAssignment, RoleConfig, TeamConfig
from bot.database.database import Database, Execute
from bot.rights.access import AccessPolicy, combine_roles
from bot.rights.deeds import READ_AUDIT
from bot.storage import channels, people
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

HERE = Thread("slack", "T1", "C1", "9")
BY = Author("U9", "Ann")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


def assigned(**who: str) -> AccessConfig:
    roles = tuple(RoleAssignment(role, tuple(ids.split())) for role, ids in who.items())
    return AccessConfig(open=True, roles=roles)


@pytest.mark.parametrize(
    ("rules", "given", "role"),
    [
        (AccessConfig(), {}, ""),
        (AccessConfig(open=True), {}, "member"),
        (AccessConfig(allow=("U1",)), {}, "member"),
        (AccessConfig(allow=("C1",)), {}, "member"),
        (AccessConfig(allow=("T1",)), {}, "member"),
        (AccessConfig(operators=("U1",)), {}, "operator"),
        (AccessConfig(roles=(RoleAssignment("viewer", ("C1",)),)), {}, ""),  # a role of a chat lets nobody in
        (AccessConfig(roles=(RoleAssignment("viewer", ("U1",)),)), {}, "viewer"),
        (AccessConfig(roles=(RoleAssignment("owner", ("T1/U1",)),)), {}, "owner"),
        (AccessConfig(roles=(RoleAssignment("owner", ("T2/U1",)),)), {}, ""),
        (assigned(viewer="T1", operator="C1"), {}, "operator"),
        (assigned(viewer="T1", operator="T1/U1"), {}, "operator"),
        (assigned(operator="U1", viewer="C1/U1"), {}, "viewer"),
        (assigned(operator="C2/U1"), {}, "member"),
        (AccessConfig(), {"person:T1/U1": "operator"}, "operator"),
        (assigned(viewer="T1/U1"), {"person:T1/U1": "operator"}, "viewer"),  # the configuration wins
        (assigned(viewer="U1"), {"person:T1/U1": "operator"}, "viewer"),
        (assigned(viewer="C1"), {"person:T1/U1": "operator"}, "operator"),
        (AccessConfig(open=True), {"chat:C1": "viewer"}, "viewer"),
        (AccessConfig(open=True), {"person:T1/U1": "unknown"}, "unknown"),
    ],
)
async def test_the_most_specific_assignment_decides(
    store: Database, rules: AccessConfig, given: Mapping[str, str], role: str
) -> None:
    def look(execute: Execute) -> RoleConfig:
        for subject, name in given.items():
            people.store_role(execute, HERE, subject, name, name="", by=BY, now=1.0)
        return AccessPolicy({"slack": rules}).role_of(execute, HERE, "U1")

    found = await store.run(look)
    assert found.name == role
    assert found.rights == (BUILTIN_ROLES[role].rights if role in BUILTIN_ROLES else ())


@pytest.mark.parametrize(
    ("author", "rules", "enters"),
    [
        (Author("U1", "Eve"), AccessConfig(open=True), True),
        (Author("U1", "Eve", guest=True), AccessConfig(open=True), False),
        (Author("U1", "Eve", guest=True), AccessConfig(allow=("T1",)), False),
        (Author("U1", "Eve", guest=True), AccessConfig(allow=("C1",)), True),
        (Author("U1", "Eve", guest=True), assigned(viewer="U1"), True),
        (Author("U1", "Bot", bot=True), AccessConfig(allow=("C1",)), False),
        (Author("U1", "Bot", bot=True), AccessConfig(allow=("U1",)), True),
        (Author("U1", "Bot", bot=True), assigned(member="C1"), False),
    ],
)
async def test_who_is_let_in(store: Database, author: Author, rules: AccessConfig, enters: bool) -> None:
    message = Message(HERE, "k", "1", author, "hi", 1.0, origin=Origin.PERSON)
    assert await store.run(lambda execute: AccessPolicy({"slack": rules}).may_enter(execute, message)) is enters


async def test_pairing_gives_the_default_role_and_can_make_an_operator(store: Database) -> None:
    place = Thread("slack", "T1", "D1")

    def pair(execute: Execute) -> list[str]:
        for person, operator in (("U1", False), ("U2", True)):
            message = Message(
                place, f"k{person}", "1", Author(person, person), "hi", 1.0, private=True, origin=Origin.PERSON
            )
            people.store_code(execute, message, f"CODE{person}", time.time() + 60)
            people.accept_code(execute, f"CODE{person}", time.time(), operator=operator)
        team = TeamConfig(default_role="viewer")
        policy = AccessPolicy({"slack": AccessConfig()}, team)
        return [policy.role_of(execute, place, person).name for person in ("U1", "U2", "U3")]

    assert await store.run(pair) == ["viewer", "operator", ""]


async def test_operators_are_found_by_role(store: Database) -> None:
    def find(execute: Execute) -> list[str]:
        for person in ("U1", "U2", "U3", "U4"):
            message = Message(
                Thread("slack", "T1", f"D{person}"), person, "1", Author(person, person), "", 1.0, origin=Origin.PERSON
            )
            people.store_address(execute, message)
        people.store_role(execute, HERE, "person:T1/U3", "operator", name="", by=BY, now=1.0)
        rules = AccessConfig(
            operators=("U1",), roles=(RoleAssignment("owner", ("T1/U2",)), RoleAssignment("member", ("U4",)))
        )
        found = AccessPolicy({"slack": rules}).reachable_operators(execute, console=False)
        return [row.person for row in found]

    assert await store.run(find) == ["U1", "U2", "U3"]


BASH = (RuleText("bash"),)
MEMBER, OPERATOR, OWNER = BUILTIN_ROLES["member"], BUILTIN_ROLES["operator"], BUILTIN_ROLES["owner"]
CAREFUL = RoleConfig("careful", MEMBER.rights, deny=BASH, models=("small",))


@pytest.mark.parametrize(
    ("giver", "role", "covered"),
    [
        (OPERATOR, MEMBER, True),
        (OPERATOR, OPERATOR, True),
        (OPERATOR, OWNER, False),
        (OWNER, OPERATOR, True),
        (OPERATOR, CAREFUL, True),
        (CAREFUL, MEMBER, False),
        (CAREFUL, CAREFUL, True),
        (RoleConfig("a", (Right.ACCESS,)), RoleConfig("b", allow=BASH), False),
        (RoleConfig("a", ask=BASH), RoleConfig("b", deny=BASH), True),
    ],
)
def test_nobody_gives_more_than_they_have(giver: RoleConfig, role: RoleConfig, covered: bool) -> None:
    assert giver.covers(role) is covered


DIRECT = Thread("discord", "@me", "6000")
TRAINEE = RoleConfig("trainee", (Right.TALK, Right.APPROVE), models=("small",))


@pytest.mark.parametrize(
    ("configured", "given", "role"),
    [
        ({}, {}, "member"),
        ({}, {"person:G1/U1": "viewer"}, "viewer"),
        ({}, {"person:G1/U1": "operator"}, "operator"),
        ({}, {"person:G1/U1": "operator", "person:G2/U1": "viewer"}, "viewer"),  # the strictest restriction
        ({}, {"person:G1/U1": "operator", "person:G2/U1": "owner"}, "owner"),
        ({"viewer": "G1/U1"}, {"person:G1/U1": "operator"}, "viewer"),  # the configuration wins
        ({"viewer": "G1/U1"}, {"person:@me/U1": "member"}, "member"),  # a role for direct chats decides
        ({"operator": "U1", "viewer": "G1/U1"}, {}, "operator"),  # one for everywhere, too
        ({"operator": "C1/U1"}, {}, "member"),  # a channel is no server
        ({"viewer": "C1/U1"}, {}, "member"),
        ({"operator": "G9/U1"}, {}, "member"),  # nothing was heard of it: it may be a channel
        ({"viewer": "G9/U1"}, {}, "viewer"),
        ({"viewer": "G1"}, {}, "viewer"),  # of everybody on a server: who is there is not known
        ({"viewer": "G1", "member": "@me"}, {}, "member"),
        ({"operator": "G1"}, {}, "member"),
        ({}, {"chat:C1": "viewer"}, "member"),
        ({"trainee": "G1/U1"}, {"person:G2/U1": "viewer"}, "viewer + trainee"),  # no rights: what both may
    ],
)
async def test_a_direct_chat_on_discord_inherits_the_roles_of_all_servers(
    store: Database, configured: Mapping[str, str], given: Mapping[str, str], role: str
) -> None:
    def look(execute: Execute) -> str:
        for server, channel in (("G1", "C1"), ("G2", "C2")):
            heard = Message(
                Thread("discord", server, channel), "k", "1", Author("U5", ""), "", 1.0, origin=Origin.PERSON
            )
            channels.advance_watermark(execute, heard)
        for subject, name in given.items():
            people.store_role(execute, DIRECT, subject, name, name="", by=BY, now=1.0)
        policy = AccessPolicy({"discord": assigned(**configured)}, TeamConfig(roles=(TRAINEE,)))
        return policy.role_of(execute, DIRECT, "U1").name

    assert await store.run(look) == role


def test_roles_of_several_servers_are_combined() -> None:
    careful = RoleConfig("careful", (Right.TALK, Right.NETWORK), deny=BASH)
    both = combine_roles([TRAINEE, careful], MEMBER)
    assert (set(both.rights), both.deny, both.models) == ({Right.TALK}, BASH, ("small",))
    disjoint = combine_roles([TRAINEE, RoleConfig("other", (Right.TALK,), models=("large",))], MEMBER)
    assert disjoint.rights == (), "no model may answer"
    reader = RoleConfig("reader", (*MEMBER.rights, Right.USAGE), allow=BASH)
    keeper = RoleConfig("keeper", (*MEMBER.rights, Right.SKILLS))
    united = combine_roles([reader, keeper], MEMBER)
    assert {*united.rights} == {*MEMBER.rights, Right.USAGE, Right.SKILLS}
    assert united.allow == ()


def test_two_roles_at_once_are_what_any_or_what_all_of_them_may() -> None:
    """Any, where each covers the default; all, where one does not. No call runs unasked that one of them restricts."""
    some = (Right.TALK, Right.SCHEDULE), (Right.TALK, Right.NETWORK)
    one = RoleConfig("one", some[0], ("a", "b"), ("c", "d"), ("x", "y"), models=("m", "n"), skills=("s",))  # type: ignore[arg-type]  # texts
    two = RoleConfig("two", some[1], ("b", "c"), (), ("y", "z"), models=("m", "o"))  # type: ignore[arg-type]  # texts
    low = RoleConfig("low", deny=("a", "b", "c", "d"), models=("m",), skills=("s",))  # type: ignore[arg-type]  # texts
    united = combine_roles([one, two], low)
    assert (united.name, {*united.rights}) == ("one + two", {*some[0], *some[1]})
    assert (united.deny, united.ask, united.allow) == (("b",), ("c",), ("y",))
    assert (united.models, united.agents, united.skills) == (("m", "n", "o"), (), ())
    turned = combine_roles([two, one], low)
    assert (turned.deny, turned.ask, turned.allow) == (united.deny, united.ask, united.allow), "in any order"
    shared = combine_roles([one, two], RoleConfig("high", (*some[0], *some[1])))
    assert (shared.name, shared.rights) == ("one + two", (Right.TALK,))
    assert (shared.deny, shared.ask, shared.allow) == (("a", "b", "c"), ("c", "d"), ("y",))
    assert (shared.models, shared.agents, shared.skills) == (("m",), (), ("s",))


async def test_an_operator_of_a_server_is_found_in_their_direct_chat(store: Database) -> None:
    def find(execute: Execute) -> tuple[list[str], list[str]]:
        message = Message(DIRECT, "k", "1", Author("U1", "Ann"), "", 1.0, private=True, origin=Origin.PERSON)
        people.store_address(execute, message)
        people.store_role(execute, DIRECT, "person:G1/U1", "operator", name="", by=BY, now=1.0)
        policy = AccessPolicy({"discord": AccessConfig(open=True)})
        found = policy.reachable_operators(execute, console=False)
        return [row.person for row in found], policy.workspaces_where(execute, DIRECT, "U1", READ_AUDIT)

    assert await store.run(find) == (["U1"], ["G1"])


async def test_a_chat_with_the_id_of_a_person_is_not_that_person(store: Database) -> None:
    def look(execute: Execute) -> list[str]:
        direct = Thread("telegram", "1", "66")
        people.store_role(execute, direct, people.chat_subject("66"), "viewer", name="", by=BY, now=1.0)
        policy = AccessPolicy({"telegram": AccessConfig(open=True)})
        return [policy.role_of(execute, place, "66").name for place in (direct, replace(direct, chat="-7"))]

    assert await store.run(look) == ["viewer", "member"]
