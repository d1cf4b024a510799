"""Define what an operator of this machine can do, with the service running or not.

The operations run in the service (`bot/admin/machine_endpoints.py`) or, when no service runs, on its database directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from agent.blocks import Final, spell_commands
from agent.stored_json import Damaged
from bot.admin.run_trace import lookups
from bot.api.shared import keys, sessions
from bot.base.stored_secrets import CHANNEL
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.database.states import OutboxKind
from bot.journey.ignored import IgnoredEvent
from bot.privacy.command import enqueue_forgetting
from bot.service.backup import back_up
from bot.service.dead_letters import drop, requeue
from bot.storage import api_access, channels, conversations, outbox, people, transcripts
from bot.storage.forgetting import PersonKey
from bot.storage.outbox import DeadLetter
from bot.storage.people import PersonRow
from bot.team import pairing
from bot.team.offboarding import offboard_by_command
from catalogue import _, list_items
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.sealing import Sealer

EXPORT_PAGE_ENTRIES = 1000
NAMED_THREADS = 5
Answer = dict[str, Any]
Operation = Callable[..., Awaitable[Answer]]
MAX_COMMAND_CHARS = 60  # of a name in the audit


class NotFound(Exception):
    """The row, code or person does not exist."""


class OddRequest(Exception):
    """A request that no Fawn sends; the text says what is wrong."""


class Operations:
    """What an operator can do, with the service running or not."""

    def __init__(
        self,
        store: Database,
        data_dir: Path,
        folders: ConversationFolders,
        custom_skills: Callable[[], Path],
        http_address: Callable[[], str] = str,
        sealer: Callable[[], Sealer] = Sealer,
        ignored: Callable[[], Sequence[IgnoredEvent]] = tuple,
    ) -> None:
        self._store = store
        self._data_dir = data_dir
        self._folders = folders
        self._custom_skills = custom_skills
        self._http_address = http_address  # of the listener; "" where nothing listens
        self._sealer = sealer
        self._ignored = ignored  # what the running service left without an answer
        self._backing_up = asyncio.Lock()

    def table(self) -> Mapping[str, Operation]:
        """Return name → operation."""
        return {
            "note": self.note,
            "drill.note": self.drill_note,
            "dead.list": self.dead_list,
            "dead.requeue": self.dead_requeue,
            "dead.drop": self.dead_drop,
            "pair.list": self.pair_list,
            "pair.accept": self.pair_accept,
            "pair.decline": self.pair_decline,
            "pair.revoke": self.pair_revoke,
            "forget": self.forget,
            "offboard": self.offboard,
            "key.add": self.key_add,
            "key.list": self.key_list,
            "key.revoke": self.key_revoke,
            "web.link": self.web_link,
            "channel.keep": self.channel_keep,
            "backup": self.backup,
            "export": self.export,
            "skills.note": self.skills_note,
            "skills.share": self.skills_share,
            **lookups(self._store, self._ignored),
        }

    async def dead_list(self) -> Answer:
        """List deliveries that were given up, and events that cannot be read."""
        return {"dead": [_describe_dead(row) for row in await self._store.run(outbox.list_dead)]}

    async def dead_requeue(self, id: str) -> Answer:
        """Deliver a dead reply again."""
        return await self._change_dead(id, requeue)

    async def dead_drop(self, id: str) -> Answer:
        """Forget a dead letter."""
        return await self._change_dead(id, drop)

    async def _change_dead(self, id: str, change: Callable[..., bool]) -> Answer:
        if not await self._store.run(partial(change, id=id, what=audit.command_line())):
            raise NotFound(_("there is no dead letter {id}: see `fawn dead list`", id=id))
        return {"id": id}

    async def pair_list(self) -> Answer:
        """List the people whom pairing allowed, and the codes that are good."""
        rows = await self._store.run(lambda execute: people.list_paired(execute, time.time()))
        return {"people": [_describe_person(row) for row in rows]}

    async def pair_accept(self, code: str, operator: bool = False, word: str = "") -> Answer:
        """Allow the person with this code, notify them, and answer what they wrote, unless it is `word`."""

        def work(execute: Execute) -> PersonRow | None:
            paired = pairing.accept(execute, code, time.time(), operator=operator, word=word)
            return paired.person if paired else None

        return await self._decide_pairing(work)

    async def pair_decline(self, code: str) -> Answer:
        """Decline the person with this code, and tell them once."""
        return await self._decide_pairing(lambda execute: pairing.decline(execute, code, time.time()))

    async def _decide_pairing(self, decide: Callable[[Execute], PersonRow | None]) -> Answer:
        person = await self._store.run(decide)
        if person is None:
            raise NotFound(_("this code is unknown, used or older than an hour"))
        return _describe_person(person)

    async def forget(self, channel: str, person: str) -> Answer:
        """Have the service forget a person, at once or after its next start."""
        await self._store.run(partial(enqueue_forgetting, person=PersonKey(channel, person)))
        return {"channel": channel, "person": person}

    async def offboard(self, channel: str, person: str, to: str) -> Answer:
        """End what a person has who is gone, and hand their schedules over to the person `to`, unless that is ""."""
        answer = await self._store.run(partial(offboard_by_command, channel=channel, person=person, to=to))
        if isinstance(answer, str):
            subject, what = audit.person_name(channel, person), audit.command_line()
            event = AuditEvent(AuditKind.PERSON_OFFBOARDED, subject=subject, what=what, result="refused")
            await self._store.run(partial(audit.record, event=event))
            raise NotFound(answer)
        return answer

    async def key_add(self, name: str, person: str, scopes: str, expires: str) -> Answer:
        """Make a key for a person, `CHANNEL/ID` or `CHANNEL/NAME`. The answer is the only place that has it."""
        try:
            key, row = await self._store.run(
                partial(keys.make_key, name=name, person=person, scopes=scopes, expires=expires)
            )
        except keys.BadKey as error:
            raise NotFound(str(error)) from error
        return keys.describe_key(row) | {"key": key}

    async def key_list(self) -> Answer:
        """List the keys, without what they are."""
        return {"keys": [*map(keys.describe_key, await self._store.run(api_access.list_keys))]}

    async def key_revoke(self, name: str) -> Answer:
        """End a key at once."""
        if row := await self._store.run(partial(keys.end_key, name=name)):
            return keys.describe_key(row)
        raise NotFound(_("there is no key {name}: see `fawn key list`", name=name))

    async def web_link(self, person: str) -> Answer:
        """Make a link with which a person, `CHANNEL/ID` or `CHANNEL/NAME`, signs in to the page once."""
        if not (address := self._http_address()):
            raise NotFound(_("no Fawn serves the page here: set `http.listen`, and run it"))
        try:
            what: dict[str, int | str] = audit.command_line()
            token, channel, id = await self._store.run(partial(sessions.link_for, named=person, what=what))
        except keys.BadKey as error:
            raise NotFound(str(error)) from error
        return {"link": sessions.link_address(address, token), "channel": channel, "person": id}

    async def pair_revoke(self, channel: str, person: str) -> Answer:
        """Revoke what pairing allowed, and the roles that were given with `/access`."""

        def revoke(execute: Execute) -> list[str] | None:
            revoked = people.revoke_pairing(execute, channel, person)
            roles = people.roles_of_person(execute, channel, person)
            for row in roles:
                people.delete_role(execute, channel, row.subject)
            if not (revoked or roles):
                return None
            subject, what = audit.person_name(channel, person), audit.command_line() | {"roles": len(roles)}
            audit.record(execute, AuditEvent(AuditKind.PAIRING_REVOKED, subject=subject, what=what))
            return [row.role for row in roles]

        roles = await self._store.run(revoke)
        if roles is None:
            raise NotFound(
                _(
                    "nobody with the id {person} was let in on {channel}: see `fawn pair list`",
                    person=person,
                    channel=channel,
                )
            )
        return {"channel": channel, "person": person, "roles": roles}

    async def channel_keep(self, channel: str, kept: dict[str, str]) -> Answer:
        """Keep for a channel what the set-up got for it, such as a login, sealed as everything that channels keep."""
        sealer = self._sealer()
        if not all(isinstance(each, str) for each in kept.values()):
            raise OddRequest("`kept` is of the wrong type: it is texts by name")
        sealed = {name: sealer.seal(text, CHANNEL) for name, text in kept.items()}
        event = AuditEvent(AuditKind.COMMAND, channel=channel, what=audit.command_line() | {"name": "channel.keep"})

        def keep(execute: Execute) -> None:
            channels.write_state(execute, channel, sealed)
            audit.record(execute, event)

        await self._store.run(keep)
        return {"channel": channel, "kept": sorted(kept)}

    async def backup(self, file: str) -> Answer:
        """Write consistent copies of the databases, and the folders of conversations and skills, into a .tar.gz."""
        async with self._backing_up:
            written = await back_up(
                *(self._store, self._data_dir, self._folders, self._custom_skills(), Path(file), self._sealer())
            )
        event = AuditEvent(AuditKind.BACKUP, what=audit.command_line() | {"bytes": written["bytes"]})
        await self._store.run(partial(audit.record, event=event))
        return written

    async def note(self, command: str) -> Answer:
        """Record that a user of this machine gave a command that reads or changes what is not theirs alone."""
        event = AuditEvent(AuditKind.COMMAND, what=audit.command_line() | {"name": command[:MAX_COMMAND_CHARS]})
        await self._store.run(partial(audit.record, event=event))
        return {}

    async def drill_note(self, figures: dict[str, int | str], passed: bool) -> Answer:
        """Record how a drill of the command line went."""
        known = {name[:MAX_COMMAND_CHARS]: value for name, value in figures.items() if type(value) is int}
        left_out = str(figures.get("left_out", ""))[:MAX_COMMAND_CHARS]
        what = audit.command_line() | known | {"left_out": left_out}
        event = AuditEvent(AuditKind.DRILL, what=what, result="ok" if passed else "failed")
        await self._store.run(partial(audit.record, event=event))
        return {}

    async def skills_note(self, action: str, skill: str, result: str) -> Answer:
        """Record what `fawn skills` did: it changes files."""
        what = audit.command_line() | {"action": action, "skill": skill}
        event = AuditEvent(AuditKind.SKILL, what=what, result=result)
        await self._store.run(partial(audit.record, event=event))
        return {}

    async def skills_share(self) -> Answer:
        """Say that other services do not have the skills of this machine yet: the one here gives them, once it runs."""
        return {"shared": False}

    async def export(self, thread: str, after: int = 0) -> Answer:
        """Return the entries of a thread's transcript that follow the id `after`. `thread` may be its beginning."""

        def work(execute: Execute) -> Answer:
            address = _resolve_thread(execute, thread)
            entries = transcripts.read_thread(execute, address, after, EXPORT_PAGE_ENTRIES)
            return {
                "thread": address,
                "entries": [asdict(entry) for entry in transcripts.with_feedback(execute, entries)],
            }

        return await self._store.run(work)


def _resolve_thread(execute: Execute, wanted: str) -> str:
    """Return the only thread that begins with `wanted`. Raises NotFound, which names others."""
    found = conversations.list_threads(execute, wanted)
    if wanted in found or len(found) == 1:
        return wanted if wanted in found else found[0]
    if found:
        some = list_items(found[:NAMED_THREADS])
        raise NotFound(_("{n} threads begin with {wanted}: {some}", n=len(found), wanted=wanted, some=some))
    near = difflib.get_close_matches(wanted, conversations.list_threads(execute), NAMED_THREADS, 0.0)
    if near:
        raise NotFound(_("no thread begins with {wanted}; the nearest: {some}", wanted=wanted, some=list_items(near)))
    raise NotFound(_("no thread begins with {wanted}", wanted=wanted))


def _describe_person(row: PersonRow) -> Answer:
    """Return a person for the terminal; `words` are what they wrote alone, such as `fawn setup` asks for."""
    return {
        "channel": row.channel,
        "person": row.person,
        "name": pairing.readable_name(row),
        "allowed": row.allowed,
        "operator": bool(row.operator),
        "code": row.code,
        "words": pairing.kept_words(row),
    }


def _describe_dead(row: DeadLetter) -> Answer:
    text = row.raw.decode(errors="replace")
    if row.kind:
        with contextlib.suppress(Damaged):
            text = spell_commands(Final.load(row.raw).text, "/{}".format)
    return {
        "id": row.id,
        "kind": row.kind or _("unreadable event"),
        "thread": row.thread,
        "created": row.created,
        "error": row.error,
        "text": "" if row.kind == OutboxKind.FILE else text[:200],
    }
