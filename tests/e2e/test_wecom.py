"""WeCom end to end: answers, approvals, files and background work through kills of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.model_script import without_directives
from tests.fakes.server import until
from tests.fakes.wecom import FakeWeCom
from tests.support.rigs.wecom import WeComRig
from tests.support.service_process import ask
from tests.support.thread_talk import ThreadTalk, calls, delegate, tool


def server_of(talk: ThreadTalk) -> FakeWeCom:
    rig = talk.service.rigs["wecom"]
    assert isinstance(rig, WeComRig)
    return rig.server


async def test_an_answer_goes_on_in_its_message_after_a_kill(tmp_path: Path) -> None:
    async with ThreadTalk.open(tmp_path, "wecom") as talk:
        talk.say(ask(text="word " * 60 + "end", tok_ms=50))
        await until(lambda: "word word" in "\n".join(talk.visible()), what="a part of the answer")
        await until(lambda: talk.service.rows("SELECT 1 FROM posts WHERE sent=1"), what="the record of its message")
        assert not server_of(talk).shown[0].finished
        await talk.service.kill()
        await talk.service.start()
        await talk.shows("end")
        await talk.service.quiet()
        assert len(talk.visible()) == 1
        assert [one.finished for one in server_of(talk).shown] == [True]


async def test_an_answer_whose_end_was_shown_right_before_a_kill_is_shown_once(tmp_path: Path) -> None:
    """The process hears nothing of its last frame, so that its end is not recorded as delivered."""
    async with ThreadTalk.open(tmp_path, "wecom") as talk:
        server_of(talk).fault("hang", "*", after=True, contains='"finish":true')
        talk.say(ask(text="word " * 20 + "end", tok_ms=20))
        await until(lambda: any(one.finished for one in server_of(talk).shown), what="the last frame")
        await talk.service.kill()
        assert talk.service.rows("SELECT 1 FROM outbox WHERE state<2")
        await talk.service.start()
        await talk.service.quiet()
        assert [without_directives(one.text) for one in server_of(talk).shown] == [f"{'word ' * 20}end"]


@pytest.mark.usefixtures("bubblewrap")
async def test_an_approval_is_pressed_after_a_kill_and_the_file_comes(tmp_path: Path) -> None:
    async with ThreadTalk.open(tmp_path, "wecom", permissions={"ask": ["bash"]}, sandbox={}) as talk:
        talk.say(
            ask(steps=[calls(tool("bash", command="echo a,b,c > /mnt/user-data/outputs/报告.csv"))], text="written")
        )
        await talk.shows("May I run")
        await until(lambda: "Approve" in talk.offers(), what="the buttons")
        await talk.service.quiet()
        await talk.service.kill()
        await talk.service.start()
        talk.press("Approve")
        await talk.shows("written")
        await talk.shows("报告.csv")
        await talk.service.quiet()
        assert not talk.offers()
        assert talk.service.rigs["wecom"].labels(7) != []
        assert [one.data for one in server_of(talk).shown if one.name] == [b"a,b,c\n"]


async def test_the_result_of_a_background_task_is_posted_without_a_question(tmp_path: Path) -> None:
    async with ThreadTalk.open(tmp_path, "wecom") as talk:
        talk.say(delegate("market", ask(text="It is large")))
        assert "🔧 Task 1" in await talk.shows("It is large")
        await talk.service.quiet()
        kinds = {one.kind for one in server_of(talk).shown if "It is large" in one.text}
        assert kinds == {"markdown"}
        assert not [call for call in server_of(talk).calls if call.code]


async def have_file_fetched_early(talk: ThreadTalk) -> None:
    """Have a file wait for its turn, which comes after that of a process that was killed."""
    service, rig = talk.service, talk.service.rigs["wecom"]
    rig.mutter(ask(text="done with the first", delay_ms=4000))
    await until(lambda: service.rows("SELECT 1 FROM runs WHERE state='running'"), what="the first turn")
    rig.send_file("报告.csv", b"a,b\n1,2\n")
    await until(lambda: service.rows("SELECT 1 FROM channel_state WHERE item LIKE 'early %'"), what="its note")
    await service.kill()
    await service.start()
    await until(lambda: [*service.data.glob("channels/wecom/*[!t]")], what="the file")


async def test_a_file_that_waits_for_its_turn_survives_a_kill(tmp_path: Path) -> None:
    """WeCom has it for five minutes; the turn before it takes longer."""
    async with ThreadTalk.open(tmp_path, "wecom") as talk:
        rig = talk.service.rigs["wecom"]
        await have_file_fetched_early(talk)
        server_of(talk).fault("error", "download", code=403, times=-1)
        rig.mutter(ask(text="read it"))
        await talk.service.shows("wecom", "read it")
        assert [path.read_bytes() for path in talk.service.data.glob("threads/*/uploads/报告.csv")] == [b"a,b\n1,2\n"]


async def test_a_file_that_is_sent_reaches_the_agent_under_its_name(tmp_path: Path) -> None:
    async with ThreadTalk.open(tmp_path, "wecom") as talk:
        rig = talk.service.rigs["wecom"]
        rig.send_file("报告.csv", b"a,b\n1,2\n")
        rig.mutter(ask(text="read it"))
        await talk.service.shows("wecom", "read it")
        assert [path.read_bytes() for path in talk.service.data.glob("threads/*/uploads/报告.csv")] == [b"a,b\n1,2\n"]


async def test_a_file_that_was_fetched_early_is_forgotten_with_its_person(tmp_path: Path) -> None:
    """Also its note, in which its key is."""
    async with ThreadTalk.open(tmp_path, "wecom") as talk:
        rig, folder = talk.service.rigs["wecom"], talk.service.data / "channels" / "wecom"
        await have_file_fetched_early(talk)
        await talk.service.quiet()
        rig.mutter("/forget me")
        await until(lambda: "Forget me" in rig.buttons(), what="the question")
        rig.press("Forget me")
        await talk.service.shows("wecom", "Done: I have forgotten you.")
        assert not [*folder.iterdir()]
        assert not talk.service.rows("SELECT 1 FROM channel_state WHERE item LIKE 'early %'")
