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
never over instead rather also only called named 用户 ユー ーザ ザー Nutzer Benutzer"""
REPORTING_WORDS = frozenset(_REPORTING_WORDS.casefold().split())
_ABSOLUTE_WORDS = """always never only instead before after until unless except immer nie niemals nur stattdessen vor
nach bis außer two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen half
twice noon midnight zwei drei vier fünf sechs sieben acht neun zehn elf zwölf zwanzig hundert tausend"""
_ABSOLUTE = frozenset(_ABSOLUTE_WORDS.split())
_NUMERAL = re.compile(r"[〇二三四五六七八九十百千万萬亿億两兩]")
_GIVING = re.compile(
    r"\b(?:send|sent|forward|shar|e?mail|giv|gave|pay|paid|report|post|cop|tell|told|show|upload|deliver|grant|go|hand)"
    r"(?:e|es|s|y|ies|ed|ing)?\b",
    re.IGNORECASE,
)
_RECIPIENT = re.compile(
    r"\b(?:to|cc|with)\s+(?:(?:the|a|an|my|our|your|their|his|her)\s+)?(\w+)((?:\s*(?:,|and|or|&)\s+\w+)*)",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:not|no|never|without|nobody|none|nothing|neither|nor|cannot|avoid|stop|over|rather|instead|nicht|nie|niemals|ohne"
    r"|(?:ignor|skip|refus|reject|forbid|hid|delet|remov|disabl|exclud|suppress)(?:e|es|s|ed|ing|ping|ped|den)?"
    r"|statt|kein\w*|non?|pas|jamais|sans|nunca|sin)\b|n['’]t\b|[不没沒别別勿无無非未莫ぬず]|ない|ません",
    re.IGNORECASE,
)
_REPORTED = re.compile("用户|希望|喜欢|偏好|想要|需要|使用|要求|提到|ユーザー")  # what an extractor adds
_NAME_RUN = re.compile(
    r"[\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff]{2,}"
)  # Han and Katakana, which names are written in
_TOKEN = re.compile(r"[^\s,;()<>\"“”]+")
_ADDRESS = re.compile(r"[@/]|\w\.\w")  # what makes a token one
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|[\n。！？；，]+")


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
    """Return whether a person wrote `quote`, which has every name, number and address of `fact`, and whether its
    sentences have enough of the other words and deny what the fact denies.

    It keeps out what a model made up, or took from a file, a page or another person.
    """
    told, cited = _plain(said), _plain(quote)
    if not cited or cited not in told:
        return False
    around = " ".join(_sentences_with(cited, told, said))
    available = {stem(word) for word in content_words(around)}
    wanted = {stem(word) for word in content_words(fact) if word not in REPORTING_WORDS}
    enough = bool(wanted) and len(wanted & available) >= MIN_SUPPORT * len(wanted)
    return enough and _covers(cited, fact) and bool(_NEGATION.search(around)) is bool(_NEGATION.search(fact))


def _sentences_with(cited: str, told: str, said: str) -> list[str]:
    """Return the sentences of a message, plain, of which the quote has a part. `told` is the message, plain."""
    sentences = [plain for each in _SENTENCE_END.split(said) if (plain := _plain(each))]
    begins, at = [], 0
    for each in sentences:
        at = told.index(each, at)
        begins.append(at)
        at += len(each)
    start = told.index(cited)
    pairs = zip(sentences, begins, strict=True)
    return [each for each, begin in pairs if begin < start + len(cited) and start < begin + len(each)]


def _covers(cited: str, fact: str) -> bool:
    """Return whether a quote has every address, number, name, recipient and absolute word of a fact.

    Chinese and Japanese have no capitals: there, no two signs in a row may be missing.
    """
    words = {stem(word) for word in re.findall(r"\w+", cited)}
    for address in _TOKEN.findall(fact):
        if _ADDRESS.search(address) and _plain(address).strip(".'") not in cited:
            return False
    for found in re.finditer(r"\w+", unicodedata.normalize("NFKC", fact)):
        word = found[0].casefold()
        is_verb = found.start() == 0 and word.endswith(("s", "ed", "ing", "e", "en", "t"))
        is_name = found[0][0].isupper() and word not in REPORTING_WORDS | STOP_WORDS and not is_verb
        needed = is_name or word in _ABSOLUTE or any(map(str.isdigit, word))
        if needed and stem(word) not in words:
            return False
    chains = _RECIPIENT.findall(fact) if _GIVING.search(fact) else []
    recipients = {word for chain in chains for word in re.findall(r"\w+", " ".join(chain).casefold())} - STOP_WORDS
    if not {stem(each) for each in recipients} <= words or not set(_NUMERAL.findall(fact)) <= set(cited):
        return False
    runs = _NAME_RUN.findall(_REPORTED.sub(" ", unicodedata.normalize("NFKC", fact)))
    return all(pair[0] in cited or pair[1] in cited for run in runs for pair in pairs_of(run))


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
