"""Convert Slack's payloads to events: pure functions, at most one event per payload."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import orjson

from agent.messages import ANYWHERE, Attachment, Author, Kind, Message, Origin, Quote, Thread, Unreadable
from catalogue import N_
from channels.base import parse_command_text
from channels.shared.inbound import adds_mention
from channels.shared.reply_layout import as_command
from channels.shared.texts import remove_bot_mention
from channels.shared.visible_text import dicts_in, join_visible, make_unread, text_of, with_author
from channels.slack.manifest import MESSAGE_SHORTCUT
from channels.slack.visible_text import (
    attachment_lines,
    block_lines,
    blocks_of_attachment,
    is_shared_message,
    shared_messages,
)

Json = dict[str, Any]  # a payload: its shape is Slack's

CHANNEL_ENTITY = "slack#/types/channel_id"
NAME = "slack"
QUESTION_PREFIX = "ask:"  # of the id of a block with buttons; the question's id follows
SHORTCUT_QUESTION = "What about this?"

_FEEDBACK = {"+1": "up", "thumbsup": "up", "-1": "down", "thumbsdown": "down"}  # reactions
MAX_ATTACHMENTS, MAX_LINKS = 100, 20  # of a message that are read
_SUBTYPES = frozenset({"", "file_share", "thread_broadcast", "bot_message", "me_message"})
_MENTION = re.compile(r"<@([A-Z0-9]+)(?:\|[^<>]*)?>")
_TOKEN = re.compile(r"<([^<>]+)>")
_ENTITIES = re.compile(r"&(lt|gt|amp);")


@dataclass(frozen=True, slots=True)
class SlackAccount:
    """The app's own account in a workspace."""

    team_id: str
    user_id: str
    bot_id: str
    name: str
    workspace_name: str
    url: str = ""  # of the workspace: https://acme.slack.com/
    direct_threads: bool = False  # each message of the composer of a direct chat is the root of a thread

    def message_link(self, thread: Thread, ts: str) -> str:
        """Return the address of a message, as chat.getPermalink makes it."""
        if not self.url:
            return ""
        inside = f"?thread_ts={thread.topic}&cid={thread.chat}" if thread.topic not in ("", ANYWHERE, ts) else ""
        return f"{self.url}archives/{thread.chat}/p{ts.replace('.', '')}{inside}"


def candidate_workspaces(payload: Json) -> Iterator[str]:
    """Yield the workspaces that a payload may be for, the most likely first.

    In a shared channel the event names the workspace of its origin, its authorizations those with the app.
    """
    for entry in payload.get("authorizations") or ():
        yield str(entry.get("team_id"))
    for name in ("team_id", "context_team_id"):
        yield str(payload.get(name) or "")
    yield str((payload.get("team") or {}).get("id") or "")
    yield str((payload.get("user") or {}).get("team_id") or "")


def parse_payload(payload: Json, account: SlackAccount) -> Message | Unreadable | None:
    """Convert the payload of an envelope. Returns None for one that does not concern the bot."""
    try:
        if "event" in payload:
            return parse_event(payload["event"], account, str(payload.get("event_id", "")))
        if "command" in payload:
            return _parse_slash_command(payload, account)
        if payload.get("type") == "block_actions":
            return _parse_click(payload, account)
        if payload.get("type") == "message_action" and payload.get("callback_id") == MESSAGE_SHORTCUT:
            return _parse_shortcut(payload, account)
    except Exception as error:  # noqa: BLE001 — the boundary of one payload: others must be processed
        unique = payload.get("event_id") or payload.get("trigger_id")
        key = f"{NAME}:{account.team_id}:{unique}"
        lost = Unreadable(NAME, key, orjson.dumps(payload), f"{type(error).__name__}: {error}")
        return with_author(lost, lambda: _unread(payload["event"], account))
    return None


def _unread(raw: Json, account: SlackAccount) -> Message | None:
    """Return the message that an unreadable event of a direct chat, or with a mention, was."""
    private = _is_private(raw)
    if raw.get("bot_id") or not (raw["type"] == "app_mention" or (private and raw["type"] == "message")):
        return None
    root = raw.get("thread_ts") or (raw["ts"] if account.direct_threads or not private else "")
    thread = Thread(NAME, account.team_id, str(raw["channel"]), str(root))
    return make_unread(thread, message_key(account, raw["channel"], raw["ts"]), raw["ts"], raw["user"], private=private)


def parse_event(raw: Json, account: SlackAccount, event_id: str = "") -> Message | None:
    """Convert an event, or a message of the history."""
    match raw["type"], raw.get("subtype", ""):
        case ("app_mention", _) | ("message", "" | "file_share" | "thread_broadcast" | "bot_message" | "me_message"):
            return _drop_unaddressed(_parse_message(raw, account))
        case "message", "message_changed":
            return _parse_edit(raw, account)
        case "message", "message_deleted":
            return _parse_delete(raw, account)
        case "reaction_added", _:
            return _parse_reaction(raw, account, Kind.FEEDBACK)
        case "reaction_removed", _:
            return _parse_reaction(raw, account, Kind.FEEDBACK_REMOVED)
        case "agent_session_stopped", _:
            return _parse_stop_button(raw, account, event_id)
        case "app_home_opened", _ if raw.get("tab") == "home":
            return _parse_home(raw["user"], raw["channel"], account, raw["event_ts"])
        case "agent_session_title_changed", _:
            return _parse_title(raw, account, event_id)
    return None


def _deleted_by_others(raw: Json, before: Json, account: SlackAccount) -> Message | None:
    """Return the deletion of a message of the bot, of which Slack does not say whose it was."""
    if account.user_id != before["user"] and account.bot_id != before.get("bot_id"):
        return None
    thread = Thread(NAME, account.team_id, raw["channel"], ANYWHERE)
    key = message_key(account, raw["channel"], before["ts"])
    nobody, when = Author("", ""), float(raw["ts"])
    return Message(
        thread, f"{key}:delete", before["ts"], nobody, "", when, Kind.DELETE, target=key, origin=Origin.PERSON
    )


def message_key(account: SlackAccount, channel: str, ts: str) -> str:
    """Return a message's key, which is the same for its events `app_mention` and `message`."""
    return f"{NAME}:{account.team_id}:{channel}:{ts}"


# ---------------------------------------------------------------- kinds


def _parse_message(raw: Json, account: SlackAccount) -> Message | None:
    author = _author_of(raw, account)
    if author is None:
        return None
    channel, ts, private = raw["channel"], raw["ts"], _is_private(raw)
    # Slack sends no `thread_ts` with a root, and `app_context` not always (vercel/chat#684, openclaw#126872).
    root = raw.get("thread_ts") or (ts if private and (account.direct_threads or "app_context" in raw) else "")
    said = "" if author.bot else str(raw.get("text") or "")
    text, mentioned, others = readable_text(said or visible_text(raw), account)
    files, links = _attachments_of(raw, account)
    quotes = (*_views_of(raw, account), *_quotes_of(raw, account), *([] if author.bot else _looked_at(raw, account)))
    text = "\n".join([*([text] if text else []), *links])
    kind, noun = Kind.CHAT, ""
    if (command := parse_command_text(text, account.name)) is not None:
        kind, text = Kind.COMMAND, command
    elif not (text or files or quotes or mentioned or raw.get("type") == "app_mention"):
        kind, noun = Kind.UNSUPPORTED, N_("a message without text")
    return Message(
        thread=Thread(NAME, account.team_id, channel, root if private else root or ts),
        key=message_key(account, channel, ts),
        id=ts,
        author=author,
        text=text or noun,
        time=float(ts),
        kind=kind,
        attachments=files,
        quotes=quotes,
        private=private,
        addressed=private or mentioned or raw.get("type") == "app_mention",
        follow_up=root not in ("", ts) and not (private or mentioned or others),
        origin=author.origin,
    )


def _drop_unaddressed(message: Message | None) -> Message | None:
    """Drop a message between other people."""
    return message if message and (message.addressed or message.follow_up) else None


def _parse_edit(raw: Json, account: SlackAccount) -> Message | None:
    inner, before = raw["message"], raw.get("previous_message") or {}
    if inner.get("subtype") == "tombstone":  # deleted, but with replies under it
        return _parse_delete({**raw, "deleted_ts": inner["ts"]}, account)
    links_come = bool(shared_messages(inner)) and not shared_messages(before)  # Slack shows what a link names later
    if inner.get("subtype", "") not in _SUBTYPES or (inner.get("text") == before.get("text") and not links_come):
        return None  # a preview of a page was added, a thread grew
    shared: Json = {name: raw[name] for name in ("channel", "channel_type") if name in raw}
    message = _parse_message({**inner, **shared, "type": "message"}, account)
    if message is None or message.kind is Kind.UNSUPPORTED:
        return None
    changed = (inner.get("edited") or {}).get("ts") or raw["ts"]
    edit = replace(
        message, kind=Kind.EDIT, target=message.key, key=f"{message.key}:edit:{changed}", time=float(raw["ts"])
    )
    is_new = message.kind is Kind.CHAT and message.addressed and adds_mention(edit, message.time)
    return replace(edit, addressed=edit.private or is_new)


def _parse_delete(raw: Json, account: SlackAccount) -> Message | None:
    before = {"type": "message", "user": "", **(raw.get("previous_message") or {}), "ts": raw["deleted_ts"]}
    message = _parse_message({**before, "channel": raw["channel"], "channel_type": raw.get("channel_type")}, account)
    if message is None:
        return _deleted_by_others(raw, before, account)
    return replace(message, kind=Kind.DELETE, target=message.key, key=f"{message.key}:delete", text="", quotes=())


def _parse_reaction(raw: Json, account: SlackAccount, kind: Kind) -> Message | None:
    """Convert ❌ on a message of the bot to a stop, and 👍 and 👎 to feedback."""
    item, name = raw.get("item") or {}, str(raw.get("reaction")).partition("::")[0]  # a skin tone follows
    stops, text = name == "x" and kind is Kind.FEEDBACK, _FEEDBACK.get(name, "")
    if not (stops or text) or raw.get("item_user") != account.user_id or item.get("type") != "message":
        return None
    unique = f"{message_key(account, item['channel'], item['ts'])}:{name}:{raw['user']}:{raw['event_ts']}"
    stop = _make_stop(raw, account, unique, Thread(NAME, account.team_id, item["channel"], ANYWHERE), item["ts"])
    return stop if stops else replace(stop, kind=kind, text=text)


def _parse_stop_button(raw: Json, account: SlackAccount, event_id: str) -> Message | None:
    """Convert the native stop button (docs.slack.dev/reference/events/agent_session_stopped)."""
    streams = raw.get("streaming_message_ts") or [""]
    thread = Thread(NAME, account.team_id, raw["channel"], raw.get("thread_ts") or ANYWHERE)
    return _make_stop(raw, account, f"{NAME}:{account.team_id}:stop:{event_id}", thread, streams[0])


def _parse_title(raw: Json, account: SlackAccount, event_id: str) -> Message | None:
    """Convert the new title of a thread's session, which a person wrote."""
    if not raw.get("thread_ts"):
        return None
    unique = f"{NAME}:{account.team_id}:title:{event_id}"
    return Message(
        thread=Thread(NAME, account.team_id, raw["channel"], raw["thread_ts"]),
        key=unique,
        id=unique,
        author=Author(raw["user"], raw["user"]),
        text=str(raw["title"]),
        time=float(raw["event_ts"]),
        kind=Kind.TITLE,
        origin=Origin.PERSON,
    )


def _parse_home(user: str, channel: str, account: SlackAccount, event_ts: str) -> Message:
    """Convert that a person opened the Home tab (docs.slack.dev/reference/events/app_home_opened)."""
    unique = f"{NAME}:{account.team_id}:home:{user}:{event_ts}"
    return Message(
        thread=Thread(NAME, account.team_id, channel),
        key=unique,
        id=unique,
        author=Author(user, user),
        text="",
        time=float(event_ts),
        kind=Kind.HOME,
        private=True,
        origin=Origin.PERSON,
    )


def home_after_press(payload: Json, account: SlackAccount) -> Message | None:
    """Return that a person sees the Home tab, if they have pressed a button there."""
    if payload["container"]["type"] != "view":
        return None
    chat, pressed = payload["view"]["private_metadata"], payload["actions"][0]["action_ts"]
    return _parse_home(payload["user"]["id"], chat, account, pressed)


def _make_stop(raw: Json, account: SlackAccount, unique: str, thread: Thread, on: str) -> Message:
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
        origin=Origin.PERSON,
    )


def _parse_slash_command(payload: Json, account: SlackAccount) -> Message:
    """Convert `/fawn status`, which Slack offers only outside of threads."""
    text = str(payload.get("text") or "").strip().lstrip("/!") or "help"
    unique = f"{NAME}:{account.team_id}:{payload['trigger_id']}"
    name, _, rest = text.partition(" ")
    return Message(
        thread=Thread(NAME, account.team_id, payload["channel_id"]),
        key=unique,
        id=unique,
        author=Author(payload["user_id"], payload.get("user_name") or payload["user_id"]),
        text=f"{name.lower()} {rest.strip()}".strip(),
        time=time.time(),
        kind=Kind.COMMAND,
        native=True,
        private=_is_private({"channel": payload["channel_id"]}),
        origin=Origin.PERSON,
    )


def _parse_click(payload: Json, account: SlackAccount) -> Message | None:
    """Convert a pressed button or a chosen list entry: its value is the option in full, or the feedback."""
    action, where = payload["actions"][0], payload["container"]  # an ephemeral message has no other address
    block_id, is_feedback = str(action.get("block_id", "")), action["type"] == "feedback_buttons"
    if where["type"] == "view":  # the Home tab, whose view names the direct messages with its reader
        channel, ts, root = payload["view"]["private_metadata"], "", ""
    else:
        channel, ts, root = payload["channel"]["id"], where["message_ts"], where.get("thread_ts") or ""
    private = _is_private({"channel": channel})
    click = Message(
        thread=Thread(NAME, account.team_id, channel, root or ("" if private else ANYWHERE)),
        key=f"{message_key(account, channel, ts)}:click:{action['action_ts']}",
        id=ts,
        author=Author(payload["user"]["id"], payload["user"].get("name") or payload["user"]["id"]),
        text=str((action.get("selected_option") or action).get("value", "")),
        time=float(action["action_ts"]),
        kind=Kind.FEEDBACK if is_feedback else Kind.CLICK,
        target="" if is_feedback else block_id.removeprefix(QUESTION_PREFIX),
        private=private,
        to_bot=True,
        reply_to=ts,
        origin=Origin.PERSON,
    )
    known = is_feedback or block_id.startswith(QUESTION_PREFIX)
    return as_command(click, block_id) or (click if known else None)


def _parse_shortcut(payload: Json, account: SlackAccount) -> Message:
    """Convert the shortcut "Ask Fawn about this" to a question in the thread of the message, which it quotes."""
    about, channel = payload["message"], payload["channel"]["id"]
    private = _is_private({"channel": channel})
    ts, root = about["ts"], about.get("thread_ts") or ""
    said, _, _ = readable_text(visible_text(about), account)
    files, links = _attachments_of(about, account)
    author = str(about.get("user") or "")
    by = author or about.get("username") or "somebody"
    quoted = "\n".join([*([said] if said else []), *links, *(quote.text for quote in _quotes_of(about, account))])
    return Message(
        thread=Thread(NAME, account.team_id, channel, root if private else root or ts),
        key=f"{NAME}:{account.team_id}:{payload['trigger_id']}",
        id=ts,
        author=Author(payload["user"]["id"], payload["user"].get("name") or payload["user"]["id"]),
        text=SHORTCUT_QUESTION,
        time=float(payload["action_ts"]),
        attachments=files,
        quotes=(Quote(by, quoted, author_id=author, member=has_own_words(about)),) if quoted else (),
        private=private,
        origin=Origin.PERSON,
    )


# ---------------------------------------------------------------- parts


def visible_text(raw: Json) -> str:
    """Return what a reader sees of a message, but for its files and the messages that it shares, in Slack's mrkdwn.

    A person's text is whole in `text`; of an integration it may be a short form of its blocks and attachments.
    """
    return _with_attachments(raw, raw.get("blocks") if raw.get("bot_id") or not raw.get("text") else None)


def has_own_words(raw: Json) -> bool:
    """Return whether what a reader sees of a message is of its author only, a person."""
    return bool(raw.get("user")) and not (raw.get("bot_id") or raw.get("attachments"))


def _with_attachments(raw: Json, blocks: Any) -> str:
    """Return the text of a message, or of an attachment that is one, with its blocks and its own attachments."""
    attachments = (
        each for each in islice(dicts_in(raw.get("attachments")), MAX_ATTACHMENTS) if not is_shared_message(each)
    )
    lines = (line for each in attachments for line in attachment_lines(each))
    return join_visible(str(raw.get("text") or ""), chain(block_lines(blocks), lines))


def readable_text(text: str, account: SlackAccount) -> tuple[str, bool, bool]:
    """Return the text as people read it without the bot's mention, whether it had one, and whether it mentions others.

    Mentions of others and of channels without a label stay as Slack writes them; `Workspace.with_names` names them.
    """
    people = {found[1] for found in _MENTION.finditer(text)}
    text = _MENTION.sub(lambda found: "\0" if found[1] == account.user_id else found[0], text)
    text = remove_bot_mention(text)
    text = _TOKEN.sub(_readable_token, text)
    text = _ENTITIES.sub(lambda found: {"lt": "<", "gt": ">", "amp": "&"}[found[1]], text)
    return text.strip(), account.user_id in people, bool(people - {account.user_id})


def _readable_token(token: re.Match[str]) -> str:
    """Return the text of a token in angle brackets (docs.slack.dev/messaging/formatting-message-text#advanced)."""
    target, _, label = token[1].partition("|")
    match target[:1]:
        case "@":
            return token[0]
        case "#":
            return f"#{label}" if label else f"<{target}>"
        case "!":
            return label or "@" + target[1:].partition("^")[0]
    bare = target.removeprefix("mailto:")
    return bare if not label or label in (bare, target) else f"{label} ({bare})"


def _is_private(raw: Json) -> bool:
    return raw.get("channel_type") == "im" or str(raw["channel"]).startswith("D")


def _author_of(raw: Json, account: SlackAccount) -> Author | None:
    """Return the author, or None for the bot itself; `Workspace.with_author` adds the name."""
    user, bot = raw.get("user") or "", raw.get("bot_id") or ""
    if user == account.user_id or bot == account.bot_id:
        return None
    if bot:
        name = (raw.get("bot_profile") or {}).get("name") or raw.get("username") or bot
        return Author(user or bot, name, bot=True)
    return Author(user, user)


def _attachments_of(raw: Json, account: SlackAccount) -> tuple[tuple[Attachment, ...], list[str]]:
    """Return the files of a message, and links to external ones. `ref` is "team id/file id"."""
    files, links = [], []
    for file in (file for each in (raw, *shared_messages(raw)) for file in dicts_in(each.get("files"))):
        if file.get("mode") in ("tombstone", "hidden_by_limit"):
            continue
        name, mime = file.get("name") or file.get("title") or file["id"], file.get("mimetype") or ""
        if file.get("is_external"):
            links.append(f"{name} ({file.get('url_private')})")
            continue
        family = mime.partition("/")[0]
        kind = family if family in ("image", "audio", "video") else "file"
        ref, mime = f"{account.team_id}/{file['id']}", mime or "application/octet-stream"
        files.append(Attachment(ref, name, mime, file.get("size"), kind))  # type: ignore[arg-type]  # a kind as above
    return tuple(files), links


def _quotes_of(raw: Json, account: SlackAccount) -> tuple[Quote, ...]:
    """Return the messages that it shares or links to, with all that a reader sees of them."""
    quotes = []
    for shared in shared_messages(raw):
        text, _, _ = readable_text(_with_attachments(shared, blocks_of_attachment(shared)), account)
        if text:
            author = str(shared.get("author_id") or "")
            quotes.append(Quote(text_of(shared.get("author_name")) or "somebody", text, "forward", author))
    return tuple(quotes)


def _views_of(raw: Json, account: SlackAccount) -> Iterator[Quote]:
    """Yield the channels that the author had open (docs.slack.dev/reference/events/app_context_changed)."""
    for entity in (raw.get("app_context") or {}).get("entities") or ():
        id = str(entity.get("value") or "")
        if entity.get("type") == CHANNEL_ENTITY and entity.get("team_id") in (None, account.team_id) and id:
            yield Quote("", f"<#{id}>", "view", id=id)


def _looked_at(raw: Json, account: SlackAccount) -> Iterator[Quote]:
    """Yield what Slack shows of the pages that a person's message links to: others' text."""
    for each in islice(dicts_in(raw.get("attachments")), MAX_LINKS):
        if not is_shared_message(each) and (address := str(each.get("from_url") or each.get("original_url") or "")):
            text, _, _ = readable_text(join_visible("", attachment_lines(each)), account)
            if text:
                yield Quote(address, text, "link")
