"""Log lines: one per event, with thread and run, without secrets."""

from __future__ import annotations

import ast
import asyncio
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import orjson
import pytest

from bot.base.log import Redactor, run_var, set_up_logging, thread_var
from bot.config.schema import LogConfig
from tests.support.growth import grows_in_proportion

ROOT = Path(__file__).parents[3]
LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
TOKEN = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield logging.getLogger("bot.somewhere")
    for handler in [h for h in root.handlers if h not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(False)


def test_a_line_has_time_level_place_event_thread_and_run(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(LogConfig())
    thread_var.set("telegram/bot/12/")
    run_var.set("7")
    logger.info("turn.done seconds=%.1f", 1.25)
    thread_var.set("")
    run_var.set("")
    logger.debug("not at this level")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("info    bot.somewhere: turn.done seconds=1.2 thread=telegram/bot/12/ run=7")
    assert line[:4].isdigit()


@pytest.mark.parametrize("format", ["text", "json"])
def test_extra_fields_are_in_the_line(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], format: Literal["text", "json"]
) -> None:
    set_up_logging(LogConfig(format=format), [TOKEN])
    logger.info("sandbox.evicted", extra={"sandbox": "a b#1", "idle": 3.5, "why": f"url {TOKEN}", "event": "not this"})
    (line,) = capsys.readouterr().err.splitlines()
    if format == "json":
        given = {"event": "sandbox.evicted", "sandbox": "a b#1", "idle": 3.5, "why": "url ***"}
        assert orjson.loads(line).items() >= given.items()
    else:
        assert line.endswith('bot.somewhere: sandbox.evicted idle=3.5 sandbox="a b#1" why="url ***"')


@pytest.mark.parametrize(
    ("message", "arguments", "fields"),
    [
        ("turn.%s seconds=%.2f calls=%d", ("done", 1.5, 3), {"event": "turn.done", "seconds": 1.5, "calls": 3}),
        ("%s.%s", ("slack", "ready"), {"event": "slack.ready"}),
        (
            "lease.unsure reason=%s — no answer",
            ("cut",),
            {"event": "lease.unsure", "reason": "cut", "text": "no answer"},
        ),
        ("data_dir.closed — others could look", (), {"event": "data_dir.closed", "text": "others could look"}),
        ("a.b what=handle n=%d", (2,), {"event": "a.b", "what": "handle", "n": 2}),
        ("a library says %s", ("no",), {"event": "a library says no"}),
    ],
)
def test_json_has_every_field_as_a_field(
    logger: logging.Logger,
    capsys: pytest.CaptureFixture[str],
    message: str,
    arguments: tuple[object, ...],
    fields: dict[str, object],
) -> None:
    set_up_logging(LogConfig(format="json"))
    logger.warning(message, *arguments)
    line = orjson.loads(capsys.readouterr().err)
    assert {name: value for name, value in line.items() if name not in ("time", "level", "from")} == fields


def test_every_event_of_the_log_is_a_name_with_fields() -> None:
    """`name=%s` each, and after a dash words for a reader: so that JSON has every field as a field."""
    event = re.compile(r"[a-z0-9_.%]+(?: \w+=(?:%[-+0-9.]*[a-z]|[^\s%]+))*(?: — [^%]+)?")
    wrong = []
    for path in (path for folder in ("bot", "channels", "agent", "sandbox") for path in (ROOT / folder).rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS:
                said = call.args[0] if call.args and ast.unparse(call.func.value).endswith("log") else None
                if said and not (isinstance(said, ast.Constant) and event.fullmatch(str(said.value))):
                    wrong.append(f"{path}:{call.lineno}: {ast.unparse(said)}")
    assert wrong == []


async def test_each_task_has_its_own_thread_and_run(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(LogConfig(format="json"))

    async def work(number: int) -> None:
        thread_var.set(f"console/local/{number}/")
        run_var.set(str(number))
        await asyncio.sleep(0)
        logger.warning("event")

    await asyncio.gather(*(work(number) for number in range(5)))
    lines = [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {(line["thread"], line["run"]) for line in lines} == {(f"console/local/{n}/", str(n)) for n in range(5)}
    assert {line["event"] for line in lines} == {"event"}
    assert {line["level"] for line in lines} == {"warning"}


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_is_one_line_with_causes_and_location(
    form: str, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(LogConfig(format=form))  # type: ignore[arg-type]  # one of the two words
    try:
        try:
            raise ConnectionError("refused\nby peer")
        except ConnectionError as error:
            raise RuntimeError("no answer") from error
    except RuntimeError:
        logger.exception("it broke\nbadly")
    try:
        raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])
    except ExceptionGroup:
        logger.exception("again")
    first, second = capsys.readouterr().err.splitlines()
    assert "RuntimeError: no answer ← ConnectionError: refused" in first
    assert "test_log.py:" in first
    assert "ValueError: one" in second
    assert "KeyError: 'two'" in second


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_redacted_everywhere(form: str, logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    odd = 'p/ss "w\\rd+'
    redact = set_up_logging(LogConfig(format=form), ["opensesame", odd])  # type: ignore[arg-type]  # one of the two words
    redact.hide(["learned-later"])
    thread_var.set("console/opensesame/x/")
    logger.error("key opensesame and %s, %r", odd, {"k": "learned-later"})
    logger.error("GET https://api.telegram.org/bot%s/getMe failed", TOKEN)
    logger.error("via http://user:hunter22@proxy:3128, Authorization: Bearer abcdefgh12345678, url %s", quote(odd))
    logger.error("sk-proj-abcdefghijklmnop1234")
    try:
        raise ValueError(f"bad header opensesame {TOKEN}")
    except ValueError:
        logger.exception("fault")
    thread_var.set("")
    out = capsys.readouterr().err
    assert len(out.splitlines()) == 5
    for secret in (
        "opensesame",
        odd,
        "learned-later",
        TOKEN,
        "hunter22",
        "abcdefgh",
        quote(odd),
        orjson.dumps(odd).decode(),
    ):
        assert secret not in out
    assert "api.telegram.org/bot***/getMe" in out
    assert "http://***@proxy:3128" in out


HEX, WORD = "0123456789abcdef" * 3, "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA"
TOKENS = {
    "Slack bot": f"xoxb-123456789012-123456789012-{WORD[:24]}",
    "Slack app": f"xapp-1-A0123456789-123456789-{HEX}",
    "Slack user": f"xoxp-123456789012-{WORD[:24]}",
    "Slack rotated": f"xoxe.xoxb-1-{WORD}",
    "Slack webhook": f"https://hooks.slack.com/services/T01/B02/{WORD[:24]}",
    "GitHub": f"ghp_{WORD}abcd",
    "GitHub fine-grained": f"github_pat_11ABC_{WORD}",
    "GitLab": f"glpat-{WORD[:20]}",
    "AWS id": "AKIAIOSFODNN7EXAMPLE",
    "AWS secret": f"aws_secret_access_key = {WORD}/abcdefg",
    "Google key": f"AIzaSy{WORD}a",
    "Google token": f"ya29.a0{WORD}",
    "Google client": f"GOCSPX-{WORD[:28]}",
    "Discord": f"MTIzNDU2Nzg5MDEyMzQ1Njc4.GabcdE.{WORD}",
    "Discord webhook": f"https://discord.com/api/webhooks/1234567890/{WORD}",
    "JWT": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{WORD}",
    "Stripe": f"sk_live_{WORD[:24]}",
    "OpenAI": f"sk-proj-{WORD}",
    "Anthropic": f"sk-ant-api03-{WORD}",
    "Hugging Face": f"hf_{WORD}",
    "npm": f"npm_{WORD}abcd",
    "PyPI": f"pypi-AgEIcHlwaS5vcmc{WORD}",
    "Azure secret": f"abc8Q~{WORD}ab",
    "Azure storage": f"DefaultEndpointsProtocol=https;AccountKey={WORD}{WORD}==;",
    "Azure signature": f"https://a.blob.core.windows.net/c?sv=2022&sig={WORD}%3D",
    "Telegram": f"123456789:{WORD}",
    "SendGrid": f"SG.{WORD[:22]}.{WORD}",
    "Twilio": f"SK{HEX[:32]}",
    "Bearer": f"Authorization: Bearer {WORD}",
    "Basic": f"Authorization: Basic {WORD}",
    "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{WORD}\n{WORD}\n-----END RSA PRIVATE KEY-----",
    "LangSmith": f"lsv2_pt_{WORD}",
    "Fawn": f"fawn_{WORD}{HEX[:11]}",
}


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_common_kinds_of_tokens_are_redacted(token: str) -> None:
    for text in (f"refused: {token}", f'{{"key": "{token}"}}', f"value={token}, next"):
        shown = Redactor()(text)
        assert "***" in shown
        assert not any(part in shown for part in (WORD[:20], HEX[:20], "IOSFODNN7", WORD[8:24])), shown


def test_ordinary_words_are_not_taken_for_tokens() -> None:
    text = "turn.done run=12345678 from=bot.journey.turn_runner skill=task-list basic configuration sha=" + HEX[:40]
    assert Redactor()(text) == text


@pytest.mark.parametrize(
    "unit", ["eyJ", "-", "MM", "SG.aaaa", "-----BEGIN ", "://a", "ghp_", "xoxb-", "1//0", "a8Q~", "A."]
)
def test_redaction_takes_linear_time(unit: str) -> None:
    redact = Redactor()
    assert grows_in_proportion(lambda size: redact(unit * (size // len(unit))), 25_000)


def test_short_words_are_not_redacted() -> None:
    redact = Redactor(["a", "on"])
    assert redact("a turn goes on") == "a turn goes on"


def test_libraries_are_quiet_and_warnings_are_lines(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(LogConfig(level="debug"))
    for name in ("httpx", "httpx2", "telegram.ext", "aiohttp.access"):
        logging.getLogger(name).info("chatter")
        logging.getLogger(name).warning("trouble")
    assert [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()] == ["trouble"] * 4


def test_repeated_setup_replaces_the_handler_and_uses_the_current_stderr(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(LogConfig())
    set_up_logging(LogConfig())
    logger.info("once")
    assert len(capsys.readouterr().err.splitlines()) == 1
    before, sys.stderr = sys.stderr, sys.stdout
    try:
        logger.info("moved")
    finally:
        sys.stderr = before
    assert "moved" in capsys.readouterr().out


def test_log_lines_go_to_a_file_if_configured(
    logger: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(LogConfig(), file=tmp_path / "logs" / "fawn.log")
    logger.info("written")
    assert "written" in (tmp_path / "logs" / "fawn.log").read_text()
    assert capsys.readouterr().err == ""


def test_the_arguments_of_an_event_are_json_fields(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(LogConfig(format="json"), ["a-secret-text"])
    logger.warning("turn.done seconds=%.2f calls=%d reason=%s", 0.126, 2, "holds a-secret-text")
    logger.warning("app.stopped")
    logger.warning("%s is not named", "this")
    done, stopped, unnamed = [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (done["event"], done["seconds"], done["calls"], done["reason"]) == ("turn.done", 0.126, 2, "holds ***")
    assert (stopped["event"], unnamed["event"]) == ("app.stopped", "this is not named")
