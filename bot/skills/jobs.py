"""Change skills in the background, because it reads and writes files, or waits for a network."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path

from agent.blocks import command_hint
from agent.messages import Message
from agent.skills import changes
from agent.skills.archive import unpack_archive
from agent.skills.changes import SkillChange
from agent.skills.found import SeveralSkills
from agent.skills.git_source import CloneBounds, clone_skill
from agent.skills.library import SkillLibrary, SkillState
from agent.skills.skill import SkillError
from agent.skills.tree import MAX_TREE_BYTES
from bot.commands.call import CommandCall
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.skills.decisions import CHOICE, SkillChoice, enqueue_choice, enqueue_question, render_diff
from bot.skills.sharing import SharedSkills
from bot.storage import languages, outbox
from bot.storage.jobs import BackgroundJob, enqueue_job
from catalogue import N_, _
from channels.base import Channel, Refused, TryLater
from sandbox.disk.file_threads import run_file_work

log = logging.getLogger(__name__)

SKILL_JOB = "skill"
FAILED = N_("The skill was not changed: {reason}.")
SWITCHED = {
    SkillState.ENABLED: N_("The skill `{name}` is enabled."),
    SkillState.DISABLED: N_("The skill `{name}` is disabled."),
    SkillState.CHANGED: N_(
        "The skill `{name}` is not disabled any more, but its files have changed: it is used again once an operator "
        "has looked at the change with `{command}` and accepted it."
    ),
}
Answer = Callable[[], str]
Outcome = Answer | SkillChange | SkillChoice


def enqueue_change(call: CommandCall, action: str, word: str, wanted: str = "") -> None:
    """Have a change made after the commit; its answer is a notice. `wanted` is the skill of an address."""
    found = call.current.skills.current.find(word) if call.current.skills else None
    name = found.skill.name if found else word
    message = call.message.dump().decode()
    payload = {"action": action, "word": name, "wanted": wanted, "message": message}
    if action == "rollback" and call.current.skills:  # so that a job that runs twice rolls back once
        before, after = changes.plan_roll_back(call.current.skills.records(), name)
        payload |= {"expected": before, "earlier": after}
    enqueue_job(call.execute, key=f"{SKILL_JOB}:{call.message.key}", kind=SKILL_JOB, payload=payload)


class SkillJobs:
    """Handles the jobs that change skills."""

    def __init__(
        self,
        store: Database,
        library: SkillLibrary,
        shared: SharedSkills,
        bounds: Callable[[], CloneBounds],
        find_channel: Callable[[str], Channel | None],
    ) -> None:
        self._store = store
        self._library = library
        self._shared = shared
        self._bounds = bounds
        self._find_channel = find_channel

    async def run(self, job: BackgroundJob) -> None:
        """Make the change and enqueue its answer. A failure that another try may mend raises."""
        message = Message.load(job.arguments["message"])
        try:
            outcome, result = await self._change(job, message), "done"
        except (SkillError, Refused) as error:
            reason = error if isinstance(error, SkillError) else str(error).rstrip(".")
            outcome, result = partial(_, FAILED, reason=reason), "failed"
        if isinstance(outcome, SkillChange | SkillChoice):
            result = "asked"
        action, word = job.arguments["action"], job.arguments["word"]
        what = {"action": action, "skill": word if self._library.current.find(word) else audit.digest(word)}

        def work(execute: Execute) -> None:
            _enqueue_answer(execute, message, outcome)
            if action != "diff":
                event = AuditEvent(AuditKind.SKILL, message.thread, message.author.id, what=what, result=result)
                audit.record(execute, event)

        await self._store.run(work)

    async def _change(self, job: BackgroundJob, message: Message) -> Outcome:
        arguments, change = job.arguments, self._shared.change
        word = arguments["word"]
        match arguments["action"]:
            case "install":
                return await self._install(word, message, arguments.get("wanted", ""))
            case "enable" | "disable" as action:
                state = await change(changes.set_enabled, word, enabled=action == "enable")
                return partial(_, SWITCHED[state], name=word, command=command_hint(f"skills diff {word}"))
            case "rollback":
                before, after = arguments.get("expected", ""), arguments.get("earlier", "")
                step = changes.RollBack(before, after, is_repeated=job.attempts > 1)
                installed = await change(changes.roll_back, word, step)
                back = N_("The skill `{name}` is back at its earlier version.")
                return partial(_, back if installed else N_("The skill `{name}` is removed."), name=word)
            case "diff":
                staged = await change(changes.stage_waiting, word)
                return partial(render_diff, staged.diff)
            case "decline":
                name = await change(changes.decline_change, word)
                return partial(_, N_("Declined: the skill `{name}` stays as it was."), name=name)
            case _accept:
                return await self._accept(word)

    async def _accept(self, word: str) -> Answer | SkillChange:
        """Accept the change with this hash; for a skill's name, show its change first."""
        if not changes.is_hash(word):
            return await self._shared.change(changes.stage_waiting, word)
        name = await self._shared.change(changes.accept_change, word)
        use = command_hint(f"{name} REQUEST")
        return partial(_, N_("The skill `{name}` is installed. `{command}` uses it."), name=name, command=use)

    async def _install(self, address: str, message: Message, wanted: str) -> Outcome:
        """Fetch and check a skill; install it if it is new, else show the difference. Of several, one is asked for."""
        if address.startswith(CHOICE):
            address = await self._shared.change(changes.kept_address, address.removeprefix(CHOICE))
        with tempfile.TemporaryDirectory(prefix="fawn-skill-") as scratch:
            place = Path(scratch)
            if address:
                try:
                    folder = await clone_skill(address, place, self._bounds(), wanted)
                except SeveralSkills as several:
                    digest = await self._shared.change(changes.keep_address, address)
                    return SkillChoice(address, digest, several.found)
            else:
                folder = await run_file_work(unpack_archive, await self._fetch(message), place)
            source = address or message.attachments[0].name
            change = await self._shared.change(changes.stage_skill, folder, source)
        if not change.is_new:
            if not change.diff:
                raise SkillError(N_("the same version of {name} is installed"), name=change.name)
            return change
        return await self._accept(change.hash)

    async def _fetch(self, message: Message) -> bytes:
        """Download the archive of a message. Raises SkillError and ChannelError."""
        channel = self._find_channel(message.thread.channel)
        if channel is None:
            raise TryLater("the channel is not connected")
        data = bytearray()
        async with aclosing(channel.fetch(message.attachments[0])) as chunks:
            async for chunk in chunks:
                data += chunk
                if len(data) > MAX_TREE_BYTES:
                    raise SkillError(N_("the archive is larger than {limit} MB"), limit=MAX_TREE_BYTES >> 20)
        return bytes(data)


def _enqueue_answer(execute: Execute, message: Message, outcome: Outcome) -> None:
    key, now = f"{SKILL_JOB}:{message.key}", time.time()
    if isinstance(outcome, SkillChange):
        enqueue_question(execute, outcome, message.thread, message.author, key, now, reply_to=message.id)
        return
    if isinstance(outcome, SkillChoice):
        enqueue_choice(execute, message, outcome, key, now)
        return
    with languages.speak_to(execute, message.thread, message.author):
        outbox.enqueue_notice(execute, message.thread, outcome(), key=key, now=now, reply_to=message.id)
