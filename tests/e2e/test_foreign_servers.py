"""What MCP and model servers of others send, in the chats of two platforms: progress, forms, files, odd answers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_mcp import calls, notes, server
from tests.support.all_platforms import AllPlatforms
from tests.support.service_process import ask

PLATFORMS = ("telegram", "slack")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[AllPlatforms]:
    servers = {"modern": server("modern", tmp_path), "old": server("old", tmp_path, tools=["paint"])}
    allowed = {"allow": ["mcp__*"], "outward": "allow"}
    async with AllPlatforms.open(
        tmp_path,
        mcpServers=servers,
        permissions=allowed,
        mcp={"defer_tokens": 100_000},
        limits={"flood_messages": 1000},
    ) as made:
        yield made


def results(service: AllPlatforms, id: str) -> list[str]:
    """Return what the tools of a request gave the model."""
    return [str(m["content"]) for m in service.model.requests(id)[-1].messages if m["role"] == "tool"]


@pytest.mark.parametrize("name", PLATFORMS)
async def test_the_progress_of_a_call_is_seen_while_it_works(service: AllPlatforms, name: str, tmp_path: Path) -> None:
    rig = service.rigs[name]
    rig.mutter(ask(steps=[calls("mcp__modern__build")], text="the ship is built", id="b"))
    await service.shows(name, "1 of 3: compiling the hull", seconds=60)
    assert not any("the ship is built" in text for text in rig.visible())
    (tmp_path / "notes.go").touch()
    shown = "\n".join(await service.shows(name, "the ship is built", seconds=60))
    await service.quiet()
    assert "compiling the hull" not in "\n".join(rig.visible()), shown
    assert "built" in results(service, "b")[-1]


@pytest.mark.parametrize("name", PLATFORMS)
async def test_a_form_is_one_question_and_what_fits_is_kept(service: AllPlatforms, name: str, tmp_path: Path) -> None:
    rig = service.rigs[name]
    rig.mutter(ask(steps=[calls("mcp__old__paint")], text="it is painted", id="p"))
    form = "\n".join(await service.shows(name, "How shall I paint?", seconds=60))
    for field in ("Colour", "(red, blue)", "coats", "hurry"):
        assert field in form
    await service.quiet()
    rig.mutter("blue\nlots\nyes")
    again = "\n".join(await service.shows(name, "This answer does not fit.", seconds=60))
    assert "Expected: a whole number, from 1 to 3." in again
    await service.quiet()
    assert notes(tmp_path) == []
    rig.mutter("2")
    await service.shows(name, "it is painted", seconds=60)
    await service.quiet()
    assert notes(tmp_path) == ['["accept", {"colour": "blue", "coats": 2, "hurry": true}]']


@pytest.mark.parametrize("name", PLATFORMS)
async def test_a_large_result_is_a_file_that_the_agent_can_send(service: AllPlatforms, name: str) -> None:
    """Of 1.5 MB the model gets the head, and the whole is a file of the conversation."""
    rig = service.rigs[name]
    rig.mutter(ask(steps=[calls("mcp__modern__long", chars=1_500_000)], text="I have read it", id="l"))
    await service.shows(name, "I have read it", seconds=60)
    await service.quiet()
    [result] = results(service, "l")
    assert len(result) < 5000
    [path] = re.findall(r"/mnt/user-data/(workspace/\.mcp/\w+\.txt)", result)
    whole = (service.folder_of() / path).read_text()
    assert (len(whole), whole[-7:]) == (1_500_007, "the end")


@pytest.mark.parametrize("name", PLATFORMS)
async def test_a_refusal_is_shown_in_the_words_of_the_model_and_paid_once(service: AllPlatforms, name: str) -> None:
    service.rigs[name].mutter(ask(refusal="I will not help to break in.", id="r"))
    shown = await service.shows(name, "I will not help to break in.", seconds=60)
    await service.quiet()
    assert len(service.model.requests("r")) == 1
    assert "no answer from my model" not in "\n".join(shown)
    assert service.rows("SELECT state FROM runs") == [("done",)]


ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "a quota": (
        {"body": '{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}'},
        "run out of credit",
    ),
    "a length": (
        {"body": '{"object": "error", "message": "maximum context length is 10 tokens"}'},
        "The conversation is too long for my model.",
    ),
    "a page": ({"body": "<html><body>Please log in</body></html>"}, "couldn't read"),
}


@pytest.mark.parametrize("name", PLATFORMS)
async def test_errors_with_the_status_of_an_answer_are_said_in_words(service: AllPlatforms, name: str) -> None:
    rig = service.rigs[name]
    for kind, (directive, told) in ERRORS.items():
        rig.mutter(ask(**directive, id=kind))
        shown = "\n".join(await service.shows(name, told, seconds=60))
        await service.quiet()
        assert "Something broke on my side" not in shown
        assert "insufficient_quota" not in shown, "the sentence is ours"
        if kind == "a quota":
            assert service.rows("SELECT kind, input FROM usage") == [], "nothing was answered"
    rig.mutter(ask(text="works again", id="w"))
    await service.shows(name, "works again", seconds=60)


@pytest.mark.parametrize("name", PLATFORMS)
async def test_usage_that_comes_with_every_chunk_counts_once(service: AllPlatforms, name: str) -> None:
    """In the table of usage and in what `/usage` says."""
    rig = service.rigs[name]
    rig.mutter(ask(tokens=40, counted="every", id="u"))
    await service.shows(name, "w39", seconds=60)
    await service.quiet()
    [request] = service.model.requests("u")
    prompt = request.bytes // 4
    assert service.rows("SELECT input, output FROM usage WHERE kind='turn'") == [(prompt, 40)]
    rig.mutter("!usage")
    await service.shows(name, f"{prompt + 40:,} tokens in 1 call", seconds=60)
