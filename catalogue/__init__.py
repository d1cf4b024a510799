"""Every sentence to people, in the language of its reader.

The sentences stand in the code, in English, inside `_`, `ngettext` or `N_`; `zh.po` has the Chinese ones. The bot sets
the language where something for a person begins: a turn, a command, a row of the outbox. Log lines, prompts and the
documentation are English.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, reduce
from importlib.resources import files

from catalogue.po_file import read_po

LANGUAGES = {"en": "English", "zh": "简体中文"}  # code → its own name
_language: ContextVar[str] = ContextVar("language", default="")
_configured: ContextVar[str] = ContextVar("configured_language", default="")


def _(sentence: str, /, **values: object) -> str:
    """Return a sentence in the current language, with `values` in place of its named placeholders."""
    text = _translations(current_language()).get(sentence, sentence)
    return text.format(**{name: _localized_value(value) for name, value in values.items()}) if values else text


def ngettext(one: str, many: str, n: int, /, **values: object) -> str:
    """Return the sentence for the number `n`, which is its placeholder `{n}`."""
    text = _translations(current_language()).get(one) or (one if n == 1 else many)
    return text.format(n=n, **values)


def N_(sentence: str) -> str:
    """Mark a constant as a sentence. It is returned as it is: pass it to `_` where a person will read it."""
    return sentence


def every_translation(sentence: str) -> set[str]:
    """Return a sentence in every language, to recognise the label of a button."""
    return {_translations(language).get(sentence, sentence) for language in LANGUAGES}


def list_items(items: Iterable[str]) -> str:
    """Return a list of items as part of a sentence."""
    return _(", ").join(items)


def join_sentences(*sentences: LazyText | str) -> str:
    """Return the sentences that are not empty as one text. Chinese has no space between them."""
    return localized(join_lazily(*sentences))


def format_duration(seconds: float) -> str:
    """Return a duration such as "2 h 5 min"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return _("{hours} h {minutes} min", hours=hours, minutes=minutes) if minutes else _("{hours} h", hours=hours)
    if minutes:
        return _("{minutes} min {seconds} s", minutes=minutes, seconds=rest) if rest else _("{n} min", n=minutes)
    return _("{n} s", n=rest)


# ------------------------------------------------------------ sentences whose reader is not known yet


@dataclass(frozen=True, slots=True, init=False)
class LazyText:
    """A marked sentence (`N_`) and its values. `localized` and `_` translate it where a person will read it; `str` is
    English, for logs and the model. Values may be lazy texts or errors themselves, or lists of items."""

    sentence: str
    values: Mapping[str, object]

    def __init__(self, sentence: str, /, **values: object) -> None:
        object.__setattr__(self, "sentence", sentence)
        object.__setattr__(self, "values", values)

    def __str__(self) -> str:
        with use_language("en"):
            return _(self.sentence, **self.values)


class LocalizedError(Exception):
    """An error that people read, in their language: a marked sentence and its values, as in LazyText, or one."""

    def __init__(self, sentence: LazyText | str, /, **values: object) -> None:
        super().__init__(sentence, values)
        self.text = LazyText(sentence, **values) if isinstance(sentence, str) else sentence

    def __str__(self) -> str:
        return str(self.text)


def localized(text: object) -> str:
    """Return a lazy text or an error in the current language, and anything else as its `str`."""
    lazy = text.text if isinstance(text, LocalizedError) else text
    return _(lazy.sentence, **lazy.values) if isinstance(lazy, LazyText) else str(lazy)


def join_lazily(*sentences: LazyText | str) -> LazyText:
    """Return the sentences that are not empty, lazy or not, as one lazy text."""
    given = [LazyText("{text}", text=sentence) for sentence in sentences if sentence] or [LazyText("")]
    return reduce(lambda first, more: LazyText(N_("{first} {more}"), first=first, more=more), given)


def _localized_value(value: object) -> object:
    if isinstance(value, list | tuple):
        return list_items(map(localized, value))
    return localized(value) if isinstance(value, LazyText | LocalizedError) else value


# ------------------------------------------------------------ the current language


def match_language(tag: str) -> str:
    """Return the language of the catalogue for a tag such as "zh-Hans-CN" or "en_US.UTF-8"; "" for another one."""
    code = tag.replace("_", "-").partition("-")[0].lower()
    return code if code in LANGUAGES else ""


def preferred_language(accepted: str) -> str:
    """Return the language of the catalogue that an Accept-Language header prefers (RFC 9110 §12.5.4); "" for none."""
    choices = [part.strip().partition(";q=") for part in accepted.split(",")]
    weighted = sorted(choices, key=lambda choice: choice[2] or "1", reverse=True)
    return next((language for tag, _q, _weight in weighted if (language := match_language(tag))), "")


def current_language() -> str:
    """Return the language of what is said now."""
    return _language.get() or default_language()


def default_language(hint: str = "") -> str:
    """Return the language of people who chose none: the configured one, else the platform's `hint`, else English."""
    return _configured.get() or match_language(hint) or "en"


def configure_language(language: str) -> None:
    """Set the default language of this task and of the tasks that it will start; "" for what platforms report."""
    _configured.set(language)
    _language.set("")


def set_language(language: str) -> None:
    """Set the language of this task and of the tasks that it will start."""
    _language.set(language)


@contextmanager
def use_language(language: str) -> Iterator[None]:
    """Set the language for a block of code."""
    token = _language.set(language)
    try:
        yield
    finally:
        _language.reset(token)


@cache
def _translations(language: str) -> dict[str, str]:
    """Return the translations by English sentence; none for English itself."""
    if language == "en":
        return {}
    return read_po(files(__package__).joinpath(f"{language}.po").read_text("utf-8"))
