"""An external agent on the reference SDK of the Agent Client Protocol, for tests. Runs inside a sandbox.

The words of the prompt say what it does: "echo …", "write PATH", "run COMMAND", "read PATH", "state -", "hang",
"die", "flood".
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import acp  # type: ignore[import-not-found]  # it is there for the sandbox's Python only
from acp.schema import (  # type: ignore[import-not-found]  # the same
    AllowedOutcome,
    AuthEnvVar,
    AuthMethodAgent,
    EnvVarAuthMethod,
    PermissionOption,
    SessionMode,
    SessionModeState,
    ToolCallUpdate,
)

OPTIONS = [
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="once", name="Yes", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class SdkAgent:
    """Validates every message of its client with the SDK's models."""

    signed_in = ""
    mode = "read-only"

    def on_connect(self, conn: acp.Client) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> acp.InitializeResponse:
        if "old" in sys.argv:
            return acp.InitializeResponse(protocol_version=0)
        methods = [
            AuthMethodAgent(id="browser", name="Log in with a browser"),
            AuthMethodAgent(id="coder-api-key", name="Use CODER_API_KEY"),
            EnvVarAuthMethod(id="team", name="Team key", vars=[AuthEnvVar(name="TEAM_KEY")], type="env_var"),
        ]
        advertised = methods if "asks" in sys.argv else None
        return acp.InitializeResponse(protocol_version=protocol_version, auth_methods=advertised)

    async def authenticate(self, method_id: str, **_: Any) -> acp.AuthenticateResponse:
        if method_id == "browser":
            await asyncio.sleep(7003)
        if os.environ.get("CODER_API_KEY" if method_id == "coder-api-key" else "TEAM_KEY") != "good":
            raise acp.RequestError.auth_required({"hint": f"the key of {method_id} is wrong"})
        self.signed_in = method_id
        return acp.AuthenticateResponse()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> acp.SetSessionModeResponse:
        assert session_id == "s1"
        self.mode = mode_id
        return acp.SetSessionModeResponse()

    async def new_session(self, cwd: str, **_: Any) -> acp.NewSessionResponse:
        assert cwd == os.getcwd()
        if "asks" in sys.argv and not self.signed_in:
            raise acp.RequestError.auth_required()
        if "locked" in sys.argv:
            raise acp.RequestError.auth_required({"hint": "set KEY"})
        modes = [SessionMode(id=each, name=each) for each in ("read-only", "auto")]
        state = SessionModeState(current_mode_id="read-only", available_modes=modes)
        return acp.NewSessionResponse(session_id="s1", modes=state if "modes" in sys.argv else None)

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> acp.PromptResponse:
        self.session = session_id
        await self.client.session_update(session_id, acp.update_agent_thought_text("secret thoughts"))
        for line in prompt[0].text.splitlines():
            word, _space, rest = line.partition(" ")
            answer = await getattr(self, f"do_{word}")(rest)
            await self.say(answer)
        return acp.PromptResponse(stop_reason="end_turn")

    async def say(self, text: str) -> None:
        for part in text.partition(" "):  # streamed in chunks
            await self.client.session_update(self.session, acp.update_agent_message_text(part))

    async def do_echo(self, text: str) -> str:
        return f"You said {text} with {os.environ.get('KEY', 'no key')}"

    async def do_state(self, _: str) -> str:
        return f"I am signed in by {self.signed_in or 'nothing'} in mode {self.mode}"

    async def do_write(self, path: str) -> str:
        if not await self.permitted("edit", f"Write {path}", {"path": path}):
            return "I was not allowed to."
        await self.client.write_text_file(content="one\ntwo\nthree\n", path=path, session_id=self.session)
        return f"Wrote {path}"

    async def do_run(self, command: str) -> str:
        if not await self.permitted("execute", f"Run {command}", {"command": command}):
            return "I was not allowed to."
        return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout  # noqa: S602  it is a shell line

    async def do_read(self, path: str) -> str:
        try:
            found = await self.client.read_text_file(path=path, session_id=self.session, line=2, limit=1)
        except acp.RequestError as error:
            return f"error {error}"
        return f"Read {found.content}"

    async def do_terminal(self, _: str) -> str:
        try:
            await self.client.create_terminal(command="ls", session_id=self.session)
        except acp.RequestError as error:
            return f"error {error.code}"
        return "a terminal"

    async def do_hang(self, _: str) -> str:
        await self.say("I begin.")
        print("now it hangs", file=sys.stderr, flush=True)
        await asyncio.sleep(7003)
        return ""

    async def do_die(self, _: str) -> str:
        await self.say("I begin.")
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(3)

    async def do_flood(self, _: str) -> str:
        while True:
            await self.say("x" * 100_000)

    async def permitted(self, kind: Any, title: str, given: dict[str, str]) -> bool:
        start = acp.start_tool_call("call1", title, kind=kind, status="pending", raw_input=given)
        await self.client.session_update(self.session, start)
        call = ToolCallUpdate(tool_call_id="call1")  # the client knows the rest
        answer = await self.client.request_permission(options=OPTIONS, session_id=self.session, tool_call=call)
        return isinstance(answer.outcome, AllowedOutcome) and answer.outcome.option_id == "once"


if __name__ == "__main__":
    asyncio.run(acp.run_agent(SdkAgent()))
