"""Alerts as their senders post them in chats. Nobody says what is in them but blocks, attachments and embeds."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

ALERTMANAGER_SLACK: Json = {  # prometheus.io/docs/alerting/latest/notification_examples, the default template
    "attachments": [
        {
            "color": "a30200",
            "fallback": "[FIRING:1] DiskFull (db-3 critical)",
            "title": "[FIRING:1] DiskFull (db-3 critical)",
            "title_link": "https://alerts.example.org/#/alerts?receiver=ops",
            "text": "The disk of db-3 has 2% left.",
            "fields": [
                {"title": "Severity", "value": "critical", "short": True},
                {"title": "Runbook", "value": "<https://wiki.example.org/disk|disk runbook>", "short": False},
            ],
            "actions": [{"type": "button", "text": "Silence :no_bell:", "url": "https://alerts.example.org/silence"}],
            "footer": "Alertmanager v0.27",
        }
    ]
}
GRAFANA_SLACK: Json = {  # grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points
    "attachments": [
        {
            "color": "#D63232",
            "fallback": "[FIRING:1] LatencyHigh checkout",
            "blocks": [
                {"type": "header", "text": {"type": "plain_text", "text": "LatencyHigh checkout"}},
                {
                    "type": "section",
                    "fields": [
                        {"type": "mrkdwn", "text": "*p99*\n4.2 s"},
                        {"type": "mrkdwn", "text": "*Region*\neu-west-1"},
                    ],
                },
                {
                    "type": "actions",
                    "elements": [
                        {
                            "type": "button",
                            "text": {"type": "plain_text", "text": "Dashboard"},
                            "url": "https://grafana.example.org/d/7",
                        },
                        {"type": "button", "text": {"type": "plain_text", "text": "Mute"}, "action_id": "m"},
                    ],
                },
                {"type": "context", "elements": [{"type": "mrkdwn", "text": "Grafana v11"}]},
            ],
        }
    ]
}
PAGERDUTY_SLACK: Json = {
    "text": "Triggered: checkout is down",
    "blocks": [
        {
            "type": "section",
            "text": {"type": "mrkdwn", "text": "*Triggered:* <https://pd.example.org/i/Q1|#4711 checkout is down>"},
            "accessory": {
                "type": "button",
                "text": {"type": "plain_text", "text": "View"},
                "url": "https://pd.example.org/v/Q1",
            },
        },
        {
            "type": "rich_text",
            "elements": [
                {
                    "type": "rich_text_section",
                    "elements": [{"type": "text", "text": "Assigned to "}, {"type": "user", "user_id": "U2"}],
                },
                {
                    "type": "rich_text_list",
                    "style": "bullet",
                    "elements": [
                        {"type": "rich_text_section", "elements": [{"type": "text", "text": "urgency high"}]},
                        {
                            "type": "rich_text_section",
                            "elements": [{"type": "link", "url": "https://pd.example.org/s", "text": "service"}],
                        },
                    ],
                },
            ],
        },
    ],
}
GITHUB_DISCORD: Json = {  # discord.com/developers/docs/resources/webhook#execute-githubcompatible-webhook
    "embeds": [
        {
            "type": "rich",
            "title": "[acme/shop] Issue opened: #88 Cart loses items",
            "url": "https://github.com/acme/shop/issues/88",
            "description": "Two of three people lose their cart after sign-in.",
            "author": {"name": "kim", "url": "https://github.com/kim"},
            "fields": [{"name": "Labels", "value": "bug, p1", "inline": True}],
            "footer": {"text": "GitHub"},
        }
    ]
}
ALERT_DISCORD_V2: Json = {  # discord.com/developers/docs/components/reference#container
    "flags": 1 << 15,
    "components": [
        {
            "type": 17,
            "components": [
                {"type": 10, "content": "## DiskFull on db-3"},
                {
                    "type": 9,
                    "components": [{"type": 10, "content": "2 % left"}],
                    "accessory": {"type": 2, "style": 5, "label": "Runbook", "url": "https://wiki.example.org/disk"},
                },
            ],
        }
    ],
}
