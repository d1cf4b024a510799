"""Download attachments through the real channel, limited in memory, size and time."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from PIL import Image

from agent.core.user_message import format_body
from agent.messages import Attachment, Author, Message, Origin, Quote, Thread
from agent.setting import Secret
from agent.settings.sections import VoiceConfig
from agent.user_input import UploadedFile
from bot.config.schema import ServiceLimits
from bot.config.uploads import UploadsConfig
from bot.database.database import Database
from bot.database.migrate import migrate_database
from bot.journey.attachments import Attachments, Patience
from bot.journey.upload_details import UploadInspector
from channels.base import TryLater
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.engines.select import LazySandbox
from sandbox.settings import SandboxSettings
from tests.fakes.server import read_form
from tests.support.engines import need_bubblewrap
from tests.support.rehearsed_database import rehearsed_database
from tests.support.rigs.slack import SlackRig
from tests.support.web_server import serve_site
from tests.unit.bot.test_outbox import RecordingChannel

MB = 1 << 20


class Desk:
    """The uploads of a conversation, and a person who sends files."""

    def __init__(self, folder: Path, store: Database, rig: SlackRig) -> None:
        self.folder = folder / "threads" / "c"
        self.rig = rig
        self._store = store

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
            self._store,
            "c",
            self.folder,
            ServiceLimits(),
            UploadsConfig(kinds, limit),
            Patience(**patience),
            inspector=inspector,
        )
        [upload] = await uploads.store_attachments(self.rig.channel, await self.rig.box.next())
        return upload

    async def said(self) -> list[str]:
        """Return the notes for the reply."""
        rows = await self._store.run(lambda execute: execute("SELECT payload FROM outbox ORDER BY id", {}))
        return [bytes(row["payload"]).decode() for row in rows]

    def stored(self) -> list[str]:
        """Return every file on disk that could be an upload or a leftover."""
        return sorted(str(path.relative_to(self.folder.parent)) for path in self.folder.parent.rglob("*"))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    migrate_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store, SlackRig.start(tmp_path) as rig:
        yield Desk(tmp_path, store, rig)


@pytest.mark.parametrize(
    ("name", "about"), [("people.csv", "table, 2 rows, 2 columns"), ("broken.docx", ""), ("notes.txt", "")]
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


@pytest.mark.parametrize(("refuses", "after", "kind"), [(2, 0.01, "reply"), (1, 60.0, "unread")])
async def test_a_refused_look_up_is_waited_for_or_said(
    desk: Desk, tmp_path: Path, refuses: int, after: float, kind: str
) -> None:
    uploads = Attachments(desk._store, "c1", tmp_path / "c1", ServiceLimits(), UploadsConfig())
    thread = Thread("slack", "T1", "C1")
    message = Message(thread, "slack:1", "1", Author("U1", "Jane"), "what is this?", 1.0, origin=Origin.PERSON)
    given = await uploads.make_input(Guarded(refuses, after), message)
    assert [quote.kind for quote in given.message.quotes] == [kind]
    assert ("did not let me read" in format_body(given)) is (kind == "unread")


@pytest.mark.parametrize(
    ("name", "mime", "kinds", "refused"),
    [
        ("a.PNG", "image/png", ("image",), ""),
        ("a.pdf", "application/pdf", ("image", "document"), ""),
        ("a.pdf", "application/pdf", ("image",), "is a document; here I take a picture"),
        ("a.sh", "application/octet-stream", ("text", "table"), "is a script; here I take a text, a table"),
        ("a.png", "video/mp4", ("image",), "is a video; here I take a picture"),  # it claims to be both
        ("a.png.zip", "", ("image",), "is an archive; here I take a picture"),
        ("noname", "audio/ogg", ("audio",), ""),
        ("noname", "", ("audio",), "is a file of another kind; here I take a sound or voice message"),
        ("noname", "", ("other",), ""),
        ("plan.dwg", "", ("image", ".dwg"), ""),
        ("plan.dxf", "", (".dwg",), "is a file of another kind; here I take .dwg"),
        ("plan.exe", "", (), ""),
    ],
)
def test_a_file_of_another_kind_is_refused_in_words(name: str, mime: str, kinds: tuple[str, ...], refused: str) -> None:
    assert UploadsConfig(kinds).refusal(Attachment("ref", name, mime)) == refused


async def test_a_refused_kind_is_not_fetched(desk: Desk) -> None:
    upload = await desk.take("run.sh", b"rm", kinds=("image",))
    assert upload.refused == "is a script; here I take a picture"
    assert desk.stored() == []
    [note] = await desk.said()
    assert "I could not take run.sh: is a script; here I take a picture." in note
