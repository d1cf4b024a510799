"""What deliveries say: each sender's title, state, links and group; foreign bodies stay within their bounds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.setting import Secret
from bot.config.hooks import HookConfig
from bot.hooks.events import MAX_BODY_CHARS, MAX_TITLE_CHARS, BadBody, HookEvent, read_event
from bot.hooks.senders import MAX_FIELD_CHARS, MAX_ITEMS, link_at
from tests.fakes import hook_payloads
from tests.fakes.hook_payloads import Payload

HOOK = HookConfig("slack:T1/C1", "@U7", Secret("x"))


def read(payload: Payload, **changes: Any) -> HookEvent:
    headers, body = payload
    return read_event(replace(HOOK, **changes), headers, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("name", "sender", "kind", "subject", "title", "link"),
    [
        (
            "alertmanager",
            "Alertmanager",
            "firing",
            '{}:{alertname="HighLatency"}',
            "HighLatency: slow requests",
            "runbooks",
        ),
        ("grafana", "Grafana", "firing", "{}:{}", "High memory usage: This alert", "silence"),
        ("github", "GitHub", "issues.opened", "Codertocat/Hello-World#1", "Spelling error", "issues/1"),
        ("gitlab", "GitLab", "issue.open", "gitlabhq/gitlab-test#23", "New API", "issues/23"),
        ("sentry", "Sentry", "issue.created", "issue 1170820242", "IPE1-1: ReferenceError", "1170820242"),
    ],
)
def test_each_sender_has_a_title_a_link_and_a_group(
    name: str, sender: str, kind: str, subject: str, title: str, link: str
) -> None:
    event = read(hook_payloads.ALL[name]())
    assert (event.sender, event.kind, event.subject, event.ignored) == (sender, kind, subject, False)
    [item] = event.items
    assert title in item.title
    assert any(link in address for _name, address in item.links)
    assert item.state != "resolved"


@pytest.mark.parametrize(
    ("name", "word"),
    [("alertmanager", ""), ("grafana", "resolved"), ("github", "closed"), ("gitlab", "close"), ("sentry", "resolved")],
)
def test_the_end_of_it_has_the_same_group(name: str, word: str) -> None:
    make = hook_payloads.ALL[name]
    ended = read(hook_payloads.alertmanager(status="resolved") if name == "alertmanager" else make(word))
    assert ended.is_resolved
    assert ended.subject == read(make()).subject


def test_an_alert_of_grafana_has_its_values_its_panel_and_its_end() -> None:
    fired, ended = read(hook_payloads.grafana_sent("9")), read(hook_payloads.grafana_sent("resolved"))
    assert [item.state for item in fired.items] == ["firing", "resolved"]
    assert (ended.subject, ended.is_resolved, fired.is_resolved) == (fired.subject, True, False)
    assert fired.items[0].title == "Test alert: failure on db1"
    assert fired.items[0].text.startswith("Too long\n[ var='B'")
    assert [name for name, _link in fired.items[0].links] == ["Silence"]  # `www.example.com` is no address
    newest = read(hook_payloads.grafana_sent("newest"))
    assert ("Dashboard", "https://grafana.example/d/e9a2?orgId=1&viewPanel=1") in newest.items[0].links


def test_an_alert_about_a_rule_of_grafana_names_the_rule() -> None:
    """Rules of one folder come in one group, and all of them are called DatasourceNoData."""
    [item] = read(hook_payloads.grafana_sent("no_data")).items
    assert item.title == "DatasourceNoData (Queue is full)"


def test_the_test_of_a_contact_point_is_an_alert() -> None:
    event = read(hook_payloads.grafana_sent("test"))
    assert (event.sender, event.items[0].title) == ("Grafana", "TestAlert: Notification test")


@pytest.mark.parametrize("sender", ["Grafana", "Alertmanager"])
def test_what_a_sender_left_out_is_said_and_is_not_over(sender: str) -> None:
    payload = (
        hook_payloads.grafana_sent("resolved") if sender == "Grafana" else hook_payloads.alertmanager(status="resolved")
    )
    headers, body = payload
    assert read(payload).is_resolved
    event = read((headers, body | {"truncatedAlerts": 3}))
    assert event.items[-1].title == f"3 more alerts, which {sender} left out"
    assert not event.is_resolved


REPOSITORY = {"full_name": "o/r", "html_url": "https://github.com/o/r"}
ADVISORY = {"summary": "semver is slow", "severity": "medium"}
SECURITY = [
    ("dependabot_alert", {"security_advisory": ADVISORY}, "semver is slow", "medium"),
    ("code_scanning_alert", {"rule": {"description": "SQL injection", "severity": "error"}}, "SQL injection", "error"),
    ("secret_scanning_alert", {"secret_type": "adafruit_io_key"}, "adafruit_io_key", ""),
]


@pytest.mark.parametrize(("event", "alert", "what", "severity"), SECURITY)
def test_an_alert_of_github_has_a_title_a_group_of_its_own_and_an_end(
    event: str, alert: dict[str, Any], what: str, severity: str
) -> None:
    """Their fields are those of the payloads that GitHub itself sent (github.com/octokit/webhooks)."""

    def of(action: str, number: int = 20) -> HookEvent:
        link = f"https://github.com/o/r/security/{number}"
        body = {"action": action, "repository": REPOSITORY, "alert": {"number": number, "html_url": link, **alert}}
        return read(({"x-github-event": event}, body))

    [item] = of("created").items
    assert what in item.title
    assert (item.state, item.severity, item.links[0][1]) == ("firing", severity, "https://github.com/o/r/security/20")
    assert of("created").subject != of("created", 21).subject
    assert of("reopened").subject == of("created").subject
    for action in ("fixed", "dismissed", "closed_by_user", "resolved"):
        assert of(action).is_resolved


@pytest.mark.parametrize(("word", "state"), [("failure", "firing"), ("success", "resolved"), ("pending", "info")])
def test_what_ran_at_github_says_how_it_ended(word: str, state: str) -> None:
    link = "https://ci.example/7"
    status = {"context": "ci/unit", "branches": [{"name": "main"}], "state": word, "target_url": link}
    deployed = {"environment": "production", "state": word, "log_url": link}
    job = {"name": "linters", "head_branch": "main", "conclusion": word, "html_url": link}
    bodies: dict[str, tuple[dict[str, Any], str]] = {
        "status": (status, "o/r status ci/unit main"),
        "deployment_status": (
            {"deployment_status": deployed, "deployment": {"ref": "main"}, "workflow_run": {"name": "pages"}},
            "o/r deployment_status production main",
        ),
        "workflow_job": ({"action": "completed", "workflow_job": job}, "o/r workflow_job linters main"),
    }
    for event, (body, subject) in bodies.items():
        found = read(({"x-github-event": event}, {"repository": REPOSITORY, **body}))
        [item] = found.items
        assert (found.subject, item.state, item.links[0][1]) == (subject, state, link)


def test_a_comment_on_a_commit_has_its_text_and_its_link() -> None:
    comment = {"body": "Why this?", "html_url": "https://github.com/o/r/commit/1#c2"}
    body = {"action": "created", "comment": comment, "repository": REPOSITORY}
    [item] = read(({"x-github-event": "commit_comment"}, body)).items
    assert (item.text, item.links[0][1]) == ("Why this?", comment["html_url"])


@pytest.mark.parametrize(("word", "state"), [("failed", "firing"), ("success", "resolved"), ("running", "info")])
def test_jobs_and_deployments_of_gitlab_say_how_they_ended(word: str, state: str) -> None:
    project = {"path_with_namespace": "g/p", "web_url": "https://git.example/g/p"}
    job = {"object_kind": "build", "ref": "main", "build_name": "unit", "build_status": word, "project": project}
    url = "https://git.example/g/p/-/jobs/796"
    deployed = {"object_kind": "deployment", "status": word, "environment": "staging", "deployable_url": url}
    for body, subject, link in (
        (job, "g/p build unit main", project["web_url"]),
        ({**deployed, "project": project}, "g/p deployment staging", url),
    ):
        found = read(({"x-gitlab-event": "x"}, body))
        [item] = found.items
        assert (found.subject, item.state, item.links[0][1]) == (subject, state, link)


@pytest.mark.parametrize(
    ("kind", "subject", "title", "state", "text", "link"),
    [
        ("pipeline", "shop/web pipeline main", "shop/web main", "firing", "", "shop/web"),
        ("build", "Shop / web build unit main", "Shop / web unit main", "firing", "", "shop/web"),
        ("release", "shop/web release 1.2.0", "shop/web 1.2.0 (release create)", "info", "Faster.", "releases/1.2.0"),
        ("vulnerability", "shop/web vulnerability Denial", "Denial of service", "firing", "", "vulnerabilities/1"),
        ("note", "shop/web note", "shop/web (note)", "info", "Why this?", "c#n1"),
        ("push", "shop/web push refs/heads/main", "refs/heads/main", "info", "Update the catalogue", "shop/web"),
        ("subgroup_create", "shop/new subgroup_create", "shop/new (subgroup create)", "info", "", ""),
        ("access_token", "shop access_token deploys", "shop deploys (access token)", "info", "", ""),
    ],
)
def test_each_event_of_gitlab_says_what_it_is_about(
    kind: str, subject: str, title: str, state: str, text: str, link: str
) -> None:
    event = read(hook_payloads.gitlab_work(kind))
    [item] = event.items
    assert (event.subject.startswith(subject), title in item.title) == (True, True), (event.subject, item.title)
    assert (item.state, item.text) == (state, text)
    assert any(link in address for _name, address in item.links) is bool(link)


def test_a_pipeline_is_no_issue_of_its_number_and_ends() -> None:
    failed, issue = read(hook_payloads.gitlab_work("pipeline")), read(hook_payloads.gitlab())
    assert failed.subject != issue.subject
    passed = {"id": 32, "iid": 24, "ref": "main", "status": "success"}
    ended = read(hook_payloads.gitlab_work("pipeline", object_attributes=passed))
    assert (ended.subject, ended.is_resolved) == (failed.subject, True)


@pytest.mark.parametrize(
    ("resource", "subject", "state", "text"),
    [
        ("event_alert", "issue 1117540176", "firing", "?(<anonymous>)"),
        ("event_alert of 2020", "issue 1117540176", "firing", ""),
        ("activity_alert", "issue 1117540176", "info", "The variable is never set."),
        ("error", "issue 1117540176", "firing", "?(<anonymous>)"),
        ("metric_alert", "alert 4", "firing", "1000 events"),
        ("comment", "issue 1117540176", "info", "Seen"),
        ("seer", "issue 1117540176", "info", "The variable is never set."),
        ("preprod_artifact", "build 72", "firing", "Too slow"),
    ],
)
def test_each_event_of_sentry_belongs_to_its_issue_or_alert(resource: str, subject: str, state: str, text: str) -> None:
    event = read(hook_payloads.sentry_of(resource))
    [item] = event.items
    assert (event.subject, item.state) == (subject, state)
    assert text in item.text
    assert item.title


def test_work_on_an_issue_of_sentry_is_no_new_alert_and_has_its_own_link() -> None:
    event = read(hook_payloads.sentry_of("activity_alert"))
    assert event.kind == "activity_alert.triggered"
    assert event.items[0].title.endswith("(seer root cause completed)")
    assert event.items[0].links == (("Open", "https://sentry.example/issues/1117540176/"),)
    [item] = read(hook_payloads.sentry_of("activity_alert of a request")).items
    assert item.links == (("Open", "https://github.com/shop/web/pull/7"),)


def test_an_issue_of_sentry_that_somebody_takes_fires_nothing() -> None:
    [item] = read(hook_payloads.sentry("assigned")).items
    assert (item.state, "(issue assigned)" in item.title) == ("info", True)
    assert read(hook_payloads.sentry_of("installation")).ignored


def test_a_comment_belongs_to_its_issue() -> None:
    headers, body = hook_payloads.github()
    comment = {"comment": {"body": "me too", "html_url": "https://github.com/x/issues/1#issuecomment-1"}}
    event = read((headers | {"x-github-event": "issue_comment"}, body | comment | {"action": "created"}))
    assert (event.kind, event.subject) == ("issue_comment.created", "Codertocat/Hello-World#1")
    assert event.items[0].text == "me too"


def test_an_operator_may_choose_the_group() -> None:
    payload = hook_payloads.alertmanager()
    assert read(payload, group_by=("commonLabels.service",)).subject == "shop"
    assert read(payload, group_by=("alerts.0.labels.instance",)).subject == "db1:9100"
    assert read(payload, group_by=("no.such",)).subject == '{}:{alertname="HighLatency"}'


@pytest.mark.parametrize(("events", "ignored"), [(("issues",), False), (("issues.closed",), True), ((), False)])
def test_an_operator_may_choose_the_kinds(events: tuple[str, ...], ignored: bool) -> None:
    assert read(hook_payloads.github(), events=events).ignored is ignored


def test_a_ping_asks_for_nothing() -> None:
    assert read(({"x-github-event": "ping"}, {"zen": "Keep it logically awesome."})).ignored


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, {"msg": "disk full"}),
        ({}, {"alert": {"title": "disk full", "rows": ["x" * 300] * 100}}),
        ({"sentry-hook-resource": "new_kind"}, {"data": {"what": "disk full"}}),
    ],
)
def test_a_body_of_unknown_shape_is_read_as_it_came_within_bounds(
    headers: dict[str, str], body: dict[str, Any]
) -> None:
    event = read((headers, body))
    assert not event.ignored
    [item] = event.items
    assert "disk full" in item.title
    assert "disk full" in item.text
    assert len(item.title) <= MAX_TITLE_CHARS
    assert len(item.text) <= MAX_BODY_CHARS


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"{", b"null", b"\xff", b'{"a":' * 5000, b"[" * 1_000_000])
def test_a_body_that_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(BadBody):
        read_event(HOOK, {"content-type": "application/json"}, body)


def test_a_huge_delivery_stays_within_its_bounds() -> None:
    event = read(hook_payloads.alertmanager(*(["x" * 5000] * 600)))
    assert len(event.items) == MAX_ITEMS
    assert len(event.items[0].title) <= 2 * MAX_FIELD_CHARS + 2


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "https://", "http://user:pw@host/", "file:///etc", "http://[", 7, None]
)
def test_only_web_addresses_are_links(link: object) -> None:
    assert link_at({"url": link}, "url") == ""


def test_a_link_cannot_end_its_markdown() -> None:
    assert link_at({"url": "https://x.example/a)[b](c"}, "url") == "https://x.example/a%29%5Bb%5D%28c"


foreign = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.sampled_from(sorted(hook_payloads.ALL)), st.data())
def test_no_value_in_any_place_fails(name: str, data: st.DataObject) -> None:
    headers, body = hook_payloads.ALL[name]()
    content: Any = json.loads(json.dumps(body))
    here = content
    while isinstance(here, dict | list) and here:
        key = data.draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        if data.draw(st.booleans()) or not isinstance(here[key], dict | list):
            here[key] = data.draw(foreign)
            break
        here = here[key]
    try:
        text = json.dumps(content).encode()
        event = read_event(HOOK, headers, text)
    except BadBody:
        return  # such as a lone surrogate, or a number that JSON has and no machine
    assert all(isinstance(item.title, str) for item in event.items)
