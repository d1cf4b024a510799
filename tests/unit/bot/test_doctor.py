"""`fawn check` against real servers: what works, what fails, and how to fix it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest

from agent.permissions.rules import RuleText
from agent.setting import Secret
from agent.settings.models import ModelSettings
from agent.settings.sections import PermissionConfig, PromptConfig
from bot.admin.doctor import check_model, render_finding, run_checks
from bot.admin.network_checks import check_clock_skew, check_network
from bot.base.findings import Finding
from bot.base.model_discovery import name_models
from bot.config.http import HttpConfig
from bot.config.loader import load_config
from bot.config.schema import AccessConfig, ChannelConfig, Config, SandboxConfig
from bot.config.team import ApprovalRule, RoleConfig, TeamConfig
from bot.database.data_lock import DataLock
from bot.database.migrate import prepare_databases
from bot.main.features import gather_checks
from bot.status.local_checks import MIN_DESCRIPTORS, check_descriptors, check_machine, check_secret_files
from channels import telegram
from sandbox.network.preview import PreviewSettings
from sandbox.rules import NetworkRules
from tests.fakes.model import Answer, FakeModel
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.support.engines import bubblewrap_problem
from tests.support.forked_services import program, run_forked

KEY = "sk-for-tests-0123456789abcdef0123"
FILES_ONLY = SandboxConfig(provider="none")


def model(base_url: str, key: str = KEY, name: str = "scripted") -> ModelSettings:
    return ModelSettings("main", model=name, base_url=base_url, api_key=Secret(key))


def bot(base_url: str, token: str = TOKEN, access: AccessConfig = AccessConfig()) -> ChannelConfig:  # noqa: B008  # frozen
    return ChannelConfig("telegram", telegram.TelegramSettings(Secret(token), base_url), access)


HOLD_LOCK = """
import sys, pathlib
from bot.database.data_lock import DataLock
with DataLock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


async def finding(config: Config, subject: str) -> Finding:
    return next(found for found in await run_checks(config, gather_checks) if found.subject == subject)


async def test_a_working_setup_passes_every_check(tmp_path: Path) -> None:
    async with FakeModel(api_key=KEY) as server, FakeTelegram() as chat:
        config = Config(
            tmp_path / "new" / "data",
            (model(f"{server.base_url}/v1"),),
            channels=(bot(chat.base_url, access=AccessConfig(allow=("1", "2"), operators=("2",))),),
            sandbox=FILES_ONLY,
            time_zone="Europe/Berlin",
        )
        found = await run_checks(config, gather_checks)
        assert [f.ok for f in found] == [True] * len(found)
        states = {f.subject: (f.state, f.text) for f in found}
        assert states["model main"][0] == "ok"
        assert states["channel telegram"] == (
            "ok",
            "connected as @fawn_bot; access for 2 ids, others need pairing",
        )
        assert states["sandbox"] == ("note", "files only, as configured; commands are off.")
        assert states["time zone"][1].startswith("Europe/Berlin")
        assert len(server.requests()) == 1
        assert {call.method for call in chat.calls_of()} == {"getMe"}, "it looks, and changes nothing"
        assert (tmp_path / "new" / "data").is_dir()
        assert list((tmp_path / "new" / "data").iterdir()) == []


async def test_a_wrong_key_a_wrong_model_and_no_server_have_different_fixes(tmp_path: Path) -> None:
    async with FakeModel(api_key=KEY) as server:
        url = f"{server.base_url}/v1"
        wrong = await finding(Config(tmp_path, (model(url, "sk-wrong-0123456789"),), sandbox=FILES_ONLY), "model main")
        server.fault("error", "chat", code=404)
        unknown = await finding(Config(tmp_path, (model(url, name="nope"),), sandbox=FILES_ONLY), "model main")
    gone = await finding(Config(tmp_path, (model(url),), sandbox=FILES_ONLY), "model main")
    absent = await finding(
        Config(tmp_path, (ModelSettings("main", "agent.demo.model:Nope"),), sandbox=FILES_ONLY), "model main"
    )
    assert (wrong.state, "401" in wrong.text, wrong.fix[:15]) == ("fault", True, "check `api_key`")
    assert (unknown.state, "'nope'" in unknown.text, unknown.fix[:13]) == ("fault", True, "check `model`")
    assert (gone.state, "cannot be reached" in gone.text, gone.fix[:16]) == ("fault", True, "check `base_url`")
    assert (absent.state, "not have a chat model of that name" in absent.text) == ("fault", True)


async def test_a_url_without_v1_is_explained(tmp_path: Path) -> None:
    async with FakeModel(api_key=KEY) as server:
        found = await finding(Config(tmp_path, (model(server.base_url),), sandbox=FILES_ONLY), "model main")
    assert (found.state, "404" in found.text, found.fix) == ("fault", True, "add /v1 to `base_url`")


async def test_a_web_page_in_place_of_a_model_is_explained(tmp_path: Path) -> None:
    async def serve_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0] or 0))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve_page, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        found = await finding(Config(tmp_path, (model(url),), sandbox=FILES_ONLY), "model main")
    assert (found.state, found.text) == ("fault", f"{url} is not an OpenAI-compatible server")


async def test_a_wrong_token_and_no_server_fail_only_their_channel(tmp_path: Path) -> None:
    other = "987654321:" + "x" * 35
    async with FakeTelegram() as chat:
        refused = await run_checks(
            Config(tmp_path, channels=(bot(chat.base_url, other),), sandbox=FILES_ONLY), gather_checks
        )
    gone = await run_checks(Config(tmp_path, channels=(bot(chat.base_url),), sandbox=FILES_ONLY), gather_checks)
    for found, token, fix in ((refused, other, "@BotFather"), (gone, TOKEN, "Check `base_url`")):
        assert [f.subject for f in found if not f.ok] == ["channel telegram"]
        text = "\n".join(map(render_finding, found))
        assert token not in text
        assert fix in text
        assert all(f.fix for f in found if f.state != "ok" and f.subject.startswith("channel")), found


async def test_access_rules_are_reported(tmp_path: Path) -> None:
    async with FakeTelegram() as chat:

        async def says(access: AccessConfig) -> Finding:
            config = Config(tmp_path, channels=(bot(chat.base_url, access=access),), sandbox=FILES_ONLY)
            return await finding(config, "channel telegram")

        assert "EVERYBODY" in (await says(AccessConfig(open=True))).text
        assert (await says(AccessConfig(pairing=False))).state == "fault"
        assert (await says(AccessConfig())).state == "ok"


async def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    found = await finding(Config(tmp_path / "data", sandbox=FILES_ONLY), "data_dir")
    assert (found.state, "is a file, not a folder" in found.text) == ("fault", True)


async def test_a_read_only_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = await finding(Config(tmp_path / "file" / "data", sandbox=FILES_ONLY), "data_dir")
    assert (found.state, "Not a directory" in found.text) == ("fault", True)


async def test_an_unusable_folder_does_not_hide_the_other_findings(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = await run_checks(Config(tmp_path / "file", sandbox=SandboxConfig(provider="local")), gather_checks)
    states = {each.subject: each.state for each in found}
    assert (states["data_dir"], states["sandbox"], states["model"]) == ("fault", "note", "note")


@pytest.mark.parametrize("name", ["fawn.db", "checkpoints.db"])
async def test_a_damaged_database_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not a database " * 100)
    found = await finding(Config(tmp_path, sandbox=FILES_ONLY), "data_dir")
    assert (found.state, "restore a backup" in found.text) == ("fault", True)


async def test_a_newer_database_is_an_error(tmp_path: Path) -> None:
    prepare_databases(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "fawn.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num='9999'")
    found = await finding(Config(tmp_path, sandbox=FILES_ONLY), "data_dir")
    assert (found.state, "A newer version of Fawn" in found.text) == ("fault", True)


async def test_a_running_service_is_noticed(tmp_path: Path) -> None:
    held = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    try:
        assert held.stdout
        held.stdout.readline()
        assert "A service is running" in (await finding(Config(tmp_path, sandbox=FILES_ONLY), "data_dir")).text
    finally:
        held.kill()
        held.communicate()
    assert "A service" not in (await finding(Config(tmp_path, sandbox=FILES_ONLY), "data_dir")).text


def test_the_checks_of_a_start_keep_the_lock_of_the_process(tmp_path: Path) -> None:
    """Closing a descriptor of a file releases all record locks of the process on it (fcntl(2))."""
    root = Path(__file__).parents[3]
    preview = PreviewSettings(enabled=True, listen="127.0.0.1:0")
    with DataLock(tmp_path):
        assert all(each.ok for each in check_machine(Config(tmp_path, sandbox=SandboxConfig(preview=preview))))
        words = [sys.executable, "-c", HOLD_LOCK, str(tmp_path)]
        other = subprocess.run(words, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert b"DataDirLocked" in other.stderr


def test_a_missing_prompt_a_taken_port_and_huge_limits_are_found_before_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        sandbox = SandboxConfig(cpus=4000, preview=PreviewSettings(enabled=True, listen=address))
        http = HttpConfig(listen=address)
        config = Config(tmp_path, prompt=PromptConfig(str(tmp_path / "nope.md")), sandbox=sandbox, http=http)
        states = {each.subject: each.state for each in check_machine(config)}
    assert states == {"prompt": "fault", "sandbox limits": "note", "preview": "fault", "http": "fault"}
    (tmp_path / "nope.md").write_text("Be brief.")
    assert all(each.state != "fault" for each in check_machine(config))


async def test_a_folder_that_others_can_read_is_noted(tmp_path: Path) -> None:
    found = await finding(Config(tmp_path / "new", sandbox=FILES_ONLY), "data_dir")
    assert found.state == "ok"
    (tmp_path / "new").chmod(0o750)
    found = await finding(Config(tmp_path / "new", sandbox=FILES_ONLY), "data_dir")
    assert (found.state, "chmod 700" in found.fix) == ("note", True)


async def test_the_check_starts_a_real_sandbox(tmp_path: Path) -> None:
    found = await finding(Config(tmp_path, sandbox=SandboxConfig(provider="local")), "sandbox")
    assert found.ok is (not bubblewrap_problem())


async def test_a_server_is_asked_for_its_model_when_none_is_named() -> None:
    async with FakeModel() as server:
        url = f"{server.base_url}/v1"
        asked = ModelSettings("main", base_url=url)
        (settings,) = await name_models([asked])
        assert (settings.model, settings.label) == ("scripted", "scripted")
        assert await name_models([model(url, name="mine")]) == (model(url, name="mine"),)
        (found,) = await name_models([ModelSettings("main", base_url=server.base_url)])
        assert (found.model, found.base_url) == ("scripted", url)
    assert await name_models([asked]) == (asked,)  # no server: the first turn reports it


@pytest.mark.parametrize(("text", "code"), [("config_version: 1\n", 0), ("config_version: 1\nkeep_days: 0\n", 2)])
def test_the_command_prints_findings_and_sets_the_exit_code(tmp_path: Path, text: str, code: int) -> None:
    (tmp_path / "config.yaml").write_text(text)
    done = subprocess.run(
        [*program(), "check"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    if code:
        wrong = "config.yaml:2: keep_days: must be at least 1 → the default is 90"
        assert done.stderr == f"{wrong}\n  2 | keep_days: 0\n    |            ^\n"
    else:
        assert "ok    configuration: config.yaml" in done.stdout


def fawn(folder: Path, *words: str, stdin: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal in `folder`."""
    return subprocess.run(
        [*program(), *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3]), **environ},
        **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}),
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_channel_and_a_terminal_there_is_nothing_to_serve(tmp_path: Path) -> None:
    done = fawn(tmp_path, "run", TELEGRAM_TOKEN="1:a", SLACK_BOT_TOKEN="xoxb-1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fawn: nothing to serve: no channel is configured and there is no terminal")
    assert "TELEGRAM_TOKEN is set: did you mean TELEGRAM_BOT_TOKEN?" in done.stderr
    assert "SLACK_BOT_TOKEN is set, but SLACK_APP_TOKEN is not" in done.stderr
    assert "xoxb-1" not in done.stderr


def test_a_wrong_model_class_is_reported_with_its_line(tmp_path: Path) -> None:
    text = "config_version: 1\nmodels:\n  - {name: a, api_key: k, use: 'langchain_openai:ChatOpenAi'}\n"
    (tmp_path / "config.yaml").write_text(f"{text}sandbox: {{provider: none}}\nchannels: {{console: {{}}}}\n")
    use = "'langchain_openai:ChatOpenAi'"
    expected = f"config.yaml:3: models[0].use: {use}: langchain_openai does not have a chat model of that name"
    line = f"  3 |   - {{name: a, api_key: ***, use: {use}}}"
    done = fawn(tmp_path, "run", stdin="hello\n")
    assert done.returncode == 2
    assert f"fawn: {expected} → did you mean 'ChatOpenAI'?\n{line}\n" in done.stderr
    checked = fawn(tmp_path, "check").stdout
    assert expected in checked
    assert line in checked
    assert "→ did you mean 'ChatOpenAI'?" in checked


def test_without_a_command_the_help_is_shown(tmp_path: Path) -> None:
    assert fawn(tmp_path).stdout == fawn(tmp_path, "help").stdout
    assert fawn(tmp_path, "-V").stdout == fawn(tmp_path, "version").stdout


def test_operators_commands_need_no_secrets(tmp_path: Path) -> None:
    prepare_databases(tmp_path)
    text = "config_version: 1\ndata_dir: .\nchannels: {telegram: {token: $T}}\nmodels: [{name: a, api_key: $K}]\n"
    (tmp_path / "config.yaml").write_text(text)
    assert fawn(tmp_path, "pair", "list").stdout == "No paired users.\n"
    assert fawn(tmp_path, "dead", "list").stdout == "No dead letters.\n"
    assert fawn(tmp_path, "backup", "b.tar.gz").returncode == 0
    assert fawn(tmp_path, "status").returncode == 4
    assert fawn(tmp_path, "check").stderr.count("is not set") == 2


@pytest.mark.parametrize("words", [("run",), ("chat",), ("pair", "list"), ("backup", "/nonexistent/b.tar.gz")])
def test_what_the_system_refuses_is_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "config.yaml").write_text("config_version: 1\ndata_dir: file/inside\nchannels: {console: {}}\n")
    done = fawn(tmp_path, *words)
    assert done.returncode in {1, 2}
    assert done.stderr.startswith("fawn: ")
    assert done.stderr.count("\n") == 1


async def test_a_rule_that_a_program_can_get_around_is_noted(tmp_path: Path) -> None:
    rules = PermissionConfig(deny=(RuleText("bash(git push *)"), RuleText("bash"), RuleText("read_file(/mnt/*)")))
    found = await run_checks(Config(tmp_path, permissions=rules, sandbox=FILES_ONLY), gather_checks)
    [note] = [each for each in found if each.subject == "permissions"]
    assert (note.state, "'bash(git push *)'" in note.text, "sandbox.network" in note.fix) == ("note", True, True)


async def test_rules_that_never_match_are_faults(tmp_path: Path) -> None:
    deny, allow = (
        map(RuleText, ("bsh(rm *)", "mcp__github__*", "acp__a__edit", "shell(rm *)")),
        map(RuleText, ("expose", "Read_*", "bash(git *)")),
    )
    rules = PermissionConfig(deny=tuple(deny), allow=tuple(allow))
    approval = ApprovalRule((RuleText("bahs(make)"),), chat="slak/T1/C1")
    team = TeamConfig(roles=(RoleConfig("a", deny=(RuleText("rm_file"),)),), approvals=(approval,))
    found = await run_checks(Config(tmp_path, permissions=rules, sandbox=FILES_ONLY, team=team), gather_checks)
    rule, *unknown, shell, role, call = [each for each in found if each.subject == "agent"]
    assert ["no MCP server or external agent" in each.text for each in unknown] == [True, True]
    assert ["'rm_file'" in role.text, "'bahs(make)'" in call.text] == [True, True]
    assert [each.text for each in found if each.subject == "approvals"] == [
        "the chat slak/T1/C1 can't be asked: its channel is not configured"
    ]
    assert (rule.state, "the rule 'bsh(rm *)' never matches: no tool has that name" in rule.text) == ("fault", True)
    assert (rule.fix, shell.fix) == ("did you mean 'bash'?", "did you mean 'bash'?")


async def test_a_wrong_clock_is_found_by_the_servers(tmp_path: Path) -> None:
    ahead = {"seconds": 0.0}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        date = formatdate(time.time() - ahead["seconds"], usegmt=True)
        writer.write(
            f"HTTP/1.1 404 Not Found\r\nDate: {date}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for seconds, state, words in (
            (0, "ok", "it agrees with 1 servers"),
            (90, "note", "seconds ahead"),
            (-7200, "fault", "seconds behind"),
        ):
            ahead["seconds"] = seconds
            [found] = await check_clock_skew([url])
            assert (found.state, words in found.text) == (state, True), found
            assert bool(found.fix) == (state != "ok")
        assert await check_clock_skew(["http://127.0.0.1:9/"]) == [], "nobody knows"


async def test_a_name_without_an_address_and_a_dead_proxy_are_named(tmp_path: Path) -> None:
    lost = model("https://no-such-host.invalid/v1")
    proxied = replace(model("https://also-not-there.invalid/v1"), name="second", proxy="http://127.0.0.1:9")
    found = await check_network(Config(tmp_path, (lost, proxied), sandbox=FILES_ONLY))
    assert [(each.state, each.subject) for each in found] == [("fault", "names"), ("fault", "proxy")]
    assert found[0].text == "no address for no-such-host.invalid (models[main].base_url)", (
        "the proxy looks up the other"
    )
    assert found[1].text.startswith("127.0.0.1:9 does not answer: ")


async def test_secrets_that_everybody_can_read_are_named_and_closed(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("config_version: 1\nmodels: [{name: main, model: m, api_key: $THE_KEY}]\n")
    (tmp_path / "config.local.yaml").write_text("audit: {key: $file:audit.key}\n")
    for name, text in ((".env", f"THE_KEY={KEY}\n"), ("audit.key", "a-secret-of-the-audit-with-32-chars")):
        (tmp_path / name).write_text(text)
    for file in tmp_path.iterdir():
        file.chmod(0o644)
    config = load_config(tmp_path / "config.yaml", {})
    found = check_secret_files(config)
    assert [Path(each.text.rpartition(" in ")[2]).name for each in found] == [".env", "audit.key"]
    assert KEY not in str(found)
    for each in found:
        assert each.mend
        each.mend()
    assert check_secret_files(config) == []
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600


async def test_open_access_with_network_and_pictures_without_eyes_are_notes(tmp_path: Path) -> None:
    async with FakeTelegram() as chat, FakeModel(api_key=KEY) as server:
        blind = replace(model(f"{server.base_url}/v1"), vision=False)
        network = SandboxConfig(provider="none", network=NetworkRules("on"))
        config = Config(
            tmp_path, (blind,), channels=(bot(chat.base_url, access=AccessConfig(open=True)),), sandbox=network
        )
        found = {each.subject: each for each in await run_checks(config, gather_checks)}
        assert found["access"].text == "everybody on telegram can have commands reach the network (`mode: on`)"
        assert "does not see the pictures" in found["model main"].text
        assert (found["model main"].state, found["model main"].fix[:4]) == ("note", "name")
        closed = await run_checks(replace(config, sandbox=FILES_ONLY), gather_checks)
        assert "access" not in {each.subject for each in closed}


async def test_an_older_database_is_a_note(tmp_path: Path) -> None:
    source = Path(__file__).with_name("schema-0025.sql").read_text()
    with contextlib.closing(sqlite3.connect(tmp_path / "fawn.db")) as database, database:
        database.executescript(source)
    tmp_path.chmod(0o700)
    found = await finding(Config(tmp_path, sandbox=FILES_ONLY), "data_dir")
    assert (found.state, "the next start upgrades it" in found.text) == ("note", True), found


async def test_the_command_prints_json_mends_and_ends_with_a_code(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("config_version: 1\nsandbox: {provider: none}\naudit: {key: $THE_KEY}\n")
    (tmp_path / ".env").write_text(f"THE_KEY={KEY}\n")
    (tmp_path / ".env").chmod(0o644)
    words = ["check", "--fix", "--json", "--config", "config.yaml"]
    code, text, _errors = await run_forked(words, tmp_path, {"PATH": os.environ["PATH"]}, b"")
    found = json.loads(text)
    assert code == 0
    assert [each["done"] for each in found if "done" in each] == [f"done: chmod 600 {tmp_path / '.env'}"]
    assert {each["state"] for each in found} <= {"ok", "note"}
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600


async def test_a_server_that_is_slow_is_no_fault_and_one_that_refuses_tools_is(tmp_path: Path) -> None:
    async with FakeModel(api_key=KEY) as server:
        entry = model(f"{server.base_url}/v1")
        config = Config(tmp_path, (entry,), sandbox=FILES_ONLY)
        server.script = lambda body: Answer("ready", delay=60)
        slow = await check_model(config, entry, 0.5)
        server.script = lambda body: Answer("ready or not", pace=20)
        slower = await check_model(config, entry, 3)
        server.script = lambda body: Answer(status=400) if body.get("tools") else Answer("ready")
        refused = await check_model(config, entry)
    assert (slow.state, "is reached" in slow.text) == ("note", True)
    assert (slower.state, "ready" in slower.text) == ("ok", True)
    assert (refused.state, "400" in refused.text) == ("fault", True)


@pytest.mark.parametrize(("most", "told"), [(1024, True), (MIN_DESCRIPTORS, False), (resource.RLIM_INFINITY, False)])
def test_a_process_that_may_open_few_files_is_named(most: int, told: bool) -> None:
    assert [("1024" in each.text, "LimitNOFILE=4096" in each.fix) for each in check_descriptors(most)] == [
        (True, True)
    ] * told
