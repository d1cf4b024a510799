"""Tell passwords, keys and card numbers, which are never stored, from the names and numbers of daily work."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from itertools import pairwise

from agent.token_patterns import SECRET_PATTERNS

MAX_CHARS = 2000  # of a text that is judged; no message that is read for facts is longer
MIN_ENTROPY = 3.5  # bits per character of a random key
MIN_CHANGES = 4  # from letters to digits and back, in a random key
AFTER_CHARS = 60  # behind the name of a secret, where the secret stands
HASH_CHARS = frozenset({40, 64})  # of git and of images, in hexadecimal digits: no secrets
_NAME = re.compile(
    r"(?<![^\W_])(?:pass(?:word|phrase|code)s?|passwd|pwd|(?:api|secret|access|private)[ _-]?(?:keys?|tokens?)|secret"
    r"|token|kennwort|passwort|zugangsdaten|contraseña|mot de passe|senha|пароль)(?![^\W_])"
    r"|密码|密碼|口令|密钥|パスワード|パスコード|合言葉"
)
_PIN_NAME = re.compile(
    r"(?<![^\W_])(?:pins?|tan|cvv|cvc|puk|otp|geheimzahl)(?![^\W_])|验证码|pin码|暗証番号|口令|密码|密碼|パスコード"
)
_PIN = re.compile(r"(?<!\d)\d{3,8}(?!\d)")
_SURE = re.compile(r"^[^:=：\n]{0,40}[:=：]|^\W{0,3}(?:lautet|heißt|是|为|為|は|設定は)")  # full-width too
_IS = re.compile(r"^\W{0,3}(?:is|ist|es|è|é|est)\s+")
_WORD = re.compile(r"[!-~]{4,}")
_STATE_WORDS = """required void expired wrong unknown secret stored needed reset in on the not too at changed due weak
strong kept managed shared set saved always only never still correct invalid missing optional now and for with what that
this abgelaufen falsch unbekannt nötig geheim gespeichert nicht immer noch im bei"""
_STATES = frozenset(_STATE_WORDS.split())  # what is said of a password besides itself
_SEGMENT = re.compile(r"[A-Za-z0-9+]{20,}")
_DIGITS = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])")
_CARD = re.compile(r"3[47]|4|5[1-5]|2[2-7]|6")


def looks_secret(text: str) -> bool:
    """Return whether a text contains what looks like a password, a PIN, a key or the number of a payment card."""
    text = unicodedata.normalize("NFKC", text[:MAX_CHARS])
    return (
        any(pattern.search(text) for pattern in SECRET_PATTERNS)
        or any(map(_is_key, _SEGMENT.findall(text)))
        or any(map(_is_card, _DIGITS.findall(text)))
        or any(_begins_with_secret(name, rest) for name, rest in _behind(_NAME, text))
        or any(_PIN.search(rest[: AFTER_CHARS // 2]) for _, rest in _behind(_PIN_NAME, text))
    )


def _behind(name: re.Pattern[str], text: str) -> list[tuple[str, str]]:
    """Return each name of a secret, and what stands behind it, as it is written."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters have a longer lower case
        text = lowered
    return [(found[0], text[found.end() : found.end() + AFTER_CHARS]) for found in name.finditer(lowered)]


def _begins_with_secret(name: str, rest: str) -> bool:
    """Return whether a text that follows a name such as "password" goes on with one."""
    sure, said = _SURE.match(rest), _IS.match(rest)
    connected = sure or said
    words = [word.strip("\"'`.,;()") for word in _WORD.findall(rest[connected.end() :] if connected else rest)]
    if any(_is_mixed(word) for word in words[: 1 if connected else 4]):
        return True
    if not connected or not words or ("token" in name and words[0].isdigit()):
        return False
    return bool(sure) or (len(words) == 1 and words[0].lower() not in _STATES)


def _is_mixed(word: str) -> bool:
    """Return whether a word is no word: it has letters, and digits or signs that no word has."""
    has_letter = any(character.isalpha() for character in word)
    has_digit = any(character.isdigit() for character in word)
    has_sign = any(character in "!#$%^&*~" for character in word.rstrip("!"))
    return has_letter and (has_digit or has_sign)


def _is_key(segment: str) -> bool:
    """Return whether a run of letters and digits is a random key, not words, a number or a hash."""
    if len(segment) in HASH_CHARS and not set(segment) - set("0123456789abcdef"):
        return False
    kinds = ["d" if character.isdigit() else "l" for character in segment]
    changes = sum(one != other for one, other in pairwise(kinds))
    counts = Counter(segment).values()
    entropy = -sum(count / len(segment) * math.log2(count / len(segment)) for count in counts)
    return changes >= MIN_CHANGES and entropy >= MIN_ENTROPY


def _is_card(number: str) -> bool:
    """Return whether a number has the beginning and the check digit of a payment card (ISO/IEC 7812)."""
    digits = [int(character) for character in number if character.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return bool(_CARD.match(number)) and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
