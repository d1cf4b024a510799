"""Decide whether a newer fact says again, or changes, what an older one says.

Two facts are of one matter if they agree but for what changes: negations, numbers, weekdays, months and fillers. The
newer of them holds. Facts that differ in a name, or in the number of the thing they are about, are both true.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from agent.memory.words import CJK_RUN, REPORTING_WORDS, STOP_WORDS, pairs_of, stem

MIN_AGREEMENT = 0.8  # share of the words of both facts, where one has all words of the other
MAX_FACT_CHARS = 1000  # of a fact that is compared
MAX_PARTICLE_CHARS = 2  # of kana after a word

# Words that deny, and those that only say that something is new: a fact with and without them is of one matter.
_NEGATIONS = """never cannot without stop stopped longer anymore more any instead now anyway dont doesnt wont
nicht kein keine keinen keinem keiner keines nie niemals ohne mehr ab sofort jetzt nun bitte
ne pas plus jamais sans aucun aucune désormais nunca sin ningún ninguna ya más não nem sem mais
niet geen nooit meer zonder non mai più senza не нет никогда без больше nie bez już"""
_ARTICLES = """ein eine einen einem einer eines der die das den dem des und am im um le la les l un une des du el los
las una uno lo il gli o os as um uma het een de"""
IGNORED_WORDS = STOP_WORDS | REPORTING_WORDS | {*_NEGATIONS.split(), *_ARTICLES.split()}
_WEEKDAYS = """monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag
samstag sonnabend sonntag lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles jueves viernes
sábado domingo"""
_MONTHS = """january february april june july august september october november december januar februar märz mai
juni juli oktober dezember"""
_NUMBERS = """one two three four five six seven eight nine ten eleven twelve fifteen twenty thirty sixty hundred
first second third once twice half eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf vierzehn fünfzehn
zwanzig dreißig sechzig hundert"""
_VALUE_OF = {
    word: kind
    for kind, words in (("weekday", _WEEKDAYS), ("month", _MONTHS), ("number", _NUMBERS))
    for word in words.split()
}
# What is known by its number. At the beginning of a fact, the number says what the fact is about.
_NUMBERED = """room ticket issue order invoice customer client contract account project team group server host
printer machine sprint release phase step chapter gate desk raum zimmer auftrag bestellung rechnung kunde vertrag konto
projekt gruppe drucker maschine halle schritt kapitel tor platz"""
NUMBERED_WORDS = frozenset(_NUMBERED.split())
_TOKEN = re.compile(r"[^\W_]+(?:['.:/@+-][^\W_]+|,\d+)*")
_CJK_NUMBERED = re.compile(
    r"^\W*(?:第?\d{1,12}(?:号|號|番)\w{1,2}|(?:会议室|會議室|会議室|订单|訂單|客户|客戶|顧客|房间|服务器|项目|工单|发票|合同|チケット"
    r"|部屋|サーバー|注文|請求書|プロジェクト|チーム)\s?[#第]?\d{1,12})"
)
_CJK_WEEKDAY = re.compile(r"(?:周|週|星期|礼拜|禮拜)[一二三四五六日天末]|[月火水木金土日]曜日?")
_CJK_NUMBER = re.compile(r"[〇零一二三四五六七八九十百千万两兩]+")
_CHINESE_FILLERS = re.compile(
    "不需要|不可以|没有|沒有|不能|不会|请勿|以后|现在|已经|可以|需要|[不没沒别別勿無无请請先再了要也还用]"
)
_JAPANESE_FILLERS = re.compile("不要|必要|不可|可能")
_HAS_KANA = re.compile("[\u3040-\u30ff]")
_KANA = re.compile("(?<=[\u30a0-\u30ff\u3400-\u9fff])[\u3040-\u309f]+|もう")
_INFLECTIONS = re.compile(
    "ない|なく|なかっ|ませ|ます|ました|です|でし|した|する|てい|くださ|だった|あり|られ|いい|いけ|なら"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """What stays of a fact when it changes: its words, without the values, whose kinds are in `kinds`."""

    words: frozenset[str]
    values: frozenset[str]
    kinds: frozenset[str]


def is_update(old: str, new: str) -> bool:
    """Return whether a newer fact says again or changes what an older one says, so that only the newer one holds."""
    left, right = frame_of(old), frame_of(new)
    if not left.words or not right.words or (left.kinds and right.kinds and not left.kinds & right.kinds):
        return False
    contained = left.words <= right.words or right.words <= left.words
    return contained and len(left.words & right.words) >= MIN_AGREEMENT * len(left.words | right.words)


def is_same(old: str, new: str) -> bool:
    """Return whether two facts have the same words, so that the newer one only confirms the older one."""
    return _TOKEN.findall(_normalize(old)) == _TOKEN.findall(_normalize(new))


@lru_cache(maxsize=4096)  # a turn asks for each memory that it finds
def frame_of(text: str) -> Frame:
    """Return the frame of a fact."""
    text = _normalize(text)
    numbered = _CJK_NUMBERED.match(text)
    kinds: set[str] = {kind for kind, pattern in _CJK_VALUES if pattern.search(text)}
    values = {found for _, pattern in _CJK_VALUES for found in pattern.findall(text)}
    words: set[str] = set()
    before = ""
    for token in _tokens(text):
        kind = "" if numbered and token in numbered[0] else _kind_of(token)
        is_subject = not words or (len(words) == 1 and before in NUMBERED_WORDS)
        if kind == "number" and is_subject and (before in NUMBERED_WORDS or not token[0].isdigit()):
            kind = ""
        if kind:
            kinds.add(kind)
            values.add(token)
        elif token not in IGNORED_WORDS and not token.endswith("n't"):
            words.add(stem(token))
            before = token
    return Frame(frozenset(words), frozenset(values), frozenset(kinds))


_CJK_VALUES = (("weekday", _CJK_WEEKDAY), ("number", _CJK_NUMBER))


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text[:MAX_FACT_CHARS]).casefold().replace("’", "'")


def _kind_of(token: str) -> str:
    """Return which kind of value a word is; "" for a word that is none."""
    if any(character.isdigit() for character in token):
        return "number"
    return _VALUE_OF.get(token) or _VALUE_OF.get(token.removesuffix("s"), "")


def _tokens(text: str) -> list[str]:
    """Return the words in their order; Chinese and Japanese as pairs, without values, fillers and inflections."""
    is_japanese = _HAS_KANA.search(text) is not None
    return _TOKEN.findall(CJK_RUN.sub(lambda run: f" {' '.join(_cjk_words(run[0], is_japanese))} ", text))


def _cjk_words(run: str, is_japanese: bool) -> Iterator[str]:
    for _, pattern in _CJK_VALUES:
        run = pattern.sub(" ", run)
    fillers = _JAPANESE_FILLERS if is_japanese else _CHINESE_FILLERS
    run = _KANA.sub(_kept_kana, fillers.sub("", run)) if is_japanese else fillers.sub("", run)
    for piece in run.split():
        yield from pairs_of(piece)


def _kept_kana(run: re.Match[str]) -> str:
    """Return a run of kana after a word without its particle; nothing for an inflection."""
    return " " if len(run[0]) <= MAX_PARTICLE_CHARS or _INFLECTIONS.search(run[0]) else f" {run[0][1:]} "
