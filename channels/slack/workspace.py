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

from agent.messages import Kind, Message, Quote, Thread, Unreadable
from channels.base import ChannelError, NotStored, Receipt, Refused, TryLater
from channels.shared import texts
from channels.slack import SlackSettings, WorkspaceTokens
from channels.slack.api import Json, SlackApi, thread_arguments
from channels.slack.blocks import context_block, notification_text
from channels.slack.events import QUESTION_PREFIX, SlackAccount

log = logging.getLogger(__name__)

LOOKUP_TIMEOUT_SECONDS = 1.0  # seconds that a message may wait for its author's name
FRESH_SECONDS = 3600.0  # seconds that a person is remembered,
REFUSED_RETRY_SECONDS = 30.0  # …that Slack refused to tell of somebody,
FAILED_RETRY_SECONDS = 2.0  # …and that it did not answer
SESSION_SECONDS = 3000.0  # seconds after which Slack is told again that somebody works (it forgets after an hour)
MAX_TITLE_CHARS = 60  # characters of a session's title

NOT_STORED_RESEND = "I can't save messages right now, so yours was not taken. Please send it again in a few minutes."
_MENTION = re.compile(r"<@([A-Z0-9]+)>")


class AuthorUnknown(NotStored):
    """Nobody knows yet whether the author of an event is of the team: it waits, neither let in nor turned away."""


@dataclass(frozen=True, slots=True)
class Person:
    """What users.info says of somebody."""

    name: str
    team: str
    bot: bool = False
    guest: bool = False


class PeopleCache:
    """Names and standing of the people of a workspace, remembered for a while."""

    def __init__(self, calls: SlackApi) -> None:
        self._calls = calls
        self._known: dict[str, tuple[Person | None, float]] = {}  # …and until when
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def find_person(self, user: str, team: str) -> Person | None:
        """The person; None when Slack does not tell in time."""
        if self._known.get(user, (None, 0.0))[1] > time.monotonic() or not user:
            return self._known.get(user, (None, 0.0))[0]
        async with self._asking.setdefault(user, asyncio.Lock()):  # who writes twice at once is asked for once
            return await self._fetch_person(user, team)

    async def _fetch_person(self, user: str, team: str) -> Person | None:
        known, until = self._known.get(user, (None, 0.0))
        if until > time.monotonic():
            return known
        if len(self._known) > 10_000:
            self._known.clear()
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                known = _parse_person((await self._calls("users.info", user=user))["user"], team)
        except Refused as error:  # no such person, or the scope users:read is missing: nobody vouches for them
            log.warning("slack.unknown_person user=%s reason=%s", user, error)
            known = known or Person(user, team, guest=True)
            self._known[user] = (known, time.monotonic() + REFUSED_RETRY_SECONDS)
        except (ChannelError, TimeoutError) as error:
            log.info("slack.unnamed user=%s reason=%s", user, error or "no answer in time")
            self._known[user] = (known, time.monotonic() + FAILED_RETRY_SECONDS)  # what was known of them still holds
        else:
            self._known[user] = (known, time.monotonic() + FRESH_SECONDS)
        return known


def _parse_person(user: Json, team: str) -> Person:
    profile = user.get("profile") or {}
    name = profile.get("display_name") or profile.get("real_name") or user.get("real_name") or user.get("name")
    home = str(user.get("team_id") or team)
    ours = {home, *((user.get("enterprise_user") or {}).get("teams") or ())}
    guest = user.get("is_restricted") or user.get("is_ultra_restricted") or user.get("is_stranger") or team not in ours
    return Person(name or user["id"], home, bool(user.get("is_bot")), bool(guest))


class Workspace:
    """One workspace that the app is installed in."""

    def __init__(
        self, pair: WorkspaceTokens, settings: SlackSettings, session: aiohttp.ClientSession, trust: ssl.SSLContext
    ) -> None:
        self.calls = SlackApi("bot_token", pair.bot_token, settings, session, trust)
        self.people = PeopleCache(self.calls)
        self.me: SlackAccount | None = None
        self._working: dict[Thread, float] = {}  # sessions that Slack shows as working, until when
        self._over: asyncio.Queue[tuple[Thread, str]] = asyncio.Queue()  # …and those that it has to be told of
        self._told: set[Thread] = set()  # who knows that messages cannot be stored

    async def identify(self) -> SlackAccount:
        """Who we are here. Raises ChannelError."""
        if self.me is None:
            who = await self.calls("auth.test")
            if not who.get("bot_id"):
                raise Refused("bot_token is not a bot's token: it has to begin with xoxb-")
            self.me = SlackAccount(who["team_id"], who["user_id"], who["bot_id"], who["user"], who["team"])
            log.info("slack.connected bot=@%s workspace=%s (%s)", self.me.name, self.me.workspace, self.me.team)
        return self.me

    async def with_author(self, message: Message) -> Message:
        """With its author's name and standing. Raises Unsure when Slack does not tell in time who they are."""
        author = message.author
        if author.bot or message.kind in (Kind.EDIT, Kind.DELETE):  # these change what was let in before
            return message
        person = await self.people.find_person(author.id, message.thread.workspace)
        if person is None:
            raise AuthorUnknown(f"Slack does not tell who {author.id} is")
        return replace(message, author=replace(author, name=person.name, bot=person.bot, guest=person.guest))

    async def with_quote_author(self, quote: Quote, team: str) -> Quote:
        """With its author's name, as far as Slack tells."""
        person = (
            await self.people.find_person(quote.author, team) if re.fullmatch(r"[UW][A-Z0-9]+", quote.author) else None
        )
        return replace(quote, author=person.name) if person else quote

    async def with_names(self, text: str, team: str) -> str:
        """With the names of the people that it mentions."""
        people = {user: await self.people.find_person(user, team) for user in set(_MENTION.findall(text))}
        return _MENTION.sub(lambda f: f"<@{f[1]}|{p.name}>" if (p := people[f[1]]) else f[0], text)

    # ------------------------------------------------------------ signs

    async def show_working(self, thread: Thread, asked: Message | None = None) -> None:
        """Say that somebody works: in a thread its session does (docs.slack.dev/ai/agent-sessions), with a button to
        stop it; where there is none, a reaction to what was `asked` says it."""
        if thread.topic:
            now = time.monotonic()
            if self._working.get(thread, 0.0) > now:
                return
            if len(self._working) > 1000:
                self._working = {known: until for known, until in self._working.items() if until > now}
            self._working[thread] = now + SESSION_SECONDS
            title = (
                {"title": texts.shorten(asked.text, MAX_TITLE_CHARS)} if asked and asked.text else {}
            )  # of a new session
            try:
                await self._send_status(thread, "processing", **title)
            except ChannelError:
                self._working.pop(thread, None)
                if not asked:
                    raise
            else:
                if thread not in self._working:  # the end overtook it
                    self._over.put_nowait((thread, "active"))
                return
        if asked:
            await self.calls("reactions.add", channel=thread.chat, timestamp=asked.id, name="eyes")

    def end_working(self, thread: Thread, status: str = "") -> None:
        """The work in a thread is over; Slack is told that the session's status is this, unless it knows already."""
        self._working.pop(thread, None)
        if status:
            self._over.put_nowait((thread, status))

    async def flush_status(self) -> None:
        """Tell Slack what is over, as late as it takes it: it would show for an hour that somebody works."""
        while True:
            thread, status = await self._over.get()
            if thread in self._working:  # again
                continue
            try:
                await self._send_status(thread, status)
            except Refused as error:
                log.debug("slack.no_session thread=%s reason=%s", thread, error)
            except ChannelError as error:
                self._over.put_nowait((thread, status))
                await asyncio.sleep(error.after if isinstance(error, TryLater) else 1.0)

    async def _send_status(self, thread: Thread, status: str, **more: str) -> None:
        where = {"channel_id": thread.chat, "thread_ts": thread.topic}
        await self.calls("agents.sessions.setStatus", **where, status=status, **more)

    async def acknowledge(self, event: Message | Unreadable, receipt: Receipt, payload: Json) -> None:
        """What its author sees at once."""
        self._told.clear()
        if isinstance(event, Unreadable):
            log.error("slack.unreadable key=%s reason=%s", event.key, event.error)
        elif event.kind is Kind.CLICK:
            await self._show_choice(event, receipt, payload)
        elif event.kind is Kind.CHAT and receipt is Receipt.ACCEPTED:
            await self.show_working(event.thread, event)
        elif _is_stop_button(payload) or (event.thread in self._working and _is_withdrawn(event)):
            self.end_working(event.thread, "active")  # there may be no answer that says so

    async def apologize(self, event: Message) -> None:
        """Say once per outage and thread that a message could not be stored."""
        if event.addressed and event.kind in (Kind.CHAT, Kind.COMMAND) and event.thread not in self._told:
            self._told.add(event.thread)
            mark = {"event_type": "fawn_note", "event_payload": {}}  # so that it is not taken for an unfinished answer
            await self.calls("chat.postMessage", **thread_arguments(event.thread), text=texts.NOT_STORED, metadata=mark)

    async def _show_choice(self, click: Message, receipt: Receipt, payload: Json) -> None:
        """Put the choice where the buttons were; who may not choose is told so, and nobody else."""
        if receipt is not Receipt.ACCEPTED:
            told = texts.NOT_YOURS if receipt is Receipt.IGNORED else texts.ANSWERED
            await self.calls("chat.postEphemeral", **thread_arguments(click.thread), user=click.author.id, text=told)
            return
        chosen = f"✓ {click.text}"[:1900] + f" ({click.author.name})"
        if payload["container"].get("is_ephemeral"):
            await self.calls.post_to_response_url(
                payload["response_url"], {"replace_original": True, "text": notification_text(chosen)}
            )
            return
        text = payload["message"].get("text") or ""
        kept = [
            b
            for b in payload["message"].get("blocks") or ()
            if not str(b.get("block_id", "")).startswith(QUESTION_PREFIX)
        ]
        if text and not kept:  # what was streamed is no block
            kept = [{"type": "markdown", "text": text}]
        await self.calls(
            "chat.update",
            channel=click.thread.chat,
            ts=click.id,
            text=text or notification_text(chosen),
            blocks=[*kept, context_block(chosen)],
        )


def _is_stop_button(payload: Json) -> bool:
    """The native stop button, which leaves it to us to say that nobody works any more."""
    return (payload.get("event") or {}).get("type") == "agent_session_stopped"


def _is_withdrawn(event: Message) -> bool:
    return event.kind is Kind.DELETE or (event.kind is Kind.COMMAND and event.text == "stop")
