"""What MCP and model servers of others send, in the chats of two platforms: progress, forms, files, odd answers.

The tests share one service: each has a topic of its own.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.test_mcp import calls, notes, server
from tests.support.all_platforms import AllPlatforms
from tests.support.service_process import ask

pytestmark = pytest.mark.asyncio(loop_scope="module")
PLATFORMS = ("telegram", "slack")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(world_folder: Path) -> AsyncIterator[AllPlatforms]:
    servers = {"modern": server("modern", world_folder), "old": server("old", world_folder, tools=["paint"])}
    allowed = {"allow": ["mcp__*"], "outward": "allow"}
    async with AllPlatforms.open(
        world_folder,
        PLATFORMS,
        mcpServers=servers,
        permissions=allowed,
        mcp={"defer_tokens": 100_000},
    ) as made:
        yield made


def results(service: AllPlatforms, id: str) -> list[str]:
    """Return what the tools of a request gave the model."""
    return [str(m["content"]) for m in service.model.requests(id)[-1].messages if m["role"] == "tool"]


@pytest.mark.parametrize("name", PLATFORMS)
async def test_the_progress_of_a_call_is_seen_while_it_works(
    service: AllPlatforms, name: str, number: int, world_folder: Path
) -> None:
    rig = service.rigs[name]
    rig.mutter(
        ask(steps=[calls("mcp__modern__build")], text="the ship is built", id=f"build-{name}"), number, mention=True
    )
    await service.shows(name, "1 of 3: compiling the hull", number)
    assert not any("the ship is built" in text for text in rig.visible(number))
    (world_folder / "notes.go").touch()
    shown = "\n".join(await service.shows(name, "the ship is built", number))
    (world_folder / "notes.go").unlink()
    await service.quiet()
    assert "compiling the hull" not in "\n".join(rig.visible(number)), shown
    assert "built" in results(service, f"build-{name}")[-1]


@pytest.mark.parametrize("name", PLATFORMS)
async def test_a_form_is_one_question_and_what_fits_is_kept(
    service: AllPlatforms, name: str, number: int, world_folder: Path
) -> None:
    rig, before = service.rigs[name], notes(world_folder)
    rig.mutter(ask(steps=[calls("mcp__old__paint")], text="it is painted", id=f"paint-{name}"), number, mention=True)
    form = "\n".join(await service.shows(name, "How shall I paint?", number))
    for field in ("Colour", "red, blue", "coats", "hurry"):
        assert field in form
    await service.quiet()
    rig.mutter("blue\nlots\nyes", number, mention=True)
    again = "\n".join(await service.shows(name, "This answer does not fit.", number))
    assert "Expected: a whole number, from 1 to 3." in again
    await service.quiet()
    assert notes(world_folder) == before
    rig.mutter("2", number, mention=True)
    await service.shows(name, "it is painted", number)
    await service.quiet()
    assert notes(world_folder) == [*before, '["accept", {"colour": "blue", "coats": 2, "hurry": true}]']


@pytest.mark.parametrize("name", PLATFORMS)
async def test_a_large_result_is_a_file_that_the_agent_can_send(service: AllPlatforms, name: str, number: int) -> None:
    """Of 1.5 MB the model gets the head, and the whole is a file of the conversation."""
    rig = service.rigs[name]
    rig.mutter(
        ask(steps=[calls("mcp__modern__long", chars=1_500_000)], text="I have read it", id=f"long-{name}"),
        number,
        mention=True,
    )
    await service.shows(name, "I have read it", number)
    await service.quiet()
    [result] = results(service, f"long-{name}")
    assert len(result) < 5000
    [path] = re.findall(r"/mnt/user-data/(workspace/\.mcp/\w+\.txt)", result)
    whole = (service.folder_of(rig.thread(number)) / path).read_text()
    assert (len(whole), whole[-7:]) == (1_500_007, "the end")


@pytest.mark.parametrize("name", PLATFORMS)
async def test_a_refusal_is_shown_in_the_words_of_the_model_and_paid_once(
    service: AllPlatforms, name: str, number: int
) -> None:
    service.rigs[name].mutter(ask(refusal="I will not help to break in.", id=f"refusal-{name}"), number, mention=True)
    shown = await service.shows(name, "I will not help to break in.", number)
    await service.quiet()
    assert len(service.model.requests(f"refusal-{name}")) == 1
    assert "no answer from my model" not in "\n".join(shown)
    assert service.rows_of(service.rigs[name].thread(number), "state", "runs") == [("done",)]


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
async def test_errors_with_the_status_of_an_answer_are_said_in_words(
    service: AllPlatforms, name: str, number: int
) -> None:
    rig = service.rigs[name]
    for kind, (directive, told) in ERRORS.items():
        rig.mutter(ask(**directive, id=f"{kind}-{name}"), number, mention=True)
        shown = "\n".join(await service.shows(name, told, number))
        await service.quiet()
        assert "Something broke on my side" not in shown
        assert "insufficient_quota" not in shown, "the sentence is ours"
        if kind == "a quota":
            assert service.rows_of(rig.thread(number), "kind, input", "usage") == [], "nothing was answered"
    rig.mutter(ask(text="works again", id=f"works-{name}"), number, mention=True)
    await service.shows(name, "works again", number)


@pytest.mark.parametrize("name", PLATFORMS)
async def test_usage_that_comes_with_every_chunk_counts_once(service: AllPlatforms, name: str, number: int) -> None:
    """In the table of usage and in what `/usage` says to a person, who asks nothing else here."""
    rig = service.rigs[name]
    rig.mutter(ask(tokens=40, counted="every", id=f"usage-{name}"), number, mention=True, by=rig.other)
    await service.shows(name, "w39", number)
    await service.quiet()
    [request] = service.model.requests(f"usage-{name}")
    prompt = request.bytes // 4
    assert service.rows_of(rig.thread(number), "kind, input, output", "usage") == [("turn", prompt, 40)]
    rig.mutter("!usage", number, mention=True, by=rig.other)
    await service.shows(name, f"{prompt + 40:,} tokens in 1 call", number)
