"""Actions of people in the fake Slack: each is stored as a message and sent to the app as an event."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.fakes.server import Json
from tests.fakes.slack_methods import Methods
from tests.fakes.slack_scopes import EVENT_SCOPES
from tests.fakes.slack_world import JANE, OPS, TEAM, Post, controls, texts

MESSAGE_EVENTS = {  # by the kind of conversation
    "channel": "message.channels",
    "group": "message.groups",
    "im": "message.im",
    "mpim": "message.mpim",
}


def returned(block: Json) -> Json:
    """A block as Slack hands it back: markdown becomes rich text with an id of Slack's own.

    docs.slack.dev/reference/block-kit/blocks/markdown-block (the block_id is not retained, one may become several)
    """
    if block["type"] != "markdown":
        return block
    section = {"type": "rich_text_section", "elements": [{"type": "text", "text": block["text"]}]}
    return {"type": "rich_text", "block_id": uuid.uuid4().hex[:5], "elements": [section]}


class People(Methods):
    """The users' side. Each action returns what it created; the server implements `deliver`."""

    def deliver(self, kind: str, payload: Json, *, accepts: bool = False) -> str:
        """Send an envelope; return its key (the id of the event or the trigger)."""
        raise NotImplementedError

    def event(self, event: Json, team: str = TEAM, event_id: str = "") -> str:
        """An event of the Events API."""
        workspace = self.workspaces[team]
        payload = {
            "token": "x",
            "team_id": team,
            "context_team_id": team,
            "api_app_id": "A0FAWN",
            "event": {"event_ts": event.get("ts") or self.ts(), **event},
            "type": "event_callback",
            "event_id": event_id or f"Ev{uuid.uuid4().hex[:9].upper()}",
            "event_time": int(float(event.get("ts") or self.ts())),
            "authorizations": [{"enterprise_id": None, "team_id": team, "user_id": workspace.bot, "is_bot": True}],
            "is_ext_shared_channel": False,
        }
        return self.deliver("events_api", payload)

    def send(
        self,
        text: str,
        channel: str = OPS,
        user: str = JANE,
        thread: str = "",
        team: str = TEAM,
        *,
        files: dict[str, bytes] | None = None,
        mime: str = "application/octet-stream",
        twice: bool = True,
        at: float = 0.0,
        silent: bool = False,
        **more: Any,
    ) -> str:
        """A person writes; returns the message's ts. A mention of the bot in a channel is sent as `app_mention` and
        `message` (`twice`); `at` is a unix time in the past; `silent` stores it without an event; `more` are
        fields of the event."""
        if re.match(r"/[A-Za-z][\w-]*(?:\s|$)", text):
            raise ValueError(f"Slack's client takes {text!r} for a slash command; it sends no message")
        place = self.conversation(channel, team)
        post = Post(self.ts(at), channel, user, text, thread_ts=thread)
        if user not in self.people:
            self.person(user, team=team)
        post.attachments = more.get("attachments", [])
        for name, data in (files or {}).items():
            post.files.append(self.keep(name, data, mime, team).id)
        place.posts[post.ts] = post
        if silent:
            return post.ts
        base: Json = {"user": user, "text": text, "ts": post.ts, "channel": channel, "team": team}
        base |= {"client_msg_id": str(uuid.uuid4())} | ({"thread_ts": thread} if thread else {})
        if self.agent_view and place.kind == "im" and "app_context_changed" in self.events and self.shares_context:
            base["app_context"] = {"entities": [{"type": "slack#/types/channel_id", "value": OPS, "team_id": team}]}
        if post.files:
            base |= {"files": [self.file(self.files[f]) for f in post.files], "upload": False}
        base |= more
        if f"<@{self.workspaces[team].bot}" in text and place.kind != "im":
            self._notify("app_mention", {"type": "app_mention", **base}, team)
            if not twice:
                return post.ts
        subtype = {"subtype": "file_share"} if post.files else {}
        event = {"type": "message", "channel_type": place.kind, **subtype, **base}
        self._notify(MESSAGE_EVENTS[place.kind], event, team)
        return post.ts

    def integrate(
        self, username: str, text: str = "", channel: str = OPS, team: str = TEAM, *, silent: bool = True, **more: Any
    ) -> str:
        """An integration posts by an incoming webhook; returns the message's ts. `more` are blocks and attachments."""
        place = self.conversation(channel, team)
        post = Post(self.ts(), channel, "", text, bot_id="B0HOOK", username=username, **more)
        place.posts[post.ts] = post
        if not silent:
            event = {**self.message(team, post), "channel": channel, "channel_type": place.kind}
            self._notify(MESSAGE_EVENTS[place.kind], event, team)
        return post.ts

    def _notify(self, name: str, event: Json, team: str) -> None:
        """Send an event, if the app subscribes to it."""
        if name in self.events and EVENT_SCOPES.get(name, "") in {*self.scopes, ""}:
            self.event(event, team)

    def edit(self, ts: str, text: str, channel: str = OPS, team: str = TEAM) -> None:
        """Edit one's message."""
        post = self.conversation(channel, team).posts[ts]
        before = self.message(team, post)
        post.text = text
        now = {**self.message(team, post), "edited": {"user": post.user, "ts": self.ts()}}
        self._changed("message_changed", channel, team, message=now, previous_message=before)

    def unfurl(self, ts: str, shown: Json, channel: str = OPS, team: str = TEAM) -> None:
        """Show the message that a message links to, which Slack does a moment after that was posted
        (docs.slack.dev/messaging/unfurling-links-in-messages)."""
        post = self.conversation(channel, team).posts[ts]
        before = self.message(team, post)
        post.attachments = [*post.attachments, {"is_msg_unfurl": True, **shown}]
        now = self.message(team, post)
        self._changed("message_changed", channel, team, message=now, previous_message=before)

    def remove(self, ts: str, channel: str = OPS, team: str = TEAM) -> None:
        """Delete a message (a person's, of which the app is notified, or the bot's)."""
        self.remove_silently(ts, channel, team)()

    def remove_silently(self, ts: str, channel: str = OPS, team: str = TEAM) -> Callable[[], None]:
        """Delete a message. The app is notified when the result is called."""
        post = self.conversation(channel, team).posts.pop(ts)
        told = {"deleted_ts": ts, "previous_message": self.message(team, post)}
        return partial(self._changed, "message_deleted", channel, team, **told)

    def _changed(self, subtype: str, channel: str, team: str, **more: Any) -> None:
        kind = self.conversation(channel, team).kind
        event = {"type": "message", "subtype": subtype, "channel": channel, "channel_type": kind, "hidden": True}
        self._notify(MESSAGE_EVENTS[kind], {**event, "ts": self.ts(), **more}, team)

    def react(self, ts: str, name: str = "x", channel: str = OPS, user: str = JANE, team: str = TEAM) -> None:
        post = self.conversation(channel, team).posts[ts]
        post.reactions.setdefault(name, []).append(user)
        self._reaction("reaction_added", post, name, user, team)

    def unreact(self, ts: str, name: str = "+1", channel: str = OPS, user: str = JANE, team: str = TEAM) -> None:
        post = self.conversation(channel, team).posts[ts]
        post.reactions[name].remove(user)
        self._reaction("reaction_removed", post, name, user, team)

    def _reaction(self, kind: str, post: Post, name: str, user: str, team: str) -> None:
        item = {"type": "message", "channel": post.channel, "ts": post.ts}
        self._notify(kind, {"type": kind, "user": user, "reaction": name, "item": item, "item_user": post.user}, team)

    def rename_session(self, title: str, thread: str, channel: str = OPS, user: str = JANE, team: str = TEAM) -> None:
        """A person renames the session of a thread (docs.slack.dev/reference/events/agent_session_title_changed)."""
        place = self.conversation(channel, team)
        event = {"type": "agent_session_title_changed", "channel": channel, "thread_ts": thread, "user": user}
        event |= {"title": title, "previous_title": place.titles.get(thread, "")}
        place.titles[thread] = title
        self._notify("agent_session_title_changed", event, team)

    def press_stop(self, ts: str, channel: str = OPS, user: str = JANE, team: str = TEAM) -> None:
        """Click the native stop button under a stream: Slack ends the stream and notifies the app."""
        post = self.conversation(channel, team).posts[ts]
        post.state = "stopped"
        event = {"type": "agent_session_stopped", "channel": channel, "thread_ts": post.thread_ts, "user": user}
        self._notify("agent_session_stopped", {**event, "streaming_message_ts": [ts]}, team)

    def expire(self, ts: str, channel: str = OPS, team: str = TEAM) -> None:
        """Slack ends a stream by itself, as it does after some minutes."""
        self.conversation(channel, team).posts[ts].state = "stopped"

    # ------------------------------------------------------------ interactions

    def _interaction(self, channel: str, user: str, team: str, **more: Any) -> Json:
        path = f"{team}/{len(self.responses)}/{uuid.uuid4().hex}"
        self.responses[path] = {"channel": channel, "user": user, "team": team, "uses": 5, **more}
        return {
            "token": "x",
            "api_app_id": "A0FAWN",
            "trigger_id": f"1.2.{uuid.uuid4().hex}",
            "response_url": f"{self.base_url}/commands/{path}",
            "is_enterprise_install": False,
        }

    def slash(
        self, text: str = "", channel: str = OPS, user: str = JANE, team: str = TEAM, command: str = "/fawn"
    ) -> str:
        """Use a slash command; returns its key."""
        assert command in self.commands, "Slack: not a valid command"
        kind = self.conversation(channel, team).kind
        payload = self._interaction(channel, user, team) | {
            "team_id": team,
            "team_domain": "acme",
            "channel_id": channel,
            "channel_name": "directmessage" if kind == "im" else "ops",
            "user_id": user,
            "user_name": self.person(user)["name"],
            "command": command,
            "text": text,
            "is_enterprise_install": "false",
        }
        return self.deliver("slash_commands", payload, accepts=True)

    def _interactive(self, kind: str, post: Post, user: str, team: str) -> Json:
        channel = {"id": post.channel, "name": "directmessage" if post.channel.startswith("D") else "ops"}
        where: Json = {"type": "message", "message_ts": post.ts, "channel_id": post.channel}
        where |= {"thread_ts": post.thread_ts} if post.thread_ts else {}
        where["is_ephemeral"] = bool(post.only_for)
        message = self.message(team, post)
        message |= {"blocks": [returned(block) for block in message["blocks"]]} if "blocks" in message else {}
        told = {} if post.only_for else {"message": message}
        return (
            told
            | self._interaction(post.channel, user, team, ts=post.ts)
            | {
                "type": kind,
                "user": {"id": user, "username": self.person(user)["name"], "name": "jane", "team_id": team},
                "team": {"id": team, "domain": "acme"},
                "enterprise": None,
                "channel": channel,
                "container": where,
            }
        )

    def click(self, label: str, ts: str, channel: str = OPS, user: str = JANE, team: str = TEAM) -> str:
        """Click a button or choose an option; returns the interaction's key."""
        post = self.conversation(channel, team).posts[ts]
        _, block_id, action_id, value = next(b for b in controls(post.blocks) if b[0] == label)
        payload = self._interactive("block_actions", post, user, team)
        text = {"type": "plain_text", "text": label, "emoji": True}
        action: Json = {"block_id": block_id, "action_id": action_id, "action_ts": self.ts()}
        elements = [e for block in post.blocks if block["type"] == "actions" for e in block["elements"]]
        if next(e["type"] for e in elements if e["action_id"] == action_id) == "static_select":
            action |= {"type": "static_select", "selected_option": {"text": text, "value": value}}
        else:
            action |= {"type": "button", "text": text, "value": value}
        return self.deliver("interactive", payload | {"actions": [action]}, accepts=True)

    def open_home(self, user: str = JANE, team: str = TEAM, tab: str = "home") -> None:
        """A person opens a tab of the app (docs.slack.dev/reference/events/app_home_opened)."""
        if tab == "home" and not self.home_enabled:
            raise ValueError("the app has no Home tab")
        place = self.conversation(f"D{user}", team)
        view = {"view": self.homes[team, user]} if (team, user) in self.homes else {}
        event = {"type": "app_home_opened", "user": user, "channel": place.id, "tab": tab, "event_ts": self.ts()}
        self._notify("app_home_opened", {**event, **view}, team)

    def home(self, user: str = JANE, team: str = TEAM) -> str:
        """The text of a person's Home tab, with its buttons."""
        blocks = self.homes.get((team, user), {"blocks": []})["blocks"]
        return "\n".join([*(text for text, _ in texts(blocks)), *(f"[{label}]" for label, *_ in controls(blocks))])

    def press_home(self, label: str, user: str = JANE, team: str = TEAM) -> str:
        """Click a button of the Home tab (docs.slack.dev/reference/interaction-payloads/block_actions-payload)."""
        view = self.homes[team, user]
        _, block_id, action_id, value = next(each for each in controls(view["blocks"]) if each[0] == label)
        text = {"type": "plain_text", "text": label, "emoji": True}
        action = {"block_id": block_id, "action_id": action_id, "action_ts": self.ts(), "type": "button"}
        interaction = self._interaction("", user, team)
        del interaction["response_url"]
        payload = interaction | {
            "type": "block_actions",
            "user": {"id": user, "username": self.person(user)["name"], "name": "jane", "team_id": team},
            "team": {"id": team, "domain": "acme"},
            "enterprise": None,
            "container": {"type": "view", "view_id": view["id"]},
            "view": {**view, "team_id": team, "bot_id": "B0FAWN"},
            "actions": [action | {"text": text, "value": value}],
        }
        return self.deliver("interactive", payload, accepts=True)

    def rate(self, ts: str, value: str, channel: str = OPS, user: str = JANE, team: str = TEAM) -> str:
        """Press 👍 ("up") or 👎 of the feedback buttons; returns the interaction's key.

        docs.slack.dev/reference/block-kit/block-elements/feedback-buttons-element
        """
        post = self.conversation(channel, team).posts[ts]
        elements = [e for block in post.blocks if block["type"] == "context_actions" for e in block["elements"]]
        [element] = [e for e in elements if e["type"] == "feedback_buttons"]
        sides = (element["positive_button"], element["negative_button"])
        [pressed] = [side for side in sides if side["value"] == value]
        action = {"type": "feedback_buttons", "block_id": "x1", "action_id": element["action_id"]}
        action |= {"text": pressed["text"], "value": value, "action_ts": self.ts()}
        payload = self._interactive("block_actions", post, user, team)
        return self.deliver("interactive", payload | {"actions": [action]}, accepts=True)

    def shortcut(self, ts: str, channel: str = OPS, user: str = JANE, team: str = TEAM, name: str = "ask_fawn") -> str:
        """Use the message shortcut on a message; returns the interaction's key."""
        assert name in self.shortcuts, "Slack does not show it"
        post = self.conversation(channel, team).posts[ts]
        payload = self._interactive("message_action", post, user, team)
        payload |= {"callback_id": name, "message_ts": ts, "action_ts": self.ts()}
        return self.deliver("interactive", payload, accepts=True)
