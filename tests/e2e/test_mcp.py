"""Tools of MCP servers in the whole service: found, approved, asked back, killed, and checked by `fawn check`."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_permissions import press, toast
from tests.e2e.test_subagents import task
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.fakes.telegram_world import Shown
from tests.support.all_platforms import AllPlatforms
from tests.support.forked_services import python
from tests.support.rigs.telegram import TelegramRig
from tests.support.service_process import Service, ask, bash, said

GROUP = -1001
FAKES = Path(__file__).parents[1] / "fakes"


def server(kind: str, tmp_path: Path, **more: Any) -> dict[str, Any]:
    """Return an entry of `mcpServers`."""
    env = {"NOTES": str(tmp_path / "notes")}
    command, *words = python()
    return {"command": command, "args": [*words, str(FAKES / f"mcp_{kind}.py")], "env": env, **more}


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text().splitlines() if path.exists() else []


def calls(name: str, **args: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "args": args}]}


async def question(telegram: FakeTelegram, service: Service, text: str) -> Shown:
    """Wait until the chat shows a question that contains the text, and its turn has ended."""
    await telegram.wait(JANE, text)
    await service.quiet()
    return next(shown for shown in reversed(telegram.visible(JANE)) if text in shown.text)


def results(model: FakeModel) -> list[str]:
    return [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "tool"]


async def test_a_tool_is_found_approved_and_asks_back_in_the_chat(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    service = await start(mcpServers={"modern": server("modern", tmp_path)}, mcp={"defer_tokens": 0})
    find = calls("tool_search", query="paint a wall")
    telegram.send(ask(steps=[find, calls("mcp__modern__paint", wall="north")], text="painted"))
    approval = await question(telegram, service, "May I run mcp__modern__paint?")
    assert '"wall": "north"' in approval.text
    assert notes(tmp_path) == []
    press(telegram, approval, "Approve")
    await question(telegram, service, "The server “modern” asks: Which colour?")
    assert notes(tmp_path) == []
    telegram.send("dark green")
    await telegram.wait(JANE, "painted")
    await service.quiet()
    assert notes(tmp_path) == ["north dark green"]
    assert "north dark green" in results(model)[-1]
    steps = [shown.text for shown in telegram.visible(JANE) if "painted" in shown.text]
    assert "Using paint of modern" in steps[-1]


async def test_only_the_requester_answers_a_server_in_a_group(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    old = server("old", tmp_path, tools=["paint"])
    service = await start(mcpServers={"old": old}, permissions={"allow": ["mcp__old__*"], "outward": "allow"})
    telegram.send(f"@fawn_bot {ask(steps=[calls('mcp__old__paint')], text='painted')}", chat=GROUP)
    shown = await telegram.wait(GROUP, "How shall I paint?")
    await service.quiet()
    assert "Only the person I asked" in await toast(telegram, press(telegram, shown, "Decline", user=78, chat=GROUP))
    telegram.send("@fawn_bot blue", chat=GROUP)
    coats = await telegram.wait(GROUP, "Expected: ")
    assert "Expected: a whole number, from 1 to 3." in coats.text
    press(telegram, coats, "Decline", chat=GROUP)
    await telegram.wait(GROUP, "painted")
    assert notes(tmp_path) == ['["decline", null]']


async def test_after_a_kill_of_the_service_an_effect_before_a_question_does_not_happen_twice(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    old = server("old", tmp_path, tools=["paint", "prepay"])
    service = await start(mcpServers={"old": old}, permissions={"allow": ["mcp__old__*"], "outward": "allow"})
    telegram.send(ask(steps=[calls("mcp__old__prepay"), calls("mcp__old__paint")], text="painted"))
    await question(telegram, service, "How shall I paint?")
    await service.restart()  # kill -9
    telegram.send("red")
    await until(lambda: len(model.requests()) == 2, what="the next call of the model")
    assert "restarted or a day passed before the person answered, so its outcome is unknown" in results(model)[0]
    await service.quiet()
    second = telegram.visible(JANE)[-1]
    assert "How shall I paint?" in second.text
    telegram.send("Colour: blue\ncoats: lots\nhurry: yes")
    await question(telegram, service, "This answer does not fit.")
    telegram.send("2")
    await telegram.wait(JANE, "painted")
    await service.quiet()
    assert notes(tmp_path) == ["paid", '["accept", {"colour": "blue", "coats": 2, "hurry": true}]']


async def test_a_prompt_of_a_server_is_a_command_whose_missing_words_are_named(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    service = await start(mcpServers={"modern": server("modern", tmp_path)})
    telegram.send("/modern:review")
    await telegram.wait(JANE, "The prompt needs repo. Write /modern:review repo=….")
    telegram.send("/modern_nothing")
    await telegram.wait(JANE, "has no prompt “nothing”. It has: /modern:review repo=…")
    assert model.requests() == []
    telegram.send("/modern:review fawn")
    await until(lambda: model.requests(), what="the call of the model")
    await service.quiet()
    request = str(model.requests()[0].messages[-1]["content"])
    assert "[Prompt of the MCP server modern, which the person chose" in request
    assert "> Review fawn with a focus on bugs." in request
    assert request.endswith("/modern:review fawn")


async def test_prompts_are_in_the_menus_of_platforms_once_their_server_runs_and_work_there(tmp_path: Path) -> None:
    """In the native commands of Telegram and Discord; in Slack, whose manifest lists commands, as text."""
    env = {"PROMPTS": "look find-everything-in-the-whole-repository"}
    servers = {"old": server("old", tmp_path) | {"env": env}}
    async with AllPlatforms.open(tmp_path, sandbox={"provider": "none"}, mcpServers=servers) as service:
        chats, guild = service.rigs["telegram"], service.rigs["discord"]
        for rig in (chats, guild):  # without a message before
            await until(lambda: "old_look" in rig.commands(), 60, "the prompt in the menu")  # noqa: B023 — awaited in the round
            assert not [name for name in rig.commands() if name.startswith("old_find")], "too long for a menu"
        await service.kill()
        assert isinstance(chats, TelegramRig)
        chats.server.commands.clear()
        await service.start()
        await until(lambda: "old_look" in chats.commands(), 60, "the prompt in the menu after a restart")
        guild.command("old_look")
        for name, text in (("telegram", "/old_find_everything_in_the_whole_repository"), ("slack", "!old:look")):
            service.rigs[name].mutter(text)
        await until(lambda: len(service.model.requests()) >= 3, 60, "a request from each")
        said = [str(request.messages[-1]["content"]) for request in service.model.requests()]
        assert sum("> Do look." in text for text in said) == 2
        assert sum("> Do find-everything-in-the-whole-repository." in text for text in said) == 1
        await service.quiet()


@pytest.mark.usefixtures("bubblewrap")
async def test_a_call_in_a_task_is_approved_and_answered_once_while_others_work_and_after(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    painter = {"name": "painter", "description": "Paints.", "tools": ["mcp__modern__paint"]}
    service = await start(mcpServers={"modern": server("modern", tmp_path)}, subagents={"kinds": [painter]})
    wait = bash("while ! test -e /mnt/user-data/workspace/go; do sleep 0.1; done")
    paint = task("paint", "painter", steps=[calls("mcp__modern__paint", wall="north")], text="painted")
    telegram.send(ask(steps=[{"calls": [paint, task("works", steps=[wait], text="worked")]}], text="all done"))
    approval = await telegram.wait(JANE, "May I run mcp__modern__paint?")
    press(telegram, approval, "Approve")
    await telegram.wait(JANE, "Which colour?")
    await until(lambda: list(service.data.glob("threads/*/workspace")), what="the sandbox")
    (service.folder_of() / "workspace" / "go").touch()
    await telegram.wait(JANE, "answered my question above")
    await service.quiet()
    telegram.send("dark green")
    await telegram.wait(JANE, "all done")
    await service.quiet()
    assert notes(tmp_path) == ["north dark green"]
    for text in ("May I run", "Which colour?"):
        shown = [each for each in said(telegram, JANE) if text in each and "Jane chose" not in each]
        assert len(shown) == 1


def processes(name: str) -> list[int]:
    """Return the processes whose command line contains a name of this test's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if name.encode() in path.read_bytes() and b"mcp_" in path.with_name("cmdline").read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has ended, or is another user's
    return found


def has_ended(pid: int) -> bool:
    """Return whether a process is gone and its parent knows."""
    return not Path(f"/proc/{pid}").exists()


async def test_a_killed_server_starts_again_and_all_end_with_the_service(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    allowed: Mapping[str, Any] = {"allow": ["mcp__*"], "outward": "allow"}
    service = await start(mcpServers={"modern": server("modern", tmp_path)}, permissions=allowed)
    await until(lambda: processes(str(tmp_path / "notes")), 60, "the server, before the first turn")
    for number in (1, 2):
        telegram.send(ask(steps=[calls("mcp__modern__note", text=f"n{number}")], text=f"noted {number}"))
        await telegram.wait(JANE, f"noted {number}")
        await service.quiet()
        [pid] = processes(str(tmp_path / "notes"))
        if number == 1:
            os.kill(pid, signal.SIGKILL)
            await until(partial(has_ended, pid), what="the service to hear of the end")
    assert notes(tmp_path) == ["n1", "n2"]
    await service.stop()
    await until(lambda: not processes(str(tmp_path / "notes")), what="the end of the server")


async def test_a_server_that_does_not_start_is_named_and_the_turn_works(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(mcp={"servers": [{"name": "gone", "command": "no-such-program"}]})
    for text in ("here I am", "still here"):
        telegram.send(ask(text=text))
        await telegram.wait(JANE, text)
        await service.quiet()
    told = ["The MCP server “gone” is not available. I continue" in text for text in said(telegram, JANE)]
    assert told == [True, False], "a conversation is told once"


async def test_check_tries_each_server(telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path) -> None:
    servers = {
        "old": server("old", tmp_path, tools=["fetch"]),
        "none": server("modern", tmp_path, tools=["nothing*"]),
        "gone": {"command": "/bin/false"},
        "off": {"command": "x", "disabled": True},
    }
    service = await start(mcpServers=servers)
    code, output = await service.fawn("check")
    lines = [line for line in output.splitlines() if "MCP server " in line]
    assert lines[0] == "FAULT MCP server gone: /bin/false: Connection closed"
    assert lines[1].startswith("note  MCP server none: it offers no allowed tool; its tools: ")
    assert lines[2:] == ["ok    MCP server off: disabled", "ok    MCP server old: 1 of 9 tools, protocol 2025-06-18"]
    assert code == 2
