"""Contract of every channel: files, and the thread of every outgoing call."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from agent.blocks import Final, Step, Text
from agent.messages import Attachment
from channels.base import FileNamer, OutcomeUnknown, OutgoingFile, Refused, TryLater, Unconfirmed
from channels.shared.files import CHUNK
from channels.shared.texts import REPEAT_MARK
from tests.support.rigs.base import Call
from tests.support.rigs.registry import Memory, Rig, demanded, settled, until


def table(folder: Path, name: str = "报告 1.csv", caption: str = "") -> OutgoingFile:
    path = folder / "copy"
    path.write_bytes(b"a,b\n1,2\n")
    return OutgoingFile(path, name, 8, caption)


@demanded("uploads")
async def test_a_file_is_sent_once(rig: Rig, tmp_path: Path) -> None:
    file, posts = table(tmp_path, caption="Your table"), Memory()
    await rig.channel.send_files(rig.thread(), [file], posts)
    seen = await settled(rig, "报告 1.csv")
    await settled(rig, "Your table")
    await rig.channel.send_files(rig.thread(), [file], Memory(rows=posts.rows))
    assert "\n".join(rig.visible()) == seen
    assert str(tmp_path / "copy") not in seen


@demanded("uploads", "wire")
async def test_a_file_over_the_limit_is_refused_with_a_reason(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "big.bin"
    with path.open("wb") as file:
        file.truncate(rig.channel.limits.upload + 1)
    with pytest.raises(Refused, match=r"big\.bin.*\d+ [MG]i?B") as refusal:
        await rig.channel.send_files(rig.thread(), [OutgoingFile(path, "big.bin", path.stat().st_size)], Memory())
    assert str(tmp_path) not in str(refusal.value)
    assert rig.wire.count("upload") == 0


@demanded("uploads", "wire")
async def test_a_file_that_the_platform_did_not_accept_is_sent_later(rig: Rig, tmp_path: Path) -> None:
    posts = Memory()
    for kind in ("flood", "error"):
        rig.wire.fault(kind, "upload")
    for _ in range(6):
        try:
            await rig.channel.send_files(rig.thread(), [table(tmp_path)], posts)
            break
        except TryLater as error:
            await asyncio.sleep(min(error.after, 1.0))
    assert [text for text in rig.visible() if "报告 1.csv" in text] == rig.visible()
    assert len(rig.visible()) == 1
    assert "repeat" not in rig.visible()[0]


@demanded("uploads", "wire", "files_once")
async def test_a_file_accepted_without_an_answer_is_shown_once(rig: Rig, tmp_path: Path) -> None:
    posts = Memory()
    rig.wire.fault("drop", "upload", after=True)
    for _ in range(4):
        try:
            await rig.channel.send_files(rig.thread(), [table(tmp_path)], Memory(rows=posts.rows))
            break
        except (OutcomeUnknown, TryLater):
            await asyncio.sleep(0.1)
    assert len([text for text in rig.visible() if "报告 1.csv" in text]) == 1


@demanded("uploads", "wire")
async def test_a_file_that_is_never_confirmed_is_sent_a_limited_number_of_times(rig: Rig, tmp_path: Path) -> None:
    posts = Memory()
    calls: dict[str, Call] = {
        "dingtalk": "post",
        "feishu": "post",
        "wecom": "album",
        "whatsapp": "album",
        "wechat": "album",
    }  # a message refers to an upload
    visible = calls.get(rig.name, "upload")
    rig.wire.fault("error", visible, code=504, after=True, times=-1)
    for _ in range(20):
        try:
            await rig.channel.send_files(rig.thread(), [table(tmp_path)], Memory(rows=posts.rows))
        except (OutcomeUnknown, TryLater):
            await asyncio.sleep(0)
        except Unconfirmed:
            break
        else:
            break
    assert 1 <= len([text for text in rig.visible() if "报告 1.csv" in text]) <= (1 if "files_once" in rig.can else 2)


# ---------------------------------------------------------------- several files


def some_files(folder: Path, *names: str) -> list[OutgoingFile]:
    """Files that say their names; that of a picture is a picture."""
    made = []
    for name in names:
        data = (b"\x89PNG" if name.endswith(".png") else b"") + name.encode()
        (folder / name).write_bytes(data)
        made.append(OutgoingFile(folder / name, name, len(data), f"about {name}"))
    return made


async def send_until_done(rig: Rig, files: list[OutgoingFile], posts: Memory) -> None:
    """Send as the outbox does, each time in a new process."""
    for _ in range(10):
        try:
            return await rig.channel.send_files(rig.thread(), files, Memory(posts.key, posts.rows))
        except (OutcomeUnknown, TryLater) as error:
            await asyncio.sleep(min(error.after, 1.0))
    raise AssertionError("never sent")


def times_shown(rig: Rig, *names: str) -> list[int]:
    """How often each file is visible."""
    text = " ".join(rig.visible()).replace("about ", "about-")
    words = text.replace(f"{REPEAT_MARK} ", f"{REPEAT_MARK}-").split()  # DingTalk's mark names the file, too
    return [words.count(name) for name in names]


NAMES = ("a.csv", "b.csv", "c.csv")


@demanded("uploads")
async def test_several_files_are_sent_once_each(rig: Rig, tmp_path: Path) -> None:
    files, posts = some_files(tmp_path, *NAMES), Memory()
    await rig.channel.send_files(rig.thread(), files, posts)
    seen = await settled(rig, "c.csv")
    await settled(rig, "about c.csv")
    await rig.channel.send_files(rig.thread(), files, Memory(rows=posts.rows))
    assert "\n".join(rig.visible()).count("c.csv") >= seen.count("c.csv") >= 1
    if rig.name != "console":  # it shows the path of a file
        assert times_shown(rig, *NAMES) == [1, 1, 1]


@demanded("albums", "wire")
async def test_several_files_are_one_message(rig: Rig, tmp_path: Path) -> None:
    await rig.channel.send_files(rig.thread(), some_files(tmp_path, *NAMES), Memory())
    assert rig.wire.count("upload") == 1
    assert times_shown(rig, *NAMES) == [1, 1, 1]
    for name in NAMES:
        assert f"about {name}" in "\n".join(rig.visible())
    many = [f"f{number}.csv" for number in range(12)]  # no platform shows more than ten in a message
    await rig.channel.send_files(rig.thread(), some_files(tmp_path, *many), Memory("r2"))
    assert rig.wire.count("upload") == 3
    assert times_shown(rig, *many) == [1] * 12


@demanded("uploads", "wire")
async def test_files_whose_message_is_refused_are_sent_one_by_one(rig: Rig, tmp_path: Path) -> None:
    posts = Memory()
    rig.wire.fault("error", "album", code=400)
    if "albums" in rig.can:
        await send_until_done(rig, some_files(tmp_path, *NAMES), posts)
        assert times_shown(rig, *NAMES) == [1, 1, 1]
        assert rig.wire.count("upload") == 4
    else:
        with pytest.raises(Refused, match=r"a\.csv: "):
            await send_until_done(rig, some_files(tmp_path, *NAMES), posts)
        assert times_shown(rig, *NAMES) == [0, 1, 1]
    await send_until_done(rig, some_files(tmp_path, *NAMES[1:]), posts)  # asks for nothing that was sent


@demanded("uploads", "wire")
async def test_one_file_that_cannot_be_sent_does_not_keep_back_the_others(rig: Rig, tmp_path: Path) -> None:
    files, posts = some_files(tmp_path, *NAMES), Memory()
    with (tmp_path / "b.csv").open("wb") as big:
        big.truncate(rig.channel.limits.upload + 1)
    files[1] = OutgoingFile(tmp_path / "b.csv", "b.csv", rig.channel.limits.upload + 1)
    for _ in range(2):
        with pytest.raises(Refused, match=r"^b\.csv: it has \d+ MB"):
            await rig.channel.send_files(rig.thread(), files, Memory(rows=posts.rows))
    assert times_shown(rig, *NAMES) == [1, 0, 1]


@demanded("uploads", "wire", "files_once")
async def test_several_files_accepted_without_an_answer_are_shown_once(rig: Rig, tmp_path: Path) -> None:
    posts = Memory()
    rig.wire.fault("drop", "upload", after=True)
    await send_until_done(rig, some_files(tmp_path, *NAMES), posts)
    assert times_shown(rig, *NAMES) == [1, 1, 1]


@demanded("uploads", "wire")
async def test_a_crash_between_messages_repeats_no_file(rig: Rig, tmp_path: Path) -> None:
    """Pictures and tables are two messages on Telegram; the others need more than ten files for two."""
    picture = "pdf" if rig.name == "wechat" else "png"  # a picture has no name there
    names = [f"p{n}.{picture}" for n in range(6)] + [f"t{n}.csv" for n in range(6)]
    files, posts = some_files(tmp_path, *names), Memory()
    rig.wire.fault("slow", "upload", seconds=0.3, times=-1)
    for _ in range(3):  # the process is killed at any time
        sending = asyncio.create_task(rig.channel.send_files(rig.thread(), files, Memory(rows=posts.rows)))
        await asyncio.sleep(0.45)
        sending.cancel()
        await asyncio.wait({sending})
        if "files_once" not in rig.can:
            break
    await send_until_done(rig, files, posts)
    shown = times_shown(rig, *names)
    assert set(shown) == {1} if "files_once" in rig.can else set(shown) <= {1, 2}


@demanded("downloads")
async def test_an_upload_is_read_in_chunks(rig: Rig) -> None:
    data = bytes(range(256)) * 2000
    rig.send_file("数字 1.bin", data, "look")
    message = await rig.box.next()
    [file] = message.attachments
    assert file.size in (len(data), None)
    assert message.thread == rig.thread()
    chunks = [chunk async for chunk in rig.channel.fetch(file)]
    assert b"".join(chunks) == data
    assert len(chunks) > 1
    assert (rig.channel.named(file) if isinstance(rig.channel, FileNamer) else file).name == "数字 1.bin"


@demanded("downloads", "wire")
async def test_an_upload_is_streamed_while_it_arrives(rig: Rig) -> None:
    """It is never buffered in full, and a reader that stops early closes the connection."""
    rig.send_file("long.bin", bytes(4 << 20))
    message = await rig.box.next()
    rig.wire.stall(1 << 20)
    got = 0
    async with aclosing(rig.channel.fetch(message.attachments[0])) as chunks:
        async for chunk in chunks:
            assert len(chunk) <= CHUNK
            got += len(chunk)
            if got > (1 << 20) - 64:  # of an encrypted file, the end is held back
                break
    assert got > (1 << 20) - 64


@demanded("downloads")
async def test_what_is_kept_of_a_file_before_its_turn_goes_with_its_person(rig: Rig) -> None:
    """It names its person and ends within hours. What still comes when they are forgotten is not kept."""
    if "early_files" in rig.can:
        rig.hurry()
    rig.send_file("a.csv", b"a,b\n" * 50_000)
    message = await rig.box.next()
    await until(lambda: rig.box.files() or "early_files" not in rig.can, what="the file")
    of_service = ("login ", "key ")  # the operator's sign-in, and keys of encryption without which nothing is read
    about = [name for name in rig.box.kept if message.author.id in name and not name.startswith(of_service)]
    for of, end in (rig.box.owners[name] for name in (*about, *rig.box.files())):
        assert of == message.author.id
        assert end is not None
        assert end < time.time() + 25 * 3600
    rig.box.forget(message.author.id)
    assert rig.box.files() == []
    assert not rig.box.kept.keys() & {*about}
    assert b"".join([chunk async for chunk in rig.channel.fetch(message.attachments[0])]) == b"a,b\n" * 50_000


@demanded("early_files", "wire")
async def test_a_file_that_is_fetched_early_while_its_person_is_forgotten_is_not_kept(rig: Rig) -> None:
    rig.hurry()
    rig.wire.stall(1 << 20)
    rig.send_file("a.bin", bytes(2 << 20))
    message = await rig.box.next()
    await until(lambda: rig.box.files(), what="the beginning of the file")
    kept = set(rig.box.kept)
    rig.box.forget(message.author.id, sweep=False)
    rig.wire.stall(4 << 20)  # the rest of it comes
    await until(lambda: not rig.box.files(), what="the end of the file")
    assert set(rig.box.kept) < kept


@demanded("downloads", "captions")
async def test_a_file_arrives_with_its_caption(rig: Rig) -> None:
    rig.send_file("a.csv", b"a,b\n", "what is in here?")
    message = await rig.box.next()
    assert ([file.name for file in message.attachments], message.text) == (["a.csv"], "what is in here?")
    assert len(rig.box.messages) == 1


@demanded("downloads")
async def test_a_file_without_a_caption_is_a_message(rig: Rig) -> None:
    rig.send_file("a.csv", b"a,b\n")
    message = await rig.box.next()
    [file] = message.attachments
    assert message.text == ""
    assert b"".join([chunk async for chunk in rig.channel.fetch(file)]) == b"a,b\n"
    assert (rig.channel.named(file) if isinstance(rig.channel, FileNamer) else file).name == "a.csv"


@demanded("downloads")
async def test_an_upload_over_the_limit_is_refused(rig: Rig) -> None:
    limit = rig.channel.limits.download
    with pytest.raises(Refused, match=rf"exceeds the {limit >> 20} MB download limit"):
        async for _ in rig.channel.fetch(Attachment("x", "big.bin", size=limit + 1)):
            pass


@demanded("topics", "edits")
async def test_replies_in_several_threads_are_not_mixed_up(rig: Rig) -> None:
    async def work(topic: int) -> None:
        reply = rig.channel.reply(rig.thread(topic), Memory(f"r{topic}"))
        for number in range(20):
            reply.show(Text(f"{topic}-{number} "))
            await asyncio.sleep(0.01)
        await reply.finish(Final(f"done in {topic}"))

    await asyncio.gather(*(work(topic) for topic in (0, 7, 8, 9)))
    assert [rig.visible(topic) for topic in (0, 7, 8, 9)] == [[f"done in {topic}"] for topic in (0, 7, 8, 9)]


# Case 69 of docs/cases.md
@demanded("topics", "wire", "uploads", "live")
async def test_every_call_carries_its_own_thread(rig: Rig, tmp_path: Path) -> None:
    async def work(topic: int) -> None:
        message = await rig.say(f"work in {topic}", topic)
        assert message.thread == rig.thread(topic)
        reply = rig.channel.reply(message.thread, Memory(f"r{topic}"), to=message.id, asker=message.author.id)
        reply.show(Step("1", f"step in {topic}"))
        await settled(rig, f"step in {topic}", topic)
        await reply.finish(Final(f"done in {topic}"))
        await rig.channel.send_files(message.thread, [table(tmp_path, f"{topic}.csv")], Memory(f"f{topic}"))
        await until(lambda: len(rig.visible(topic)) == 2)

    await work(7)
    await work(9)
    assert rig.wire.topics() == {7, 9}
    for topic in (7, 9):
        assert rig.visible(topic) == [f"done in {topic}", f"{topic}.csv"]
