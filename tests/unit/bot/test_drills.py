"""Drills: how answers are counted, when the next one is, and what the configuration refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import orjson
import pytest
import yaml

from agent.blocks import Final
from bot.config.loader import ConfigError, load_config
from bot.config.operations import DrillConfig, Often
from bot.config.schema import Config
from bot.database import audit
from bot.drill.report import DrillReport, render_lines, render_table, row_of
from bot.drill.service import OF_THE_DRILL, write_scratch
from bot.drill.times import DRILL_JOB, DrillJobs, DrillOrder, next_drill
from bot.rights.current import Current
from bot.storage.jobs import BackgroundJob
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

ONCE, TWICE, MARKED, MARKED_ALONE, NEVER = (1, 0), (2, 0), (1, 1), (0, 1), (0, 0)


def test_answers_are_counted_as_exact_repeated_and_lost() -> None:
    row = row_of("kills", 3, [ONCE, TWICE, MARKED, MARKED_ALONE, NEVER], [1.0, 2.0, 9.0])
    assert (row.messages, row.exact, row.repeated, row.marked, row.lost) == (5, 2, 2, 1, 1)
    assert (row.rto, row.worst_rto) == (2.0, 9.0)
    assert not row.is_good


@pytest.mark.parametrize(
    ("answers", "good"), [([ONCE], True), ([MARKED], True), ([TWICE], False), ([NEVER], False), ([(2, 1)], False)]
)
def test_only_marked_repeats_pass(answers: list[tuple[int, int]], good: bool) -> None:
    assert row_of("gateway", 1, answers, []).is_good is good


def test_a_report_is_the_same_after_its_way_as_json_and_names_what_is_missing() -> None:
    rows = [row_of("kills", 20, [ONCE] * 20, [2.5]), row_of("restore", 1, [ONCE, ONCE], [8.0], None)]
    report = DrillReport(0.0, 90.4, rows, ["disk", "network"], ["mcp"], [])
    assert DrillReport.from_json(orjson.loads(orjson.dumps(report.to_json()))) == report
    table = render_table(report)
    assert table.startswith("Drill of 1970-01-01 00:00 UTC: passed in 90 s.")
    for words in ("killed while it works     20        20     20", "no bound", "set `backup.to`", "small file system"):
        assert words in table
    assert "- killed while it works (20): 20 exact, 0 repeated, 0 lost; RPO 0 s, RTO 2.5 s" in render_lines(report)
    assert report.figures["rpo_seconds"] == -1
    assert not replace(report, ended=["exit 1: …"]).is_good
    assert not replace(report, rows=[]).is_good, "a drill without a fault shows nothing"


@pytest.mark.parametrize(
    ("often", "now", "then"),
    [
        ("daily", "2026-11-25 02:59", "2026-11-25 03:00"),
        ("daily", "2026-11-25 03:00", "2026-11-26 03:00"),
        ("weekly", "2026-11-25 22:00", "2026-11-29 03:00"),
        ("monthly", "2026-11-25 22:00", "2026-12-01 03:00"),
        ("weekly", "2026-03-28 22:00", "2026-03-29 03:00"),  # the clock goes forward that night
    ],
)
def test_the_next_drill_is_at_three_in_the_zone_of_the_team(often: Often, now: str, then: str) -> None:
    zone = ZoneInfo("Europe/Berlin")
    at, due = (datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() for text in (now, then))
    assert next_drill(often, at, "Europe/Berlin") == due


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"to": "telegram:1/42"}, "drill: begins no drill"),
        ({"schedule": "weekly"}, "drill.to: is not the address of a chat"),
        ({"schedule": "weekly", "to": "slack:T1/C1"}, "drill.to: this channel is not configured"),
        ({"schedule": "weekly", "to": "console:local/me"}, "drill.to: the console has no chats"),
        ({"schedule": "hourly", "to": "telegram:1/42"}, "drill.schedule"),
    ],
)
def test_a_drill_that_could_tell_nobody_is_a_fault(tmp_path: Path, section: dict[str, str], words: str) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"config_version": 1, "drill": section}))
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "config.yaml", environ={"TELEGRAM_BOT_TOKEN": "123456789:AAHAAHAAHAAHAAHAAH"})
    assert words in str(error.value)


def test_the_scratch_configuration_has_the_rules_of_the_operator_and_none_of_the_accounts(tmp_path: Path) -> None:
    sections = {
        "config_version": 1,
        "data_dir": "/srv/fawn",
        "models": [
            {"name": "big", "base_url": "http://models.example/v1", "api_key": "sk-own", "context_tokens": 9000}
        ],
        "roles": {"lead": "big"},
        "team": {"default_role": "viewer"},
        "limits": {"attempts": 7},
        "keep_days": 30,
        "sandbox": {"docker_host": "tcp://10.0.0.1:2375"},
        "web": {"search": [{"provider": "searxng", "url": "https://search.example"}]},
        "permissions": {"rules": [{"tool": "bash", "do": "$NOWHERE"}]},
        "channels": {"telegram": {"token": "123456789:AAHAAHAAHAAHAAHAAH", "per_chat": 0.5, "access": {"open": True}}},
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(sections | {"permissions": {}}))
    config = load_config(file, environ={})
    (tmp_path / "scratch").mkdir()
    left_out = write_scratch(config, tmp_path / "scratch", tmp_path / "data", "http://127.0.0.1:1")
    written = (tmp_path / "scratch" / "config.yaml").read_text()
    for secret in ("sk-own", "AAHAAH", "models.example", "search.example", "10.0.0.1", "/srv/fawn"):
        assert secret not in written
    made = load_config(tmp_path / "scratch" / "config.yaml", environ={})
    assert (made.limits.attempts, made.team.default_role, made.keep_days) == (7, "viewer", 30)
    assert [(model.name, model.context_tokens) for model in made.models] == [("big", 9000)]
    assert made.roles.lead == "big"
    assert made.channels[0].settings.per_chat == 0.5
    assert (made.data_dir, made.sandbox.provider) == (tmp_path / "data", "none")
    assert left_out == ["web"]
    assert not {"web", "mcp", "push", "traces", "hooks", "http", "backup"} & OF_THE_DRILL


async def test_a_drill_that_cannot_begin_is_said_in_the_chat_and_the_audit(tmp_path: Path) -> None:
    config = Config(drill=DrillConfig("weekly", "telegram:1/42"), file=tmp_path / "nowhere.yaml")
    jobs = DrillJobs(Current(config), DrillOrder(kills=1))
    make_empty_database(tmp_path / "fawn.db")
    job = BackgroundJob("drill.run:weekly", DRILL_JOB, 0.0, b'{"schedule": "weekly"}', 1, "", "")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        effect = await jobs.run(job)
        assert effect
        await store.run(effect)
        [post] = await store.run(lambda execute: execute("SELECT payload FROM outbox", {}))
        [row] = await store.run(lambda execute: audit.read_page(execute, 0, 9))
        [planned] = await store.run(lambda execute: execute("SELECT key FROM jobs", {}))
    assert Final.load(post["payload"]).text == "The drill did not come to its end: the log has `drill.failed`."
    assert (row.event["kind"], row.event["result"]) == ("drill", "failed")
    assert planned["key"] == "drill.run:weekly"
    assert await DrillJobs(Current(replace(config, drill=DrillConfig())), DrillOrder()).run(job) is None, (
        "it is wanted no more"
    )
