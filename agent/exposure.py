"""Note what a conversation was exposed to, and say which calls may not carry it out without a question.

Private data, text by strangers and a way out, together, let a stranger's page send a person's file away. So while a
conversation has met the first two, a call that can carry data out asks, unless nobody could have put data into it: an
address that stood verbatim in a person's message, a search result or a page is known, and runs. A search runs if its
words cannot carry private data (`agent.exposed_words`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from agent.exposed_words import MetWords, digest_words
from agent.messages import Origin

if TYPE_CHECKING:
    from agent.user_input import UserInput

OutwardMode = Literal["allow", "ask-after-untrusted", "ask"]
WayOut = Literal["none", "address", "query", "arguments", "network"]
"""The means by which a call can carry data out: a URL, a search, its arguments, or the network of the sandbox."""
Brings = Literal["nothing", "pages", "memory", "files", "commands", "everything"]
"""The contents of the result of a call. Files and commands bring what people sent, commands what the network has."""

OUTWARD = "outward"  # in place of a tool: rules and grants about ways out
MAX_KNOWN = 5000  # addresses of a conversation, the latest
MAX_FOUND = 1000  # in one text
MAX_TEXT_CHARS = 2_000_000  # of one text that are searched
INLINE_CHARS = 20_000  # a longer text is searched in a thread
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
        for old in list(self.known)[: max(0, len(self.known) - MAX_KNOWN)]:
            del self.known[old]
        self.unsaved = True
        if self.save and asks:
            await self.save(self)

    async def note_inputs(self, inputs: Iterable[UserInput]) -> None:
        """Note what messages bring: files and quotes are private, quotes and bots are strangers' words."""
        for item in inputs:
            message, quotes = item.message, item.message.quotes
            files = any(not each.refused for each in item.uploads)
            private = files or any(each.kind not in ("page", "unread", "view") for each in quotes)
            untrusted = any(each.kind not in ("unread", "view") for each in quotes) or message.author.bot
            if message.origin is Origin.TOOL:  # it may quote the end of a command's output
                untrusted = untrusted or self.files or self.network()
            named = [
                each.text
                for each in quotes
                if each.kind not in ("posted", "hook")
                and not (message.to_bot and each.kind == "reply")  # the bot's own words
            ]
            is_named = message.origin in (Origin.PERSON, Origin.SCHEDULE)  # else a model wrote it
            known = [*await find_addresses("\n".join(named)), *(_person_addresses(message.text) if is_named else ())]
            said = await digest_words(message.text) if is_named else []
            others = "\n".join([*(each.text for each in quotes if each.kind != "page"), *_file_names(item)])
            if message.origin is Origin.TOOL and self.files:
                others = f"{others}\n{message.text}"
            words = await digest_words(others)
            await self.note(
                private=private, untrusted=untrusted, files=files, known=known, said=said, private_words=words
            )

    async def note_page(self, url: str, text: str) -> None:
        """Note a page: its text is a stranger's, and its addresses are known."""
        listed = await digest_words(text, with_digits=True)
        await self.note(untrusted=True, known=[*_digests([url]), *await find_addresses(text)], listed=listed)

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
        if way == "none" or not self.asks:
            return ""
        if way == "address":
            url = str(args.get("url", "")).strip()
            return "" if self.knows(url) else f"{tool} {host_of(url)}"
        if way == "query" and self.mode() != "ask" and not self.words.carries(str(args.get("query", ""))):
            return ""
        if way == "network" and not self.network():
            return ""
        return tool

    def copy(self) -> Exposure:
        """Return the present state, for a writer."""
        return replace(self, known=dict(self.known), words=self.words.copy())


def _file_names(item: UserInput) -> list[str]:
    return [each.name for each in item.uploads if not each.refused]


def address_digest(url: str) -> bytes:
    """Return the digest of an address without scheme, fragment and last slash, which carry nothing."""
    _scheme, _, rest = url.partition("#")[0].partition("://")
    host = re.split(r"[/?]", rest, maxsplit=1)[0]
    plain = f"{host.lower()}{rest[len(host) :]}".rstrip("/")
    return blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def host_of(url: str) -> str:
    """Return the host of a URL with its port, as a grant names it."""
    rest = url.partition("://")[2]
    return re.split(r"[/?#\\]", rest, maxsplit=1)[0].rpartition("@")[2].lower()[:255]


async def find_addresses(text: str) -> list[bytes]:
    """Return the digests of the addresses in a text, at most `MAX_FOUND`."""
    if len(text) <= INLINE_CHARS:
        return _digests(_addresses(text))
    return await asyncio.to_thread(lambda: _digests(_addresses(text)))


def _digests(addresses: Iterable[str]) -> list[bytes]:
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


def _person_addresses(text: str) -> list[bytes]:
    """Return the digests of what a person named: URLs, and domains without a scheme."""
    text = text[:INLINE_CHARS]
    words = (word.rstrip(_TRAILING) for word in _BARE.findall(text))
    bare = (f"https://{word}" for word in words if "@" not in word and _DOMAIN.match(word))
    return _digests([*_addresses(text), *(each for each, _ in zip(bare, range(MAX_FOUND), strict=False))])
