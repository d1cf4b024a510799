"""Find out what the model should know about an upload beside its name: what it is, and what it shows."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from agent.core.pictures import FOLDER, MAX_BYTES, is_picture, scale_picture
from agent.parsing.child import ParserFailed, ParserProcess
from agent.settings.sections import VoiceConfig
from agent.spending import Meter
from agent.turn.transcription import NotTranscribed, is_audio, transcribe
from agent.user_input import UploadedFile
from sandbox.base import WORKSPACE, SandboxError, SandboxHandle
from sandbox.disk import safe_files
from sandbox.disk.file_threads import run_file_work

log = logging.getLogger(__name__)

BLIND = "a picture, which you cannot see"
VIDEO_SUFFIXES = frozenset((".mp4", ".m4v", ".mov", ".mkv", ".avi", ".mpg", ".mpeg", ".3gp"))
VIDEO = "video; `ffmpeg -ss SECONDS -i FILE -frames:v 1 FRAME.png` takes a frame, and view_image shows it"


@dataclass(frozen=True, slots=True)
class UploadInspector:
    """Inspects the uploads of one turn. `shows_pictures`: at least one model sees them. `parser` is the service's."""

    sandbox: SandboxHandle
    shows_pictures: bool = False
    voice: VoiceConfig = VoiceConfig()
    meter: Meter = field(default_factory=Meter)
    parser: ParserProcess = field(default_factory=ParserProcess)

    async def inspect(self, upload: UploadedFile, file: BinaryIO, folder: Path) -> UploadedFile:
        """Return the upload with its details. `file` has its bytes, `folder` is the conversation's."""
        if is_picture(upload.name):
            return await self._show_picture(upload, file, folder)
        if is_audio(upload.name):
            return await self._transcribe(upload, file)
        if Path(upload.name).suffix.lower() in VIDEO_SUFFIXES:
            return replace(upload, about=VIDEO if self.sandbox.runs_commands else "video, which you cannot see")
        from agent.parsing.documents import (  # which load long, and later than the channels
            describe_document,
            is_document,
        )

        if self.sandbox.runs_commands and is_document(upload.path):
            try:
                return replace(upload, about=await describe_document(await self.sandbox.get(), upload.path))
            except SandboxError as error:  # the model learns it when it reads the file
                log.info("upload.not_described reason=%s", error)
        return upload

    async def _show_picture(self, upload: UploadedFile, file: BinaryIO, folder: Path) -> UploadedFile:
        """Store the picture scaled, for `agent.policies.pictures`."""
        if not self.shows_pictures:
            return replace(upload, about=BLIND)
        if upload.size > MAX_BYTES:
            return replace(upload, about=f"a picture of more than {MAX_BYTES >> 20} MB, which is not shown")
        try:
            read = partial(run_file_work, _read_from_start, file)
            picture = await scale_picture(self.parser, read, owner=self.meter.root)
            rel = f"{FOLDER}/{picture.name}"
            await run_file_work(safe_files.write_file, folder / "workspace", rel, picture.data)
        except (ParserFailed, SandboxError) as error:
            return replace(upload, about=f"a picture that cannot be shown: {error}")
        return replace(upload, about=f"picture, {picture.width}×{picture.height}", picture=f"{WORKSPACE}/{rel}")

    async def _transcribe(self, upload: UploadedFile, file: BinaryIO) -> UploadedFile:
        """Add the words of a voice message; the chat sees them as a quote."""
        if not self.voice.base_url:
            return replace(upload, about="audio, which you cannot hear")
        try:
            words = await transcribe(self.voice, upload.name, await run_file_work(_read_from_start, file), self.meter)
        except NotTranscribed as error:
            log.warning("voice.not_transcribed name=%s reason=%s", upload.name, error.__cause__ or error)
            return replace(upload, about="audio, which could not be transcribed", notice=str(error))
        if not words:
            return replace(upload, about="audio without words")
        quote = "\n".join(f"> {line}" for line in words.splitlines())
        return replace(upload, about="audio, transcribed", transcript=words, notice=quote)


def _read_from_start(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()
