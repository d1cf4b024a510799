"""Find title, state, severity, links and group in the payloads of each sender.

Read single fields of foreign JSON, whatever is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from yarl import URL

from catalogue import N_

Body: TypeAlias = Mapping[str, Any]
MAX_FIELD_CHARS, MAX_LINK_CHARS = 1_000, 2_000


def at(content: object, *way: str) -> Any:
    """Return the value at a way of names and numbers; None where there is none."""
    for name in way:
        if isinstance(content, Mapping):
            content = content.get(name)
        elif isinstance(content, list) and name.isascii() and name.isdecimal() and len(name) <= 6:
            content = content[int(name)] if int(name) < len(content) else None
        else:
            return None
    return content


def text_at(content: object, *way: str, most: int = MAX_FIELD_CHARS) -> str:
    """Return a text or number at a way, cut; "" where there is none."""
    value = at(content, *way)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value)[:most].encode("utf-8", "replace").decode().replace("\0", "")  # PostgreSQL takes no NUL


def link_at(content: object, *way: str) -> str:
    """Return a web address at a way; "" for anything else, such as `javascript:`."""
    value = at(content, *way)
    if not isinstance(value, str) or len(value) > MAX_LINK_CHARS:
        return ""
    try:
        url = URL(value)
    except ValueError:
        return ""
    usable = url.scheme in ("http", "https") and url.host and not url.user
    return str(url).replace("(", "%28").replace(")", "%29") if usable else ""


State = Literal["firing", "resolved", "info"]
MAX_ITEMS = 500  # of one delivery
_ALERT_PLACES = (("labels", "instance"), ("labels", "job"))
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
    return Found("Alertmanager", text_at(body, "status"), text_at(body, "groupKey"), _alerts("Alertmanager", body))


def read_grafana(_headers: Mapping[str, str], body: Body) -> Found:
    """Read grafana.com/docs/grafana/latest/alerting/configure-notifications/…/integrations/webhook-notifier/.

    Its fields are those of github.com/grafana/alerting/blob/main/templates/template_data.go.
    """
    return Found("Grafana", text_at(body, "status"), text_at(body, "groupKey"), _alerts("Grafana", body))


def _alerts(sender: str, body: Body) -> tuple[Item, ...]:
    """Read the alerts, and how many the sender left out by its own limit: those may still fire."""
    alerts, left_out = at(body, "alerts"), at(body, "truncatedAlerts")
    items = [_alert(each) for each in (alerts if isinstance(alerts, list) else [])[:MAX_ITEMS]]
    if isinstance(left_out, int) and left_out > 0:
        items.append(Item(f"{str(left_out)[:20]} more alerts, which {sender} left out"))
    return tuple(items)


def _alert(alert: object) -> Item:
    where = _first_text(alert, _ALERT_PLACES)
    name = text_at(alert, "labels", "alertname") or "alert"
    if rule := text_at(alert, "labels", "rulename"):  # an alert about a rule of Grafana: DatasourceNoData, -Error
        name, where = f"{name} ({rule})", ""
    summary = text_at(alert, "annotations", "summary")
    links = _links(
        (RUNBOOK, link_at(alert, "annotations", "runbook_url")),
        (DASHBOARD, link_at(alert, "panelURL") or link_at(alert, "dashboardURL")),
        (SOURCE, link_at(alert, "generatorURL")),
        (SILENCE, link_at(alert, "silenceURL")),
    )
    texts = (text_at(alert, "annotations", "description"), text_at(alert, "valueString"))
    text = "\n".join(filter(None, texts))
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


_GITLAB_MARKS = {
    **dict.fromkeys(("issue", "work_item", "incident", "epic"), "#"),
    "merge_request": "!",
    "milestone": "%",
}  # of what has a number in its project; a pipeline has one, too, but belongs to its branch
_GITLAB_PROJECTS = (("project", "path_with_namespace"), ("project_name",), ("group_path",), ("full_path",))
_GITLAB_LABELS = (("build_name",), ("environment",), ("object_attributes", "name"), ("object_attributes", "title"))
_GITLAB_LINKS = (("object_attributes", "url"), ("deployable_url",), ("url",), ("project", "web_url"))
_GITLAB_STATUSES = (("object_attributes", "status"), ("build_status",), ("status",), ("object_attributes", "state"))
_GITLAB_TEXTS = (("object_attributes", "note"), ("object_attributes", "description"), ("description",), ("message",))
_GITLAB_STATES: Mapping[str, State] = {
    **dict.fromkeys(("failed", "detected", "confirmed"), "firing"),  # of jobs, and of vulnerabilities
    **dict.fromkeys(("success", "resolved", "dismissed"), "resolved"),
}


def read_gitlab(_headers: Mapping[str, str], body: Body) -> Found:
    """Read docs of GitLab: user/project/integrations/webhook_events/."""
    event = text_at(body, "object_kind", most=60) or text_at(body, "event_name", most=60)
    action = text_at(body, "object_attributes", "action", most=60) or text_at(body, "action", most=60)
    project = _first_text(body, _GITLAB_PROJECTS) or text_at(body, "group", "group_path")
    kind = f"{event}.{action}" if action else event
    owner = next((name for name in ("merge_request", "issue") if event == "note" and at(body, name)), "")
    place = (owner,) if owner else ("object_attributes",)
    mark, number = _GITLAB_MARKS.get(owner or event, ""), text_at(body, *place, "iid")
    if not (mark and number):
        return _gitlab_work(kind, project, event, body)
    thing = f"{project}{mark}{number}"
    title = _doing(kind, f"{thing}: {text_at(body, *place, 'title')}")
    links = _links((OPEN, link_at(body, "object_attributes", "url")))
    state: State = "resolved" if action in ENDED_ACTIONS else "info"
    return Found("GitLab", kind, thing, (Item(title, state, "", _first_text(body, _GITLAB_TEXTS), links),))


def _gitlab_work(kind: str, project: str, event: str, body: Body) -> Found:
    """Read a push, a pipeline, a job, a deployment, a release, a vulnerability and whatever else there is."""
    ref = text_at(body, "ref") or text_at(body, "object_attributes", "ref") or text_at(body, "tag")
    label = _first_text(body, _GITLAB_LABELS)
    status = _first_text(body, _GITLAB_STATUSES, most=40)
    link = next(filter(None, (link_at(body, *way) for way in _GITLAB_LINKS)), "")
    link = link or link_at(body, "repository", "homepage")
    title = _doing(kind, " ".join(filter(None, (project, label, ref))))
    subject = " ".join(filter(None, (project, event, label, ref)))
    text = _first_text(body, _GITLAB_TEXTS) or text_at(body, "commits", "0", "message")
    severity = text_at(body, "object_attributes", "severity", most=40) or status
    state = _GITLAB_STATES.get(status, "info")
    return Found("GitLab", kind, subject, (Item(title, state, severity, text, _links((OPEN, link))),))


_SENTRY_STATES: Mapping[str, State] = {
    **dict.fromkeys(("created", "unresolved", "triggered"), "firing"),
    **dict.fromkeys(("resolved", "archived", "ignored"), "resolved"),
}
_SEER_TEXTS = (("root_cause", "description"), ("solution", "description"), ("changes", "0", "title"))
_ISSUE_LINKS = (("web_url",), ("webUrl",), ("permalink",))


def read_sentry(headers: Mapping[str, str], body: Body) -> Found:
    """Read docs.sentry.io/organization/integrations/integration-platform/webhooks/: issues, errors, alerts and more."""
    resource, action = headers["sentry-hook-resource"][:60], text_at(body, "action", most=60)
    kind = f"{resource}.{action}" if action else resource
    data = at(body, "data")
    if isinstance(at(data, "metric_alert"), Mapping):
        state: State = "resolved" if action == "resolved" else "firing"
        title = text_at(data, "description_title") or text_at(data, "metric_alert", "title")
        links = _links((OPEN, link_at(data, "web_url")))
        item = Item(title, state, action, text_at(data, "description_text"), links)
        return Found("Sentry", kind, f"alert {text_at(data, 'metric_alert', 'id')}", (item,))
    if isinstance(at(data, "activity"), Mapping):
        return _sentry_activity(data)
    if place := next((name for name in ("issue", "event", "error") if isinstance(at(data, name), Mapping)), ""):
        return _sentry_issue(kind, action, at(data, place), _issue_of(at(data, place), is_event=place != "issue"))
    if issue := text_at(data, "issue_id") or text_at(data, "group_id"):  # …/webhooks/comments/, …/webhooks/seer/
        text = text_at(data, "comment") or _first_text(data, _SEER_TEXTS)
        link = link_at(data, "pull_requests", "0", "pull_request", "pr_url")
        item = Item(_doing(kind, f"issue {issue}"), "info", "", text, _links((OPEN, link)))
        return Found("Sentry", kind, f"issue {issue}", (item,))
    if build := text_at(data, "buildId"):  # …/webhooks/preprod-artifacts/
        state = "firing" if at(data, "state") == "FAILED" else "info"
        named = (text_at(data, *way) for way in (("projectSlug",), ("appInfo", "name"), ("appInfo", "version")))
        title = _doing(kind, " ".join(filter(None, named)))
        item = Item(title, state, text_at(data, "errorCode", most=40), text_at(data, "errorMessage"))
        return Found("Sentry", kind, f"build {build}", (item,))
    return Found("Sentry", kind, "", ())


def _sentry_activity(data: object) -> Found:
    """Read what an alert rule reports of work on an issue, such as a cause that Seer found.

    Its source is getsentry/sentry, …/notification_action/activity_registry/sentry_app.py.
    """
    issue = at(data, "issue")
    found = _sentry_issue(text_at(data, "activity", "type", most=60), "", issue, _issue_of(issue, is_event=False))
    text = text_at(data, "activity", "details", "summary")
    link = link_at(data, "activity", "details", "pull_requests", "0", "url")
    items = (replace(each, text=text or each.text, links=_links((OPEN, link)) or each.links) for each in found.items)
    return replace(found, kind="activity_alert.triggered", items=tuple(items))


def _issue_of(content: object, *, is_event: bool) -> str:
    """Return the id of an issue, or of that of an event: older servers name it in `issue_url` only."""
    if not is_event:
        return text_at(content, "id")
    last = text_at(content, "issue_url").rstrip("/").rpartition("/issues/")[2]
    return text_at(content, "issue_id") or (last if last.isdecimal() else "")


def _sentry_issue(kind: str, action: str, content: object, id: str) -> Found:
    """Read an issue, or an event of one."""
    state = _SENTRY_STATES.get(action, "info")
    title = ": ".join(filter(None, (text_at(content, "shortId"), text_at(content, "title"))))
    link = next(filter(None, (link_at(content, *way) for way in _ISSUE_LINKS)), "")
    level, culprit = text_at(content, "level", most=40), text_at(content, "culprit")
    item = Item(_doing(kind, title) if state == "info" else title, state, level, culprit, _links((OPEN, link)))
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


def _first_text(body: object, ways: Sequence[tuple[str, ...]], most: int = MAX_FIELD_CHARS) -> str:
    """Return the first text that there is at some ways."""
    return next(filter(None, (text_at(body, *way, most=most) for way in ways)), "")


def _doing(kind: str, title: str) -> str:
    """Return a title with what happened to it."""
    return f"{title} ({kind.replace('.', ' ').replace('_', ' ')})"
