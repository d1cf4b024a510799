"""One workspace: its API, its people, and what acknowledges their messages."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from agent.messages import Kind, Message, Quote, Thread
from catalogue import N_, _
from channels.base import ChannelError, Receipt, Refused
from channels.shared import reply_layout, texts
from channels.shared.background import BackgroundTasks
from channels.shared.caches import ExpiringDict, LatestDict
from channels.shared.http_client import HttpClient
from channels.shared.inbound import EventDelayed, InboundPipeline
from channels.shared.rate_limit import Priority
from channels.slack import SlackSettings, WorkspaceTokens
from channels.slack.api import PersonUnknown, SlackApi, session_address, thread_arguments
from channels.slack.blocks import context_block, cut_fallback, notification_text
from channels.slack.events import NAME, QUESTION_PREFIX, Json, SlackAccount, home_after_press

log = logging.getLogger(__name__)

LOOKUP_TIMEOUT_SECONDS = 1.0  # a message may wait so long for its author's name
PERSON_SECONDS = 3600.0  # after which a person is looked up again
STALE_SECONDS = 82_800.0  # …and for so long, a message of a member does not wait for it
REFUSED_SECONDS = 30.0  # …after Slack refused the lookup
FAILED_SECONDS = 2.0  # …after Slack did not answer
SESSION_SECONDS = 3000.0  # between two "processing" statuses (Slack's session ends after an hour)
MAX_TITLE_CHARS = 60  # of a session
MAX_CHOICE_CHARS = 1900
MAX_CACHED_PEOPLE = 10_000
FIRST_LISTED_PEOPLE = 1000  # members of a workspace, listed at the connection
MAX_LISTED_PEOPLE = 5000  # members of a workspace, listed when more people write at once than may be looked up singly
LIST_AGAIN_SECONDS = 600.0
SET_STATUS = "agents.sessions.setStatus"
SHOW_STATUS = "assistant.threads.setStatus"
STATUS_SECONDS = 100.0  # between two of these; Slack removes one with the next post, and after two minutes
THINKING = N_("is thinking…")  # after the bot's name
LOADING = (
    N_("Reading what you wrote…"),
    N_("Many people ask at once…"),
    N_("Still working on your answer…"),
)
REMOVE_REACTION = "reactions.remove"
# Blocks that show a text. Slack returns a markdown block as some of the others
# (docs.slack.dev/reference/block-kit/blocks/markdown-block).
CONTENT_BLOCKS = frozenset({"markdown", "rich_text", "section", "header", "table", "image", "video"})
AGENT_SCOPE = "assistant:write"  # of an app whose manifest has `agent_view`

NOT_STORED_RESEND = N_("I can't save messages right now, so I didn't get yours. Please send it again in a few minutes.")
_MENTION = re.compile(r"<@([A-Z0-9]+)>")
_CHANNEL = re.compile(r"<#([A-Z0-9]+)>")


@dataclass(frozen=True, slots=True)
class Person:
    """A person, from users.info."""

    name: str
    team: str
    bot: bool = False
    guest: bool = False
    language: str = ""  # such as "zh-CN"

    @property
    def is_member(self) -> bool:
        """Whether this is a person of the workspace."""
        return not (self.bot or self.guest)


class PeopleCache:
    """The people of a workspace, cached. `seconds`: after which one is looked up again."""

    def __init__(self, api: SlackApi, background: BackgroundTasks, seconds: float = PERSON_SECONDS) -> None:
        self._api = api
        self._background = background
        self._seconds = seconds
        # with the time.monotonic() of the next lookup
        self._known: LatestDict[str, tuple[Person | None, float]] = LatestDict(MAX_CACHED_PEOPLE)
        self._lookups: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._listing: asyncio.Task[None] | None = None
        self._is_listed = False  # the members were, once
        self._listed_until = 0.0  # time.monotonic() before which the members are not listed again

    async def find_person(self, user: str, team: str) -> Person | None:
        """Return the person, or None if Slack does not answer in time."""
        known, until = self._known.get(user, (None, 0.0))
        now = time.monotonic()
        if until > now or not user:
            return known
        if known and not known.guest and now < until + STALE_SECONDS:
            self._known[user] = known, now + FAILED_SECONDS  # one lookup at a time
            self._background.start_best_effort(self._renew(user, team, known), f"slack person {user}")
            return known
        async with self._lookups.setdefault(user, asyncio.Lock()):  # one lookup for two messages at once
            known, until = self._known.get(user, (None, 0.0))
            return known if until > time.monotonic() else await self._renew(user, team, known)

    async def _renew(self, user: str, team: str, known: Person | None) -> Person | None:
        """Look a person up, and remember what Slack says for some time."""
        seconds = self._seconds
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                known = await self._look_up(user, team)
        except Refused as error:  # no such person, or the scope users:read is missing: treat them as a guest
            log.warning("slack.unknown_person user=%s reason=%s", user, error)
            known, seconds = known or Person(user, team, guest=True), REFUSED_SECONDS
        except (ChannelError, TimeoutError) as error:  # keep the old entry
            log.info("slack.unnamed user=%s reason=%s", user, error or "no answer in time")
            seconds = FAILED_SECONDS
        self._known[user] = known, time.monotonic() + seconds
        return known

    def list_first(self, team: str) -> None:
        """List the members once, which are all of a small workspace: nobody's first message then waits for a lookup."""
        if self._listing is None and not self._is_listed:
            self._start_listing(team, FIRST_LISTED_PEOPLE)

    def _start_listing(self, team: str, most: int) -> None:
        self._listing = self._background.start(self._list_members(team, most), name="slack members")

    async def _look_up(self, user: str, team: str) -> Person:
        """Ask Slack about a person, or for whole pages of members if many are asked about at once."""
        if not self._api.limits.has_token("", "users.info"):
            if self._listing is None and time.monotonic() >= self._listed_until:
                self._start_listing(team, MAX_LISTED_PEOPLE)
            if self._listing:
                await asyncio.shield(self._listing)
            known, until = self._known.get(user, (None, 0.0))
            if known and until > time.monotonic():
                return known
        return _parse_person((await self._api("users.info", user=user, include_locale=True))["user"], team)

    async def _list_members(self, team: str, most: int) -> None:
        """Remember the first thousands of members (docs.slack.dev/reference/methods/users.list)."""
        pages = self._api.list_pages("users.list", "members", most, page_size=1000, include_locale=True)
        try:
            async for page in pages:
                until = time.monotonic() + self._seconds
                for member in page:
                    if isinstance(member, dict) and member.get("id"):
                        self._known[str(member["id"])] = _parse_person(member, team), until
            self._is_listed = True
        except ChannelError as error:
            log.info("slack.not_listed reason=%s", error)
        finally:
            self._listing = None
            if most == MAX_LISTED_PEOPLE:
                self._listed_until = time.monotonic() + LIST_AGAIN_SECONDS


def _parse_person(user: Json, team: str) -> Person:
    profile = user.get("profile") or {}
    name = profile.get("display_name") or profile.get("real_name") or user.get("real_name") or user.get("name")
    home = str(user.get("team_id") or team)
    ours = {home, *((user.get("enterprise_user") or {}).get("teams") or ())}
    guest = user.get("is_restricted") or user.get("is_ultra_restricted") or user.get("is_stranger") or team not in ours
    return Person(name or user["id"], home, bool(user.get("is_bot")), bool(guest), str(user.get("locale") or ""))


class Workspace:
    """One workspace that the app is installed in."""

    def __init__(
        self,
        tokens: WorkspaceTokens,
        settings: SlackSettings,
        http: HttpClient,
        background: BackgroundTasks,
    ) -> None:
        self.api = SlackApi("bot_token", tokens.bot_token, settings, http)
        self._people = PeopleCache(self.api, background)
        self._agent_view = settings.agent_view
        self.account: SlackAccount | None = None
        self.scopes: set[str] = set()  # of the token, with the account
        self._channel_names: LatestDict[str, str] = LatestDict(MAX_CACHED_PEOPLE)
        self._working: ExpiringDict[Thread, bool] = ExpiringDict()  # "processing" sessions, until the next status
        self.starting_streams: list[Thread] = []  # of chat.startStream calls under way
        self._sessions: set[Thread] = set()  # threads shown as "processing", for whose end a call is kept
        self._statuses: ExpiringDict[Thread, bool] = ExpiringDict()  # threads with a status that ends by itself
        self._standing: ExpiringDict[Thread, bool] = ExpiringDict()  # …that no message was posted to since
        self._unsure: set[Thread] = set()  # …whose status may come after the answer
        self._watched: dict[Thread, list[str]] = {}  # messages with 👀
        self._ends: asyncio.Queue[tuple[Thread, str, Json]] = asyncio.Queue()  # calls that end those signs
        self.pipeline = InboundPipeline(
            NAME,
            background,
            apologize=self._apologize,
            show_working=lambda event: self.show_working(event.thread, event),
        )

    async def identify(self) -> SlackAccount:
        """Return the bot's account in this workspace. Raises ChannelError."""
        if self.account is None:
            who, self.scopes = await self.api.who_am_i()
            if not who.get("bot_id"):
                raise Refused("bot_token is not a bot's token: it must begin with xoxb-")
            url = str(who.get("url", ""))
            threads = self._agent_view if self._agent_view is not None else AGENT_SCOPE in self.scopes
            who_am_i = (who["team_id"], who["user_id"], who["bot_id"], who["user"], who["team"], url)
            self.account = SlackAccount(*who_am_i, direct_threads=threads)
            log.info("slack.connected bot=%s workspace=%s team=%s", who["user"], who["team"], who["team_id"])
        return self.account

    async def list_people(self) -> None:
        """Learn in the background who the members are. Raises ChannelError."""
        self._people.list_first((await self.identify()).team_id)

    async def find_person(self, user: str) -> Person | None:
        """Return the person, or None if Slack does not answer in time. Raises ChannelError."""
        return await self._people.find_person(user, (await self.identify()).team_id)

    async def is_deactivated(self, user: str) -> bool | None:
        """Return whether the account was deactivated; None if this workspace does not know it. Raises ChannelError.

        `deleted` is true for a deactivated account, which Slack keeps; for others, it is false or absent
        (docs.slack.dev/reference/objects/user-object). So an id that is not found (user_not_found), or whose account
        the bot may not see (user_not_visible), is one of another workspace, not one that is gone.
        """
        try:
            answer = await self.api("users.info", live=True, user=user)
        except PersonUnknown:
            return None
        found = answer.get("user")
        return found.get("deleted") is True if isinstance(found, dict) and found.get("id") == user else None

    async def with_author(self, message: Message) -> Message:
        """Add the author's name and membership, which decides about access.

        Raises EventDelayed if Slack does not answer in time.
        """
        author = message.author
        edits = message.kind is Kind.EDIT and (message.private or not message.addressed)
        if author.bot or edits or message.kind is Kind.DELETE:  # of a message that was accepted before
            return message
        person = await self.find_person(author.id)
        if person is None:
            raise EventDelayed(f"Slack did not answer who {author.id} is")
        known = replace(author, name=person.name, bot=person.bot, guest=person.guest, language=person.language)
        return replace(message, author=known, origin=known.origin)

    async def with_quote_names(self, quote: Quote) -> Quote:
        """Replace the author's id by the name, if Slack knows it, and name the mentions.

        What the event says of its author, `member`, stays only for a member of the workspace.
        """
        person = await self.find_person(quote.author) if re.fullmatch(r"[UW][A-Z0-9]+", quote.author) else None
        is_member = quote.member and bool(person and person.is_member)
        text = await self.with_names(quote.text)
        return replace(quote, author=person.name if person else quote.author, text=text, member=is_member)

    async def with_names(self, text: str) -> str:
        """Add their names to the mentions of people, and replace those of channels by their names."""
        people = {user: await self.find_person(user) for user in set(_MENTION.findall(text))}
        channels = {channel: await self._find_channel_name(channel) for channel in set(_CHANNEL.findall(text))}
        text = _MENTION.sub(lambda f: f"<@{f[1]}|{p.name}>" if (p := people[f[1]]) else f[0], text)
        return _CHANNEL.sub(lambda f: f"#{channels[f[1]]}", text)

    async def _find_channel_name(self, channel: str) -> str:
        """Return the name of a channel, or its id if Slack does not tell."""
        if channel not in self._channel_names:
            try:
                async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                    found = (await self.api("conversations.info", channel=channel))["channel"]
            except (ChannelError, TimeoutError) as error:
                log.info("slack.unnamed channel=%s reason=%s", channel, error or "no answer in time")
                return channel
            self._channel_names[channel] = str(found.get("name") or channel)
        return self._channel_names[channel]

    # ------------------------------------------------------------ acknowledgements

    async def show_working(self, thread: Thread, asked: Message | None = None) -> None:
        """Show that the agent works: by the session of a thread, with its stop button, else by a reaction to `asked`.

        Each only while the call that takes it back is likely free. A thread then shows a status, which the answer ends.
        About sessions: docs.slack.dev/ai/agent-sessions.
        """
        if thread.topic:
            if thread in self._working:
                return
            self._working.set(thread, True, SESSION_SECONDS)
            try:
                if self.api.limits.end_is_free("", SET_STATUS):
                    await self._begin_session(thread, asked)
                else:
                    await self._show_status(thread)
            except ChannelError:
                self._working.pop(thread)
                if not asked:
                    raise
            else:
                return
        if asked and self.api.limits.end_is_free("", REMOVE_REACTION):
            watched = self._watched.setdefault(thread, [])
            watched.append(asked.id)
            self.api.limits.owe_end("", REMOVE_REACTION)
            await self.api("reactions.add", channel=thread.chat, timestamp=asked.id, name="eyes")
            if self._watched.get(thread) is not watched:  # it ended during the call
                self._take_back_eyes(thread, asked.id)

    async def _begin_session(self, thread: Thread, asked: Message | None) -> None:
        """Show a thread as "processing", and keep the call that ends this."""
        if thread not in self._sessions:
            self._sessions.add(thread)
            self.api.limits.owe_end("", SET_STATUS)
        title: Json = {"title": texts.shorten(asked.text, MAX_TITLE_CHARS)} if asked and asked.text else {}
        try:
            await self.api(SET_STATUS, **session_address(thread), status="processing", **title)
        except ChannelError:
            self._settle_session(thread)
            raise
        if thread not in self._working:  # it ended during the call
            self._end_session(thread, "active")

    async def _show_status(self, thread: Thread) -> None:
        """Show a status with texts that change, which needs no call to end."""
        self._statuses.set(thread, True, SESSION_SECONDS)
        self._working.set(thread, True, STATUS_SECONDS)
        await self.api.limits.acquire("", Priority.FIRST, method=SHOW_STATUS)
        if thread not in self._working:  # it ended during the wait
            self.api.limits.release_unused("", SHOW_STATUS)
            return
        words: Json = {"status": _(THINKING), "loading_messages": [_(each) for each in LOADING]}
        try:
            await self.api(SHOW_STATUS, reserved=True, **session_address(thread), **words)
        except asyncio.CancelledError:  # Slack may process the call after the answer
            self._unsure.add(thread)
            raise
        if thread in self._working:
            self._standing.set(thread, True, STATUS_SECONDS)
        else:  # it ended during the call
            self._clear_status(thread)

    def _clear_status(self, thread: Thread) -> None:
        self._ends.put_nowait((thread, SHOW_STATUS, {**session_address(thread), "status": ""}))

    def _settle_session(self, thread: Thread) -> None:
        if thread in self._sessions:
            self._sessions.discard(thread)
            self.api.limits.settle_end("", SET_STATUS)

    def note_post(self, thread: Thread) -> None:
        """Note, before the call, that a message is posted in a thread: Slack ends the status that stands there."""
        self._standing.pop(thread)

    def note_stream(self, thread: Thread) -> None:
        """Note that a stream made a thread's session "processing"."""
        self._statuses.pop(thread)

    def end_working(self, thread: Thread, status: str = "", asked: str = "") -> None:
        """Note that a thread's turn ended: take 👀 back, and send Slack the session's status unless it is empty.

        `asked` is the message of the request, which an earlier process may have given 👀.
        """
        self._working.pop(thread)
        self._settle_session(thread)
        watched = self._watched.pop(thread, ())
        for _each in watched:
            self.api.limits.settle_end("", REMOVE_REACTION)
        marked = {*watched, *([asked] if asked and not thread.topic else [])}
        for message_id in sorted(marked):
            self._take_back_eyes(thread, message_id)
        shows_session = self._statuses.pop(thread) is None
        if self._standing.pop(thread) or thread in self._unsure:
            self._unsure.discard(thread)
            self._clear_status(thread)
        if status and thread.topic and (shows_session or status != "active"):
            self._end_session(thread, status)

    def _end_session(self, thread: Thread, status: str) -> None:
        self._ends.put_nowait((thread, SET_STATUS, {**session_address(thread), "status": status}))

    def _take_back_eyes(self, thread: Thread, message_id: str) -> None:
        reaction: Json = {"channel": thread.chat, "timestamp": message_id, "name": "eyes"}
        self._ends.put_nowait((thread, REMOVE_REACTION, reaction))

    async def flush_ends(self) -> None:
        """End the signs of finished turns, which would stay, a session's for an hour; retry until accepted."""
        while True:
            thread, method, arguments = await self._ends.get()
            if method in (SET_STATUS, SHOW_STATUS) and thread in self._working:  # the next turn has begun
                continue
            try:
                await self.api(method, **arguments)
            except Refused as error:
                log.debug("slack.not_ended method=%s thread=%s reason=%s", method, thread, error)
            except ChannelError as error:
                self._ends.put_nowait((thread, method, arguments))
                await asyncio.sleep(error.after)

    async def acknowledge(self, event: Message, receipt: Receipt, payload: Json) -> None:
        """Show the author the effect of a press or a stop; `pipeline` shows that of a message."""
        if payload.get("type") == "block_actions":
            if self.account and (seen := home_after_press(payload, self.account)):
                await self.pipeline.store([await self.with_author(seen)], notify=False)
                return
            if self.pipeline.is_answered(event, receipt):
                await self._show_choice(event, receipt, payload)
        elif _is_stop_button(payload) or (
            _is_withdrawn(event) and (event.thread in self._working or event.thread in self._watched)
        ):
            self.end_working(event.thread, "active")  # a stopped turn may send no answer

    async def _apologize(self, event: Message, text: str) -> None:
        mark = {"event_type": "fawn_note", "event_payload": {}}  # SlackRenderer must not take it for an answer
        await self.api("chat.postMessage", **thread_arguments(event.thread), text=text, metadata=mark)

    async def _show_choice(self, click: Message, receipt: Receipt, payload: Json) -> None:
        """Replace the buttons by the choice, or tell the person privately why it had no effect."""
        if refusal := reply_layout.press_refusal(click, receipt):
            await self.api("chat.postEphemeral", **thread_arguments(click.thread), user=click.author.id, text=refusal)
            return
        if reply_layout.is_stop(click):
            return
        chosen = texts.choice_line(click.text[:MAX_CHOICE_CHARS], click.author.name) if click.kind is Kind.CLICK else ""
        if payload["container"].get("is_ephemeral"):
            await self.api.post_to_response_url(
                payload["response_url"], {"replace_original": True, "text": notification_text(chosen)}
            )
            return
        text = payload["message"].get("text") or ""
        kept = [
            b
            for b in payload["message"].get("blocks") or ()
            if not str(b.get("block_id", "")).startswith((QUESTION_PREFIX, reply_layout.PREFIX))
        ]
        if text and not any(b.get("type") in CONTENT_BLOCKS for b in kept):  # a streamed text has no block
            kept = [{"type": "markdown", "text": text}, *kept]
        await self.api(
            "chat.update",
            channel=click.thread.chat,
            ts=click.id,
            text=cut_fallback(text or notification_text(chosen)),
            blocks=[*kept, *([context_block(chosen)] if chosen else [])],
        )


def _is_stop_button(payload: Json) -> bool:
    """Return whether it is the native stop button, which does not end the session itself."""
    return (payload.get("event") or {}).get("type") == "agent_session_stopped"


def _is_withdrawn(event: Message) -> bool:
    return event.kind is Kind.DELETE or (event.kind is Kind.COMMAND and event.text == "stop")
