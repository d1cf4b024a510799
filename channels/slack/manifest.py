"""The app manifest: everything that has to be ticked in Slack's app settings, as JSON to paste."""

from __future__ import annotations

import json

SLASH_COMMAND = "/fawn"
MESSAGE_SHORTCUT = "ask_fawn"  # the callback id of the message shortcut

SCOPES = {  # what each is for
    "app_mentions:read": "hear mentions",
    "assistant:write": "be an agent: threads with a status, a title and a button to stop it",
    "channels:history": "threads and what was missed in public channels",
    "channels:read": "which channels to look at after an absence",
    "chat:write": "answer",
    "chat:write.public": "answer the message shortcut where the app is no member",
    "commands": "the slash command and the shortcut",
    "files:read": "files that people send",
    "files:write": "files that it sends",
    "groups:history": "the same in private channels",
    "groups:read": "the same in private channels",
    "im:history": "direct messages",
    "im:read": "direct messages missed in an absence",
    "metadata.message:read": "know its own messages again whose answer was lost",
    "mpim:history": "groups of people",
    "mpim:read": "groups of people",
    "reactions:read": "❌ on an answer stops it",
    "reactions:write": "👀 says that a message was seen",
    "users:read": "names, guests",
}
REQUIRED_SCOPES = frozenset(  # without these it makes no sense
    ["app_mentions:read", "channels:history", "chat:write", "files:read", "files:write", "im:history", "users:read"]
)
BOT_EVENTS = (
    "agent_session_stopped",
    "app_mention",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "reaction_added",
)


def app_manifest(name: str = "Fawn") -> str:
    """The manifest (docs.slack.dev/reference/app-manifest) of an app called `name`."""
    made = {
        "display_information": {"name": name, "description": "Answers, works in a sandbox, sends files back"},
        "features": {
            "app_home": {
                "home_tab_enabled": False,
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
                    "description": "Begins a thread about this message",
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
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"
