"""The words of a text, for the full-text index, for comparing facts and for tracing them to what a person wrote."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

CJK_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_WORD = re.compile(r"[\w']+")
_QUOTED = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(?s:.*?)(?:^[ \t]*\1[ \t]*$|\Z)|^[ \t]*>[^\n]*$", re.MULTILINE)
MAX_QUERY_WORDS = 40
MAX_OWN_CHARS = 2000  # of one message; a longer text is pasted material
MIN_SUPPORT = 0.5  # share of a fact's words that its person must have written
_STOP_WORDS = """a an the and or of to in on at for with by from as is are was were be been do does did has have had
what when where who whom whose which why how that this these those it its he she they his her their him them i you we my
your our me us so if not no about into than then there can could would will should may might any some all please
什么 怎么 哪里 哪个 哪些 多少 时候 么时 是什 有什 是谁 谁是 为什 我们 你们 他们 我的 你的 的是 了吗 么样
です ます すか ませ せん まし した して する ない なか かっ った ある あり りま いる いま
こと もの どこ こで こに なに いつ から まで ので のは のが には では とは
でき きま てい んで すが くだ ださ さい どの どう うや やっ って"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
# What an extractor adds to the words of a person.
_REPORTING_WORDS = """user person wants want likes like prefers prefer uses use said says asked wishes needs always
never over instead rather also only called named 用户 ユー ーザ ザー"""
REPORTING_WORDS = frozenset(_REPORTING_WORDS.split())


def index_text(text: str) -> str:
    """Return the text for the index: Chinese, Japanese and Korean as overlapping pairs (你好吗 → 你好 好吗)."""
    return CJK_RUN.sub(lambda run: f" {' '.join(pairs_of(run[0]))} ", text)


def pairs_of(run: str) -> list[str]:
    """Return the overlapping pairs of characters of a run."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def content_words(text: str) -> list[str]:
    """Return the different words that carry meaning; if there are none, all words."""
    prepared = index_text(unicodedata.normalize("NFKC", text)).lower()
    found = dict.fromkeys(word for each in _WORD.findall(prepared) if (word := each.strip("'_").removesuffix("'s")))
    return [word for word in found if word not in STOP_WORDS] or list(found)


def own_words(text: str) -> str:
    """Return what a person wrote themselves: without quoted lines and code blocks; "" for a long pasted text."""
    kept = _QUOTED.sub("", text).strip()
    return kept if len(kept) <= MAX_OWN_CHARS else ""


def is_grounded(fact: str, quote: str, said: str) -> bool:
    """Return whether a person wrote `quote`, and enough of the words of `fact` in the same message.

    It keeps out what a model made up, or took from a file, a page or another person.
    """
    told, cited = _plain(said), _plain(quote)
    if not cited or cited not in told:
        return False
    available = {stem(word) for word in content_words(said)}
    wanted = {stem(word) for word in content_words(fact) if word not in REPORTING_WORDS}
    return bool(wanted) and len(wanted & available) >= MIN_SUPPORT * len(wanted)


def find_grounds(fact: str, quote: str, said: Iterable[str]) -> str | None:
    """Return the first message of these that grounds a fact."""
    return next((each for each in said if is_grounded(fact, quote, each)), None)


def plain_subject(text: str) -> str:
    """Return a subject in the form in which subjects are compared."""
    return " ".join(stem(word) for word in content_words(text))


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def stem(word: str) -> str:
    """Cut the endings that English words most often differ by."""
    for ending in ("ing", "ies", "ed", "es", "s", "e"):
        if word.isascii() and word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
