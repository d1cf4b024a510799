"""Texts that all platforms share: progress lines, hints below questions, answers to clicks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar

from agent.blocks import ALLOW_HERE, ALWAYS_ALLOW, APPROVE, DENY, Ask
from agent.messages import Author, Message, Thread
from catalogue import LANGUAGES, N_, _, default_language, format_duration, use_language

NOT_STORED = N_(
    "I can't save messages right now. Yours isn't lost: I'll pick it up by myself, no need to send it again."
)
NOT_YOURS = N_("Only the person I asked can answer.")
ANSWERED = N_("This is already answered or closed.")
DECIDED = {
    APPROVE: N_("✅ Approved by {name}"),
    DENY: N_("❌ Denied by {name}"),
    ALLOW_HERE: N_("✅ Allowed in this conversation by {name}"),
    ALWAYS_ALLOW: N_("✅ Always allowed by {name}"),
}
_find_chosen: ContextVar[Callable[[Thread, str], str]] = ContextVar("find_chosen", default=lambda thread, person: "")
REPEAT_MARK = N_("↻ You may have seen this already:")  # before a message that may be visible twice


def use_chosen_languages(find: Callable[[Thread, str], str]) -> None:
    """Let `find` return what a person, or else their chat, chose; "" for nothing. Tasks that start later inherit it."""
    _find_chosen.set(find)


def language_of(thread: Thread, author: Author) -> str:
    """Return the language of a person in a thread: the chosen one, else that of their platform."""
    return _find_chosen.get()(thread, author.id) or default_language(author.language)


def text_for(message: Message, sentence: str) -> str:
    """Return a sentence in the language of a message's author."""
    with use_language(language_of(message.thread, message.author)):
        return _(sentence)


def shorten(text: str, max_chars: int) -> str:
    """Return the text on one line, cut to `max_chars` characters."""
    text = " ".join(text.split())
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def remove_bot_mention(text: str) -> str:
    """Return the text without each "\\0", which stands for a mention of the bot, and the punctuation after it."""
    return re.sub(r"(?m)^\0[ \t,:，：]*|(?<![ \t])[ \t]*\0|\0", "", text).strip()


def option_in_full(label: str, index: str, text: str) -> str:
    """Return the option that a button shows. A label that was cut stands by its number in the text of the question."""
    if not label.endswith("…") or not index.isdecimal():
        return label
    listed = re.findall(rf"(?m)^{int(index) + 1}\. (.+)$", text)
    return next((full for full in reversed(listed) if full.startswith(label[:-1].rstrip())), label)


def expiry_note(ask: Ask, when: str = "") -> str:
    """Return when a question expires, "" for never. `when` is the time as the platform shows it to each reader."""
    if not ask.hours:
        return ""
    when = when or expiry_in_hours(ask)
    if ask.approval:
        return _("_Expires {when}: without an answer it counts as denied._", when=when)
    return _("_Expires {when}: then I'll continue without an answer._", when=when)


def expiry_in_hours(ask: Ask) -> str:
    """Return when a question expires, seen from the time when it was asked."""
    return _("in {time}", time=format_duration(3600 * ask.hours))


def choice_line(option: str, name: str) -> str:
    """Return what replaces the buttons of an answered question, in the language of the buttons of an approval."""
    for language in LANGUAGES:
        with use_language(language):
            for shown, line in DECIDED.items():
                if option == _(shown):
                    return _(line, name=name)
    return f"✓ {option} ({name})"


def question_hint(ask: Ask, *, has_buttons: bool, max_label_chars: int, when: str = "") -> str:
    """Return the text below a question: the options that its buttons do not show in full, how to answer, and until
    `when`."""
    lines = []
    if not has_buttons or any(len(option) > max_label_chars for option in ask.options):
        lines += numbered_options(ask.options)
    if ask.options and ask.free_text:
        lines += ["", _("_Choose, or answer in your own words._") if has_buttons else _("_Answer in your own words._")]
    elif ask.options and not has_buttons:
        lines += ["", _("_Answer with one of these._")]
    lines += ["", note] if (note := expiry_note(ask, when)) else []
    return "\n".join(lines).strip()


def numbered_options(options: Sequence[str]) -> list[str]:
    """Return a line for each option, to be answered by its number."""
    return [f"{number}. {' '.join(option.split())}" for number, option in enumerate(options, 1)]


def with_options(text: str, options: Sequence[str]) -> str:
    """Return the text of a question that cannot show buttons, with its options unless it lists them already."""
    lines = numbered_options(options)
    return text if all(line in text for line in lines) else "\n".join([text, "", *lines])


def feedback_of(emoji: str) -> str:
    """Return the feedback that a reaction gives, whatever its skin tone: "up", "down", or "" for another emoji."""
    return {"👍": "up", "👎": "down"}.get(emoji.rstrip("🏻🏼🏽🏾🏿\ufe0f"), "")
