"""Slack's payloads in our words: pure functions, one payload in, at most one event out."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import orjson

from agent.messages import ANYWHERE, Attachment, Author, Kind, Message, Quote, Thread, Unreadable
from channels.base import parse_command_text
from channels.slack.manifest import MESSAGE_SHORTCUT

Json = dict[str, Any]  # a payload: its shape is Slack's

NAME = "slack"
QUESTION_PREFIX = "ask:"  # a block with an answer's buttons is called so, and then the question's id
SHORTCUT_QUESTION = "What about this?"  # what the message shortcut asks

_SUBTYPES = frozenset({"", "file_share", "thread_broadcast", "bot_message", "me_message"})
_MENTION = re.compile(r"<@([A-Z0-9]+)(?:\|[^<>]*)?>")
_TOKEN = re.compile(r"<([^<>]+)>")
_ENTITIES = re.compile(r"&(lt|gt|amp);")


@dataclass(frozen=True, slots=True)
class SlackAccount:
    """The app's own account in a workspace."""

    team: str
    user: str
    bot: str
    name: str
    workspace: str


def candidate_workspaces(payload: Json) -> Iterator[str]:
    """The workspaces that a payload may be meant for, the likeliest first: in a shared channel the event names where
    it happened, its authorizations where the app is installed."""
    for entry in payload.get("authorizations") or ():
        yield str(entry.get("team_id"))
    for name in ("team_id", "context_team_id"):
        yield str(payload.get(name) or "")
    yield str((payload.get("team") or {}).get("id") or "")
    yield str((payload.get("user") or {}).get("team_id") or "")


def parse_payload(payload: Json, me: SlackAccount) -> Message | Unreadable | None:
    """One payload of an envelope. None: nothing that concerns us."""
    try:
        if "event" in payload:
            return parse_event(payload["event"], me, str(payload.get("event_id", "")))
        if "command" in payload:
            return _parse_slash_command(payload, me)
        if payload.get("type") == "block_actions":
            return _parse_click(payload, me)
        if payload.get("type") == "message_action" and payload.get("callback_id") == MESSAGE_SHORTCUT:
            return _parse_shortcut(payload, me)
    except Exception as error:  # noqa: BLE001 — the boundary of one payload: its shape is not ours, others must go on
        unique = payload.get("event_id") or payload.get("trigger_id")
        return Unreadable(NAME, f"{NAME}:{me.team}:{unique}", orjson.dumps(payload), f"{type(error).__name__}: {error}")
    return None


def parse_event(raw: Json, me: SlackAccount, event_id: str = "") -> Message | None:
    """One event, or a message of the history."""
    match raw["type"], raw.get("subtype", ""):
        case ("app_mention", _) | ("message", "" | "file_share" | "thread_broadcast" | "bot_message" | "me_message"):
            return _drop_unaddressed(_parse_message(raw, me))
        case "message", "message_changed":
            return _parse_edit(raw, me)
        case "message", "message_deleted":
            return _parse_delete(raw, me)
        case "reaction_added", _:
            return _parse_reaction(raw, me)
        case "agent_session_stopped", _:
            return _parse_stop_button(raw, me, event_id)
    return None


def message_key(me: SlackAccount, channel: str, ts: str) -> str:
    """A message's key: `app_mention` and `message` tell the same one."""
    return f"{NAME}:{me.team}:{channel}:{ts}"


# ---------------------------------------------------------------- kinds


def _parse_message(raw: Json, me: SlackAccount) -> Message | None:
    author = _author_of(raw, me)
    if author is None:
        return None
    channel, ts, root = raw["channel"], raw["ts"], raw.get("thread_ts") or ""
    root = "" if root == ts else root  # a message with replies under it names itself
    private = _is_private(raw)
    text, mentioned, others = readable_text(raw.get("text") or "", me)
    files, links = _attachments_of(raw, me)
    quotes = _quotes_of(raw)
    text = "\n".join([*([text] if text else []), *links])
    kind, noun = Kind.CHAT, ""
    if (command := parse_command_text(text, me.name)) is not None:
        kind, text = Kind.COMMAND, command
    elif not (text or files or quotes or mentioned or raw.get("type") == "app_mention"):
        kind, noun = Kind.UNSUPPORTED, "a message without text"
    return Message(
        thread=Thread(NAME, me.team, channel, root if private else root or ts),
        key=message_key(me, channel, ts),
        id=ts,
        author=author,
        text=text or noun,
        time=float(ts),
        kind=kind,
        attachments=files,
        quotes=quotes,
        private=private,
        addressed=private or mentioned or raw.get("type") == "app_mention",
        follow_up=bool(root) and not (private or mentioned or others),
    )


def _drop_unaddressed(message: Message | None) -> Message | None:
    """Without what people say to each other."""
    return message if message and (message.addressed or message.follow_up) else None


def _parse_edit(raw: Json, me: SlackAccount) -> Message | None:
    inner, before = raw["message"], raw.get("previous_message") or {}
    if inner.get("subtype") == "tombstone":  # deleted, but with replies under it
        return _parse_delete({**raw, "deleted_ts": inner["ts"]}, me)
    if inner.get("subtype", "") not in _SUBTYPES or inner.get("text") == before.get("text"):
        return None  # a preview was added, a thread grew
    shared: Json = {name: raw[name] for name in ("channel", "channel_type") if name in raw}
    message = _parse_message({**inner, **shared, "type": "message"}, me)
    if message is None or message.kind is Kind.UNSUPPORTED:
        return None
    changed = (inner.get("edited") or {}).get("ts") or raw["ts"]
    return replace(
        message, kind=Kind.EDIT, target=message.key, key=f"{message.key}:edit:{changed}", time=float(raw["ts"])
    )


def _parse_delete(raw: Json, me: SlackAccount) -> Message | None:
    before = {"type": "message", "user": "", **(raw.get("previous_message") or {}), "ts": raw["deleted_ts"]}
    message = _parse_message({**before, "channel": raw["channel"], "channel_type": raw.get("channel_type")}, me)
    if message is None:
        return None
    return replace(message, kind=Kind.DELETE, target=message.key, key=f"{message.key}:delete", text="", quotes=())


def _parse_reaction(raw: Json, me: SlackAccount) -> Message | None:
    """❌ on the bot's message."""
    item = raw.get("item") or {}
    if raw.get("reaction") != "x" or raw.get("item_user") != me.user or item.get("type") != "message":
        return None
    unique = f"{message_key(me, item['channel'], item['ts'])}:x:{raw['user']}:{raw['event_ts']}"
    return _make_stop(raw, me, unique, Thread(NAME, me.team, item["channel"], ANYWHERE), item["ts"])


def _parse_stop_button(raw: Json, me: SlackAccount, event_id: str) -> Message | None:
    """The native stop button (docs.slack.dev/reference/events/agent_session_stopped)."""
    streams = raw.get("streaming_message_ts") or [""]
    thread = Thread(NAME, me.team, raw["channel"], raw.get("thread_ts") or ANYWHERE)
    return _make_stop(raw, me, f"{NAME}:{me.team}:stop:{event_id}", thread, streams[0])


def _make_stop(raw: Json, me: SlackAccount, unique: str, thread: Thread, on: str) -> Message:
    return Message(
        thread=thread,
        key=unique,
        id=unique,
        author=Author(raw["user"], raw["user"]),
        text="stop",
        time=float(raw["event_ts"]),
        kind=Kind.COMMAND,
        to_bot=bool(on),
        reply_to=on,
        private=thread.chat.startswith("D"),
        addressed=not on,
    )


def _parse_slash_command(payload: Json, me: SlackAccount) -> Message:
    """`/fawn status`: Slack allows it outside of threads only, and gives the words as they are."""
    words_ = str(payload.get("text") or "").strip().lstrip("/!") or "help"
    unique = f"{NAME}:{me.team}:{payload['trigger_id']}"
    name, _, rest = words_.partition(" ")
    return Message(
        thread=Thread(NAME, me.team, payload["channel_id"]),
        key=unique,
        id=unique,
        author=Author(payload["user_id"], payload.get("user_name") or payload["user_id"]),
        text=f"{name.lower()} {rest.strip()}".strip(),
        time=time.time(),
        kind=Kind.COMMAND,
        private=_is_private({"channel": payload["channel_id"]}),
    )


def _parse_click(payload: Json, me: SlackAccount) -> Message | None:
    """A pressed button or a chosen option of ours: its value is the option in full."""
    action, where = payload["actions"][0], payload["container"]  # a message for one person is not told in full
    if not action.get("block_id", "").startswith(QUESTION_PREFIX):
        return None
    channel, ts, root = payload["channel"]["id"], where["message_ts"], where.get("thread_ts") or ""
    private = _is_private({"channel": channel})
    return Message(
        thread=Thread(NAME, me.team, channel, root or ("" if private else ANYWHERE)),
        key=f"{message_key(me, channel, ts)}:click:{action['action_ts']}",
        id=ts,
        author=Author(payload["user"]["id"], payload["user"].get("name") or payload["user"]["id"]),
        text=(action.get("selected_option") or action)["value"],
        time=float(action["action_ts"]),
        kind=Kind.CLICK,
        target=action["block_id"].removeprefix(QUESTION_PREFIX),
        private=private,
        to_bot=True,
        reply_to=ts,
    )


def _parse_shortcut(payload: Json, me: SlackAccount) -> Message:
    """ "Ask Fawn about this": the message is quoted in a question in its own thread."""
    about, channel = payload["message"], payload["channel"]["id"]
    private = _is_private({"channel": channel})
    ts, root = about["ts"], about.get("thread_ts") or ""
    said, _, _ = readable_text(about.get("text") or "", me)
    files, links = _attachments_of(about, me)
    quoted = "\n".join([*([said] if said else []), *links, *(quote.text for quote in _quotes_of(about))])
    return Message(
        thread=Thread(NAME, me.team, channel, root if private else root or ts),
        key=f"{NAME}:{me.team}:{payload['trigger_id']}",
        id=ts,
        author=Author(payload["user"]["id"], payload["user"].get("name") or payload["user"]["id"]),
        text=SHORTCUT_QUESTION,
        time=float(payload["action_ts"]),
        attachments=files,
        quotes=(Quote(about.get("user") or about.get("username") or "somebody", quoted),) if quoted else (),
        private=private,
    )


# ---------------------------------------------------------------- parts


def readable_text(text: str, me: SlackAccount) -> tuple[str, bool, bool]:
    """The text as people read it, without the mention of the bot: whether that was there, whether others are mentioned.

    Mentions of others stay as Slack writes them.
    """
    people = {found[1] for found in _MENTION.finditer(text)}
    text = _MENTION.sub(lambda found: "\0" if found[1] == me.user else found[0], text)
    text = re.sub(r"(?m)^\0[ \t,:]*|(?<![ \t])[ \t]*\0|\0", "", text)
    text = _TOKEN.sub(_readable_token, text)
    text = _ENTITIES.sub(lambda found: {"lt": "<", "gt": ">", "amp": "&"}[found[1]], text)
    return text.strip(), me.user in people, bool(people - {me.user})


def _readable_token(token: re.Match[str]) -> str:
    """A token in angle brackets (docs.slack.dev/messaging/formatting-message-text#advanced) in words."""
    target, _, label = token[1].partition("|")
    match target[:1]:
        case "@":
            return token[0]
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            return label or "@" + target[1:].partition("^")[0]
    bare = target.removeprefix("mailto:")
    return bare if not label or label in (bare, target) else f"{label} ({bare})"


def _is_private(raw: Json) -> bool:
    return raw.get("channel_type") == "im" or str(raw["channel"]).startswith("D")


def _author_of(raw: Json, me: SlackAccount) -> Author | None:
    """Who wrote it, None for ourselves; more of a person is known when Slack was asked."""
    user, bot = raw.get("user") or "", raw.get("bot_id") or ""
    if user == me.user or bot == me.bot:
        return None
    if bot:
        name = (raw.get("bot_profile") or {}).get("name") or raw.get("username") or bot
        return Author(user or bot, name, bot=True)
    return Author(user, user)


def _attachments_of(raw: Json, me: SlackAccount) -> tuple[tuple[Attachment, ...], list[str]]:
    """The files of a message, and links to those that are elsewhere. `ref` is "team/file id"."""
    files, links = [], []
    for file in raw.get("files") or ():
        if file.get("mode") in ("tombstone", "hidden_by_limit"):
            continue
        name, mime = file.get("name") or file.get("title") or file["id"], file.get("mimetype") or ""
        if file.get("is_external"):
            links.append(f"{name} ({file.get('url_private')})")
            continue
        family = mime.partition("/")[0]
        kind = family if family in ("image", "audio", "video") else "file"
        size = file.get("size")
        files.append(Attachment(f"{me.team}/{file['id']}", name, mime or "application/octet-stream", size, kind))  # type: ignore[arg-type]  # one of the words above
    return tuple(files), links


def _quotes_of(raw: Json) -> tuple[Quote, ...]:
    """Messages that were shared into this one, or that it links to."""
    return tuple(
        Quote(shared.get("author_name") or "somebody", _TOKEN.sub(_readable_token, shared["text"]), "forward")
        for shared in raw.get("attachments") or ()
        if (shared.get("is_share") or shared.get("is_msg_unfurl")) and shared.get("text")
    )
