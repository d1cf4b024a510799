"""What a scrape shows after a real journey, and that it names nobody."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.conftest import Start
from tests.e2e.test_probes import address_of
from tests.fakes.model import FakeModel
from tests.fakes.server import Fault, until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask, bash

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "packaging/kubernetes/chart/alerts.yaml"
DASHBOARD = ROOT / "packaging/grafana/fawn.json"
EVE = JANE + 1
ELSEWHERE = {  # what other tests move: the journey below, and test_metrics.py and test_outbox.py of the unit tests
    *("fawn_cost_usd", "fawn_platform_rate_limited", "fawn_outbox_waiting_rows"),
    "gen_ai_client_inference_usage_reasoning_output_tokens",
}
LABELS = {  # that a metric of Fawn may have
    *("channel", "outcome", "model", "kind", "reason", "scope", "version", "le", "error_type"),
    *("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_agent_name"),
    "gen_ai_tool_name",
}


async def scrape(service: Service) -> dict[str, Metric]:
    await until(lambda: bool(address_of(service)), what="the listener")
    async with aiohttp.ClientSession() as session, session.get(f"{address_of(service)}/metrics") as answer:
        assert answer.status == 200
        return {each.name: each for each in text_string_to_metric_families(await answer.text())}


def value(found: dict[str, Metric], name: str, suffix: str = "", **labels: str) -> float:
    """Return the sum of the samples that have these labels."""
    samples = [each for each in found[name].samples if each.name == f"{name}{suffix}"]
    return sum(each.value for each in samples if labels.items() <= each.labels.items())


@pytest.mark.usefixtures("bubblewrap")
async def test_a_journey_is_counted_and_no_label_names_anybody(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    price = {"input": 1.0, "output": 2.0}
    service = await start(http={"listen": "127.0.0.1:0"}, metrics={"enabled": True})
    config = yaml.safe_load((service.folder / "config.yaml").read_text())
    config["models"][0]["price"] = price
    (service.folder / "config.yaml").write_text(yaml.safe_dump(config))
    await service.stop()
    await service.start()
    telegram.faults.append(Fault("error", "sendMessage", times=1, code=429, seconds=1))
    telegram.send(ask(steps=[bash("echo secret-word")], text="the answer"))
    await telegram.wait(JANE, "the answer")
    await service.quiet()
    found = await scrape(service)

    assert value(found, "fawn_messages", "_total", channel="telegram", outcome="accepted") == 1
    assert value(found, "fawn_turns", "_total", channel="telegram", outcome="done") == 1
    assert value(found, "fawn_turn_seconds", "_count", channel="telegram") == 1
    assert value(found, "fawn_turn_wait_seconds", "_count", channel="telegram") == 1
    assert value(found, "fawn_first_sign_seconds", "_count", channel="telegram") == 1
    calls, cost = service.rows("SELECT count(*), sum(cost) FROM usage WHERE kind<>'sandbox'")[0]
    assert value(found, "gen_ai_client_operation_duration_seconds", "_count") == calls
    assert value(found, "gen_ai_client_operation_time_to_first_chunk_seconds", "_count") == calls
    assert value(found, "fawn_cost_usd", "_total", model="main") == pytest.approx(cost / 1e6)
    assert value(found, "fawn_cost_usd", "_total") > 0
    [(tokens,)] = service.rows("SELECT sum(input) FROM usage")
    assert value(found, "gen_ai_client_inference_usage_input_tokens", "_total", gen_ai_request_model="any") == tokens
    assert value(found, "gen_ai_execute_tool_duration_seconds", "_count", gen_ai_tool_name="bash") == 1
    assert value(found, "fawn_sandbox_uses", "_total") >= 1
    assert value(found, "fawn_sandbox_seconds", "_total") > 0
    assert value(found, "fawn_platform_calls", "_total", channel="telegram", outcome="2xx") > 1
    assert value(found, "fawn_platform_rate_limited", "_total", channel="telegram") == 1
    assert value(found, "fawn_deliveries", "_total", kind="reply", outcome="ended") == 1
    assert value(found, "fawn_channel_ready", channel="telegram") == 1
    assert (value(found, "fawn_ready"), value(found, "fawn_turns_live"), value(found, "fawn_outbox_rows")) == (1, 0, 0)
    assert value(found, "fawn_event_loop_lag_seconds", "_count") > 0
    assert 0 < value(found, "fawn_database_commits", "_total") <= value(found, "fawn_database_units", "_total")

    assert "packages.loaded" not in service.log(), "a turn loads none of the packages that wait for a use"

    own = [each for name, metric in found.items() if name.startswith(("fawn", "gen_ai")) for each in metric.samples]
    assert {name for each in own for name in each.labels} <= LABELS
    values = {text for each in own for name, text in each.labels.items() if name not in ("le", "version")}
    [(run, conversation, thread, person)] = service.rows(
        "SELECT r.id, r.conversation, c.thread, r.requester FROM runs r JOIN conversations c ON c.key=r.conversation"
    )
    named = {str(run), conversation, thread, person, str(JANE)}
    assert not values & named
    assert not [text for text in values if any(word in text for word in (thread, person, "secret-word", "Jane"))]


class Scrapes:
    """Scrapes of one service; `moved` are the metrics that any of them found above zero."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.moved: set[str] = set()
        self.names: set[str] = set()

    async def until(self, name: str, is_so: Callable[[float], bool] = lambda found: found > 0, **labels: str) -> None:
        """Scrape until the sum of a metric's counts or values is so."""
        seen = 0.0

        async def look() -> bool:
            nonlocal seen
            found = await scrape(self.service)
            for each in found.values():
                samples = [each for each in each.samples if not each.name.endswith(("_bucket", "_sum"))]
                self.names.add(each.name)
                self.moved |= {each.name for sample in samples if sample.value > 0}
                if each.name == name:
                    seen = sum(sample.value for sample in samples if labels.items() <= sample.labels.items())
            return is_so(seen)

        try:
            async with asyncio.timeout(60):
                while not await look():
                    await asyncio.sleep(0.3)
        except TimeoutError:
            pytest.fail(f"{name} {labels} is {seen}")


@pytest.mark.usefixtures("bubblewrap")
async def test_what_goes_wrong_and_what_waits_moves_its_metric(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(
        http={"listen": "127.0.0.1:0"},
        metrics={"enabled": True},
        limits={"live_turns": 1},
        sandbox={"provider": "auto"},
    )
    scrapes = Scrapes(service)
    telegram.send(ask(errors=[500], text="after an error"))
    await telegram.wait(JANE, "after an error", seconds=60)
    await scrapes.until("fawn_unpriced_calls")
    calls = "gen_ai_client_operation_duration_seconds"
    await scrapes.until(calls, error_type=next(iter(await error_types(service))))

    telegram.send(ask(steps=[bash("sleep 8")], text="at last"))
    await scrapes.until("fawn_sandboxes_in_use")
    telegram.send(ask(text="waited"), chat=EVE)
    await scrapes.until("fawn_queue_conversations")
    await scrapes.until("fawn_queue_age_seconds", lambda seconds: seconds > 1)
    await telegram.wait(EVE, "waited", seconds=60)

    for method in ("sendMessage", "editMessageText"):
        telegram.fault("error", method, code=502, times=-1, contains="delayed")
        telegram.fault("error", method, code=400, description="Bad Request: nope", times=-1, contains="poison")
    telegram.send(ask(text="delayed"))
    await scrapes.until("fawn_outbox_rows")
    await scrapes.until("fawn_outbox_age_seconds", lambda seconds: seconds > 1)
    assert re.search(
        r"undelivered replies: 1 \(oldest \d+ s\), waiting for a person: 0", (await service.fawn("status"))[1]
    )
    await scrapes.until("fawn_platform_retries", channel="telegram")
    service.change("UPDATE outbox SET created=created-600 WHERE state<2")
    assert re.search(r"not delivered for 6\d\d s to telegram/\S+: Telegram", (await service.fawn("status"))[1])
    telegram.send(ask(text="poison"), chat=EVE)
    await scrapes.until("fawn_dead_letters")
    telegram.fault("error", "getUpdates", code=502, times=-1)
    telegram.wake()
    await scrapes.until("fawn_channel_ready", lambda is_ready: is_ready == 0, channel="telegram")
    await scrapes.until("fawn_ready", lambda is_ready: is_ready == 0)
    telegram.clear_faults()
    await telegram.wait(JANE, "delayed", seconds=60)
    await scrapes.until("fawn_channel_ready", channel="telegram")

    config = yaml.safe_load((service.folder / "config.yaml").read_text())
    config["budgets"] = [{"scope": "person", "period": "day", "tokens": 1}]
    (service.folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert (await service.fawn("reload"))[0] == 0
    telegram.send(ask(text="too much"))
    await scrapes.until("fawn_budget_refused", scope="person")
    own = {name for name in scrapes.names if name.startswith(("fawn", "gen_ai"))}
    assert own - scrapes.moved == ELSEWHERE


async def error_types(service: Service) -> set[str]:
    samples = (await scrape(service))["gen_ai_client_operation_duration_seconds"].samples
    return {each.labels["error_type"] for each in samples} - {""}


async def test_without_metrics_the_path_is_unknown(start: Start) -> None:
    service = await start(http={"listen": "127.0.0.1:0"})
    await until(lambda: bool(address_of(service)), what="the listener")
    async with aiohttp.ClientSession() as session, session.get(f"{address_of(service)}/metrics") as answer:
        assert answer.status == 404


def test_the_service_does_not_load_the_library_of_metrics() -> None:
    program = "import sys, bot.main.app, agent.turn.factory; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


async def test_metrics_without_a_listener_are_a_fault(start: Start) -> None:
    service = await start()
    service.configure({"metrics": {"enabled": True}})
    code, text = await service.fawn("run")
    assert code == 2
    assert "metrics" in text
    assert "http.listen" in text


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:fawn|gen_ai)_\w+_(?:total|count|bucket)\b|\bfawn_[a-z_]+\b", text))


async def test_alerts_and_dashboard_ask_for_metrics_that_exist(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(http={"listen": "127.0.0.1:0"}, metrics={"enabled": True})
    found = await scrape(service)
    known = {f"{name}{suffix}" for name in found for suffix in ("", "_total", "_count", "_bucket")}
    board = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    asked += [rule["expr"] for rule in rules]
    assert {name for text in asked for name in names_in(text)} - known == set()


def test_the_dashboard_is_narrowed_to_channels_and_models() -> None:
    """What has the label of a variable of the dashboard obeys it."""
    board = json.loads(DASHBOARD.read_text())
    variables = {each["name"]: each for each in board["templating"]["list"] if each["type"] == "query"}
    assert {*variables} == {"channel", "model"}
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    grouped = {"channel": "channel", "model": "model", "gen_ai_request_model": "model"}
    for label, variable in grouped.items():
        by_label = [text for text in shown if re.search(rf"by \([^)]*\b{label}\b", text)]
        assert by_label
        assert [text for text in by_label if f'{label}=~"${variable}"' not in text] == []


def test_each_alert_says_what_to_do() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    page = (ROOT / "docs/operations.md").read_text()
    documented = set(re.findall(r"^\| `(Fawn\w+)` \| \S", page, re.MULTILINE))
    assert documented == {rule["alert"] for rule in rules}


@pytest.mark.skipif(not shutil.which("promtool"), reason="apt install prometheus")
def test_prometheus_takes_the_alerts() -> None:
    done = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


NORMAL = {  # an hour of a quiet service, a value for each minute
    'up{job="fawn"}': "1x120",
    "fawn_ready": "1x120",
    'fawn_channel_ready{channel="slack"}': "1x120",
    "fawn_queue_age_seconds": "0x60 20x60",
    "fawn_outbox_age_seconds": "2x120",
    "fawn_outbox_waiting_rows": "3x120",
    "fawn_dead_letters": "1x120",
    'fawn_turns_total{outcome="done"}': "0+10x120",
    'fawn_turns_total{outcome="failed"}': "0x120",
    'gen_ai_client_operation_duration_seconds_count{error_type="",gen_ai_request_model="m"}': "0+20x120",
    'gen_ai_client_operation_duration_seconds_count{error_type="500",gen_ai_request_model="m"}': "0x120",
    'fawn_platform_rate_limited_total{channel="slack"}': "0x120",
    'fawn_budget_refused_total{scope="person"}': "0x120",
    'fawn_event_loop_lag_seconds_bucket{le="0.1"}': "0+100x120",
    'fawn_event_loop_lag_seconds_bucket{le="1"}': "0+100x120",
    'fawn_event_loop_lag_seconds_bucket{le="+Inf"}': "0+100x120",
}
FAULTS = {  # alert → the series that differ
    "": {},
    "FawnDown": {'up{job="fawn"}': "1x60 0x60"},
    "FawnNotReady": {"fawn_ready": "1x60 0x60"},
    "FawnChannelDown": {'fawn_channel_ready{channel="slack"}': "1x60 0x60"},
    "FawnQueueOld": {"fawn_queue_age_seconds": "0x60 90x60"},
    "FawnOutboxOld": {"fawn_outbox_age_seconds": "0x60 301+60x60"},
    "FawnDeadLetters": {"fawn_dead_letters": "1x100 2x20"},
    "FawnTurnsFail": {'fawn_turns_total{outcome="failed"}': "0x60 0+5x60"},
    "FawnModelErrors": {list(NORMAL)[10]: "0x60 0+10x60"},
    "FawnRateLimited": {'fawn_platform_rate_limited_total{channel="slack"}': "0x60 0+10x60"},
    "FawnBudgetRefused": {'fawn_budget_refused_total{scope="person"}': "0x90 0+1x30"},
    "FawnLoopLag": {'fawn_event_loop_lag_seconds_bucket{le="0.1"}': "0+100x60 6000x60"},
}


@pytest.mark.skipif(not shutil.which("promtool"), reason="apt install prometheus")
def test_a_normal_day_raises_no_alert_and_each_fault_its_own(tmp_path: Path) -> None:
    assert {*FAULTS} == {"", *(rule["alert"] for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"])}
    cases = []
    for alert, series in FAULTS.items():
        fired = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
        expr = 'count by (alertname) (ALERTS{alertstate="firing"})'
        look = {"expr": expr, "eval_time": "110m", "exp_samples": fired}
        given = [{"series": name, "values": values} for name, values in {**NORMAL, **series}.items()]
        cases.append({"name": alert, "interval": "1m", "input_series": given, "promql_expr_test": [look]})
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": cases}))
    done = subprocess.run(["promtool", "test", "rules", tmp_path / "test.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
