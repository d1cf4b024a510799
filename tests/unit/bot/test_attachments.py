"""Download attachments through the real channel, limited in memory, size and time."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from PIL import Image

from agent.core.pictures import picture_suffix
from agent.core.user_message import format_body
from agent.exposure import Exposure
from agent.messages import Attachment, Author, Message, Origin, Quote, Thread, UploadedFile
from agent.setting import Secret
from agent.settings.sections import VoiceConfig
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.config.uploads import UploadsConfig
from bot.database.database import Database
from bot.journey.attachments import Attachments, Patience, UploadInspector, complete_name
from bot.journey.talk_above import TalkAbove
from bot.rights.current import Current
from channels.base import TryLater
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.engines.select import LazySandbox
from sandbox.settings import SandboxSettings
from tests.fakes.server import read_form
from tests.support.engines import need_bubblewrap
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.support.rigs.slack import SlackRig
from tests.support.web_server import serve_site
from tests.unit.bot.test_outbox import RecordingChannel

MB = 1 << 20
OFFICE = "application/vnd.openxmlformats-officedocument"


class Desk:
    """The uploads of a conversation, and a person who sends files."""

    def __init__(self, folder: Path, store: Database, rig: SlackRig) -> None:
        self.folder = folder / "threads" / "c"
        self.rig = rig
        self.store = store

    async def take(
        self,
        name: str,
        data: bytes,
        limit: int = 100,
        kinds: tuple[str, ...] = (),
        inspector: UploadInspector | None = None,
        **patience: float,
    ) -> UploadedFile:
        """Send a file to the bot and download it."""
        self.rig.send_file(name, data)
        uploads = Attachments(
            self.store,
            "c",
            self.folder,
            Current(Config(uploads=UploadsConfig(kinds, limit))),
            Patience(**patience),
            inspector=inspector,
        )
        [upload] = await uploads.store_attachments(self.rig.channel, await self.rig.box.next())
        return upload

    async def said(self) -> list[str]:
        """Return the notes for the reply."""
        rows = await self.store.run(lambda execute: execute("SELECT payload FROM outbox ORDER BY id", {}))
        return [bytes(row["payload"]).decode() for row in rows]

    def stored(self) -> list[str]:
        """Return every file on disk that could be an upload or a leftover."""
        return sorted(str(path.relative_to(self.folder.parent)) for path in self.folder.parent.rglob("*"))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store, SlackRig.start(tmp_path) as rig:
        yield Desk(tmp_path, store, rig)


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("people.csv", "table, 2 rows, 2 columns"),
        ("text.docx", "text, 2 words"),  # the first bytes say what it is, not the name
        ("notes.txt", ""),
    ],
)
async def test_a_document_says_what_it_is(desk: Desk, tmp_path: Path, name: str, about: str) -> None:
    need_bubblewrap()
    provider = BubblewrapProvider(SandboxSettings(tmp_path / "skills"))
    sandbox = LazySandbox(provider, "c", desk.folder)
    try:
        upload = await desk.take(name, b"name,city\nJane,Berlin\n", inspector=UploadInspector(sandbox))
        assert (upload.about, upload.refused) == (about, "")
    finally:
        await sandbox.aclose()
        await provider.close()


async def test_a_picture_is_scaled_for_models_that_see(desk: Desk, tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.new("RGB", (3000, 100), "red").save(out, "PNG")
    handle = LazySandbox(FilesOnlyProvider(tmp_path / "skills"), "c", desk.folder)
    upload = await desk.take("wide.png", out.getvalue(), inspector=UploadInspector(handle, shows_pictures=True))
    assert upload.about == "picture, 3000×100"
    stored = desk.folder / upload.picture.removeprefix("/mnt/user-data/")
    with Image.open(stored) as image:
        assert image.size == (1568, 52)


@pytest.mark.parametrize(
    ("shows", "about"), [(False, "a picture, which you cannot see"), (True, "a picture that cannot be shown: ")]
)
async def test_a_picture_that_is_not_shown_says_so(desk: Desk, tmp_path: Path, shows: bool, about: str) -> None:
    handle = LazySandbox(FilesOnlyProvider(tmp_path / "skills"), "c", desk.folder)
    upload = await desk.take("a.png", b"text", inspector=UploadInspector(handle, shows_pictures=shows))
    assert upload.about.startswith(about)
    assert (upload.picture, upload.refused) == ("", "")


def drawn(kind: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(out, kind)
    return out.getvalue()


HEIC = b"\0\0\0\x20ftypheic\0\0\0\0mif1MiHEheicmiaf" + bytes(300)
SEEN = ["AVIF", "JPEG2000", "WEBP", "TIFF", "BMP", "GIF", "PNG", "JPEG"]


@pytest.mark.parametrize("kind", SEEN)
@pytest.mark.parametrize("name", ["image", "photo.jpg", "notes.txt", "a.heic"])
async def test_a_picture_is_seen_whatever_its_name_says(desk: Desk, tmp_path: Path, kind: str, name: str) -> None:
    handle = LazySandbox(FilesOnlyProvider(tmp_path / "skills"), "c", desk.folder)
    upload = await desk.take(name, drawn(kind), inspector=UploadInspector(handle, shows_pictures=True))
    assert upload.about == "picture, 40×30"
    assert upload.picture
    assert upload.name == (f"image{picture_suffix(drawn(kind))}" if name == "image" else name)


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("IMG_4711.HEIC", HEIC, "HEIC"),
        ("IMG_4711.jpg", HEIC, "HEIC"),
        ("image", b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic" + bytes(99), "HEIC"),
        ("burst.heics", b"\0\0\0\x18ftypmsf1\0\0\0\0msf1hevc" + bytes(99), "HEIC"),
        ("scan.jxl", b"\xff\x0a" + bytes(99), "JPEG XL"),
        ("art.psd", b"8BPS\0\x01" + bytes(99), "Photoshop"),
    ],
)
async def test_a_picture_that_nothing_reads_is_named_to_the_agent_and_the_person(
    desk: Desk, tmp_path: Path, name: str, data: bytes, kind: str
) -> None:
    handle = LazySandbox(FilesOnlyProvider(tmp_path / "skills"), "c", desk.folder)
    upload = await desk.take(name, data, inspector=UploadInspector(handle, shows_pictures=True))
    assert upload.about == f"a {kind} picture, which cannot be shown to you"
    [said] = await desk.said()
    assert f"it is a {kind} picture. Send it as JPEG or PNG." in said


@pytest.mark.parametrize(
    "data", [b"BM is a text about bitmaps", b"....ftypisom", b"MZ", b"", b"\xff\x0b", b"RIFF....WAVE"]
)
def test_what_is_no_picture_is_not_taken_for_one(data: bytes) -> None:
    assert picture_suffix(data) == ""


@pytest.mark.parametrize(
    ("name", "mime", "data", "completed"),
    [
        ("report", "application/pdf", b"%PDF-1.7", "report.pdf"),
        ("report", "application/octet-stream", b"%PDF-1.7", "report.pdf"),
        ("Untitled", "text/plain", b"hello", "Untitled.txt"),
        ("Re: Offer 4711", "text/html; charset=utf-8", b"<p>", "Re: Offer 4711.html"),
        ("Q3. numbers of 2024", "text/csv", b"a,b", "Q3. numbers of 2024.csv"),
        ("minutes.2024", "text/markdown", b"# hi", "minutes.2024.md"),
        ("minutes", f"{OFFICE}.wordprocessingml.document", b"PK\x03\x04", "minutes.docx"),
        ("numbers", f"{OFFICE}.spreadsheetml.sheet", b"PK\x03\x04", "numbers.xlsx"),
        ("letter", "message/rfc822", b"Subject: x", "letter.eml"),
        ("memo", "audio/ogg", b"OggS", "memo.ogg"),
        ("memo", "", b"OggS", "memo.ogg"),
        ("clip", "video/mp4", b"\0\0\0\x18ftypisom", "clip.mp4"),
        ("image", "image/jpeg", b"\x89PNG\r\n\x1a\n", "image.png"),
        ("archive", "", b"PK\x03\x04", "archive.zip"),
        ("F0ABC", "application/octet-stream", b"\x00\x01", "F0ABC"),
        ("Makefile", "application/octet-stream", b"all:", "Makefile"),
        ("x.tar.gz", "application/gzip", b"\x1f\x8b", "x.tar.gz"),
        ("data.7z", "", b"7z", "data.7z"),
        ("notes.txt", "application/pdf", b"%PDF-", "notes.txt"),
        ("报告", "application/pdf", b"%PDF-", "报告.pdf"),
    ],
)
def test_a_name_without_a_suffix_gets_that_of_its_type(name: str, mime: str, data: bytes, completed: str) -> None:
    assert complete_name(name, mime, data) == completed


async def test_a_file_of_a_connected_workspace_has_the_name_that_files_info_says(desk: Desk) -> None:
    server = desk.rig.server
    stored = server.keep("Angebot März.pdf", b"%PDF-1.7 hello", "application/pdf", "T1")
    uploads = Attachments(desk.store, "c", desk.folder, Current(Config()))
    message = Message(
        *(desk.rig.thread(), "k1", "1", Author("U1", "Jane"), "", 1.0),
        attachments=(Attachment(f"T1/{stored.id}", stored.id, "application/octet-stream", None, "file"),),
        origin=Origin.PERSON,
    )
    [upload] = await uploads.store_attachments(desk.rig.channel, message)
    assert upload.name == "Angebot März.pdf"


async def test_a_voice_message_is_transcribed_and_shown(desk: Desk, tmp_path: Path) -> None:
    asked = []

    async def transcriptions(request: web.Request) -> web.Response:
        form = await read_form(request)
        asked.append((form.texts["model"], form.texts["language"], *form.files["file"]))
        assert request.headers["Authorization"] == "Bearer k"
        return web.json_response({"text": " Hello there.\nHow are you? "})

    handle = LazySandbox(FilesOnlyProvider(tmp_path / "skills"), "c", desk.folder)
    async with serve_site() as site:
        site.pages["/v1/audio/transcriptions"] = transcriptions
        voice = VoiceConfig(f"http://127.0.0.1:{site.port}/v1", "whisper-1", Secret("k"), "en")
        upload = await desk.take("voice.oga", b"OggS", inspector=UploadInspector(handle, voice=voice))
    assert asked == [("whisper-1", "en", "voice.ogg", b"OggS")]
    assert upload.transcript == "Hello there.\nHow are you?"
    [said] = await desk.said()
    assert "> Hello there.\\n> How are you?" in said


async def test_a_voice_message_that_fails_is_a_file_and_the_chat_is_told(desk: Desk, tmp_path: Path) -> None:
    handle = LazySandbox(FilesOnlyProvider(tmp_path / "skills"), "c", desk.folder)
    async with serve_site() as site:
        voice = VoiceConfig(f"http://127.0.0.1:{site.port}/v1")
        upload = await desk.take("voice.ogg", b"OggS", inspector=UploadInspector(handle, voice=voice))
    assert (upload.transcript, upload.about, upload.size) == ("", "audio, which could not be transcribed", 4)
    [said] = await desk.said()
    assert "I couldn't transcribe voice.ogg: the service answers with status 404. Send it as text." in said


async def test_a_video_comes_with_the_way_to_its_frames(desk: Desk, tmp_path: Path) -> None:
    need_bubblewrap()
    provider = BubblewrapProvider(SandboxSettings(tmp_path / "skills"))
    handle = LazySandbox(provider, "c", desk.folder)
    upload = await desk.take("talk.mp4", b"....ftyp", inspector=UploadInspector(handle))
    assert "takes a frame" in upload.about


async def test_without_commands_a_video_cannot_be_seen(desk: Desk, tmp_path: Path) -> None:
    handle = LazySandbox(FilesOnlyProvider(tmp_path / "skills"), "c", desk.folder)
    upload = await desk.take("talk.mov", b"....ftyp", inspector=UploadInspector(handle))
    assert upload.about == "video, which you cannot see"


async def test_without_a_service_the_model_learns_that_it_cannot_hear(desk: Desk, tmp_path: Path) -> None:
    handle = LazySandbox(FilesOnlyProvider(tmp_path / "skills"), "c", desk.folder)
    upload = await desk.take("voice.ogg", b"OggS", inspector=UploadInspector(handle))
    assert upload.about == "audio, which you cannot hear"
    assert await desk.said() == []


async def test_a_large_file_is_streamed_to_disk(desk: Desk) -> None:
    data = bytes(range(256)) * (40 * MB // 256)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        upload = await desk.take("large.bin", data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert upload == UploadedFile("large.bin", "/mnt/user-data/uploads/large.bin", len(data))
    assert (desk.folder / "uploads" / "large.bin").read_bytes() == data
    assert peak - before < 10 * MB
    assert await desk.said() == []


async def test_a_file_over_the_limit_is_refused_with_one_note(desk: Desk) -> None:
    upload = await desk.take("huge.bin", bytes(3 * MB), limit=2)
    assert upload.refused == "exceeds the 2 MB upload limit"
    [note] = await desk.said()
    assert "I could not take huge.bin: exceeds the 2 MB upload limit." in note
    assert desk.stored() == []


@pytest.mark.slow
async def test_a_stalled_download_is_retried_and_then_refused(desk: Desk) -> None:
    desk.rig.wire.stall(MB)
    upload = await desk.take("slow.bin", bytes(2 * MB), piece=0.1)
    assert upload.refused == "could not be fetched from the chat; please send it again"
    assert len(desk.rig.server.calls_of("download")) == 4
    [note] = await desk.said()
    assert "I could not take slow.bin: could not be fetched from the chat" in note


async def test_all_download_attempts_together_are_limited(desk: Desk) -> None:
    desk.rig.wire.stall(MB)
    upload = await desk.take("slow.bin", bytes(2 * MB), whole=0.5)
    assert upload.refused == "did not arrive within 0 minutes; please send it again"
    assert desk.stored() == []


class Guarded(RecordingChannel):
    """A channel whose platform refuses look-ups so many times, and asks to wait for `after` seconds."""

    def __init__(self, refuses: int, after: float) -> None:
        super().__init__()
        self.refuses, self.after = refuses, after

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        if self.refuses:
            self.refuses -= 1
            raise TryLater("slow down", self.after)
        return replace(message, quotes=(Quote("Kim", "DiskFull on db-1"),))


class Quoting(RecordingChannel):
    """A channel that shows what others said: who, and whether the platform knows them as members."""

    def __init__(self, *quotes: Quote) -> None:
        super().__init__()
        self.quotes = quotes

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        return replace(message, quotes=self.quotes)


OPEN, NAMED = AccessConfig(open=True), AccessConfig(allow=("U2",))


@pytest.mark.parametrize(
    ("access", "author", "member", "kind", "is_member"),
    [
        (OPEN, "U2", True, "earlier", True),
        (OPEN, "U2", True, "reply", True),
        (OPEN, "U2", False, "earlier", False),  # a guest, a bot, a message with a preview
        (NAMED, "U2", True, "earlier", True),
        (NAMED, "U3", True, "earlier", False),
        (AccessConfig(allow=("C1",)), "U3", True, "viewed", True),
        (AccessConfig(), "U2", True, "earlier", False),
        (OPEN, "", True, "earlier", False),
    ],
)
async def test_words_of_members_who_may_talk_here_are_no_strangers_words(
    desk: Desk, access: AccessConfig, author: str, member: bool, kind: Any, is_member: bool
) -> None:
    current = Current(Config(channels=(ChannelConfig("slack", None, access),)))
    uploads = Attachments(desk.store, "c1", desk.folder, current)
    channel = Quoting(Quote("Bob", "we pay on Fridays", kind, author, "9.0", member))
    thread = Thread("slack", "T1", "C1")
    message = Message(thread, "slack:1", "1", Author("U1", "Jane"), "remember that", 1.0, origin=Origin.PERSON)
    given = await uploads.make_input(channel, message, TalkAbove(10, 1000))
    exposure = Exposure()
    await exposure.note_inputs([given])
    assert (exposure.private, exposure.untrusted) == (True, not is_member)
    assert exposure.destination("note", "memory", {"action": "save"}) == ("" if is_member else "memory")


@pytest.mark.parametrize(("refuses", "after", "kind"), [(2, 0.01, "reply"), (1, 60.0, "unread")])
async def test_a_refused_look_up_is_waited_for_or_said(
    desk: Desk, tmp_path: Path, refuses: int, after: float, kind: str
) -> None:
    uploads = Attachments(desk.store, "c1", tmp_path / "c1", Current(Config()))
    thread = Thread("slack", "T1", "C1")
    message = Message(thread, "slack:1", "1", Author("U1", "Jane"), "what is this?", 1.0, origin=Origin.PERSON)
    given = await uploads.make_input(Guarded(refuses, after), message)
    assert [quote.kind for quote in given.message.quotes] == [kind]
    assert ("did not let me read" in format_body(given)) is (kind == "unread")


@pytest.mark.parametrize(
    ("name", "mime", "kinds", "refused"),
    [
        ("a.PNG", "image/png", ("image",), None),
        ("a.pdf", "application/pdf", ("image", "document"), None),
        ("a.pdf", "application/pdf", ("image",), "is a document; here I take a picture"),
        ("a.sh", "application/octet-stream", ("text", "table"), "is a script; here I take a text, a table"),
        ("a.png", "video/mp4", ("image",), "is a video; here I take a picture"),  # it claims to be both
        ("a.png.zip", "", ("image",), "is an archive; here I take a picture"),
        ("noname", "audio/ogg", ("audio",), None),
        ("noname", "", ("audio",), "is a file of another kind; here I take a sound or voice message"),
        ("noname", "", ("other",), None),
        ("plan.dwg", "", ("image", ".dwg"), None),
        ("plan.dxf", "", (".dwg",), "is a file of another kind; here I take .dwg"),
        ("plan.exe", "", (), None),
    ],
)
def test_a_file_of_another_kind_is_refused_in_words(
    name: str, mime: str, kinds: tuple[str, ...], refused: str | None
) -> None:
    assert UploadsConfig(kinds).refusal(Attachment("ref", name, mime)) == refused


async def test_a_refused_kind_is_not_fetched(desk: Desk) -> None:
    upload = await desk.take("run.sh", b"rm", kinds=("image",))
    assert upload.refused == "is a script; here I take a picture"
    assert desk.stored() == []
    [note] = await desk.said()
    assert "I could not take run.sh: is a script; here I take a picture." in note
