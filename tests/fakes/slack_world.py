"""The state of the fake Slack: workspaces, people, conversations, and messages as people see them."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from channels.slack.manifest import app_manifest
from tests.fakes.server import Json

TEAM = "T1"
BOT = "U0FAWN"
BOT_ID = "B0FAWN"
APP = "A0FAWN"
BOT_TOKEN = "xoxb-fawn"
APP_TOKEN = "xapp-fawn"
JANE = "UJANE"  # the default author
OPS = "C1"  # a channel that is always there, with the bot in it

MARKDOWN = (
    12_000  # characters of the markdown in one message (docs.slack.dev/reference/block-kit/blocks/markdown-block)
)
MESSAGE = 13_200  # of all text in its blocks (github.com/slackapi/bolt-js/issues/2509, …/2867)
BLOCKS = 50
_PING = re.compile(r"<@(\w+)(?:\|[^>]*)?>|<!(channel|here|everyone)(?:\|[^>]*)?>|<!subteam\^(\w+)[^>]*>")


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace with the app installed."""

    team: str = TEAM
    name: str = "Acme"
    bot: str = BOT
    bot_id: str = BOT_ID
    bot_token: str = BOT_TOKEN
    app_token: str = APP_TOKEN


@dataclass(slots=True)
class StoredFile:
    """A file on the platform. `size` may be larger than `data`."""

    id: str
    name: str
    data: bytes
    size: int
    mime: str
    team: str
    shared: bool = False
    shared_at: float = 0.0  # time.monotonic() from which its shares are reported
    mode: str = "hosted"


@dataclass(slots=True)
class Post:
    """A message. `markdown`, `tasks` and `plan` are what was streamed into it."""

    ts: str
    channel: str
    user: str
    text: str = ""
    blocks: list[Json] = field(default_factory=list)
    thread_ts: str = ""
    metadata: Json | None = None
    files: list[str] = field(default_factory=list)
    attachments: list[Json] = field(default_factory=list)
    state: str = "posted"  # posted, streaming, stopped
    markdown: str = ""
    tasks: dict[str, Json] = field(default_factory=dict)
    plan: str = ""
    only_for: str = ""  # an ephemeral message's reader
    edits: int = 0
    reactions: dict[str, list[str]] = field(default_factory=dict)
    notified: list[str] = field(default_factory=list)
    bot_id: str = ""
    username: str = ""  # of an integration, which is no user


@dataclass(frozen=True, slots=True)
class Shown:
    """A message as people see it now; `buttons` are (label, block id, action id, value), `file` the bytes it has."""

    ts: str
    text: str
    thread_ts: str = ""
    state: str = "posted"
    buttons: tuple[tuple[str, str, str, str], ...] = ()
    file_name: str = ""
    file: bytes = b""
    edits: int = 0
    only_for: str = ""
    tasks: tuple[str, ...] = ()  # "title: status"
    plan: str = ""  # their title
    details: dict[str, str] = field(default_factory=dict)  # of the tasks, by title
    styles: tuple[tuple[str, str], ...] = ()  # of the buttons, by label


@dataclass(slots=True)
class Conversation:
    """A channel, a private channel, a group of people ("mpim") or a direct chat ("im") with the bot in it."""

    id: str
    team: str
    kind: str
    posts: dict[str, Post] = field(default_factory=dict)
    member: bool = True
    archived: bool = False
    sessions: dict[str, str] = field(default_factory=dict)  # thread → "processing", "active", …
    titles: dict[str, str] = field(default_factory=dict)  # thread → its session's title
    name: str = ""
    statuses: dict[str, str] = field(default_factory=dict)  # thread → what the app shows until it posts there


def seen(text: str) -> str:
    """What is displayed of markdown or mrkdwn: entities decoded once, tokens as names."""
    shown = _PING.sub(lambda found: f"@{found[1] or found[2] or found[3]}", text)
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def pings(text: str) -> list[str]:
    """Return whom a text with Slack's tokens notifies."""
    return [found[1] or found[2] or found[3] for found in _PING.finditer(text)]


def texts(blocks: Iterable[Json]) -> list[tuple[str, bool]]:
    """The texts of blocks, each with whether Slack looks for its tokens in it."""
    found: list[tuple[str, bool]] = []
    for block in blocks:
        match block["type"]:
            case "markdown":
                found.append((block["text"], True))
            case "rich_text":
                found.append((_rich_text(block), False))
            case "header":
                found.append((block["text"]["text"], False))
            case "section":
                found.append((block["text"]["text"], block["text"]["type"] == "mrkdwn"))
            case "context":
                found += [(part["text"], part["type"] == "mrkdwn") for part in block["elements"]]
    return found


def _rich_text(details: Json | str) -> str:
    """Return the text of a task's details: text in a stream, a rich_text block in a plan block."""
    if isinstance(details, str):
        return details
    return "".join(part["text"] for section in details["elements"] for part in section["elements"])


def controls(blocks: Iterable[Json]) -> list[tuple[str, str, str, str]]:
    """Buttons and options: (label, block id, action id, value)."""
    found = []
    for block in blocks:
        for element in block["elements"] if block["type"] == "actions" else ():
            options = element.get("options") or [element]
            found += [(o["text"]["text"], block.get("block_id", ""), element["action_id"], o["value"]) for o in options]
    return found


class World:
    """What has happened. Thread-safe as far as tests need it: one statement a change."""

    def __init__(self, *workspaces: Workspace) -> None:
        self.workspaces = {w.team: w for w in workspaces or (Workspace(),)}
        self.conversations: dict[tuple[str, str], Conversation] = {}
        self.people: dict[str, Json] = {}
        self.files: dict[str, StoredFile] = {}
        self.responses: dict[str, Json] = {}  # path of a response_url → channel, user, thread, uses
        manifest = json.loads(app_manifest())
        self.scopes = set(manifest["oauth_config"]["scopes"]["bot"])  # that the bot's token was granted
        self.events = set(manifest["settings"]["event_subscriptions"]["bot_events"])
        self.commands = {entry["command"] for entry in manifest["features"]["slash_commands"]}
        self.shortcuts = {entry["callback_id"] for entry in manifest["features"]["shortcuts"]}
        self.agent = self.agent_view = "agent_view" in manifest["features"]  # has sessions; has threads in direct chats
        self.home_enabled = manifest["features"]["app_home"]["home_tab_enabled"]
        self.homes: dict[tuple[str, str], Json] = {}  # (team, user) → the view of their Home tab
        self.shares_context = False  # Slack names what a person looks at only sometimes (openclaw#126872)
        self._clock = itertools.count(1)
        for team in self.workspaces:
            self.person(JANE, team=team)
            self.conversation(OPS, team)

    def ts(self, at: float = 0.0) -> str:
        """The next timestamp, unique everywhere."""
        return f"{int(at or time.time())}.{next(self._clock):06d}"

    def person(self, user: str = JANE, team: str = TEAM, **more: Any) -> Json:
        """The user object; a new person is made up, `more` changes what is known of them."""
        name = "Jane" if user == JANE else f"User {user}"
        known = self.people.setdefault(
            user,
            {
                "id": user,
                "team_id": team,
                "name": name.lower().replace(" ", "."),
                "real_name": name,
                "is_bot": False,
                "is_restricted": False,
                "is_ultra_restricted": False,
                "deleted": False,
                "profile": {"display_name": name, "real_name": name},
            },
        )
        known.update(more)
        return known

    def conversation(self, channel: str = OPS, team: str = TEAM, kind: str = "") -> Conversation:
        """The conversation, made when it is new: D… is a direct chat, G… a private channel, others are channels."""
        kind = kind or {"D": "im", "G": "group"}.get(channel[0], "channel")
        return self.conversations.setdefault((team, channel), Conversation(channel, team, kind))

    def keep(self, name: str, data: bytes, mime: str, team: str = TEAM, size: int = 0) -> StoredFile:
        file = StoredFile(f"F{len(self.files)}", name, data, size or len(data), mime, team)
        self.files[file.id] = file
        return file

    def author(self, post: Post, team: str) -> bool:
        """Whether the bot wrote it."""
        return post.user == self.workspaces[team].bot

    def visible(
        self, channel: str = OPS, thread: str | None = None, team: str = TEAM, everybody: bool = False
    ) -> list[Shown]:
        """The bot's messages in a conversation (or one of its threads; "" outside of any) in order."""
        return [
            self.shown(post)
            for post in list(self.conversation(channel, team).posts.values())
            if (everybody or self.author(post, team)) and thread in (None, post.thread_ts)
        ]

    def texts(self, channel: str = OPS, thread: str | None = None, team: str = TEAM) -> list[str]:
        return [shown.text for shown in self.visible(channel, thread, team)]

    def shown(self, post: Post) -> Shown:
        """Return the visible message: tasks are listed during a stream and collapsed afterwards."""
        lines = []
        plans = [block for block in post.blocks if block["type"] == "plan"]
        cards = [*post.tasks.values(), *(card for block in plans for card in block["tasks"])]
        tasks = tuple(f"{task['title']}: {task['status']}" for task in cards)
        if post.state == "streaming":
            lines = [*([post.plan] if post.plan else []), *tasks]
        if post.markdown:
            lines.append(seen(post.markdown))
        parts = texts(post.blocks)
        lines += [seen(text) if parsed else text for text, parsed in parts]
        if not lines:
            lines = [seen(post.text)] if post.text else []
        file = self.files[post.files[0]] if post.files else None
        return Shown(
            ts=post.ts,
            text="\n".join(lines),
            thread_ts=post.thread_ts,
            state=post.state,
            buttons=tuple(controls(post.blocks)),
            file_name=" ".join(self.files[id].name for id in post.files),
            file=file.data if file else b"",
            edits=post.edits,
            only_for=post.only_for,
            tasks=tasks,
            plan=plans[0]["title"] if plans else post.plan,
            details={card["title"]: _rich_text(card.get("details") or "") for card in cards},
            styles=tuple(
                (button["text"]["text"], button.get("style", ""))
                for block in post.blocks
                for button in (block["elements"] if block["type"] == "actions" else ())
                if button["type"] == "button"
            ),
        )

    def pinged(self, channel: str = OPS, thread: str | None = None, team: str = TEAM) -> list[str]:
        """Return whom the bot's messages notified by a mention when they were posted (edits notify nobody)."""
        return [
            user
            for post in list(self.conversation(channel, team).posts.values())
            if self.author(post, team) and thread in (None, post.thread_ts)
            for user in post.notified
        ]
