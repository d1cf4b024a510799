"""Carry what a person gives the agent: a message with its files."""

from __future__ import annotations

from dataclasses import dataclass

from agent.messages import Message


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file of a message: its path for the agent, or why it was refused."""

    name: str
    path: str = ""  # in the sandbox, "" if refused
    size: int = 0  # bytes
    refused: str = ""  # e.g. "exceeds the 20 MB download limit"
    about: str = ""  # what it is, such as "PDF, 12 pages"
    picture: str = ""  # the path of the scaled picture for models that see
    transcript: str = ""  # the words of a voice message
    notice: str = ""  # what the chat is told about it


@dataclass(frozen=True, slots=True)
class UserInput:
    """One message for the agent, with its files."""

    message: Message
    uploads: tuple[UploadedFile, ...] = ()
