"""The fake Discord's REST API v10: the calls of a bot, with their checks and error codes."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Collection
from typing import Any

from tests.fakes.discord_gateway import Gateway
from tests.fakes.discord_world import (
    BOT,
    COMPONENTS,
    DM,
    EPHEMERAL,
    LOADING,
    MEMBER,
    SUPPRESS,
    TIERS,
    ApiError,
    Room,
    displays,
    stamp,
    walked,
)
from tests.fakes.server import Json

NO_CHANNEL = ApiError(404, 10003, "Unknown Channel")
NO_MESSAGE = ApiError(404, 10008, "Unknown Message")
NO_GUILD = ApiError(404, 10004, "Unknown Guild")
NO_MEMBER = ApiError(404, 10007, "Unknown Member")
NO_USER = ApiError(404, 10013, "Unknown User")
NO_ACCESS = ApiError(403, 50001, "Missing Access")
NO_PERMISSION = ApiError(403, 50013, "Missing Permissions")
ARCHIVED = ApiError(400, 50083, "Thread is archived")
LATE = 3.0  # seconds to answer an interaction
LIVES = 900.0  # seconds it can be answered further
NAMES = 2  # that a channel may get in ten minutes
NONCES = 180.0  # seconds ("a few minutes") that a nonce is remembered

Files = dict[str, tuple[str, bytes]]


class Rest(Gateway):
    """Methods called m_NAME(params of the path, body, files, query); they raise ApiError."""

    ROUTES = [  # noqa: RUF012 — a table, never changed
        ("GET", "users/@me", "me"),
        ("GET", "users/@me/guilds", "guilds"),
        ("POST", "users/@me/channels", "createDM"),
        ("GET", "guilds/{guild}/members/{user}", "member"),
        ("GET", "oauth2/applications/@me", "application"),
        ("GET", "applications/@me", "application"),
        ("GET", "gateway", "gateway"),
        ("GET", "gateway/bot", "gateway"),
        ("GET", "applications/{app}/commands", "commands"),
        ("PUT", "applications/{app}/commands", "setCommands"),
        ("GET", "channels/{channel}", "getChannel"),
        ("PATCH", "channels/{channel}", "modifyChannel"),
        ("POST", "channels/{channel}/typing", "typing"),
        ("GET", "channels/{channel}/messages", "getMessages"),
        ("POST", "channels/{channel}/messages", "createMessage"),
        ("GET", "channels/{channel}/messages/{message}", "getMessage"),
        ("PATCH", "channels/{channel}/messages/{message}", "editMessage"),
        ("DELETE", "channels/{channel}/messages/{message}", "deleteMessage"),
        ("POST", "channels/{channel}/messages/{message}/threads", "createThread"),
        ("POST", "interactions/{interaction}/{token}/callback", "callback"),
        ("GET", "webhooks/{app}/{token}/messages/@original", "getOriginal"),
        ("PATCH", "webhooks/{app}/{token}/messages/@original", "editOriginal"),
        ("POST", "webhooks/{app}/{token}", "followup"),
    ]
    TABLE = [  # noqa: RUF012 — as above
        (method, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)), name) for method, path, name in ROUTES
    ]

    def __init__(self) -> None:
        self.interactions: dict[str, Json] = {}  # token → the interaction: its event, answers
        self._nonces: dict[str, tuple[float, str, str]] = {}  # nonce → (when, channel, message)
        super().__init__()

    def find(self, method: str, path: str) -> tuple[str, dict[str, str]] | None:
        """The name of a route and the parameters of its path."""
        for wanted, pattern, name in self.TABLE:
            if method == wanted and (found := pattern.fullmatch(path)):
                return name, found.groupdict()
        return None

    def run(self, name: str, params: dict[str, str], body: Any, files: Files, query: dict[str, str]) -> Any:
        method: Callable[..., Any] = getattr(self, f"m_{name}")
        return method(params, body, files, query)

    # ------------------------------------------------------------ the account

    def m_me(self, *_: object) -> Json:
        return self.people[BOT] | {"mfa_enabled": False, "verified": True, "email": None, "flags": 0}

    def m_createDM(self, _: object, body: Json, *__: object) -> Json:
        """discord.com/developers/docs/resources/user#create-dm: the one there is, or a new one."""
        if str(body.get("recipient_id")) not in self.people:
            raise NO_USER
        return self.room_json(self.direct(str(body["recipient_id"])))

    def m_guilds(self, _: object, __: object, ___: object, query: dict[str, str]) -> list[Json]:
        """discord.com/developers/docs/resources/user#get-current-user-guilds: in order of ids, at most 200."""
        limit = int(query.get("limit", 200))
        if not 1 <= limit <= 200:
            raise invalid("limit")
        after = int(query.get("after", 0))
        found = sorted((int(id), guild["name"]) for id, guild in self.guilds.items() if int(id) > after)
        return [{"id": str(id), "name": name, "icon": None, "owner": False} for id, name in found[:limit]]

    def m_member(self, params: dict[str, str], *_: object) -> Json:
        """discord.com/developers/docs/resources/guild#get-guild-member; the codes: …/opcodes-and-status-codes."""
        if params["guild"] not in self.guilds:
            raise NO_GUILD
        if params["user"] not in self.people:
            raise NO_USER
        if (params["guild"], params["user"]) in self.left:
            raise NO_MEMBER
        flags = 1 << 4 if (params["guild"], params["user"]) in self.guests else 0
        told = {**MEMBER, "user": self.people[params["user"]], "nick": None, "avatar": None, "pending": False}
        return told | {"flags": flags}

    def m_application(self, *_: object) -> Json:
        made: Json = {"id": BOT, "name": "fawn", "icon": None, "description": "", "bot_public": True, "summary": ""}
        made |= {"bot_require_code_grant": False, "verify_key": "x", "owner": self.people[BOT], "team": None}
        return made | {"flags": self.application_flags}

    def m_gateway(self, *_: object) -> Json:
        limit = {"total": 1000, "remaining": 1000, "reset_after": 0, "max_concurrency": 1}
        return {"url": self.gateway_url, "shards": 1, "session_start_limit": limit}

    def m_commands(self, *_: object) -> list[Json]:
        return self.commands

    def m_setCommands(self, _: object, body: list[Json], *__: object) -> list[Json]:
        """Names, descriptions and the number: docs.discord.com/developers/interactions/application-commands (naming,
        limits); a name twice and code 30032: …/developers/topics/opcodes-and-status-codes."""
        if len(body) > 100:
            raise ApiError(400, 30032, "Maximum number of application commands reached (100)")
        if len({command["name"] for command in body}) < len(body):
            raise invalid("name")
        for command in body:
            if not re.fullmatch(r"[-_a-z0-9]{1,32}", command["name"]) or not 1 <= len(command["description"]) <= 100:
                raise invalid("name")
        more = {"application_id": BOT, "version": "1", "default_member_permissions": None, "nsfw": False}
        self.commands = [{"id": self.snow(), "type": 1, **more, **command} for command in body]
        return self.commands

    # ------------------------------------------------------------ channels

    def room_of(self, params: dict[str, str], *needed: str) -> Room:
        room = self.rooms.get(params["channel"])
        if room is None:
            raise NO_CHANNEL
        if room.guild:
            may = self.granted - room.denied
            if "view" not in may:
                raise NO_ACCESS
            wanted = {"send in threads" if room.parent and each == "send" else each for each in needed}
            if wanted - may or ("send" in needed and "send" in room.denied):
                raise NO_PERMISSION
        return room

    def m_getChannel(self, params: dict[str, str], *_: object) -> Json:
        return self.room_json(self.room_of(params))

    def m_modifyChannel(self, params: dict[str, str], body: Json, *_: object) -> Json:
        """A new name says so in the thread. Two are allowed in ten minutes (discord/discord-api-docs#1900)."""
        room = self.room_of(params)
        if "name" in body:
            if not 1 <= len(body["name"]) <= 100:
                raise invalid("name")
            if room.owner != BOT:  # else the permission Manage Threads is needed
                raise NO_PERMISSION
            if room.archived and body.get("archived", True):
                raise ARCHIVED
            room.renamed += 1
            if room.renamed > NAMES:
                raise ApiError(429, 20028, "The write action you are performing on the channel has hit the limit")
            room.name = body["name"]
            self.push("MESSAGE_CREATE", self.event(self.message(room, BOT, room.name, type=4)))
        room.archived = bool(body.get("archived", room.archived))
        self.push("THREAD_UPDATE", self.room_json(room))
        return self.room_json(room)

    def m_typing(self, params: dict[str, str], *_: object) -> None:
        room = self.room_of(params, "send")
        room.typing.append(time.monotonic())
        self.push("TYPING_START", {"channel_id": room.id, "user_id": BOT, "timestamp": int(time.time())})

    def m_createThread(self, params: dict[str, str], body: Json, *_: object) -> Json:
        room = self.room_of(params, "threads")
        if params["message"] not in room.messages:
            raise NO_MESSAGE
        if params["message"] in self.rooms:
            raise ApiError(400, 160004, "A thread has already been created for this message")
        if not 1 <= len(body["name"]) <= 100:
            raise invalid("name")
        thread = self.thread(room.id, body["name"], BOT, params["message"])
        reference = {"type": 0, "message_id": thread.id, "channel_id": room.id, "guild_id": room.guild}
        starter = {k: v for k, v in room.messages[thread.id].items() if k not in ("thread", "referenced_message")}
        first = self.message(thread, BOT, "", type=21, message_reference=reference, referenced_message=starter)
        self.push("MESSAGE_CREATE", self.event(first))
        return self.room_json(thread)

    # ------------------------------------------------------------ messages

    def m_getMessages(self, params: dict[str, str], _: object, __: object, query: dict[str, str]) -> list[Json]:
        room = self.room_of(params, "history")
        limit = int(query.get("limit", 50))
        if not 1 <= limit <= 100:
            raise invalid("limit")
        found = sorted(room.messages.values(), key=lambda message: -int(message["id"]))
        if "before" in query:
            found = [message for message in found if int(message["id"]) < int(query["before"])]
        if "after" in query:  # the oldest that are younger, newest first
            found = [message for message in found if int(message["id"]) > int(query["after"])][-limit:]
        return [self.refreshed(message) for message in found[:limit]]

    def m_getMessage(self, params: dict[str, str], *_: object) -> Json:
        return self.refreshed(self.message_of(self.room_of(params, "history"), params))

    def m_createMessage(self, params: dict[str, str], body: Json, files: Files, _: object) -> Json:
        room = self.room_of(params, "send", *(["files"] if files else []))
        if room.archived:
            raise ARCHIVED
        nonce = str(body.get("nonce") or "")
        if len(nonce) > 25:
            raise invalid("nonce")
        when, channel, id = self._nonces.get(nonce, (0.0, "", ""))
        fresh = channel == room.id and time.monotonic() - when < NONCES
        if body.get("enforce_nonce") and nonce and fresh and id in room.messages:
            return self.refreshed(room.messages[id]) | {"nonce": nonce}
        message = self._say(room, body, files)
        self._nonces[nonce] = (time.monotonic(), room.id, message["id"])
        self.push("MESSAGE_CREATE", self.event(message) | ({"nonce": nonce} if nonce else {}))
        return self.refreshed(message) | ({"nonce": nonce} if nonce else {})

    def m_editMessage(self, params: dict[str, str], body: Json, files: Files, _: object) -> Json:
        """Edit a message; `attachments` replaces its files, new ones of which are uploaded with the call."""
        room = self.room_of(params, *(["files"] if files else []))
        message = self.message_of(room, params)
        if message["author"]["id"] != BOT:
            raise ApiError(403, 50005, "Cannot edit a message authored by another user")
        if room.archived:
            raise ARCHIVED
        if "attachments" in body:
            kept = [
                file for file in message["attachments"] if file["id"] in [each["id"] for each in body["attachments"]]
            ]
            if len(kept) + len(files) < len(body["attachments"]):
                raise invalid("attachments")
            message["attachments"] = kept + [self.attachment(room, name, data) for name, data in files.values()]
        return self._amend(message, body)

    def m_deleteMessage(self, params: dict[str, str], *_: object) -> None:
        room = self.room_of(params)
        self.message_of(room, params)
        if room.archived:
            raise ARCHIVED
        del room.messages[params["message"]]
        self.push("MESSAGE_DELETE", {"id": params["message"], "channel_id": room.id} | guild_of(room))

    def message_of(self, room: Room, params: dict[str, str]) -> Json:
        if params["message"] not in room.messages:
            raise NO_MESSAGE
        return room.messages[params["message"]]

    def _say(self, room: Room, body: Json, files: Files) -> Json:
        """Post as the bot."""
        check(body, files)
        limit = TIERS[self.guilds[room.guild]["premium_tier"]] if room.guild else TIERS[0]
        if sum(len(data) for _, data in files.values()) > limit:
            raise ApiError(413, 40005, "Request entity too large")
        more: Json = {}
        if reference := body.get("message_reference"):
            if reference["message_id"] in room.messages:
                more["message_reference"] = {"message_id": reference["message_id"], "channel_id": room.id, "type": 0}
                more["referenced_message"] = room.messages[reference["message_id"]]
                more["type"] = 19
            elif reference.get("fail_if_not_exists", True):
                raise invalid("message_reference")
        attachments = [self.attachment(room, name, data) for name, data in files.values()]
        message = self.message(room, BOT, (body.get("content") or "").strip(), attachments=attachments, **more)
        embeds = rich(body.get("embeds")) if not room.guild or "embeds" in self.granted - room.denied else []
        message |= {"embeds": embeds, "components": numbered(body.get("components"))}
        message["flags"] = body.get("flags") or 0
        message["_pinged"] = pinged(body)
        return message

    def _amend(self, message: Json, body: Json) -> Json:
        """Change a message. One of components stays one (…/docs/components/using-message-components)."""
        composed = message["flags"] & COMPONENTS
        if composed and "flags" in body and not body["flags"] & COMPONENTS:
            raise refused("flags", "MESSAGE_CANNOT_REMOVE_COMPONENTS_V2_FLAG")
        kept = {name: message[name] for name in ("embeds", "content", "components")}
        flags = composed | (body.get("flags") or 0)
        check({**kept, **body, "flags": flags}, {}, [each["filename"] for each in message["attachments"]])
        if "content" in body:
            message["content"] = (body["content"] or "").strip()
        if "embeds" in body:
            message["embeds"] = rich(body["embeds"])
        if "components" in body:
            message["components"] = numbered(body["components"])
        if "flags" in body:
            message["flags"] = message["flags"] & ~SUPPRESS | body["flags"] & (SUPPRESS | COMPONENTS)
        message["edited_timestamp"] = stamp()
        message["_edits"] = message.get("_edits", 0) + 1
        self.push("MESSAGE_UPDATE", self.event(message))
        return self.refreshed(message)

    # ------------------------------------------------------------ interactions

    def m_callback(self, params: dict[str, str], body: Json, _: object, query: dict[str, str]) -> Json | None:
        known = self.interactions.get(params["token"])
        if known is None or time.monotonic() - known["at"] > LATE:
            raise ApiError(404, 10062, "Unknown interaction")
        if known["answers"]:
            raise ApiError(400, 40060, "Interaction has already been acknowledged.")
        known["answers"].append(body)
        room, kind, data = self.rooms[known["event"]["channel_id"]], body["type"], body.get("data") or {}
        if kind == 4:
            check(data, {})
            if data.get("flags", 0) & EPHEMERAL:
                known["whispers"].append(data["content"])
            else:
                known["original"] = self._say(room, data, {})["id"]
        elif kind == 5:  # "fawn is thinking…"
            waiting = self.message(room, BOT, "", type=20, flags=LOADING)
            known["original"] = waiting["id"]
            self.push("MESSAGE_CREATE", self.event(waiting))
        elif kind == 7:
            self._amend(known["event"]["message"], data)
        if "with_response" not in query:
            return None
        told = {"id": params["interaction"], "type": 2, "response_message_id": known.get("original") or "1"}
        told |= {"response_message_loading": kind == 5, "response_message_ephemeral": False}
        return {"interaction": told}

    def m_editOriginal(self, params: dict[str, str], body: Json, *_: object) -> Json:
        known = self._living(params["token"])
        event = known["event"]
        if event["type"] == 3:
            return self._amend(event["message"], body)
        room = self.rooms[event["channel_id"]]
        message = room.messages[known["original"]]
        message["flags"] = message["flags"] & ~LOADING
        return self._amend(message, body)

    def m_getOriginal(self, params: dict[str, str], *_: object) -> Json:
        """Return the response of an interaction; an unknown message as long as it has none
        (discord.com/developers/docs/interactions/receiving-and-responding#get-original-interaction-response)."""
        known = self._living(params["token"])
        room = self.rooms[known["event"]["channel_id"]]
        if known.get("original") not in room.messages:
            raise ApiError(404, 10008, "Unknown Message")
        return self.refreshed(room.messages[known["original"]])

    def m_followup(self, params: dict[str, str], body: Json, *_: object) -> Json:
        known = self._living(params["token"])
        room = self.rooms[known["event"]["channel_id"]]
        if body.get("flags", 0) & EPHEMERAL:
            known["whispers"].append(body["content"])
            return self.message(Room("0", DM), BOT, body["content"])
        message = self._say(room, body, {})
        self.push("MESSAGE_CREATE", self.event(message))
        return self.refreshed(message)

    def _living(self, token: str) -> Json:
        known = self.interactions.get(token)
        if known is None or not known["answers"]:
            raise ApiError(404, 10015, "Unknown Webhook")
        if time.monotonic() - known["at"] > LIVES:
            raise ApiError(401, 50027, "Invalid Webhook Token")
        return known


def guild_of(room: Room) -> Json:
    return {"guild_id": room.guild} if room.guild else {}


def invalid(field: str) -> ApiError:
    return ApiError(400, 50035, "Invalid Form Body", {field: {"_errors": [{"code": "INVALID", "message": "invalid"}]}})


def rich(embeds: list[Json] | None) -> list[Json]:
    """Return embeds as Discord does."""
    return [{"type": "rich", **embed} for embed in embeds or ()]


def numbered(components: list[Json] | None) -> list[Json]:
    """Return components as Discord does: each has an id."""
    count = itertools.count(1)
    more: dict[int, Json] = {
        2: {"disabled": False},
        3: {"placeholder": None, "min_values": 1, "max_values": 1, "disabled": False},
        13: {"spoiler": False, "name": "", "size": 0},
        17: {"spoiler": False},
    }

    def one(part: Json) -> Json:
        made = {**more.get(part["type"], {}), "id": next(count), **part}
        return made | {"components": [one(each) for each in part["components"]]} if "components" in part else made

    return [one(part) for part in components or ()]


def pinged(body: Json) -> list[str]:
    """Return whom a new message notifies: those it mentions, as far as `allowed_mentions` permits."""
    said = "\n".join([body.get("content") or "", *displays(body.get("components"))])
    named = re.findall(r"<@!?(\d+)>", said)
    if re.search("@everyone|@here", said):
        named.append("everyone")
    allowed = body.get("allowed_mentions")
    if allowed is None:
        return named
    parse, users = allowed.get("parse") or [], allowed.get("users") or []
    return [each for each in named if each in users or ("everyone" if each == "everyone" else "users") in parse]


def refused(field: str, code: str) -> ApiError:
    return ApiError(400, 50035, "Invalid Form Body", {field: {"_errors": [{"code": code, "message": code}]}})


def check(body: Json, files: Files, kept: Collection[str] = ()) -> None:
    """The limits of a message (discord.com/developers/docs/resources/message#create-message)."""
    content, embeds, parts = (body.get("content") or "").strip(), body.get("embeds") or [], body.get("components") or []
    if (body.get("flags") or 0) & COMPONENTS:
        check_components(content, embeds, parts, {*kept, *(name for name, _ in files.values())})
        return
    if not (content or embeds or parts or files or kept):
        raise ApiError(400, 50006, "Cannot send an empty message")
    if len(content) > 2000:
        raise invalid("content")
    if len(embeds) > 10 or any(not 0 < len(embed.get("description", "")) <= 4096 for embed in embeds):
        raise invalid("embeds")
    if sum(len(embed.get("description", "")) for embed in embeds) > 6000:
        raise invalid("embeds")
    if len(parts) > 5 or any(part["type"] != 1 for part in parts):
        raise invalid("components")
    check_rows(parts)


def check_components(content: str, embeds: list[Json], parts: list[Json], files: set[str]) -> None:
    """The limits of a message of components (…/docs/components/reference): no content and no embeds, 40 components, and
    4,000 characters in all of their texts. Its types here: rows, text displays, files and containers of texts."""
    if content or embeds:
        raise refused("content" if content else "embeds", "MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2")
    every = [*walked(parts)]
    if not parts:
        raise ApiError(400, 50006, "Cannot send an empty message")
    texts = displays(parts)
    if len(every) > 40 or not all(texts) or sum(map(len, texts)) > 4000:
        raise invalid("components")
    if any(part["type"] not in (1, 10, 13, 17) for part in parts):
        raise invalid("components")
    if any(each["type"] not in (1, 10) for part in parts if part["type"] == 17 for each in part["components"]):
        raise invalid("components")
    shown = [part["file"]["url"] for part in every if part["type"] == 13]
    if any(url not in {f"attachment://{name}" for name in files} for url in shown):
        raise invalid("components")
    check_rows([part for part in every if part["type"] == 1])


def check_rows(rows: list[Json]) -> None:
    """A button with a custom_id has one of four styles (…/docs/components/reference#button-button-styles)."""
    ids = [part.get("custom_id") for row in rows for part in row["components"]]
    good = len(ids) == len(set(ids)) and all(0 < len(str(id)) <= 100 for id in ids)
    for row in rows:
        menus = [part for part in row["components"] if part["type"] == 3]
        good = good and row["type"] == 1 and 1 <= len(row["components"]) <= (1 if menus else 5)
        good = good and all(1 <= len(menu["options"]) <= 25 for menu in menus)
        labels = [part["label"] for part in row["components"] if part["type"] == 2]
        good = good and all(part["style"] in range(1, 5) for part in row["components"] if part["type"] == 2)
        labels += [option["label"][20:] for menu in menus for option in menu["options"]]  # 100 there, 80 here
        labels += [option["value"][20:] for menu in menus for option in menu["options"]]
        good = good and all(len(label) <= 80 for label in labels)
    if not good:
        raise invalid("components")
