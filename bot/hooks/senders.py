"""Find title, state, severity, links and group in the payloads of each sender."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bot.hooks.fields import Body, at, link_at, text_at
from catalogue import N_

State = Literal["firing", "resolved", "info"]
MAX_ITEMS = 500  # of one delivery
RUNBOOK, DASHBOARD, SOURCE, OPEN, SILENCE = N_("Runbook"), N_("Dashboard"), N_("Source"), N_("Open"), N_("Silence")
ENDED_ACTIONS = ("closed", "close", "merge", "resolved", "archived", "ignored")


@dataclass(frozen=True, slots=True)
class Item:
    """One alert, issue or request. `links` are pairs of a name and a web address."""

    title: str
    state: State = "info"
    severity: str = ""
    text: str = ""
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a sender's body says."""

    sender: str
    kind: str
    subject: str
    items: tuple[Item, ...]


def _links(*pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in pairs if pair[1])


def read_alertmanager(_headers: Mapping[str, str], body: Body) -> Found:
    """Read prometheus.io/docs/alerting/latest/configuration/#webhook_config, version 4."""
    return Found("Alertmanager", text_at(body, "status"), text_at(body, "groupKey"), _alerts(body))


def read_grafana(_headers: Mapping[str, str], body: Body) -> Found:
    """Read grafana.com/docs/grafana/latest/alerting/configure-notifications/…/integrations/webhook-notifier/."""
    return Found("Grafana", text_at(body, "status"), text_at(body, "groupKey"), _alerts(body))


def _alerts(body: Body) -> tuple[Item, ...]:
    alerts = at(body, "alerts")
    return tuple(_alert(each) for each in (alerts if isinstance(alerts, list) else [])[:MAX_ITEMS])


def _alert(alert: object) -> Item:
    where = text_at(alert, "labels", "instance") or text_at(alert, "labels", "job")
    name = text_at(alert, "labels", "alertname") or "alert"
    summary = text_at(alert, "annotations", "summary")
    links = _links(
        (RUNBOOK, link_at(alert, "annotations", "runbook_url")),
        (DASHBOARD, link_at(alert, "dashboardURL")),
        (SOURCE, link_at(alert, "generatorURL")),
        (SILENCE, link_at(alert, "silenceURL")),
    )
    text = text_at(alert, "annotations", "description") or text_at(alert, "valueString")
    title = f"{name}: {summary}" if summary else f"{name} ({where})" if where else name
    state: State = "resolved" if at(alert, "status") == "resolved" else "firing"
    return Item(title, state, text_at(alert, "labels", "severity", most=40), text, links)


_GITHUB_SUBJECTS = ("issue", "pull_request", "discussion")
_GITHUB_RUNS = ("workflow_run", "workflow_job", "check_run", "check_suite", "deployment", "release")
_GITHUB_STATUSES = ("status", "deployment_status")
_ALERT_STATES: Mapping[str, State] = {
    **dict.fromkeys(("created", "reopened", "reopened_by_user", "reintroduced", "auto_reopened"), "firing"),
    **dict.fromkeys(("fixed", "closed_by_user", "dismissed", "auto_dismissed", "resolved"), "resolved"),
}


def read_github(headers: Mapping[str, str], body: Body) -> Found:
    """Read docs.github.com/en/webhooks/webhook-events-and-payloads."""
    event, action = headers["x-github-event"][:60], text_at(body, "action", most=60)
    repository = text_at(body, "repository", "full_name")
    kind = f"{event}.{action}" if action else event
    if event == "ping":
        return Found("GitHub", kind, "", ())
    if event.endswith("_alert") and (number := text_at(body, "alert", "number")):
        return _github_alert(kind, f"{repository} {event} {number}", repository, body)
    if event in _GITHUB_STATUSES:
        return _github_status(kind, f"{repository} {event}", repository, body)
    for name in _GITHUB_SUBJECTS:
        if number := text_at(body, name, "number"):
            thing = f"{repository}#{number}"
            title = f"{thing}: {text_at(body, name, 'title')}"
            text = text_at(body, "comment", "body") or text_at(body, "review", "body") or text_at(body, name, "body")
            link = link_at(body, "comment", "html_url") or link_at(body, name, "html_url")
            state: State = "resolved" if action == "closed" else "info"
            return Found("GitHub", kind, thing, (Item(_doing(kind, title), state, "", text, _links((OPEN, link))),))
    for name in _GITHUB_RUNS:
        if isinstance(at(body, name), Mapping):
            return _github_run(kind, repository, name, body)
    ref = text_at(body, "ref")
    title = _doing(kind, " ".join(filter(None, (repository, ref))))
    links = (link_at(body, "comment", "html_url"), link_at(body, "compare"), link_at(body, "repository", "html_url"))
    link = next(filter(None, links), "")
    text = text_at(body, "head_commit", "message") or text_at(body, "comment", "body")
    subject = " ".join(filter(None, (repository, event, ref)))
    return Found("GitHub", kind, subject, (Item(title, "info", "", text, _links((OPEN, link))),))


def _github_alert(kind: str, subject: str, repository: str, body: Body) -> Found:
    """Read an alert of code scanning, Dependabot or secret scanning."""
    ways = (("security_advisory", "summary"), ("rule", "description"), ("secret_type_display_name",), ("secret_type",))
    what = next(filter(None, (text_at(body, "alert", *way) for way in ways)), "")
    grades = (("security_advisory", "severity"), ("rule", "security_severity_level"), ("rule", "severity"))
    severity = next(filter(None, (text_at(body, "alert", *way, most=40) for way in grades)), "")
    link = link_at(body, "alert", "html_url") or link_at(body, "repository", "html_url")
    state = _ALERT_STATES.get(text_at(body, "action"), "info")
    title = _doing(kind, ": ".join(filter(None, (repository, what))))
    return Found("GitHub", kind, subject, (Item(title, state, severity, "", _links((OPEN, link))),))


def _github_status(kind: str, subject: str, repository: str, body: Body) -> Found:
    """Read the status of a commit, or that of a deployment."""
    place = ("deployment_status",) if isinstance(at(body, "deployment_status"), Mapping) else ()
    word = text_at(body, *place, "state", most=40)
    label = text_at(body, *place, "environment") or text_at(body, "context")
    branch = text_at(body, "deployment", "ref") or text_at(body, "branches", "0", "name")
    state: State = "firing" if word in ("failure", "error") else "resolved" if word == "success" else "info"
    link = link_at(body, *place, "log_url") or link_at(body, *place, "target_url")
    link = link or link_at(body, "repository", "html_url")
    title = _doing(kind, " ".join(filter(None, (repository, label, branch))))
    item = Item(title, state, word, text_at(body, *place, "description"), _links((OPEN, link)))
    return Found("GitHub", kind, " ".join(filter(None, (subject, label, branch))), (item,))


def _github_run(kind: str, repository: str, name: str, body: Body) -> Found:
    label = text_at(body, name, "name") or text_at(body, name, "tag_name") or text_at(body, name, "environment")
    branch, conclusion = text_at(body, name, "head_branch"), text_at(body, name, "conclusion", most=40)
    failed = conclusion in ("failure", "timed_out", "startup_failure", "action_required")
    state: State = "firing" if failed else "resolved" if conclusion == "success" else "info"
    title = _doing(kind, " ".join(filter(None, (repository, label, branch))))
    item = Item(title, state, conclusion, text_at(body, name, "body"), _links((OPEN, link_at(body, name, "html_url"))))
    return Found("GitHub", kind, " ".join(filter(None, (repository, name, label, branch))), (item,))


def read_gitlab(_headers: Mapping[str, str], body: Body) -> Found:
    """Read docs of GitLab: user/project/integrations/webhook_events/."""
    event, action = text_at(body, "object_kind", most=60), text_at(body, "object_attributes", "action", most=60)
    project = text_at(body, "project", "path_with_namespace")
    kind = f"{event}.{action}" if action else event
    owner = next((name for name in ("merge_request", "issue") if event == "note" and at(body, name)), "")
    place = (owner,) if owner else ("object_attributes",)
    mark = "!" if "merge_request" in (event, owner) else "#"
    if number := text_at(body, *place, "iid"):
        thing = f"{project}{mark}{number}"
        title = _doing(kind, f"{thing}: {text_at(body, *place, 'title')}")
        text = text_at(body, "object_attributes", "note") or text_at(body, "object_attributes", "description")
        links = _links((OPEN, link_at(body, "object_attributes", "url")))
        state: State = "resolved" if action in ENDED_ACTIONS else "info"
        return Found("GitLab", kind, thing, (Item(title, state, "", text, links),))
    ref = text_at(body, "ref") or text_at(body, "object_attributes", "ref")
    ways = (("object_attributes", "status"), ("build_status",), ("status",))  # of pipelines, jobs and deployments
    status = next(filter(None, (text_at(body, *way, most=40) for way in ways)), "")
    label = text_at(body, "build_name") or text_at(body, "environment")
    state = "firing" if status == "failed" else "resolved" if status == "success" else "info"
    link = link_at(body, "object_attributes", "url") or link_at(body, "deployable_url")
    link = link or link_at(body, "project", "web_url")
    title = _doing(kind, " ".join(filter(None, (project, label, ref))))
    subject = " ".join(filter(None, (project, event, label, ref)))
    return Found("GitLab", kind, subject, (Item(title, state, status, text_at(body, "message"), _links((OPEN, link))),))


def read_sentry(headers: Mapping[str, str], body: Body) -> Found:
    """Read docs.sentry.io/organization/integrations/integration-platform/webhooks/ (issues, errors, alerts)."""
    resource, action = headers["sentry-hook-resource"][:60], text_at(body, "action", most=60)
    kind = f"{resource}.{action}" if action else resource
    data = at(body, "data")
    if isinstance(at(data, "metric_alert"), Mapping):
        state: State = "resolved" if action == "resolved" else "firing"
        title = text_at(data, "description_title") or text_at(data, "metric_alert", "title")
        links = _links((OPEN, link_at(data, "web_url")))
        item = Item(title, state, action, text_at(data, "description_text"), links)
        return Found("Sentry", kind, f"alert {text_at(data, 'metric_alert', 'id')}", (item,))
    if comment := text_at(data, "comment"):  # …/webhooks/comments/
        item = Item(_doing(kind, f"issue {text_at(data, 'issue_id')}"), "info", "", comment)
        return Found("Sentry", kind, f"issue {text_at(data, 'issue_id')}", (item,))
    place = next((name for name in ("issue", "event", "error") if isinstance(at(data, name), Mapping)), "")
    if not place:
        return Found("Sentry", kind, "", ())
    id = text_at(data, place, "id") if place == "issue" else text_at(data, place, "issue_id")
    name = text_at(data, place, "shortId")
    title = ": ".join(filter(None, (name, text_at(data, place, "title"))))
    link = next(filter(None, (link_at(data, place, key) for key in ("web_url", "permalink"))), "")
    state = "resolved" if action in ENDED_ACTIONS else "firing"
    item = Item(
        title, state, text_at(data, place, "level", most=40), text_at(data, place, "culprit"), _links((OPEN, link))
    )
    return Found("Sentry", kind, f"issue {id}" if id else title, (item,))


def read_script(_headers: Mapping[str, str], body: Body) -> Found:
    """Read what docs/hooks.md lets a script send: title, text, state, severity, group, url, kind."""
    title = text_at(body, "title") or text_at(body, "text") or text_at(body, "message")
    written = text_at(body, "state", most=20) or text_at(body, "status", most=20)
    state: State = "resolved" if written == "resolved" else "firing" if written == "firing" else "info"
    text = text_at(body, "text") if at(body, "title") else ""
    item = Item(title, state, text_at(body, "severity", most=40), text, _links((OPEN, link_at(body, "url"))))
    kind = text_at(body, "kind", most=60)
    return Found("script", kind, text_at(body, "group"), (item,) if title else ())


def _doing(kind: str, title: str) -> str:
    """Return a title with what happened to it."""
    return f"{title} ({kind.replace('.', ' ').replace('_', ' ')})"
