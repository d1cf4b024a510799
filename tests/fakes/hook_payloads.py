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
        "error": ("created", {"error": happened}),
        "metric_alert": ("critical", {"metric_alert": alert, "web_url": "https://sentry.example/a/1/", **described}),
        "comment": ("created", {"comment": "Seen", "issue_id": 1117540176, "comment_id": "1"}),
        "seer": ("root_cause_completed", {"run_id": 1, "group_id": 1117540176, "root_cause": cause}),
        "preprod_artifact": ("size_analysis_completed", {**build, "appInfo": {"name": "App", "version": "1.0"}}),
        "installation": ("created", {"installation": {"status": "pending", "uuid": "a8e5"}}),
    }[resource]
    return JSON | {"sentry-hook-resource": resource, "request-id": "7d2e40"}, {"action": action, "data": data}


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


def headers_of(hook: HookConfig, headers: Mapping[str, str], body: bytes, id: str = "msg_1") -> dict[str, str]:
    """Return the headers with the proof of their sender, each as its documentation says (`bot/hooks/signatures.py`)."""
    secret, at = hook.secret.reveal(), f"{time.time():.0f}"
    signed = hmac.digest(secret.encode(), body, "sha256").hex()
    proofs = {
        "bearer": {"authorization": f"Bearer {secret}"},
        "github": {"x-hub-signature-256": f"sha256={signed}"},
        "gitlab": {"x-gitlab-token": secret},
        "sentry": {"sentry-hook-signature": signed},
        "standard": {"webhook-id": id, "webhook-timestamp": at},
    }
    if hook.signature == "standard":
        mac = hmac.digest(secret.encode(), b".".join((id.encode(), at.encode(), body)), "sha256")
        proofs["standard"]["webhook-signature"] = f"v1,{base64.b64encode(mac).decode()}"
    return {**headers, **proofs[hook.signature]}
