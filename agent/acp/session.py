"""One prompt for an external agent: its progress, its questions, its files, its answer.

Agent Client Protocol, version 1: https://agentclientprotocol.com/protocol/overview
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from langgraph.types import Interrupt

from agent.acp.connection import AcpConnection, AcpError, Json, UnknownMethod
from agent.acp.sign_in import open_session
from agent.blocks import APPROVAL_OPTIONS, DENY
from agent.core.context import JudgedCall, TurnContext
from agent.core.event_mapper import interrupt_question
from agent.permissions.rules import ToolUse, permission_question
from agent.settings.sections import ExternalAgentSettings
from agent.spending import EXTERNAL, LEAD, ModelCall
from catalogue import N_, _
from sandbox.base import WORKSPACE, Sandbox, SandboxFileError

PROTOCOL_VERSION = 1
CAPABILITIES = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": False}
MAX_ANSWER_CHARS = 200_000
MAX_COST_DOLLARS, MAX_TOKENS = 10_000, 1_000_000_000  # what an agent may say that it has used
MAX_READ_BYTES = 4 << 20
MAX_CALLS = 10_000  # that are told apart
APPROVED = frozenset(APPROVAL_OPTIONS) - {DENY}
DECISIONS = {True: ("allow_once", "allow_always"), False: ("reject_once", "reject_always")}
SHOWN_OF_CALL = ("title", "kind", "rawInput", "content", "locations")


async def greet(settings: ExternalAgentSettings, sandbox: Sandbox) -> str:
    """Start an external agent, open the protocol, and end it. Returns its own name. Raises AcpError."""

    async def refuse(method: str, params: Json) -> Any:
        raise UnknownMethod(f"Fawn has no method {method[:100]!r} before a session")

    connection = AcpConnection(settings.name, refuse, lambda method, params: None)
    try:
        connection.start(sandbox, settings.command, _environment(settings))
        info = (await _initialize(connection)).get("agentInfo")
    finally:
        await connection.close()
    return str(info.get("name"))[:100] if isinstance(info, dict) else settings.name


async def _initialize(connection: AcpConnection) -> Json:
    hello = {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": CAPABILITIES}
    welcome = await connection.request("initialize", hello)
    if welcome.get("protocolVersion") != PROTOCOL_VERSION:
        text = N_("it speaks version {version!r} of the protocol, not {wanted}")
        raise AcpError(text, version=welcome.get("protocolVersion"), wanted=PROTOCOL_VERSION)
    return welcome


def _environment(settings: ExternalAgentSettings) -> dict[str, str]:
    return {name: secret.reveal() for name, secret in settings.env.items()}


@dataclass(frozen=True, slots=True)
class AcpAnswer:
    """What an external agent answered, why it stopped, and how many tools it used."""

    text: str
    stop_reason: str
    tool_calls: int


class AcpSession:
    """A new session with one prompt. `show` tells people what the external agent does now."""

    def __init__(
        self, settings: ExternalAgentSettings, context: TurnContext, sandbox: Sandbox, show: Callable[[str], None]
    ) -> None:
        self._settings, self._context, self._sandbox, self._show = settings, context, sandbox, show
        self._connection = AcpConnection(settings.name, self._answer, self._notify)
        self._calls: dict[str, Json] = {}  # its tool calls, by id
        self._parts: list[str] = []  # of its text
        self._chars, self._new_part = 0, False
        self._cost = 0  # in micro-dollars, of the whole session
        self._usage: Json = {}
        self._reading = asyncio.Lock()  # one file at a time in memory
        self._clock = asyncio.timeout(settings.seconds)
        self._asking, self._seconds_left = 0, settings.seconds

    @property
    def text(self) -> str:
        """What it has said so far."""
        return "".join(self._parts)[-MAX_ANSWER_CHARS:].strip()

    def spent(self, seconds: float) -> ModelCall:
        """Return what the agent says that it has used, as a call of `seconds`."""
        names = ("inputTokens", "outputTokens", "cachedReadTokens", "thoughtTokens")
        input, output, cached, reasoning = [_count(self._usage.get(name)) for name in names]
        name = (LEAD, self._settings.name, EXTERNAL)
        return ModelCall(*name, input, output, cached, reasoning, seconds, time.time(), reported_cost=self._cost)

    async def run(self, prompt: str) -> AcpAnswer:
        """Start the agent, let it work and end it. Raises AcpError."""
        env = _environment(self._settings)
        try:
            async with self._clock:
                self._connection.start(self._sandbox, self._settings.command, env)
                return await self._converse(prompt)
        except TimeoutError:
            raise AcpError(N_("it took longer than {n:g} s and was stopped"), n=self._settings.seconds) from None
        finally:
            await self._connection.close()

    async def _converse(self, prompt: str) -> AcpAnswer:
        welcome = await _initialize(self._connection)
        place = {"cwd": WORKSPACE, "mcpServers": []}
        session = await open_session(self._connection, self._settings, welcome, place)
        blocks = [{"type": "text", "text": prompt}]
        result = await self._connection.request("session/prompt", {"sessionId": session, "prompt": blocks})
        self._usage = used if isinstance(used := result.get("usage"), dict) else {}
        return AcpAnswer(self.text, str(result.get("stopReason"))[:100], len(self._calls))

    def _notify(self, method: str, params: Json) -> None:
        match params.get("update") if method == "session/update" else None:
            case {"sessionUpdate": "agent_message_chunk", "content": {"text": str(text)}}:
                self._parts += ["\n\n", text] if self._new_part and self._parts else [text]
                self._chars, self._new_part = self._chars + len(text) + 2, False
                if self._chars > 2 * MAX_ANSWER_CHARS:
                    self._parts = ["".join(self._parts)[-MAX_ANSWER_CHARS:]]
                    self._chars = MAX_ANSWER_CHARS
            case {"sessionUpdate": "usage_update", "cost": {"amount": float() | int() as amount, "currency": "USD"}}:
                self._cost = round(min(max(amount, 0), MAX_COST_DOLLARS) * 1_000_000) if amount == amount else 0
            case {"sessionUpdate": "tool_call" | "tool_call_update", "toolCallId": str(id), **call}:
                if id not in self._calls and len(self._calls) >= MAX_CALLS:
                    return
                known = self._calls.setdefault(id, {})
                known |= {str(name): value for name, value in call.items() if value is not None}
                self._new_part = True
                if title := str(known.get("title", "")):
                    self._show(title)

    async def _answer(self, method: str, params: Json) -> Any:
        """Answer a request of the agent. Raises AcpError or SandboxError."""
        match method, params:
            case "session/request_permission", {"toolCall": dict(call), "options": list(options)}:
                allowed = await self._may_run({**self._calls.get(str(call.get("toolCallId")), {}), **call})
                return {"outcome": _choose_option(options, allowed)}
            case "fs/read_text_file", {"path": str(path)}:
                return {"content": await self._read_text(path, params.get("line"), params.get("limit"))}
            case "fs/write_text_file", {"path": str(path), "content": str(content)}:
                await self._sandbox.write(path, content.encode("utf-8", "replace"))
                return None
        raise UnknownMethod(f"Fawn has no method {method[:100]!r} with these parameters")

    async def _read_text(self, path: str, line: object, limit: object) -> str:
        async with self._reading:
            await self._connection.room()
            return await self._read_lines(path, line, limit)

    async def _read_lines(self, path: str, line: object, limit: object) -> str:
        data = await self._sandbox.read(path, limit=MAX_READ_BYTES)
        if len(data) == MAX_READ_BYTES:
            raise SandboxFileError(f"{path}: is too big to be read as text")
        lines = data.decode("utf-8", "replace").splitlines(keepends=True)
        first = line - 1 if isinstance(line, int) and line > 0 else 0
        return "".join(lines[first : first + limit] if isinstance(limit, int) else lines[first:])

    async def _may_run(self, call: Json) -> bool:
        """Decide by the rules, or ask the requester while the agent waits."""
        shown = {name: call[name] for name in SHOWN_OF_CALL if call.get(name)}
        tool = f"acp__{self._settings.name}__{call.get('kind') or 'other'}"
        use = ToolUse(tool, shown, default=self._settings.permission)
        judgement = await self._context.permissions.judge(use)
        verdict = judgement.verdict
        self._context.judged.append(JudgedCall.of(f"acp-{uuid.uuid4().hex}", use, judgement))
        if verdict != "ask" or self._context.questions is None:
            return verdict == "allow"
        question = interrupt_question(Interrupt(permission_question(use), id=f"acp-{uuid.uuid4().hex}"))
        words = _("The agent {agent} asks for permission. May I allow it?", agent=self._settings.name)
        async with self._stopped_clock():
            self._show(_("waits for an answer"))
            never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            return await self._context.questions.ask(replace(question, question=words), never) in APPROVED

    @asynccontextmanager
    async def _stopped_clock(self) -> AsyncIterator[None]:
        """The time in which a person thinks does not count."""
        loop = asyncio.get_running_loop()
        self._asking += 1
        if due := self._clock.when():
            self._seconds_left = due - loop.time()
            self._clock.reschedule(None)
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking and not self._clock.expired():
                self._clock.reschedule(loop.time() + self._seconds_left)


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= MAX_TOKENS else 0


def _choose_option(options: list[Any], allowed: bool) -> Json:
    """Return the outcome: the agent's own option for this decision, the narrowest one."""
    offered = [each for each in options if isinstance(each, dict)]
    by_kind: dict[object, object] = {each.get("kind"): each.get("optionId") for each in offered}
    chosen = next((by_kind[kind] for kind in DECISIONS[allowed] if by_kind.get(kind)), None)
    return {"outcome": "cancelled"} if chosen is None else {"outcome": "selected", "optionId": chosen}
