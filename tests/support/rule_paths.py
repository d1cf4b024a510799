"""The paths by which a person has a tool called, for a table of paths and rules.

Each path has a person, a chat and an effect of its own, so that all of them run side by side in one service.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.model import Answer, FakeModel
from tests.fakes.model_script import text_of
from tests.fakes.server import Json, until
from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_world import Shown
from tests.support.forked_services import python
from tests.support.service_process import Service, ask, bash

FAKES = Path(__file__).parents[1] / "fakes"
FIRST_PERSON, FIRST_GROUP = 201, -2001
NOTE = "mcp__old__note"
WORKSPACE = "/mnt/user-data/workspace"
SKILL = "---\nname: add-numbers\ndescription: Add numbers. Use it for sums.\n---\nAdd them.\n"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One path with its person, in a private chat or in a group."""

    path: str
    person: int
    chat: int
    telegram: FakeTelegram
    model: FakeModel
    service: Service
    folder: Path
    words: str = ""  # before each request

    @property
    def name(self) -> str:
        """Names the effect, also inside texts."""
        return f"p-{self.person}"

    def send(self, text: str) -> None:
        addressed = text if self.chat > 0 or text.startswith("/") else f"@fawn_bot {text}"
        self.telegram.send(addressed, chat=self.chat, user=self.person)

    def press(self, shown: Shown, label: str, *, chat: int = 0, user: int = 0) -> str:
        data = next(data for name, data in shown.buttons if name == label)
        return self.telegram.click(data, shown.id, chat=chat or self.chat, user=user or self.person)

    async def wait(self, text: str) -> Shown:
        return await self.telegram.wait(self.chat, text)

    async def wait_done(self) -> None:
        """Wait for the answer of the request. A proposal that quotes the request does not count."""

        def is_answered() -> bool:
            texts = [shown.text for shown in self.telegram.visible(self.chat)]
            lines = [line for text in texts for line in text.splitlines()]  # the head of a schedule quotes it, too
            return any(self.done in line and "::" not in line for line in lines)

        await until(is_answered, what=f"the answer of {self.path}")

    def request(self, step: Json | None = None, **more: Any) -> str:
        """Return a request in which the model calls the tool, or takes another step."""
        call = {"name": "write_file", "args": {"path": f"{WORKSPACE}/{self.name}", "content": "made"}}
        return f"{self.words} {ask(steps=[step or {'calls': [call]}], text=self.done, **more)}"

    @property
    def tool(self) -> str:
        """The tool whose call the path is about."""
        return {"MCP tool": NOTE, "background command": "bash", "repeated command": "bash"}.get(self.path, "write_file")

    @property
    def done(self) -> str:
        return f"done {self.name}"

    def has_effect(self) -> bool:
        notes = self.folder / "notes"
        return self.name in (notes.read_text() if notes.exists() else "") or bool(
            [*self.service.data.glob(f"threads/*/workspace/{self.name}")]
        )

    def audit(self, kind: str) -> list[Json]:
        """Return the rows of the audit of this person and kind."""
        rows = self.service.rows("SELECT CAST(body AS TEXT) FROM audit ORDER BY seq")
        names = dict(self.service.rows("SELECT alias, name FROM audit_names"))
        events = [json.loads(body) for (body,) in rows]
        mine = f"telegram:{self.person}"
        return [each for each in events if names.get(each.get("who")) == mine and each["kind"] == kind]

    def requests(self) -> list[str]:
        """Return the conversations that the models saw and that concern this path's effect."""
        texts = ["\n".join(text_of(each) for each in request.messages) for request in self.model.requests()]
        return [text for text in texts if self.name in text]

    def schedule(self) -> int:
        """Return the number of this person's schedule."""
        [(number,)] = self.service.rows(f"SELECT id FROM schedules WHERE owner='{self.person}'")  # noqa: S608 — a number
        return int(number)

    def task(self) -> int:
        """Return the number of this person's first task."""
        [(number,)] = self.service.rows(f"SELECT min(id) FROM tasks WHERE person='{self.person}'")  # noqa: S608 — a number
        return int(number)


@dataclass(frozen=True, slots=True)
class RulePath:
    """How a path begins, and what is needed before. A setup is a request of its own."""

    act: Callable[[Attempt], Awaitable[None]]
    prepare: Callable[[Attempt], Awaitable[None]] | None = None


async def _send_message(attempt: Attempt) -> None:
    attempt.send(attempt.request())


async def _send_command(attempt: Attempt) -> None:
    attempt.send(f"/goal {attempt.request()}")


async def _send_skill(attempt: Attempt) -> None:
    attempt.send(f"/add_numbers {attempt.request()}")


async def _send_task(attempt: Attempt) -> None:
    args = {"description": "work", "prompt": attempt.request(id="sub"), "kind": "general-purpose", "after": []}
    attempt.send(attempt.request({"calls": [{"name": "task", "args": args}]}, delay_ms=0))


async def _call_mcp(attempt: Attempt) -> None:
    attempt.send(attempt.request({"calls": [{"name": NOTE, "args": {"text": attempt.name}}]}))


async def _be_asked(attempt: Attempt) -> None:
    question = {"calls": [{"name": "ask_clarification", "args": {"question": "Go on?", "options": ["go", "no"]}}]}
    call = {"name": "write_file", "args": {"path": f"{WORKSPACE}/{attempt.name}", "content": "made"}}
    attempt.send(f"{attempt.words} {ask(steps=[question, {'calls': [call]}], text=attempt.done)}")
    await attempt.wait("Go on?")


async def _press_button(attempt: Attempt) -> None:
    shown = next(each for each in attempt.telegram.visible(attempt.chat) if "Go on?" in each.text and each.buttons)
    attempt.press(shown, "go")


async def _make_schedule(attempt: Attempt) -> None:
    args = {"action": "create", "what": attempt.request(), "every_minutes": 600}
    words = ask(steps=[{"calls": [{"name": "schedule", "args": args}]}], text="proposed")
    attempt.telegram.send(words, chat=attempt.person)
    shown = await attempt.telegram.wait(attempt.person, "Shall I")
    attempt.press(shown, "Yes", chat=attempt.person)
    await attempt.telegram.wait(attempt.person, "is active")
    if attempt.chat != attempt.person:
        attempt.send(f"/schedule here {attempt.schedule()}")
        await attempt.wait("posts here")


async def _run_schedule(attempt: Attempt) -> None:
    attempt.telegram.send(f"/schedule run {attempt.schedule()}", chat=attempt.person)


async def _start_agent(attempt: Attempt, **more: Any) -> None:
    args = {"description": "work", "prompt": attempt.request(**more), "kind": "general-purpose", "background": True}
    attempt.send(f"{attempt.words} {ask(steps=[{'calls': [{'name': 'task', 'args': args}]}], text='begun')}")


async def _start_command(attempt: Attempt) -> None:
    attempt.send(attempt.request(bash(f"touch {WORKSPACE}/{attempt.name}", background=True)))


async def _start_with_follow_up(attempt: Attempt) -> None:
    step = bash("true", background=True, then=attempt.request())
    attempt.send(f"{attempt.words} {ask(steps=[step], text='begun')}")


async def _fail_agent(attempt: Attempt) -> None:
    """Have an agent fail at its first model call. Its second try succeeds."""
    await _start_agent(attempt, errors=[400], at=0, id=attempt.name)
    failed = f"SELECT 1 FROM runs WHERE requester='{attempt.person}' AND state='failed'"  # noqa: S608 — a number
    await until(lambda: attempt.service.rows(failed), what="the failed agent")


async def _end_command(attempt: Attempt) -> None:
    """Have a command end that has an effect only if it is repeated."""
    marker, effect = f"{WORKSPACE}/again-{attempt.person}", f"{WORKSPACE}/{attempt.name}"
    command = f"if [ -e {marker} ]; then touch {effect}; else touch {marker}; fi"
    attempt.send(f"{attempt.words} {ask(steps=[bash(command, background=True)], text='begun')}")
    await attempt.wait("is done after")


async def _retry_task(attempt: Attempt) -> None:
    attempt.send(f"/task {attempt.task()} retry")


PATHS: Mapping[str, RulePath] = {
    "message": RulePath(_send_message),
    "command": RulePath(_send_command),
    "skill": RulePath(_send_skill),
    "sub-agent": RulePath(_send_task),
    "MCP tool": RulePath(_call_mcp),
    "button": RulePath(_press_button, _be_asked),
    "schedule": RulePath(_run_schedule, _make_schedule),
    "background agent": RulePath(_start_agent),
    "background command": RulePath(_start_command),
    "end of a command": RulePath(_start_with_follow_up),
    "repeated agent": RulePath(_retry_task, _fail_agent),
    "repeated command": RulePath(_retry_task, _end_command),
}


def settings_for_paths(folder: Path, **more: Any) -> dict[str, Any]:
    """Return the settings of a service in which every path works: a skill, an MCP server, schedules, a sandbox."""
    skill = folder / "skills" / "custom" / "add-numbers"
    skill.mkdir(parents=True, exist_ok=True)
    (skill / "SKILL.md").write_text(SKILL)
    server = {
        "command": python()[0],
        "args": [*python()[1:], str(FAKES / "mcp_old.py")],
        "env": {"NOTES": str(folder / "notes")},
    }
    return {
        "mcpServers": {"old": server},
        "schedules": {"least_minutes": 0},
        "permissions": {"allow": [NOTE]},
        **more,
    }


def goal_is_met(body: Json) -> Answer | None:
    """Answer the evaluation of a goal."""
    return Answer("MET: it is") if not body.get("tools") else None


def make_attempts(
    telegram: FakeTelegram,
    model: FakeModel,
    service: Service,
    folder: Path,
    *,
    in_groups: bool = False,
    words: str = "",
) -> dict[str, Attempt]:
    """Return an attempt of each path."""
    model.script = goal_is_met
    attempts = {}
    for number, path in enumerate(PATHS):
        person = FIRST_PERSON + number
        chat = FIRST_GROUP - number if in_groups else person
        attempts[path] = Attempt(path, person, chat, telegram, model, service, folder, words)
    return attempts


async def took_effect(attempt: Attempt) -> None:
    await until(attempt.has_effect, what=f"the effect of {attempt.path}")
