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
ALERT_CARD_FEISHU: Json = {  # open.feishu.cn/document/uAjLw4CM/ukzMukzMukzM/feishu-cards/card-json-v2-structure
    "schema": "2.0",
    "header": {
        "title": {"tag": "plain_text", "content": "DiskFull"},
        "subtitle": {"tag": "plain_text", "content": "db-3"},
    },
    "body": {
        "elements": [
            {"tag": "markdown", "content": "**2 %** left"},
            {"tag": "div", "fields": [{"is_short": True, "text": {"tag": "lark_md", "content": "Severity: critical"}}]},
            {
                "tag": "column_set",
                "columns": [{"tag": "column", "elements": [{"tag": "markdown", "content": "since noon"}]}],
            },
            {
                "tag": "table",
                "columns": [{"name": "h", "display_name": "Host"}, {"name": "f", "display_name": "Free"}],
                "rows": [{"h": "db-3", "f": 2}],
            },
            {"tag": "hologram", "elements": [{"tag": "plain_text", "content": "of a kind not known yet"}]},
            {
                "tag": "button",
                "text": {"tag": "plain_text", "content": "Runbook"},
                "behaviors": [{"type": "open_url", "default_url": "https://wiki.example.org/disk"}],
            },
            {"tag": "button", "text": {"tag": "plain_text", "content": "Ack"}, "behaviors": [{"type": "callback"}]},
        ]
    },
}
ALERT_CARD_LINES = (
    "DiskFull",
    "db-3",
    "**2 %** left",
    "Severity: critical",
    "since noon",
    "Host | Free",
    "db-3 | 2",
    "of a kind not known yet",
    "Runbook (https://wiki.example.org/disk)",
)
NEW_BLOCKS_SLACK: Json = {  # docs.slack.dev/reference/block-kit/blocks, and one of a kind not known yet
    "blocks": [
        {
            "type": "carousel",
            "elements": [
                {
                    "type": "card",
                    "title": {"type": "mrkdwn", "text": "Deploy 7"},
                    "body": {"type": "mrkdwn", "text": "to eu-west-1"},
                    "actions": [
                        {
                            "type": "button",
                            "text": {"type": "plain_text", "text": "Log"},
                            "url": "https://ci.example.org/7",
                        }
                    ],
                }
            ],
        },
        {
            "type": "task_card",
            "task_id": "t1",
            "title": "Migrate",
            "status": "complete",
            "details": {
                "type": "rich_text",
                "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "12 tables"}]}],
            },
        },
        {
            "type": "table",
            "rows": [[{"type": "raw_text", "text": "Errors"}, {"type": "raw_number", "value": 7, "text": "7"}]],
        },
        {"type": "alert", "level": "error", "text": {"type": "mrkdwn", "text": "Rollback needed"}},
        {"type": "of_next_year", "headline": {"type": "mrkdwn", "text": "a new kind"}, "color": "red"},
        {"type": "image", "image_url": "https://img.example.org/cpu.png", "alt_text": "CPU"},
    ]
}
NEW_BLOCKS_LINES = (
    "Deploy 7",
    "to eu-west-1",
    "Log (https://ci.example.org/7)",
    "Migrate",
    "12 tables",
    "Errors | 7",
    "Rollback needed",
    "a new kind",
    "CPU (https://img.example.org/cpu.png)",
)
