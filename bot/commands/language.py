"""The command /language: show or choose the language of a person or a chat."""

from __future__ import annotations

from collections.abc import Callable

from agent.blocks import command_hint
from agent.messages import Message, Thread
from bot.database.database import Execute
from bot.storage import languages
from catalogue import LANGUAGES, _, current_language, list_items, match_language

AUTO, HERE = "auto", "here"
CHOICES = " | ".join([*LANGUAGES, AUTO])


def change_language(
    execute: Execute,
    message: Message,
    words: str,
    note: Callable[[Thread, str, str], None],
    *,
    may_choose_for_all: bool,
) -> str:
    """Store the language that `words` name ("zh", "auto", "en here"), `note` it, and return the answer in it."""
    wanted, _space, place = words.lower().partition(" ")
    names = {name.lower(): code for code, name in LANGUAGES.items()}
    code = "" if wanted == AUTO else names.get(wanted) or match_language(wanted)
    if not (code or wanted == AUTO) or place.strip() not in ("", HERE):
        return _describe_choices()
    if place and not may_choose_for_all:
        return _("Only an operator can choose the language of a group.")
    chosen = (message.thread, languages.CHAT if place else message.author.id, code)
    languages.choose_language(execute, *chosen)
    note(*chosen)
    with languages.speak_to(execute, message.thread, message.author):
        if place:
            name = LANGUAGES[code or current_language()]
            return _("From now on I speak {language} in this chat, unless somebody chose another one.", language=name)
        return _("From now on I speak {language} with you.", language=LANGUAGES[current_language()])


def _describe_choices() -> str:
    choices = [f"`{command_hint(f'language {code}')}` ({name})" for code, name in LANGUAGES.items()]
    return _(
        "I'm speaking {language}. Choose another language for yourself with {choices}, or let me choose with `{auto}`."
        " Add `here` to choose for everyone in this chat.",
        language=LANGUAGES[current_language()],
        choices=list_items(choices),
        auto=command_hint(f"language {AUTO}"),
    )
