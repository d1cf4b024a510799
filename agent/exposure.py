"""Note what a conversation was exposed to, and say which calls may not carry it out without a question.

Private data, text by strangers and a way out, together, let a stranger's page send a person's file away. So while a
conversation has met the first two, a call that can carry data out asks, unless nobody could have put data into it: an
address that stood verbatim in a person's message, a search result or a page is known, and runs. A search runs if its
words cannot carry private data. Of the addresses of one site that only pages have named, a few run: which of many links
is read says something, too. An address that the model composed from words of the messages asks as soon as there is text
by strangers: what people write may be private.

A word asks if it stood in private material that the conversation has met, unless a person wrote it in a message. So do
words that could encode something: those with digits that neither a person nor a page has named, long ones, and many new
ones. Ordinary words that the model chose run, so that it may search in its own words.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from agent.messages import NOTES, Origin

if TYPE_CHECKING:
    from agent.messages import UserInput


WORD_BYTES = 4
MAX_SAID = 5000  # words of persons, the latest
MAX_LISTED = 5000  # numbers and names with digits of pages, the latest
MAX_PRIVATE = 20_000  # words of private material; with more, each new word asks
MAX_NEW_WORDS = 10  # of a search, which nobody has written
MAX_NEW_CHARS = 24  # of such a word
MIN_DISGUISED_CHARS = 4  # of a word that is looked at backwards, too
MAX_QUERY_CHARS = 200
MAX_TEXT_CHARS = 2_000_000  # of one text that are read
INLINE_CHARS = 20_000  # a longer text is read in a thread

_WORD = re.compile(r"\w+")
_ODD = re.compile(r"[^\w\s.,:;!?'\"()\[\]\-+/&%#@$€£¥·|“”‘’「」《》、，。：；！？（）–—…]")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")  # written without spaces
_SPELLED = re.compile(r"(?:(?<![^\W_])[^\W_](?![^\W_])[\W_]{0,3}){4,}")  # one letter after the other
_YEAR = re.compile(r"(?:19|20)\d\d")
_COMMON = """
a about after all also am an and any are as at be because been before best between but by can compare could did do does
each example find for from get guide had has have he her his how i if in info information into is it its latest list me
more most my new news no not of on one only or other our out over page price search she should site so some than that
the their them then there these they this to top under up us use using vs was we were what when where which who why will
with without would you your
aber alle als am an auch auf aus bei bis das dass dem den der des die ein eine einem einen einer es für hat ich im in
ist kann man mehr mit nach nicht noch nur oder ohne sich sie sind so über um und uns vom von vor war was wenn wer wie
wird wo zu zum zur
au aux avec ce ces comment dans de des du elle en est et il la le les leur mais ne ou par pas pour que qui sans se son
sur un une
con como del el en es las lo los más no para pero por que se sin su una y
什么 怎么 如何 哪些 以及 或者 关于 最新 比较 可以 我们 他们 这个 那个 没有 一个
"""
COMMON = frozenset(_COMMON.split())
_URL_WORDS = frozenset(["http", "https", "www", "com", "org", "net", "html", "htm", "php", "wiki", "docs", "index"])


@dataclass(slots=True)
class MetWords:
    """Digests of the words that a conversation has met: of persons, of pages (with digits only), and private ones."""

    said: dict[bytes, None] = field(default_factory=dict)
    listed: dict[bytes, None] = field(default_factory=dict)
    private: dict[bytes, None] = field(default_factory=dict)

    def add(self, *, said: Collection[bytes], listed: Collection[bytes], private: Collection[bytes]) -> bool:
        """Add words; return whether there were new ones."""
        kinds = ((self.said, said, MAX_SAID), (self.listed, listed, MAX_LISTED), (self.private, private, MAX_PRIVATE))
        added = [_add(known, new, most) for known, new, most in kinds]
        return any(added)

    def carries(self, query: str) -> bool:
        """Return whether a search could carry private data."""
        if len(query) > MAX_QUERY_CHARS or _ODD.search(query):
            return True
        new = 0
        for word in dict.fromkeys(_words(query)):
            digest = _digest(word)
            if word in COMMON or digest in self.said or _YEAR.fullmatch(word):
                continue
            if digest in self.private:
                return True
            if digest in self.listed:
                continue
            new += 1
            if len(self.private) >= MAX_PRIVATE or _has_digits(word) or len(word) > MAX_NEW_CHARS:
                return True
        return new > MAX_NEW_WORDS

    def repeats(self, url: str) -> bool:
        """Return whether an address has a word of the messages that no address has, or a word that may encode one."""
        if not self.said:
            return False
        text = unquote(url)
        spelled = [re.sub(r"[\W_]", "", found[0]) for found in _SPELLED.finditer(text.casefold())]
        for word in dict.fromkeys([*_words(text), *spelled]):
            if word in COMMON or word in _URL_WORDS or _digest(word) in self.listed or _YEAR.fullmatch(word):
                continue
            if (
                _has_digits(word)
                or len(word) > MAX_NEW_CHARS
                or any(_digest(each) in self.said for each in _forms(word))
            ):
                return True
        return False

    def copy(self) -> MetWords:
        """Return the present state."""
        return replace(self, said=dict(self.said), listed=dict(self.listed), private=dict(self.private))


async def digest_words(text: str, *, with_digits: bool = False) -> list[bytes]:
    """Return the digests of the words of a text; `with_digits`: of those that have digits."""
    if len(text) <= INLINE_CHARS:
        return _word_digests(text, with_digits)
    return await asyncio.to_thread(_word_digests, text, with_digits)


def _word_digests(text: str, with_digits: bool) -> list[bytes]:
    words: Iterable[str] = dict.fromkeys(_words(text[:MAX_TEXT_CHARS]))
    return [_digest(word) for word in words if not with_digits or _has_digits(word)]


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case; of a script without spaces, each two signs that follow each other."""
    for found in _WORD.finditer(text.casefold()):
        word, at = found[0], 0
        for wide in _WIDE.finditer(word):
            if plain := word[at : wide.start()]:
                yield plain
            signs, at = wide[0], wide.end()
            yield from (signs[n : n + 2] for n in range(max(1, len(signs) - 1)))
        if plain := word[at:]:
            yield plain


def _forms(word: str) -> Iterator[str]:
    """Yield a word, and what it may be a slight disguise of: backwards, or with a letter or two around it."""
    yield word
    if len(word) > MIN_DISGUISED_CHARS:
        yield from (word[::-1], word[1:], word[:-1], word[1:-1])


def _digest(word: str) -> bytes:
    return blake2b(word.encode("utf-8", "surrogatepass"), digest_size=WORD_BYTES).digest()


def _has_digits(word: str) -> bool:
    return any(char.isdigit() or char == "_" for char in word)


def _add(known: dict[bytes, None], new: Collection[bytes], most: int) -> bool:
    added = [each for each in new if each not in known]
    known |= dict.fromkeys(added)
    for old in list(known)[: max(0, len(known) - most)]:
        del known[old]
    return bool(added)


OutwardMode = Literal["allow", "ask-after-untrusted", "ask"]
WayOut = Literal["none", "address", "query", "arguments", "network", "note"]
"""The means by which a call can carry data out: a URL, a search, its arguments, the network of the sandbox, or a note,
which carries the words of strangers into later conversations."""
Brings = Literal["nothing", "pages", "memory", "files", "commands", "everything"]
"""The contents of the result of a call. Files and commands bring what people sent, commands what the network has."""

OUTWARD = "outward"  # in place of a tool: rules and grants about ways out
MAX_KNOWN = 5000  # addresses of a conversation, the latest
MAX_FOUND = 1000  # in one text
MAX_SITE_FETCHES = 9  # of the addresses of one site that only pages have named
FETCHED = b"\0fetched"  # begins the digest that counts such a fetch
MAX_ADDRESS_CHARS = 4000
DIGEST_BYTES = 16
UPLOADS = "/uploads"

_URL = re.compile(r"https?://[^\s<>\"`|\\^{}\x00-\x20\x7f]++", re.IGNORECASE)
_BARE = re.compile(r"[A-Za-z0-9.\-_~/%?&=+:@,;!]++")  # words that may be an address without its scheme
_DOMAIN = re.compile(r"(?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}", re.IGNORECASE)  # possessive groups fail on Python 3.11.2
_NOT_ASCII = re.compile(r"[^\x21-\x7e]")
_TRAILING = ".,;:!?)]}>*_~'"


@dataclass(slots=True)
class Exposure:
    """What a conversation has met, and the addresses that it knows. All that works for it shares this.

    `mode` and `network` are the settings in force. `save` stores what may make calls ask, before the model sees its
    cause. What only lets more calls run is `unsaved` until the next commit of the turn: without it, one more call asks.
    """

    private: bool = False  # data of people and their systems
    untrusted: bool = False  # text by strangers
    files: bool = False  # that people sent
    known: dict[bytes, None] = field(default_factory=dict)  # digests of addresses
    words: MetWords = field(default_factory=MetWords)
    mode: Callable[[], OutwardMode] = lambda: "ask-after-untrusted"
    network: Callable[[], bool] = lambda: False  # the sandbox has one
    save: Callable[[Exposure], Awaitable[None]] | None = None
    unsaved: bool = False

    async def note(
        self,
        *,
        private: bool = False,
        untrusted: bool = False,
        files: bool = False,
        known: Collection[bytes] = (),
        said: Collection[bytes] = (),
        listed: Collection[bytes] = (),
        private_words: Collection[bytes] = (),
    ) -> None:
        """Add what the conversation meets now. Nothing takes it away."""
        new = [each for each in known if each not in self.known]
        asks = any(each not in self.words.private for each in private_words)
        asks = asks or private > self.private or untrusted > self.untrusted or files > self.files
        words = self.words.add(said=said, listed=listed, private=private_words)
        if not (new or words or asks):
            return
        self.private, self.untrusted, self.files = (
            self.private or private,
            self.untrusted or untrusted,
            self.files or files,
        )
        self.known |= dict.fromkeys(new)
        addresses = [each for each in self.known if not each.startswith(FETCHED)] if len(self.known) > MAX_KNOWN else []
        for old in addresses[: max(0, len(self.known) - MAX_KNOWN)]:
            del self.known[old]
        self.unsaved = True
        if self.save and asks:
            await self.save(self)

    async def note_inputs(self, inputs: Iterable[UserInput]) -> None:
        """Note what messages bring: files and quotes are private, and strangers' words those of bots and quotes, but
        for what people of the team wrote, who could have written it to the agent."""
        for item in inputs:
            message, quotes = item.message, item.message.quotes
            files = any(not each.refused for each in item.uploads)
            private = files or any(each.kind not in ("page", *NOTES) for each in quotes)
            untrusted = any(each.kind not in NOTES and not each.member for each in quotes) or message.author.bot
            if message.origin is Origin.TOOL:  # it may quote the end of a command's output
                untrusted = untrusted or self.files or self.network()
            named = [
                each.text
                for each in quotes
                if each.kind not in ("posted", "hook")
                and not (message.to_bot and each.kind == "reply")  # the bot's own words
            ]
            is_named = message.origin is Origin.PERSON  # else a model wrote it, also what a schedule says
            own = _person_addresses(message.text) if is_named else []
            known = [*await find_addresses("\n".join(named)), *map(address_digest, own), *map(_named_digest, own)]
            said = await digest_words(message.text) if is_named else []
            listed = await digest_words("\n".join(own))
            others = "\n".join([*(each.text for each in quotes if each.kind != "page"), *_file_names(item)])
            if message.origin is Origin.TOOL and self.files:
                others = f"{others}\n{message.text}"
            words = await digest_words(others)
            await self.note(
                private=private,
                untrusted=untrusted,
                files=files,
                known=known,
                said=said,
                listed=listed,
                private_words=words,
            )

    async def note_page(self, url: str, text: str) -> None:
        """Note a page: its text is a stranger's, and its addresses are known."""
        listed = await digest_words(text, with_digits=True)
        found = zip(_URL.finditer(text[:MAX_TEXT_CHARS]), range(MAX_FOUND), strict=False)
        listed += await digest_words("\n".join([url, *(each[0][:MAX_ADDRESS_CHARS] for each, _ in found)]))
        await self.note(untrusted=True, known=[*_address_digests([url]), *await find_addresses(text)], listed=listed)

    async def note_result(self, brings: Brings, args: Mapping[str, Any], text: str = "") -> None:
        """Note what a tool has returned."""
        private = untrusted = False
        if brings == "everything":
            private = untrusted = True
        elif brings == "memory":
            private = True
        elif brings == "pages" or (brings == "commands" and self.network()):
            private, untrusted = brings == "commands" and self.files, True
        elif brings in ("files", "commands"):
            private = untrusted = self.files or UPLOADS in str(args.get("path", ""))
        words = await digest_words(text) if private else []
        await self.note(private=private, untrusted=untrusted, private_words=words)

    def knows(self, url: str) -> bool:
        """Return whether an address stood in a message, a result or a page."""
        return address_digest(url) in self.known

    @property
    def asks(self) -> bool:
        """Whether calls that can carry data out ask now."""
        mode = self.mode()
        return mode == "ask" or (mode == "ask-after-untrusted" and self.private and self.untrusted)

    def destination(self, way: WayOut, tool: str, args: Mapping[str, Any]) -> str:
        """Return where a call would carry data to, as rules and grants name it; "" if it need not ask."""
        if way == "address":
            url = str(args.get("url", "")).strip()
            return "" if self.admits(url) else f"{tool} {host_of(url)}"
        if way == "note":
            is_new = args.get("action", "save") == "save"
            return tool if is_new and self.untrusted and self.mode() != "allow" else ""
        if way == "none" or not self.asks:
            return ""
        if way == "query" and self.mode() != "ask" and not self.words.carries(str(args.get("query", ""))):
            return ""
        if way == "network" and not self.network():
            return ""
        return tool

    def admits(self, url: str) -> bool:
        """Return whether an address may be read without a question; counts one that only pages have named."""
        if not self.knows(url):
            composed = self.mode() != "allow" and self.untrusted and self.words.repeats(url)
            return not (self.asks or composed)
        if not self.asks or _named_digest(url) in self.known:
            return True
        for count in range(MAX_SITE_FETCHES):
            mark = _digest_of(f"{count} {_site_of(url)}", FETCHED)
            if mark not in self.known:
                self.known[mark] = None
                self.unsaved = True
                return True
        return False

    def copy(self) -> Exposure:
        """Return the present state, for a writer."""
        return replace(self, known=dict(self.known), words=self.words.copy())


def _file_names(item: UserInput) -> list[str]:
    return [each.name for each in item.uploads if not each.refused]


def address_digest(url: str) -> bytes:
    """Return the digest of an address without scheme, fragment and one slash at its end, which carry nothing."""
    return _digest_of(_plain_address(url))


def _named_digest(url: str) -> bytes:
    """Return the digest that notes that a person wrote an address themselves."""
    return _digest_of(f"named {_plain_address(url)}")


def _plain_address(url: str) -> str:
    _scheme, _, rest = url.partition("#")[0].partition("://")
    host = re.split(r"[/?]", rest, maxsplit=1)[0]
    return f"{host.lower()}{rest[len(host) :]}".removesuffix("/")


def _digest_of(text: str, mark: bytes = b"") -> bytes:
    return mark + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES - len(mark)).digest()


def _site_of(url: str) -> str:
    """Return the last two labels of the host: the owner of a domain chooses those before."""
    host = host_of(url).partition(":")[0].rstrip(".")
    return host if host.replace(".", "").isdigit() else ".".join(host.split(".")[-2:])


def host_of(url: str) -> str:
    """Return the host of a URL with its port, as a grant names it."""
    rest = url.partition("://")[2]
    return re.split(r"[/?#\\]", rest, maxsplit=1)[0].rpartition("@")[2].lower()[:255]


def find_address(text: str) -> str:
    """Return the address that a link without its scheme, or with punctuation behind it, means."""
    return (text if "://" in text else f"https://{text}").rstrip(_TRAILING)


async def find_addresses(text: str) -> list[bytes]:
    """Return the digests of the addresses in a text, at most `MAX_FOUND`."""
    if len(text) <= INLINE_CHARS:
        return _address_digests(_addresses(text))
    return await asyncio.to_thread(lambda: _address_digests(_addresses(text)))


def _address_digests(addresses: Iterable[str]) -> list[bytes]:
    return list(dict.fromkeys(map(address_digest, addresses)))


def _addresses(text: str) -> Iterator[str]:
    """Yield the addresses in a text, each as it may have been meant: punctuation may follow it."""
    for count, found in enumerate(_URL.finditer(text[:MAX_TEXT_CHARS])):
        if count >= MAX_FOUND:
            return
        address = found[0][:MAX_ADDRESS_CHARS]
        ascii_part = _NOT_ASCII.split(address, maxsplit=1)[0]
        cuts = {address, ascii_part, *(ascii_part.partition(mark)[0] for mark in ")]'")}
        cuts.add(ascii_part.rstrip(".,;:!?").removesuffix(")"))
        yield from {each.rstrip(_TRAILING) for each in cuts} | cuts


def _person_addresses(text: str) -> list[str]:
    """Return what a person named: URLs, and domains without a scheme."""
    text = text[:INLINE_CHARS]
    words = (word.rstrip(_TRAILING) for word in _BARE.findall(text))
    bare = (f"https://{word}" for word in words if "@" not in word and _DOMAIN.match(word))
    return [*_addresses(text), *(each for each, _ in zip(bare, range(MAX_FOUND), strict=False))]
