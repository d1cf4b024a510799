"""How far rights reach: every command and decision button, by people whose role is too small or ends at their chat."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.blocks import Final
from agent.messages import Author, Kind, Message, Origin, Thread
from agent.permissions.rules import Grant
from bot.admin.operations import Operations
from bot.config.schema import AccessConfig
from bot.config.team import RoleAssignment
from bot.database import audit
from bot.database.database import Database, Execute
from bot.database.states import EntryKind, OutboxState
from bot.main.features import FEATURES, gather_commands
from bot.privacy import command as forgetting
from bot.rights import deeds
from bot.rights.deeds import DEEDS, Deed
from bot.service import schedule_words
from bot.skills import decisions
from bot.storage import api_access, calls, conversations, inbox, outbox, people, transcripts
from bot.storage.transcripts import TranscriptEntry
from bot.team import pairing
from sandbox.disk.folders import ConversationFolders
from tests.support.current_config import current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.reception import command_runner, command_service, open_inbox
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

ROOT = Path(__file__).parents[3]
GROUP = Thread("telegram", "1", "-5")
BOSS, ADA, EVE, VIC, BOB = (Author(id, id) for id in ("9", "8", "7", "6", "5"))
STRANGER = Author("4", "Mallory")
ACCESS = AccessConfig(
    pairing=True,
    roles=(
        RoleAssignment("owner", ("9",)),
        RoleAssignment("operator", ("-5/8",)),  # in this chat only
        RoleAssignment("member", ("7",)),
        RoleAssignment("viewer", ("6",)),
    ),
)


@dataclass
class Team:
    """A bot with people, and what it said and was made to do."""

    store: Database
    reloads: list[Message] = field(default_factory=list)
    number: int = 0

    async def send(
        self,
        author: Author,
        text: str,
        kind: Kind = Kind.COMMAND,
        target: str = "",
        origin: Origin = Origin.PERSON,
        private: bool = False,
        reply_to: str = "",
    ) -> str:
        """Offer an event in the group; return what the bot said then."""
        self.number += 1
        key, before = f"k{self.number}", len(await self.said())
        at = float(self.number)
        event = Message(
            GROUP, key, key, author, text, at, kind, target=target, origin=origin, private=private, reply_to=reply_to
        )
        current = current_of(telegram=ACCESS)
        service = command_service(current, "state of the service", reload=self.reloads.append)
        await open_inbox(self.store, current, IDLE_TURNS).receive([event])
        serving = asyncio.create_task(command_runner(self.store, service).serve())
        async with asyncio.timeout(60):
            while await self.store.run(lambda execute: inbox.pending_commands(execute, 1)):
                await asyncio.sleep(0.01)
        serving.cancel()
        await asyncio.wait([serving])
        return "\n".join((await self.said())[before:])

    async def said(self) -> list[str]:
        rows = await self.store.run(lambda execute: execute("SELECT payload FROM outbox ORDER BY id", {}))
        return [Final.load(row["payload"]).text for row in rows]

    async def state(self) -> list[object]:
        """Return what people can change beyond a chat."""

        def read(execute: Execute) -> list[object]:
            statements = (
                "SELECT subject, role FROM person_roles",
                "SELECT id FROM permission_grants",
                "SELECT key FROM jobs",
                "SELECT person, allowed FROM people ORDER BY person",
            )
            return [tuple(row) for sql in statements for row in execute(sql, {})]

        return [*await self.store.run(read), len(self.reloads)]

    async def refusals(self) -> int:
        rows = await self.store.run(
            lambda execute: execute(
                "SELECT count(*) AS n FROM audit WHERE CAST(body AS TEXT) LIKE '%access.denied%'", {}
            )
        )
        return int(rows[0]["n"])


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Team]:
    """A team with a stranger who waits, a person who was let in and put out again, and a grant of the boss."""
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:

        def fill(execute: Execute) -> None:
            for who, code in ((STRANGER, "MALLORYS"), (BOB, "BOBSCODE")):
                direct = Message(
                    Thread("telegram", "1", who.id), who.id, "1", who, "hi", 1.0, private=True, origin=Origin.PERSON
                )
                people.store_code(execute, direct, code, 9e9)
            people.accept_code(execute, "BOBSCODE", 2.0, operator=True)
            people.revoke_pairing(execute, "telegram", BOB.id)
            calls.store_grant(execute, calls.EVERYWHERE, Grant("bash", "ls"), GROUP, BOSS, 1.0)
            here = conversations.current_conversation(execute, GROUP, 1.0)
            calls.store_grant(execute, here, Grant("bash", "pwd"), GROUP, ADA, 1.0)

        await store.run(fill)
        yield Team(store)


@dataclass(frozen=True)
class Attempt:
    """How a person tries a deed, and what the bot says if it shows something (\"\": it changes something)."""

    text: str
    kind: Kind = Kind.COMMAND
    target: str = ""
    shows: str = ""


ATTEMPTS: Mapping[Deed, Attempt] = {
    deeds.ALLOW_EVERYWHERE: Attempt("permissions revoke 1"),
    deeds.READ_AUDIT: Attempt("audit here", shows="The newest entries of the audit"),
    deeds.SEE_TEAM_USAGE: Attempt("usage team", shows="The usage of everybody"),
    deeds.SEE_SERVICE: Attempt("status", shows="state of the service"),
    deeds.RELOAD: Attempt("reload"),
    deeds.CHANGE_SKILLS: Attempt("skills install https://example.com/skill"),
    deeds.DECIDE_PAIRING: Attempt(pairing.LET_IN, Kind.CLICK, f"{pairing.PREFIX}MALLORYS"),
    deeds.GIVE_ROLE: Attempt("access grant viewer 33"),
}
PRESSES = {
    pairing.PREFIX: ATTEMPTS[deeds.DECIDE_PAIRING],
    decisions.PREFIX: Attempt(decisions.ACCEPT, Kind.CLICK, f"{decisions.PREFIX}{'a' * 32}"),
}
ELSEWHERE = {
    deeds.CHANGE_WORKSPACE_NOTE: "tests/unit/bot/test_memory.py",  # a tool does it, or a note is needed first
    deeds.END_ANYWHERE: "tests/e2e/test_operate.py",
    deeds.SIGN_IN_CHANNEL: "tests/e2e/test_page_sign_in.py",
}


def test_every_deed_beyond_a_chat_is_tried() -> None:
    assert {deed for deed in DEEDS if deed.is_beyond_chat} == {*ATTEMPTS, *ELSEWHERE}


@pytest.mark.parametrize("deed", ATTEMPTS, ids=lambda deed: deed.what)
@pytest.mark.parametrize("who", [ADA, EVE, VIC, BOB], ids=["operator-of-a-chat", "member", "viewer", "removed"])
async def test_a_role_of_one_chat_does_nothing_beyond_it(team: Team, deed: Deed, who: Author) -> None:
    attempt, before, refused = ATTEMPTS[deed], await team.state(), await team.refusals()
    said = await team.send(who, attempt.text, attempt.kind, attempt.target)
    assert await team.state() == before
    assert not (attempt.shows and attempt.shows in said)
    assert deed is deeds.SEE_SERVICE or await team.refusals() == refused + 1, "a refusal has its row in the audit"
    said = await team.send(BOSS, attempt.text, attempt.kind, attempt.target)
    assert attempt.shows in said if attempt.shows else await team.state() != before, "the owner does it"


@pytest.mark.parametrize("decision", PRESSES)
@pytest.mark.parametrize("who", [ADA, EVE, VIC, BOB], ids=["operator-of-a-chat", "member", "viewer", "removed"])
async def test_a_press_beyond_the_chat_needs_the_right_in_the_workspace(team: Team, decision: str, who: Author) -> None:
    press, before, refused = PRESSES[decision], await team.state(), await team.refusals()
    await team.send(who, press.text, press.kind, press.target)
    assert (await team.state(), await team.refusals()) == (before, refused + 1)
    await team.send(BOSS, press.text, press.kind, press.target)
    assert await team.state() != before


@pytest.mark.parametrize("decision", [schedule_words.PREFIX, forgetting.PREFIX])
def test_presses_that_concern_one_person_name_them(decision: str) -> None:
    assert any(f"button {decision}" in deed.uses and not deed.is_beyond_chat for deed in DEEDS)


@pytest.mark.parametrize("origin", [each for each in Origin if each is not Origin.PERSON])
@pytest.mark.parametrize("deed", [deed for deed, attempt in ATTEMPTS.items() if attempt.kind is Kind.COMMAND])
async def test_the_words_of_agents_and_schedules_are_never_commands(team: Team, deed: Deed, origin: Origin) -> None:
    """A schedule's run and a background agent come as messages, whose words may be a model's."""
    before = await team.state()
    said = await team.send(BOSS, f"/{ATTEMPTS[deed].text}", Kind.CHAT, origin=origin)
    assert (await team.state(), said) == (before, "")


REGISTRY = gather_commands(current_of()).known
PREFIXES = [prefix for feature in FEATURES for prefix in feature.presses]
NEEDS_RIGHT = [name for name, command in REGISTRY.items() if command.deed.right]


@pytest.mark.parametrize("name", NEEDS_RIGHT)
@pytest.mark.parametrize("who", [VIC, BOB], ids=["viewer", "removed"])
async def test_every_command_that_needs_a_right_refuses_a_person_without_it(team: Team, name: str, who: Author) -> None:
    before, refused = await team.state(), await team.refusals()
    said = await team.send(who, f"{name} me")
    assert (await team.state(), await team.refusals()) == (before, refused + 1)
    assert ("I don't know you yet" if who is BOB else "viewer") in said


async def test_a_viewer_takes_back_only_what_they_allowed_themselves(team: Team) -> None:
    before = await team.state()
    assert "viewer" in await team.send(VIC, "permissions revoke 2")
    assert await team.state() == before
    await team.store.run(
        lambda execute: execute("UPDATE permission_grants SET person=:person WHERE id=2", {"person": VIC.id})
    )
    assert "Revoked" in await team.send(VIC, "permissions revoke 2")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("grant viewer @eve", "I don't know anybody with the id `eve`, and no role was changed."),
        ("grant viewer evelyn", "Did you mean Evelyn Stone (`77`)?"),
        ("revoke @nobody", "has no role"),
        ("grant viewer 123456", "`123456` is **viewer** from now on."),  # an id that Telegram can have given
        ("grant viewer <@whoever>", "`whoever` is **viewer**"),  # the platform wrote this
    ],
)
async def test_a_role_is_given_to_known_people_and_possible_ids(team: Team, words: str, answer: str) -> None:
    here = await team.store.run(lambda execute: conversations.current_conversation(execute, GROUP, 1.0))
    entry = TranscriptEntry("1", EntryKind.MESSAGE, "hi", 1.0, "77", "Evelyn Stone")
    await team.store.run(lambda execute: transcripts.add_entries(execute, here, 1, [entry]))
    assert answer in await team.send(BOSS, f"access {words}")
    rows = await team.store.run(people.list_roles)
    assert len(rows) == ("from now on" in answer or "**" in answer)


async def test_a_direct_chat_gets_no_role_of_its_own(team: Team) -> None:
    said = await team.send(BOSS, "access grant viewer here", private=True)
    assert said.startswith("This chat has only you in it.")
    assert await team.store.run(people.list_roles) == []


# ------------------------------------------------------------ the table is complete


def test_every_command_has_an_entry() -> None:
    used = {use.split()[0].removeprefix("/") for deed in DEEDS for use in deed.uses if use.startswith("/")}
    assert used == {*REGISTRY}
    assert all(command.deed in DEEDS for command in REGISTRY.values())


def test_every_button_has_an_entry() -> None:
    used = {use.removeprefix("button ") for deed in DEEDS for use in deed.uses if use.startswith("button ")}
    assert used == {*PREFIXES, "ask", "approve"}
    for path in ROOT.glob("bot/**/*.py"):  # no button is handled beside the table
        assert not re.search(r"target\.startswith\((?!each\))", path.read_text()), path
        assert not re.search(r"Ask\(f\"[^{]", path.read_text()), path


def test_the_docs_have_the_same_table() -> None:
    text = (ROOT / "docs/team.md").read_text()
    reaches = "|".join(deeds.Extent)
    table = re.findall(rf"(?m)^\| [a-z][^|]+ \| `[^|]+ \| (?:`\w+`|none) \| (?:{reaches}) \|$", text)
    assert table == [*deeds.table_rows()]


# ------------------------------------------------------------ every deed has a row in the audit


async def rows_of(team: Team, *needles: str) -> int:
    """Return how many rows of the audit have all of these."""
    rows = await team.store.run(lambda execute: audit.read_newest(execute, 100))
    return sum(all(needle.encode() in row.body for needle in needles) for row in rows)


@pytest.mark.parametrize("name", REGISTRY)
async def test_every_command_has_its_row_in_the_audit(team: Team, name: str) -> None:
    await team.send(BOSS, name)
    assert await rows_of(team, '"kind":"command"', f'"name":"{name}"') == 1


OPERATIONS: Mapping[str, tuple[dict[str, Any], str]] = {  # what the command line changes, and the kind of its row
    "dead.requeue": ({"id": "2"}, "dead.requeued"),
    "dead.drop": ({"id": "1"}, "dead.dropped"),
    "pair.accept": ({"code": "MALLORYS"}, "pairing.accepted"),
    "pair.decline": ({"code": "MALLORYS"}, "pairing.declined"),
    "pair.revoke": ({"channel": "telegram", "person": BOSS.id}, "pairing.revoked"),
    "offboard": ({"channel": "telegram", "person": BOSS.id, "to": ""}, "person.offboarded"),
    "key.add": ({"name": "ci", "person": f"telegram/{BOSS.id}", "scopes": "read", "expires": "1d"}, "key.added"),
    "key.revoke": ({"name": "old"}, "key.revoked"),
    "web.link": ({"person": f"telegram/{BOSS.id}"}, "page.link"),
    "backup": ({"file": "saved.tar.gz"}, "backup"),
    "note": ({"command": "export"}, "command"),
    "drill.note": ({"figures": {"lost": 0, "left_out": "disk"}, "passed": True}, "drill"),
    "channel.keep": ({"channel": "wechat", "kept": {"token": "t"}}, "command"),
    "skills.note": ({"action": "disable", "skill": "minutes", "result": "done"}, "skill"),
}
READING = {"dead.list", "pair.list", "key.list", "export", "forget.look", "why", "trace", "skills.share"}
LATER = {"forget"}  # its job writes the row: tests/e2e/test_privacy.py


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_every_change_of_the_command_line_has_its_row(team: Team, tmp_path: Path, operation: str) -> None:
    def fill(execute: Execute) -> None:
        subject = people.person_subject("1", BOSS.id)
        people.store_role(execute, GROUP, subject, "owner", name="", by=BOSS, now=1.0)
        api_access.add_key(execute, api_access.ApiKeyRow("0", "old", "telegram", EVE.id, "read", 1.0, None, None))
        for number in (1, 2):
            outbox.enqueue_notice(execute, GROUP, "lost", key=f"lost{number}", now=1.0)
        execute("UPDATE outbox SET state=:dead WHERE key LIKE 'lost%'", {"dead": OutboxState.DEAD})

    await team.store.run(fill)
    folders = ConversationFolders(tmp_path / "threads", 0)
    table = Operations(team.store, tmp_path, folders, lambda: tmp_path / "mine", lambda: "http://localhost").table()
    assert {*table} == {*OPERATIONS, *READING, *LATER}
    arguments, kind = OPERATIONS[operation]
    if "file" in arguments:
        arguments = {"file": str(tmp_path / arguments["file"])}
    await table[operation](**arguments)
    assert await rows_of(team, f'"kind":"{kind}"', '"via":"command line"') == 1


async def test_what_people_change_beside_commands_has_its_row(team: Team) -> None:
    await team.send(BOSS, "please work", Kind.CHAT)
    key = f"k{team.number}"
    await team.send(BOSS, "please work more", Kind.EDIT, key)
    await team.send(BOSS, "", Kind.DELETE, key)
    for kind in ("chat", "edit", "delete"):
        assert await rows_of(team, '"kind":"message"', f'"kind":"{kind}"') == 1
    await team.store.run(
        lambda execute: execute(
            "INSERT INTO posts(reply, part, thread, message_id, sent, created, conversation)"
            " VALUES ('r7', 0, :thread, 'm7', 1, 1, 'c')",
            {"thread": str(GROUP)},
        )
    )
    await team.send(BOSS, "up", Kind.FEEDBACK, reply_to="m7")
    assert await rows_of(team, '"kind":"feedback"', '"value":"up"', '"result":"given"') == 1
