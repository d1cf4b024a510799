"""What the senders of hooks post, with their headers, as their documentation shows it; what nobody reads is left out.

`tests/unit/bot/test_alertmanager.py` compares the first one with a real Alertmanager.
"""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Callable, Mapping
from typing import Any

from bot.config.hooks import HookConfig

# Compared by hand, once, with all payloads of the sources that the functions name.
Payload = tuple[dict[str, str], dict[str, Any]]
JSON = {"content-type": "application/json"}
NEVER = "0001-01-01T00:00:00Z"


def alertmanager(*names: str, status: str = "firing", group: str = '{}:{alertname="HighLatency"}') -> Payload:
    """prometheus.io/docs/alerting/latest/configuration/#webhook_config"""
    alerts = [
        {
            "status": status,
            "labels": {"alertname": name, "instance": "db1:9100", "severity": "critical"},
            "annotations": {"summary": "slow requests", "runbook_url": "https://runbooks.example/latency"},
            "startsAt": "2026-11-25T09:00:00.000Z",
            "endsAt": NEVER if status == "firing" else "2026-11-25T09:10:00.000Z",
            "generatorURL": "http://prometheus.example:9090/graph?g0.expr=up",
            "fingerprint": f"{number:016x}",
        }
        for number, name in enumerate(names or ("HighLatency",))
    ]
    return JSON, {
        "receiver": "fawn",
        "status": status,
        "alerts": alerts,
        "groupLabels": {"alertname": "HighLatency"},
        "commonLabels": {"severity": "critical", "service": "shop"},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example:9093",
        "version": "4",
        "groupKey": group,
        "truncatedAlerts": 0,
    }


def grafana(status: str = "firing") -> Payload:
    """grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/integrations/
    webhook-notifier/"""
    alert = {
        "status": status,
        "labels": {"alertname": "High memory usage", "team": "blue", "zone": "us-1"},
        "annotations": {
            "description": "The system has high memory usage",
            "runbook_url": "https://myrunbook.com/runbook/1234",
            "summary": "This alert was triggered for zone us-1",
        },
        "startsAt": "2021-10-12T09:51:03.157076+02:00",
        "endsAt": NEVER,
        "generatorURL": "https://play.grafana.org/alerting/1afz29v7z/edit",
        "fingerprint": "c6eadffa33fcdf37",
        "silenceURL": "https://play.grafana.org/alerting/silence/new?alertmanager=grafana",
        "dashboardURL": "",
        "panelURL": "",
        "values": {"B": 44.23943737541908, "C": 1},
    }
    return JSON, {
        "receiver": "My Super Webhook",
        "status": status,
        "orgId": 1,
        "alerts": [alert],
        "groupLabels": {},
        "commonLabels": {"team": "blue"},
        "commonAnnotations": {},
        "externalURL": "https://play.grafana.org/",
        "version": "1",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
        "title": "[FIRING:1]  (blue)",
        "state": "alerting",
        "message": "**Firing**",
    }


def grafana_sent(name: str) -> Payload:
    """What servers of Grafana really sent. The fields are theirs, the values shortened; "resolved" is the end of "9".

    9, resolved: github.com/zulip/zulip, zerver/webhooks/grafana/fixtures/alert-9*.json (Grafana 9);
    test, no_data: github.com/pytorch/alerting-infra, ReferenceData/REFERENCE_DATA.md (Grafana Cloud, September 2025);
    newest: as github.com/grafana/alerting sends it at 783ce041 (templates/template_data.go and the tests of
    receivers/webhook/v1), with the limit “Max Alerts”.
    """
    common = {
        "startsAt": "2025-09-16T17:12:20Z",
        "endsAt": NEVER,
        "generatorURL": "",
        "fingerprint": "57c6d9296de2ad39",
    }
    common |= {"silenceURL": "https://grafana.example/alerting/silence/new?orgId=1", "dashboardURL": "", "panelURL": ""}
    panel = {"dashboardURL": "https://grafana.example/d/e9a2?orgId=1"}
    panel["panelURL"] = panel["dashboardURL"] + "&viewPanel=1"
    rule = {"datasource_uid": "grafanacloud-prom", "grafana_folder": "Shop", "ref_id": "A", "rulename": "Queue is full"}
    first = common | {
        "labels": {"alertname": "Test alert", "instance": "db1:9100", "job": "rabbitmq"},
        "annotations": {"description": "Too long", "summary": "failure on db1", "runbook_url": "www.example.com"},
        "valueString": "[ var='B' labels={instance=db1:9100} value=17 ], [ var='C' labels={} value=1 ]",
    }
    alerts, key, more = {
        "9": (
            [
                first | {"status": "firing"},
                common | {"status": "resolved", "labels": {"alertname": "Other"}, "annotations": {}, "valueString": ""},
            ],
            '{}/{test="true"}:{}', {},
        ),
        "resolved": ([first | {"status": "resolved", "endsAt": "2025-09-16T17:18:20Z"}], '{}/{test="true"}:{}', {}),
        "test": (
            [
                common | {
                    "status": "firing", "labels": {"alertname": "TestAlert", "instance": "Grafana"}, "values": None,
                    "annotations": {"summary": "Notification test"},
                    "valueString": "[ metric='foo' labels={instance=bar} value=10 ]",
                }
            ],
            "test-57c6d9296de2ad39-1758042679", {},
        ),
        "no_data": (
            [
                common | panel | {
                    "status": "firing", "labels": {"alertname": "DatasourceNoData", **rule}, "values": None,
                    "annotations": {}, "valueString": "", "orgId": 1,
                }
            ],
            '{}/{__grafana_autogenerated__="true"}:{alertname="DatasourceNoData", grafana_folder="Shop"}', {},
        ),
        "newest": (
            [first | panel | {"status": "firing", "ruleUID": "fex6", "values": {"B": 17, "C": 1}, "orgId": 1}],
            'alertname', {"truncatedAlerts": 3, "appVersion": "13.2.1"},
        ),
    }[name]  # fmt: skip
    return JSON | {"user-agent": "Grafana"}, grafana()[1] | {"alerts": alerts, "groupKey": key, **more}


def github(action: str = "opened", delivery: str = "72d3162e-cc78-11e3-81ab-4c9367dc0958") -> Payload:
    """docs.github.com/en/webhooks/webhook-events-and-payloads#issues; the values are those of
    github.com/octokit/webhooks, payload-examples/api.github.com/issues/opened.payload.json"""
    issue = {
        "html_url": "https://github.com/Codertocat/Hello-World/issues/1",
        "id": 444500041,
        "number": 1,
        "title": "Spelling error in the README file",
        "user": {"login": "Codertocat", "id": 21031067, "type": "User"},
        "labels": [{"id": 1362934389, "name": "bug"}],
        "state": "closed" if action == "closed" else "open",
        "body": "It looks like you accidently spelled 'commit' with two 't's.",
    }
    repository = {"full_name": "Codertocat/Hello-World", "html_url": "https://github.com/Codertocat/Hello-World"}
    headers = {"x-github-event": "issues", "x-github-delivery": delivery, "user-agent": "GitHub-Hookshot/044aadd"}
    return JSON | headers, {"action": action, "issue": issue, "repository": repository, "sender": issue["user"]}


def gitlab(action: str = "open") -> Payload:
    """docs of GitLab: user/project/integrations/webhook_events/#work-item-events"""
    return JSON | {"x-gitlab-event": "Issue Hook", "idempotency-key": "f5e5f430-f57b-4e6e-9fac-d9128cd7232f"}, {
        "object_kind": "issue",
        "event_type": "issue",
        "user": {"id": 1, "name": "Administrator", "username": "root"},
        "project": {
            "id": 1,
            "path_with_namespace": "gitlabhq/gitlab-test",
            "web_url": "http://example.com/gitlab-test",
        },
        "object_attributes": {
            "id": 301,
            "iid": 23,
            "title": "New API: create/update/delete file",
            "description": "Create new API for manipulations with repository",
            "state": "closed" if action == "close" else "opened",
            "action": action,
            "url": "http://example.com/diaspora/issues/23",
        },
    }


def gitlab_work(kind: str, **more: Any) -> Payload:
    """Other events of the same documentation, and of the payloads that the tests of xanzy/go-gitlab have in
    testdata/webhooks: some repeat deliveries of GitLab itself. The fields are theirs, the values not."""
    project = {"id": 5, "path_with_namespace": "shop/web", "web_url": "https://git.example/shop/web"}
    values: dict[str, Any] = {
        "pipeline": {
            "object_attributes": {"id": 31, "iid": 23, "ref": "main", "status": "failed", "detailed_status": "failed"},
            "merge_request": {"iid": 1, "title": "Test", "url": "https://git.example/shop/web/-/merge_requests/1"},
        },
        "build": {
            "ref": "main", "build_name": "unit", "build_status": "failed", "build_failure_reason": "script_failure",
            "project_name": "Shop / web", "repository": {"homepage": "https://git.example/shop/web"},
            "environment": {"name": "production", "action": "start"}, "project": None,
        },
        "release": {
            "action": "create", "name": "Spring", "tag": "1.2.0", "description": "Faster.",
            "url": "https://git.example/shop/web/-/releases/1.2.0",
        },
        "vulnerability": {
            "object_attributes": {
                "title": "Denial of service in a parser", "state": "detected", "severity": "high",
                "url": "https://git.example/shop/web/-/security/vulnerabilities/1",
                "report_type": "dependency_scanning",
            }
        },
        "note": {
            "object_attributes": {"note": "Why this?", "noteable_type": "Commit", "url": "https://git.example/c#n1"},
            "commit": {"id": "cfe3", "message": "Add a submodule"},
        },
        "push": {"ref": "refs/heads/main", "event_name": "push", "commits": [{"message": "Update the catalogue"}]},
        "subgroup_create": {
            "object_kind": None, "event_name": "subgroup_create", "full_path": "shop/new", "project": None,
        },
        "access_token": {
            "event_name": "expiring_access_token", "group": {"group_path": "shop"}, "project": None,
            "object_attributes": {"id": 25, "name": "deploys", "expires_at": "2026-12-26"},
        },
    }  # fmt: skip
    return JSON | {"x-gitlab-event": "x"}, {"object_kind": kind, "project": project, **values[kind], **more}


def sentry_of(resource: str) -> Payload:
    """Other pages of the same documentation: issue-alerts, errors, metric-alerts, comments, seer, preprod-artifacts.

    Its source is getsentry/sentry-docs. The fields are theirs, most values not.
    """
    happened = {
        "title": "ReferenceError: heck is not defined", "culprit": "?(<anonymous>)", "level": "error",
        "issue_id": "1117540176", "web_url": "https://sentry.example/issues/1117540176/events/e4/", "shortId": None,
    }  # fmt: skip
    # as zulip/zulip has them, zerver/webhooks/sentry/fixtures/event_for_message_python.json: sent by a server of 2020
    older = {key: value for key, value in happened.items() if key != "issue_id"}
    older |= {"culprit": "", "issue_url": "https://sentry.example/api/0/issues/1117540176/"}
    # as getsentry/sentry makes it, notifications/notification_action/activity_registry/sentry_app.py
    found = {"type": "seer_root_cause_completed", "details": {"summary": "The variable is never set."}}
    requests = [{"repo_name": "shop/web", "url": "https://github.com/shop/web/pull/7"}]
    opened = {"type": "seer_pr_created", "details": {"pull_requests": requests}}
    issue = sentry()[1]["data"]["issue"] | {"id": "1117540176", "webUrl": "https://sentry.example/issues/1117540176/"}
    del issue["web_url"]
    rule = {"id": 7, "name": "Causes", "url": "https://sentry.example/monitors/alerts/7/"}
    alert = {"id": "4", "identifier": "1", "title": "Sacred Marmot", "alert_rule": {"id": "7", "name": "Many errors"}}
    described = {"description_title": "Critical: Many errors", "description_text": "1000 events in 10 minutes"}
    cause = {"description": "The variable is never set.", "steps": [{"title": "A person opens the page"}]}
    build = {
        "buildId": "72",
        "projectSlug": "app",
        "state": "FAILED",
        "errorCode": "TIMEOUT",
        "errorMessage": "Too slow",
    }
    action, data = {
        "event_alert": ("triggered", {"event": happened, "triggered_rule": "Important"}),
        "event_alert of 2020": ("triggered", {"event": older, "triggered_rule": "Important"}),
        "activity_alert": ("triggered", {"issue": issue, "activity": found, "alert": rule}),
        "activity_alert of a request": ("triggered", {"issue": issue, "activity": opened, "alert": rule}),
        "error": ("created", {"error": happened}),
        "metric_alert": ("critical", {"metric_alert": alert, "web_url": "https://sentry.example/a/1/", **described}),
        "comment": ("created", {"comment": "Seen", "issue_id": 1117540176, "comment_id": "1"}),
        "seer": ("root_cause_completed", {"run_id": 1, "group_id": 1117540176, "root_cause": cause}),
        "preprod_artifact": ("size_analysis_completed", {**build, "appInfo": {"name": "App", "version": "1.0"}}),
        "installation": ("created", {"installation": {"status": "pending", "uuid": "a8e5"}}),
    }[resource]
    named = {"sentry-hook-resource": resource.partition(" ")[0], "request-id": "7d2e40"}
    return JSON | named, {"action": action, "data": data}


def sentry(action: str = "created") -> Payload:
    """docs.sentry.io/organization/integrations/integration-platform/webhooks/issues/"""
    issue = {
        "id": "1170820242",
        "shortId": "IPE1-1",
        "title": "ReferenceError: heck is not defined",
        "culprit": "?(runner)",
        "level": "error",
        "status": "resolved" if action == "resolved" else "unresolved",
        "web_url": "https://sentry.io/organizations/test-org/issues/1170820242/",
        "project": {"id": "1", "slug": "ipe-project"},
    }
    return JSON | {"sentry-hook-resource": "issue", "request-id": "7d2e3f", "sentry-hook-timestamp": "1566248777"}, {
        "action": action,
        "actor": {"id": "sentry", "name": "Sentry", "type": "application"},
        "data": {"issue": issue},
        "installation": {"uuid": "a8e5d37a-696c-4c54-adb5-b3f28d64c7de"},
    }


def script(**values: Any) -> Payload:
    """docs/hooks.md"""
    return JSON, {"title": "Backup failed", "group": "backup", "severity": "high", **values}


ALL: dict[str, Callable[..., Payload]] = {
    "alertmanager": alertmanager,
    "grafana": grafana,
    "github": github,
    "gitlab": gitlab,
    "sentry": sentry,
    "script": script,
}


def headers_of(
    hook: HookConfig, headers: Mapping[str, str], body: bytes, id: str = "msg_1", ago: float = 0
) -> dict[str, str]:
    """Return the headers that prove the sender, as each documentation says (`bot/base/signatures.py`)."""
    secret, at = hook.secret.reveal(), f"{time.time() - ago:.0f}"
    signed = hmac.digest(secret.encode(), body, "sha256").hex()
    proofs = {
        "bearer": {"authorization": f"Bearer {secret}"},
        "github": {"x-hub-signature-256": f"sha256={signed}"},
        "gitlab": {"x-gitlab-token": secret},
        "sentry": {"sentry-hook-signature": signed},
        "grafana": {"x-grafana-alerting-timestamp": at},
        "standard": {"webhook-id": id, "webhook-timestamp": at},
    }
    if hook.signature == "standard":
        mac = hmac.digest(secret.encode(), b".".join((id.encode(), at.encode(), body)), "sha256")
        proofs["standard"]["webhook-signature"] = f"v1,{base64.b64encode(mac).decode()}"
    if hook.signature == "grafana":  # github.com/grafana/alerting/blob/main/http/hmac.go
        timed = hmac.digest(secret.encode(), b":".join((at.encode(), body)), "sha256").hex()
        proofs["grafana"]["x-grafana-alerting-signature"] = timed
    return {**headers, **proofs[hook.signature]}
