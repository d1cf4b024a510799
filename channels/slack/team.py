"""One workspace: its calls, its people, and the signs of life that are shown in it."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

import aiohttp

from agent.conversation import Kind, Message, Quote, Thread, Unreadable
from channels.base import ChannelError, NotStored, Receipt, Refused
from channels.slack import Pair, Settings
from channels.slack.blocks import plain
from channels.slack.calls import Calls, Json
from channels.slack.events import ASK, Me

log = logging.getLogger(__name__)

PATIENCE = 1.0  # seconds that a message may wait for its author's name
FRESH = 3600.0  # seconds that a person is remembered,
REFUSED = 30.0  # …that Slack refused to tell of somebody,
FAILED = 2.0  # …and that it did not answer
STATUS = 100.0  # seconds that a status lasts (Slack forgets it after two minutes)
WORKING = "is working…"

NOT_YOURS = "This is not yours to answer."
ANSWERED = "This is answered already."
NOT_STORED = "I can't store messages at the moment, so I have not taken yours yet."
LATER = f"{NOT_STORED} It is not lost: I will take it by itself as soon as I can."
AGAIN_PLEASE = f"{NOT_STORED} Please try it again in a while."
PROMPTS = [
    {"title": "What can you do?", "message": "What can you do for me?"},
    {"title": "Commands", "message": "!help"},
]
_MENTION = re.compile(r"<@([A-Z0-9]+)>")


class Unsure(NotStored):
    """Nobody knows yet whether the author of an event is of the team: it waits, neither let in nor turned away."""


@dataclass(frozen=True, slots=True)
class Person:
    """What users.info says of somebody."""

    name: str
    team: str
    bot: bool = False
    guest: bool = False


class People:
    """Names and standing of the people of a workspace, remembered for a while."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._known: dict[str, tuple[Person | None, float]] = {}  # …and until when
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def find(self, user: str, team: str) -> Person | None:
        """The person; None when Slack does not tell in time."""
        if self._known.get(user, (None, 0.0))[1] > time.monotonic() or not user:
            return self._known.get(user, (None, 0.0))[0]
        async with self._asking.setdefault(user, asyncio.Lock()):  # who writes twice at once is asked for once
            return await self._ask(user, team)

    async def _ask(self, user: str, team: str) -> Person | None:
        known, until = self._known.get(user, (None, 0.0))
        if until > time.monotonic():
            return known
        if len(self._known) > 10_000:
            self._known.clear()
        try:
            async with asyncio.timeout(PATIENCE):
                known = _person((await self._calls("users.info", user=user))["user"], team)
        except Refused as error:  # no such person, or the scope users:read is missing: nobody vouches for them
            log.warning("slack.unknown_person user=%s reason=%s", user, error)
            known = known or Person(user, team, guest=True)
            self._known[user] = (known, time.monotonic() + REFUSED)
        except (ChannelError, TimeoutError) as error:
            log.info("slack.unnamed user=%s reason=%s", user, error or "no answer in time")
            self._known[user] = (known, time.monotonic() + FAILED)  # what was known of them still holds
        else:
            self._known[user] = (known, time.monotonic() + FRESH)
        return known


def _person(user: Json, team: str) -> Person:
    profile = user.get("profile") or {}
    name = profile.get("display_name") or profile.get("real_name") or user.get("real_name") or user.get("name")
    home = str(user.get("team_id") or team)
    ours = {home, *((user.get("enterprise_user") or {}).get("teams") or ())}
    guest = user.get("is_restricted") or user.get("is_ultra_restricted") or user.get("is_stranger") or team not in ours
    return Person(name or user["id"], home, bool(user.get("is_bot")), bool(guest))


class Team:
    """One workspace that the app is installed in."""

    def __init__(self, pair: Pair, settings: Settings, session: aiohttp.ClientSession, trust: ssl.SSLContext) -> None:
        self.calls = Calls(pair.bot_token, settings, session, trust)
        self.people = People(self.calls)
        self.me: Me | None = None
        self._shows: dict[Thread, float] = {}  # until when a status shows
        self._told: set[Thread] = set()  # who knows that messages cannot be stored
        self._untitled: set[tuple[str, str]] = set()  # assistant threads without a title

    async def hello(self) -> Me:
        """Who we are here. Raises ChannelError."""
        if self.me is None:
            who = await self.calls("auth.test")
            if not who.get("bot_id"):
                raise Refused("bot_token is not a bot's token: it has to begin with xoxb-")
            self.me = Me(who["team_id"], who["user_id"], who["bot_id"], who["user"], who["team"])
            log.info("slack.connected bot=@%s workspace=%s (%s)", self.me.name, self.me.workspace, self.me.team)
        return self.me

    async def named(self, message: Message) -> Message:
        """With its author's name and standing, and the names of whom it mentions or quotes, as far as Slack tells."""
        team = message.thread.workspace
        person = (
            await self.people.find(message.author.id, team) if message.author.id and not message.author.bot else None
        )
        author = message.author
        if person:
            guest = person.guest or (author.guest and person.team != team)
            author = replace(author, name=person.name, bot=person.bot, guest=guest)
        quotes = tuple([replace(q, author=await self._name(q, team)) for q in message.quotes])
        return replace(message, author=author, quotes=quotes)

    async def vetted(self, message: Message) -> Message:
        """`named`, for access. Raises Unsure when Slack does not tell in time whether they are of the team."""
        message = await self.named(message)
        author = message.author
        if author.id and not author.bot and await self.people.find(author.id, message.thread.workspace) is None:
            raise Unsure(f"Slack does not tell who {author.id} is")
        return message

    async def _name(self, quote: Quote, team: str) -> str:
        person = await self.people.find(quote.author, team) if re.fullmatch(r"[UW][A-Z0-9]+", quote.author) else None
        return person.name if person else quote.author

    async def readable(self, text: str, team: str) -> str:
        """With the names of the people that it mentions."""
        people = {user: await self.people.find(user, team) for user in set(_MENTION.findall(text))}
        return _MENTION.sub(lambda f: f"<@{f[1]}|{p.name}>" if (p := people[f[1]]) else f[0], text)

    # ------------------------------------------------------------ signs

    async def working(self, thread: Thread, to: str = "") -> None:
        """Say that somebody works: a status where there is a thread, a reaction to the message where there is none."""
        if thread.topic and thread.topic.replace(".", "").isdecimal():
            now = time.monotonic()
            if self._shows.get(thread, 0.0) > now:
                return
            if len(self._shows) > 1000:
                self._shows = {known: until for known, until in self._shows.items() if until > now}
            self._shows[thread] = now + STATUS
            where = {"channel_id": thread.chat, "thread_ts": thread.topic}
            try:
                await self.calls("assistant.threads.setStatus", **where, status=WORKING)
            except ChannelError:
                self.ended(thread)
                raise
            if thread not in self._shows:  # a message overtook it, and took nothing away
                await self.calls("assistant.threads.setStatus", **where, status="")
        elif to.replace(".", "").isdecimal():
            await self.calls("reactions.add", channel=thread.chat, timestamp=to, name="eyes")

    def ended(self, thread: Thread) -> None:
        """A message of the bot takes the status away."""
        self._shows.pop(thread, None)

    async def acknowledge(self, event: Message | Unreadable, receipt: Receipt, payload: Json) -> None:
        """What its author sees at once."""
        self._told.clear()
        if isinstance(event, Unreadable):
            log.error("slack.unreadable key=%s reason=%s", event.key, event.error)
        elif event.kind is Kind.CLICK:
            await self._clicked(event, receipt, payload)
        elif event.kind is Kind.CHAT and receipt is Receipt.ACCEPTED:
            await self.working(event.thread, event.id)
            await self._title(event)

    async def apologize(self, event: Message) -> None:
        """Say once per outage and thread that a message could not be stored."""
        if event.addressed and event.kind in (Kind.CHAT, Kind.COMMAND) and event.thread not in self._told:
            self._told.add(event.thread)
            address = {"thread_ts": event.thread.topic} if event.thread.topic else {}
            note = {"event_type": "fawn_note", "event_payload": {}}  # so that it is not taken for an unfinished answer
            await self.calls("chat.postMessage", channel=event.thread.chat, text=LATER, metadata=note, **address)

    async def _clicked(self, click: Message, receipt: Receipt, payload: Json) -> None:
        """Put the choice where the buttons were; who may not choose is told so, and nobody else."""
        if receipt is not Receipt.ACCEPTED:
            words = NOT_YOURS if receipt is Receipt.IGNORED else ANSWERED
            address = {"thread_ts": click.thread.topic} if click.thread.topic not in ("", "*") else {}
            await self.calls(
                "chat.postEphemeral", channel=click.thread.chat, user=click.author.id, text=words, **address
            )
            return
        chosen = f"✓ {click.text}"[:1900] + f" ({click.author.name})"
        note = {"type": "context", "elements": [{"type": "plain_text", "text": chosen, "emoji": False}]}
        if payload["container"].get("is_ephemeral"):
            await self.calls.respond(payload["response_url"], {"replace_original": True, "text": plain(chosen)})
            return
        shown = payload["message"]
        kept = [block for block in shown.get("blocks") or () if not str(block.get("block_id", "")).startswith(ASK)]
        await self.calls(
            "chat.update",
            channel=click.thread.chat,
            ts=click.id,
            text=shown.get("text") or plain(chosen),
            blocks=[*kept, note],
        )

    # ------------------------------------------------------------ assistant threads

    async def opened(self, event: Json) -> None:
        """Somebody opened the assistant: offer something to begin with."""
        about = event.get("assistant_thread") or {}
        channel, ts = about.get("channel_id") or event.get("channel"), about.get("thread_ts") or ""
        if not channel or (not ts and event.get("tab") != "messages"):
            return
        if ts:
            self._untitled.add((channel, ts))
        address = {"thread_ts": ts} if ts else {}
        await self.calls("assistant.threads.setSuggestedPrompts", channel_id=channel, prompts=PROMPTS, **address)

    async def _title(self, message: Message) -> None:
        """The first words of an assistant thread are its title."""
        place = (message.thread.chat, message.thread.topic)
        if place in self._untitled and message.text:
            self._untitled.discard(place)
            title = " ".join(message.text.split())[:60]
            await self.calls("assistant.threads.setTitle", channel_id=place[0], thread_ts=place[1], title=title)
