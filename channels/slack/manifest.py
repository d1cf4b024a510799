"""The app manifest: all settings of the Slack app, as JSON to paste."""

from __future__ import annotations

import json

SLASH_COMMAND = "/fawn"
MESSAGE_SHORTCUT = "ask_fawn"  # the callback id of the message shortcut

SCOPES = {  # with the reason for each
    "app_mentions:read": "receive mentions",
    "assistant:write": "agent sessions: a status, a title and a stop button in threads",
    "channels:history": "earlier and missed messages in public channels",
    "channels:read": "which channels to read after downtime",
    "chat:write": "answer",
    "chat:write.public": "answer the message shortcut where the app is not a member",
    "commands": "the slash command and the shortcut",
    "files:read": "receive files",
    "files:write": "send files",
    "groups:history": "the same in private channels",
    "groups:read": "the same in private channels",
    "im:history": "direct messages",
    "im:read": "direct messages missed during downtime",
    "metadata.message:read": "find its own messages of unknown outcome",
    "im:write": "an answer in person where its channel is closed to the app",
    "mpim:history": "group direct messages",
    "mpim:read": "group direct messages",
    "reactions:read": "stop an answer by ❌, rate it by 👍 or 👎",
    "reactions:write": "acknowledge a message by 👀",
    "users:read": "names and guests",
}
REQUIRED_SCOPES = frozenset(  # the app is useless without these
    ["app_mentions:read", "channels:history", "chat:write", "files:read", "files:write", "im:history", "users:read"]
)
BOT_EVENTS = (
    "agent_session_stopped",
    "agent_session_title_changed",
    "app_context_changed",  # without it, no message says what its author looks at (slack-go#1606)
    "app_home_opened",
    "app_mention",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "reaction_added",
    "reaction_removed",
)


def app_manifest(name: str = "Fawn") -> str:
    """Return the manifest (docs.slack.dev/reference/app-manifest) of an app called `name`."""
    manifest = {
        "display_information": {"name": name, "description": "Answers questions, works in a sandbox, sends files"},
        "features": {
            "app_home": {
                "home_tab_enabled": True,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": name, "always_online": True},
            "agent_view": {
                "agent_description": "Ask me, or give me something to do.",
                "suggested_prompts": [
                    {"title": "What can you do?", "message": "What can you do for me?"},
                    {"title": "Commands", "message": "!help"},
                ],
            },
            "slash_commands": [
                {
                    "command": SLASH_COMMAND,
                    "description": "Commands of the bot",
                    "usage_hint": "help | status | stop | new",
                    "should_escape": False,
                }
            ],
            "shortcuts": [
                {
                    "name": f"Ask {name} about this",
                    "type": "message",
                    "callback_id": MESSAGE_SHORTCUT,
                    "description": "Start a thread about this message",
                }
            ],
        },
        "oauth_config": {"scopes": {"bot": sorted(SCOPES)}},
        "settings": {
            "event_subscriptions": {"bot_events": list(BOT_EVENTS)},
            "interactivity": {"is_enabled": True},
            "org_deploy_enabled": False,
            "socket_mode_enabled": True,
            "token_rotation_enabled": False,
        },
    }
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
