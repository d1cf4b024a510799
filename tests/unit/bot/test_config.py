"""config.yaml and the environment: values, every error at once, and no secret in messages."""

from __future__ import annotations

import os
import re
import signal
import string
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.setting import Secret
from agent.settings.models import ModelSettings
from bot.config.http import split_address
from bot.config.loader import ConfigError, channel_modules, environment_names, load_config, secret_texts
from bot.config.outside import NotFetched, fetch
from bot.config.reference import settings_table
from bot.config.schema import AccessConfig, Config, ServiceLimits
from sandbox.network.preview import PreviewSettings

ISSUE = """\
config_version: 1
data_dir: ./data                  # database, threads' folders
models:
  - {name: main, use: "langchain_openai:ChatOpenAI", model: any, base_url: "http://127.0.0.1:9101/v1", api_key: $KEY}
sandbox: {provider: auto}
channels:
  telegram: {token: $TELEGRAM_BOT_TOKEN, base_url: "http://127.0.0.1:9102", access: {open: true}}   # never a default
""".replace("$KEY", "$OPENAI_API_KEY")
TOKEN = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0"
SHAPES = {"TELEGRAM_BOT_TOKEN": "1234567:", "SLACK_BOT_TOKEN": "xoxb-", "SLACK_APP_TOKEN": "xapp-"}
SHAPES |= {"DISCORD_BOT_TOKEN": "MTIzNDU2.Gabcde.", "FEISHU_APP_ID": "cli_"}  # how these begin
SHAPES |= {"WHATSAPP_RELAY_URL": "https://"}
ENDS = {"WECHAT_PERSON": "@im.wechat", "WHATSAPP_RELAY_KEY": "-which-is-long-enough"}
WHOLE = {"WHATSAPP_PHONE_NUMBER_ID": "106540352242922"}
KEYS = {"OPENAI_API_KEY": "sk-very-secret-key-1", "TELEGRAM_BOT_TOKEN": TOKEN}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "config.yaml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def read(text: str, environ: Mapping[str, str] | None = None) -> Config:
    return load_config(write("config_version: 1\n" + text), environ or {})


def faults(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(write(text), environ or {})
    assert str(caught.value) == "\n".join(fault.render() for fault in caught.value.faults)
    return [str(fault) for fault in caught.value.faults]


def printed(text: str, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(write(text), environ or {})
    return str(caught.value)


# ---------------------------------------------------------------- values


def test_the_documented_config_works(tmp_path: Path) -> None:
    config = load_config(write(ISSUE), KEYS)
    assert config.data_dir == tmp_path / "data"
    (model,) = config.models
    assert (model.name, model.model, model.base_url) == ("main", "any", "http://127.0.0.1:9101/v1")
    assert model.api_key == Secret("sk-very-secret-key-1")
    assert config.sandbox.provider == "auto"
    (channel,) = config.channels
    assert channel.name == "telegram"
    assert channel.settings.token.reveal() == TOKEN
    assert channel.settings.base_url == "http://127.0.0.1:9102"
    assert channel.access == AccessConfig(open=True)
    assert config.source == "config.yaml"


def test_a_secret_copied_with_a_newline_works(tmp_path: Path) -> None:
    config = load_config(write(ISSUE), {**KEYS, "OPENAI_API_KEY": "sk-1\n"})
    assert config.models[0].api_key == Secret("sk-1")


def test_without_a_file_the_defaults_apply(tmp_path: Path) -> None:
    config = load_config(None, {})
    assert config.models == ()
    assert config.channels == ()
    assert config.data_dir == tmp_path / "data"
    assert config.source == "built-in defaults"


def test_a_config_in_the_working_directory_is_found_and_a_given_one_wins() -> None:
    write("config_version: 1\nkeep_days: 7\n")
    write("config_version: 1\nkeep_days: 8\n", "etc/other.yaml")
    assert load_config(None, {}).keep_days == 7
    assert load_config(Path("etc/other.yaml"), {}).keep_days == 8


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    write("", "etc/page.md")
    config = load_config(
        write("config_version: 1\nprompt: {file: page.md}\nchannels: {console: {downloads: in}}", "etc/c.yaml"), {}
    )
    assert config.data_dir == tmp_path / "etc" / "data"
    assert config.prompt.file == str(tmp_path / "etc" / "page.md")
    assert config.skills.custom == str(tmp_path / "etc" / "skills" / "custom")
    assert config.channels[0].settings.downloads == str(tmp_path / "etc" / "in")
    assert load_config(write("config_version: 1\ndata_dir: /var/lib/fawn"), {}).data_dir == Path("/var/lib/fawn")


def test_values_of_every_type_and_from_the_environment() -> None:
    config = read(
        """
keep_days: $DAYS
time_zone: ${ZONE}
limits: {turn_seconds: 60, live_turns: 5}
log: {level: $LEVEL, format: json}
models:
  - {name: m, use: "langchain_openai:ChatOpenAI", api_key: $$plain, options: {temperature: 0.5, h: [$KEY, {a: null}]}}
channels: {console: {access: {allow: [12, "u7"], operators: [34], pairing: $NO}}}
""",
        {"DAYS": "30", "ZONE": "Europe/Berlin", "LEVEL": "debug", "NO": "false", "KEY": "hush-hush"},
    )
    assert (config.keep_days, config.time_zone) == (30, "Europe/Berlin")
    assert (config.limits.turn_seconds, config.limits.live_turns) == (60.0, 5)
    assert type(config.limits.turn_seconds) is float
    assert (config.log.level, config.log.format) == ("debug", "json")
    assert config.models[0].api_key == Secret("$plain")
    assert config.models[0].options == {"temperature": 0.5, "h": ["hush-hush", {"a": None}]}
    assert config.channels[0].access == AccessConfig(allow=("12", "u7"), operators=("34",), pairing=False)


def test_sizes_and_times_take_units() -> None:
    file = write(
        "config_version: 1\nkeep_days: 2w\nsandbox: {memory_mb: 1G, idle_minutes: 30s, command_seconds: 1.5 m}\n"
        "limits: {turn_seconds: 2h, reply_hours: 1d}\nuploads: {max_mb: 50M}\n"
    )
    config = load_config(file, {})
    assert (config.keep_days, config.sandbox.memory_mb, config.sandbox.idle_minutes) == (14, 1024, 0.5)
    assert config.sandbox.command_seconds == 90
    assert (config.limits.turn_seconds, config.uploads.max_mb, config.limits.reply_hours) == (7200, 50, 24)


def test_a_section_without_a_value_has_its_defaults_and_words_stay_words() -> None:
    config = read("limits:\nmodels:\nsandbox: {network: {mode: on, hosts: }, preview: }\nchannels: {console: }")
    assert config.limits == ServiceLimits()
    assert (config.models, config.sandbox.network.hosts) == ((), ())
    assert (config.sandbox.network.mode, config.sandbox.preview) == ("on", PreviewSettings())
    assert [channel.name for channel in config.channels] == ["console"]


def test_anchors_and_merges_work_and_recursive_ones_are_an_error() -> None:
    config = read("models:\n  - &m {name: a, api_key: k}\n  - {<<: *m, name: b}\n")
    assert [(m.name, m.api_key) for m in config.models] == [("a", Secret("k")), ("b", Secret("k"))]
    assert "contains itself" in faults("config_version: 1\nmodels: [{name: a, api_key: k, options: &o {o: *o}}]")[0]
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 10)}]" for n in range(8)]
    assert "more than 20000 values, with every alias written out" in faults("\n".join(levels))[0]


# ---------------------------------------------------------------- the environment's shortcuts


def test_a_key_in_the_environment_configures_a_model() -> None:
    assert load_config(None, {"OPENAI_API_KEY": "k"}).models == (
        ModelSettings("main", model="gpt-5-mini", api_key=Secret("k")),
    )
    given = load_config(None, {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://x/v1", "OPENAI_MODEL": "big"}).models
    assert given == (ModelSettings("main", model="big", base_url="https://x/v1", api_key=Secret("k")),)


def test_a_local_server_needs_only_its_url() -> None:
    (model,) = load_config(None, {"OPENAI_BASE_URL": "http://localhost:11434/v1"}).models
    assert (model.base_url, model.model) == ("http://localhost:11434/v1", "")
    assert model.api_key  # a placeholder: SDKs insist on one


def test_a_key_or_url_of_the_environment_that_cannot_be_one_is_an_error() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, {"OPENAI_API_KEY": "sk-…", "OPENAI_BASE_URL": "127.0.0.1:11434"})
    assert [str(fault) for fault in error.value.faults] == [
        "environment: OPENAI_BASE_URL: not a URL → write it with its scheme, such as https://host:port/path",
        (
            "environment: OPENAI_API_KEY: contains characters that no key has → put your key in its place"
            ", without `Bearer` and blanks"
        ),
    ]


def test_a_variable_may_name_the_file_of_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{TOKEN}\n")
    named = {"OPENAI_API_KEY_FILE": str(file)}
    (model,) = load_config(None, named).models
    assert model.api_key == Secret(TOKEN)
    assert file in load_config(None, named).paths
    (model,) = load_config(None, named | {"OPENAI_API_KEY": "sk-direct"}).models
    assert model.api_key == Secret("sk-direct")
    (channel,) = read("channels: {console: false}", {"TELEGRAM_BOT_TOKEN_FILE": str(file)}).channels
    assert (channel.name, channel.settings.token) == ("telegram", Secret(TOKEN))
    assert load_config(None, {"SSL_CERT_FILE": "/nowhere"}).models == ()


def test_a_file_of_a_secret_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, {"OPENAI_API_KEY_FILE": "/nowhere/key"})
    assert "environment: OPENAI_API_KEY_FILE: cannot be read: No such file or directory" in str(error.value)


def test_models_of_the_file_override_the_environment() -> None:
    config = read("models: [{name: mine, base_url: 'http://h/v1'}]", KEYS)
    assert [m.name for m in config.models] == ["mine"]
    assert config.models[0].api_key == Secret("none")  # OpenAI's key is not shown to another server
    assert read("models: [{name: mine}]", KEYS).models[0].api_key == Secret(KEYS["OPENAI_API_KEY"])
    assert [m.name for m in read("keep_days: 3", KEYS).models] == ["main"]


def test_a_token_in_the_environment_configures_telegram_without_access() -> None:
    for config in (load_config(None, KEYS), read("channels: {console: {}}", KEYS)):
        channel = config.channels[-1]
        assert channel.name == "telegram"
        assert channel.settings.token.reveal() == TOKEN
        assert channel.access == AccessConfig(open=False, allow=(), operators=(), pairing=True)
    assert read("channels: {telegram: false}", KEYS).channels == ()


@pytest.mark.parametrize(
    ("name", "variables"),
    [(name, variables) for name, module in channel_modules().items() if (variables := environment_names(module))],
)
def test_each_channel_is_configured_by_the_variables_that_its_settings_declare(
    name: str, variables: dict[str, str]
) -> None:
    values = {each: f"{SHAPES.get(each, '')}value-of-{each}{ENDS.get(each, '')}" for each in variables.values()} | {
        each: value for each, value in WHOLE.items() if each in variables.values()
    }
    (channel,) = load_config(None, values).channels
    assert (channel.name, channel.access) == (name, AccessConfig())
    assert load_config(None, dict([*values.items()][1:])).channels == ()
    assert read(f"channels: {{{name}: false}}", values).channels == ()
    shown = re.compile("ID$|URL$|HOMESERVER$|PERSON")  # who it is, and where: no secrets
    assert not any(value in repr(channel.settings) for each, value in values.items() if not shown.search(each))


def test_the_console_is_open_unless_configured_otherwise() -> None:
    assert read("channels: {console: {}}").channels[0].access == AccessConfig(open=True)
    assert read("channels: {console: {access: {allow: [me]}}}").channels[0].access == AccessConfig(allow=("me",))


def test_dotenv_is_read_and_the_real_environment_overrides_it() -> None:
    write("A=from-here\nB='from here too'\n#C=no\nEMPTY=\n", ".env")
    write("A=beside\nD=x${A}y\n", "etc/.env")
    text = "config_version: 1\nmodels: [{name: m, model: $A, display_name: $B, base_url: 'http://h', api_key: $D}]"
    model = load_config(write(text, "etc/c.yaml"), {}).models[0]
    assert (model.model, model.display_name, model.api_key) == ("beside", "from here too", Secret("x${A}y"))
    assert load_config(Path("etc/c.yaml"), {"A": "real"}).models[0].model == "real"
    assert "$EMPTY is not set" in faults("config_version: 1\ntime_zone: $EMPTY")[0]


def test_reading_the_configuration_loads_no_sdk(tmp_path: Path) -> None:
    """Not even the SDKs of configured channels."""
    program = """\
import sys
from bot.config.loader import load_config
tokens = ("TELEGRAM_BOT_TOKEN", "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "DISCORD_BOT_TOKEN", "FEISHU_APP_ID",
    "FEISHU_APP_SECRET", "DINGTALK_CLIENT_ID", "DINGTALK_CLIENT_SECRET", "OPENAI_API_KEY")
slack = {"SLACK_BOT_TOKEN": "xoxb-2", "SLACK_APP_TOKEN": "xapp-2", "TELEGRAM_BOT_TOKEN": "123456789:" + "a" * 35}
slack |= {"DISCORD_BOT_TOKEN": "MTIzNDU2.Gabcde.abcdefgh", "FEISHU_APP_ID": "cli_1"}
print(len(load_config(None, dict.fromkeys(tokens, "1:2") | slack).channels))
sdks = ("telegram", "slack_sdk", "slack_bolt", "discord", "lark_oapi", "docker", "prompt_toolkit", "langchain_core",
    "openai", "aiohttp")
print([name for name in sdks if name in sys.modules])
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(root)}, capture_output=True, check=True
    )
    assert done.stdout == b"5\n[]\n"


# ---------------------------------------------------------------- faults


# Case 78 of docs/cases.md
def test_every_error_is_reported_at_once_with_line_and_fix() -> None:
    found = faults(
        """\
config_version: 1
modles: []
data_dir: [a]
time_zone: Europe/Berln
models:
  - {name: main, use: "langchain_openai:ChatOpenAI", base_url: "127.0.0.1:9101/v1", api_key: $NOPE}
  - {name: main, modle: 3, retries: -1}
  - {use: nonsense}
roles: {lead: maim}
sandbox: {provider: dokker, memory_mb: much, command_seconds: .inf}
channels:
  telegrom: {token: x}
  console: {access: {allow: 12, open: 3, allow: []}}
  telegram: {base_url: "http://h"}
limits: {attempts: 0, live_turns: yes}
prompt: page.md
log: {level: loud}
""",
    )
    expected = [
        ("config.yaml:2: modles", "unknown setting → did you mean 'models'?"),
        ("config.yaml:3: data_dir", "expected text, found a list"),
        ("config.yaml:4: time_zone", "no such IANA time zone → did you mean 'Europe/Berlin'?"),
        ("config.yaml:6: models[0].base_url", "not a URL → write it with its scheme"),
        ("config.yaml:6: models[0].api_key", "$NOPE is not set → export it or put it into .env"),
        ("config.yaml:7: models[1].modle", "unknown setting → did you mean 'model'?"),
        ("config.yaml:7: models[1].retries", "must be at least 0"),
        ("config.yaml:7: models[1].name", "another model has the same name → give it its own name"),
        ("config.yaml:7: models[1].api_key", "is missing and $OPENAI_API_KEY is not set → export it"),
        ("config.yaml:8: models[2].name", "is missing → add `name: …`"),
        ("config.yaml:8: models[2].use", "is not a class path → write it as package.module:Class"),
        ("config.yaml:9: roles.lead", "no model has this name → did you mean 'main'?"),
        (
            "config.yaml:10: sandbox.provider",
            "'dokker' is not a valid value → did you mean 'docker'? One of: auto (default), docker, local, k",
        ),
        ("config.yaml:10: sandbox.memory_mb", "expected a whole number, found text"),
        ("config.yaml:10: sandbox.command_seconds", "must be a finite number"),
        ("config.yaml:12: channels.telegrom", "there is no such channel → did you mean 'telegram'?"),
        ("config.yaml:13: channels.console.access.allow", "duplicate key, also in line 13 → remove one"),
        ("config.yaml:13: channels.console.access.open", "expected true or false, found a whole number"),
        ("config.yaml:14: channels.telegram.token", "is missing → add `token: …`"),
        ("config.yaml:15: limits.attempts", "must be at least 1"),
        ("config.yaml:15: limits.live_turns", "expected a whole number, found true or false"),
        ("config.yaml:16: prompt", "expected a section (name: value), found text"),
        ("config.yaml:17: log.level", "'loud' is not a valid value → one of: debug, info (default), warning, error"),
    ]
    for place, words in expected:
        assert any(line.startswith(f"{place}: {words}") for line in found), (place, words, found)
    assert len(found) == len(expected), found
    lines = [int(line.split(":")[1]) for line in found]
    assert lines == sorted(lines)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("data_dir: x", "config.yaml:1: config_version: is missing → add `config_version: 1` as the first line"),
        (
            "config_version: 2\nnew_thing: 3",
            "config.yaml:1: config_version: this Fawn understands version 1 only → upgrade",
        ),
        (
            "config_version: 1\nchannels: {telegram: {token: my token}}",
            "config.yaml:2: channels.telegram.token: does not look like one → copy it again: digits",
        ),
        (
            "config_version: 1\nchannels: {telegram: {token: Bot$TELEGRAM_TOKEN}}",
            "does not look like one (a $NAME is replaced only where it is the whole value)",
        ),
        (
            "config_version: 1\nchannels: {slack: {bot_token: xapp-1, app_token: xoxb-1}}",
            "channels.slack.app_token: this is the `bot_token` → write it there, and here xapp-…",
        ),
        ("config_version: 1\nmodels: [{name: a, api_key: sk-…}]", "models[0].api_key: contains characters that no key"),
        ("config_version: 1\nkeep_days: ninety", "a whole number, found text → such as 90, or with a unit: 2d, 2w"),
        ("config_version: 1\nsandbox: {memory_mb: 1X}", "sandbox.memory_mb: expected a whole number, found text"),
        ("config_version: one", "config.yaml:1: config_version: expected a whole number, found text"),
        ("", "config.yaml: config_version: is missing"),
        ("- a list", "config.yaml:1: expected a section (name: value), found a list → begin with `config_version: 1`"),
        (
            "config_version: 1\nkeep_days: [1\nlog: {}\n",
            "config.yaml:2: YAML syntax: this `[` is not closed → close it",
        ),
        (
            "config_version: 1\n\tkeep_days: 1",
            "config.yaml:2: YAML syntax: a tab, which YAML does not allow here → repl",
        ),
        ("config_version: 1\ntime_zone: 'UTC\nlog: {}\n", "config.yaml:2: YAML syntax: this quote is never closed →"),
        ("config_version: 1\nkeep_days:30\nlog: {}", "config.yaml:2: YAML syntax: there is no space after the colon →"),
        ("config_version: 1\nlimits:\n  attempts:3\n  bot_turns: 1", "config.yaml:3: YAML syntax: there is no space"),
        ("config_version: 1\nlog: a: b", "config.yaml:2: YAML syntax: a second `name: value` in one line → indent"),
        ("config_version: 1\nlog: @b", "config.yaml:2: YAML syntax: a value cannot begin with this character → put"),
        ("config_version: 1\nx\n", "config.yaml:2: YAML syntax: expected `name: value` → add the colon and a space"),
        (
            "config_version: 1\nmodels: [gpt-5-mini]",
            "models[0]: expected a section (name: value), found text → such as",
        ),
        (
            "config_version: 1\nchannels: {discord: {token: x, access: {operators: ['@alice']}}}",
            "channels.discord.access.operators[0]: is not an id of this platform → ids are numbers; `fawn pair list`",
        ),
        ("config_version: 1\nkeep_days: *secret", "config.yaml:2: YAML syntax: found undefined alias → "),
        ("config_version: 1\nkeep_days: !!python/object:x 1", "config.yaml:2: keep_days: expected a whole number"),
        ("config_version: 1\nmodels: {name: x}", "config.yaml:2: models: expected a list, found a section"),
        ("config_version: 1\nmodels: [{name: x, api_key: y, use: ChatOpenAI}]", "models[0].use: is not a class path"),
        ("config_version: 1\nmodels: [{name: x, use: 'langchain_nope:X'}]", "package langchain_nope is not installed"),
        ("config_version: 1\nmodels: [{name: x}]", "models[0].api_key: is missing and $OPENAI_API_KEY is not set"),
        ("config_version: 1\nmodels: [{name: x, api_key: y, ca_file: no.pem}]", "ca_file: the file does not exist"),
        ("config_version: 1\nchannels: []", "channels: expected a section"),
        ("config_version: 1\nchannels: {console: 3}", "channels.console: expected a section"),
        ("config_version: 1\nroles: {title: main}", "roles.title: no model has this name → one of: demo"),
        (
            "config_version: 1\nteam: {roles: [{name: t, models: [dem]}]}",
            "models: no model has this name → did you mean",
        ),
        (
            "config_version: 1\nteam: {roles: [{name: t, agents: [x]}]}",
            "agents: no agent has this name → one of: default",
        ),
        ("config_version: 1\nkeep_days: 0", "keep_days: must be at least 1"),
        ("config_version: 1\ntime_zone: 5", "time_zone: expected text, found a whole number → put it in quotes"),
        ("config_version: 1\n<<: 3", "'<<' can only merge sections"),
        ("config_version: 1\nkeep_days: " + "[" * 5000, "nested too deeply"),
        (
            "config_version: 1\nmodels: [{name: x, api_key: y, options: {a: "
            + "[" * 90
            + "]" * 90
            + ", b: !x 1}}]\nx: 1",
            "x: unknown setting",
        ),
        ('config_version: 1\nprompt: {extend: "\\ud800"}', "a character that is not valid text"),
        ("config_version: 1\nsource: x", "source: unknown setting"),
        ("config_version: 1\nmodels: [3]", "models[0]: expected a section (name: value), found a whole number"),
        ("config_version: 1\nchannels: {slack: {access: [x]}}", "channels.slack.access: expected a section"),
        (
            "config_version: 1\nchannels: {slack: {workspaces: [{bot_token: 5}]}}",
            "workspaces[0].bot_token: expected text",
        ),
    ],
)
def test_each_error_has_its_message(text: str, fault: str) -> None:
    assert any(fault in line for line in faults(text))


def test_an_error_shows_its_line_with_a_caret_under_the_place() -> None:
    text = """\
config_version: 1
kept_days: 30 # sk-in-a-comment
sandbox: {provider: dokker, memory_mb: much}
models:
  - {name: 名, api_key: hunter2, retries: -1, base_url: "http://u:pw@host/v1", options: {x: secret2}}
  - {api_key: k}
channels:
  telegram: {token: my token, access: {allow: [1, "@alice"]}}
"""
    assert (
        printed(text)
        == """\
config.yaml:2: kept_days: unknown setting → did you mean 'keep_days'?
  2 | kept_days: 30
    | ^^^^^^^^^
config.yaml:3: sandbox.provider: 'dokker' is not a valid value → did you mean 'docker'? One of: auto (default), \
docker, local, kubernetes, none
  3 | sandbox: {provider: dokker, memory_mb: much}
    |                     ^^^^^^
config.yaml:3: sandbox.memory_mb: expected a whole number, found text → such as 90, or with a unit: 2K, 2M, 2G, 2T
  3 | sandbox: {provider: dokker, memory_mb: much}
    |                                        ^^^^
config.yaml:5: models[0].retries: must be at least 0 → the default is 4
  5 |   - {name: 名, api_key: ***, retries: -1, base_url: ***, options: {x: ***}}
    |                                       ^^
config.yaml:6: models[1].name: is missing → add `name: …`
  6 |   - {api_key: ***}
    |     ^
config.yaml:8: channels.telegram.token: does not look like one → copy it again: digits, a colon, and letters: \
123456789:AAH…
  8 |   telegram: {token: ***, access: {allow: [1, "@alice"]}}
    |                     ^^^
config.yaml:8: channels.telegram.access.allow[1]: is not an id of this platform → ids are numbers; `fawn pair list` \
shows the id of each person who wrote to the bot
  8 |   telegram: {token: ***, access: {allow: [1, "@alice"]}}
    |                                              ^^^^^^^^"""
    )


def test_a_syntax_error_shows_its_line_without_values() -> None:
    found = printed("config_version: 1\nchannels: {slack: {bot_token: hunter2, x: 'hunter3\nlog: {}\n")
    assert found.splitlines()[1:] == [
        "  2 | channels: {slack: {bot_token: …, x: '…",
        "    |                                     ^",
    ]
    assert printed("config_version: 1\n\tkeep_days: 1").splitlines()[1:] == ["  2 | ⇥keep_days: 1", "    | ^"]


def test_a_long_line_is_cut_around_the_place() -> None:
    *_, line, caret = printed(f"config_version: 1\nlog: {{{', ' * 0}{'level: info, ' * 20}leval: info}}").splitlines()
    assert len(line) < 120
    assert line[caret.index("^") : caret.rindex("^") + 1] == "leval"


def test_a_variable_inside_a_longer_value_is_an_error() -> None:
    (fault,) = faults("config_version: 1\ndata_dir: $HOME/fawn", {"HOME": "/home/jane"})
    assert fault.startswith("config.yaml:2: data_dir: $HOME is not replaced inside a longer value → ")
    assert read("prompt: {extend: 'run $HOME/x'}\ndata_dir: a$NOT_SET", {"HOME": "/h"}).data_dir.name == "a$NOT_SET"


def test_a_fault_that_only_a_models_class_finds_has_its_line() -> None:
    config = read("models:\n  - {name: a, use: 'agent.demo.model:DemoModl', api_key: k}")
    fault = config.locate(("models", "a", "use"), "no such class", "")
    assert fault.render() == (
        "config.yaml:3: models[0].use: no such class\n"
        "  3 |   - {name: a, use: 'agent.demo.model:DemoModl', api_key: ***}\n"
        "    |                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^"
    )
    assert str(config.locate(("roles", "lead"), "no such model", "")) == "roles: lead: no such model"


def test_an_unreadable_file_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load_config(Path("nowhere.yaml"), {})
    Path("latin.yaml").write_bytes(b"config_version: 1 # gr\xfc\xdfe")
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        load_config(Path("latin.yaml"), {})


# ---------------------------------------------------------------- secrets


def test_secrets_are_not_shown() -> None:
    config = load_config(write(ISSUE + "prompt: {extend: $HUSH}\n"), {**KEYS, "HUSH": "not-for-eyes"})
    for secret in (*KEYS.values(), "not-for-eyes"):
        assert secret not in repr(config)
        assert secret not in str(config)
        assert secret in secret_texts(config)
    assert config.prompt.extend == "not-for-eyes"
    words = read("log: {level: $LEVEL}\ndata_dir: $DIR", {"LEVEL": "warning", "DIR": "/srv/fawn"})
    assert secret_texts(words) == set(), "logs may show a word that has one of a few values, and a path"


@pytest.mark.parametrize(
    "text",
    [
        "channels: {telegram: {token:%s}}",  # a forgotten space puts it into the key
        "channels: {telegram: %s}",
        "channels: {telegram: {token: [%s]}}",
        "channels: {%s: {}}",
        "models: [{name: m, api_key: {a: %s}}]",
        "models: [{name: m, api_key: k, proxy: '%s'}]",
        "models: [{name: m, api_key: k, retries: '%s'}]",
        "time_zone: %s",
        "log: {level: $S}",
        "keep_days: $S",
        "data_dir: *%s",
        "time_zone: '%s",
        "models: [{name: $S}, {name: $S}]",
        "models: $S",
        "roles: {lead: $S}",
        "channels: {slack: $S}",
    ],
)
def test_a_misplaced_secret_is_not_repeated_in_the_error(text: str) -> None:
    found = printed("config_version: 1\n" + text.replace("%s", TOKEN), {"S": TOKEN})
    assert TOKEN not in found
    assert TOKEN.partition(":")[2] not in found


# ---------------------------------------------------------------- generated input

_SECRET = "wildsecret" + string.ascii_letters
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["$S", "${S}", "$NO", "1"]),
)
_names = st.sampled_from(
    [
        *{part for row in settings_table() for part in row.name.replace("[]", "").split(".")},
        "console",
        "demo",
        "<<",
        "x",
    ]
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_names, inner, max_size=4)),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.dictionaries(_names, _values, max_size=6))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_yaml_gives_a_config_or_a_list_of_errors(document: dict[str, object]) -> None:
    text = yaml.safe_dump({"config_version": 1, **document}, allow_unicode=True)
    try:
        config = load_config(write(text), {"S": _SECRET})
    except ConfigError as error:
        shown = str(error)
    else:
        shown = repr(config)
    assert shown
    assert _SECRET not in shown


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_in_the_file_is_refused_with_an_error(text: str) -> None:
    Path("wild.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError):
        load_config(Path("wild.yaml"), {})


def test_private_hosts_of_skills_are_names_or_addresses() -> None:
    hosts = "[git.corp.example, 10.0.0.5, 'fd00::5', 'https://git.corp.example/', '*.corp.example', 'git.corp:8443']"
    fix = "write a name such as git.corp.example, or an address, without https:// and without a port"
    assert faults(f"config_version: 1\nskills: {{private_hosts: {hosts}}}\n") == [
        f"config.yaml:2: skills.private_hosts[{number}]: is no host → {fix}" for number in (3, 4, 5)
    ]


def test_a_search_provider_needs_its_key_or_its_url() -> None:
    found = faults("config_version: 1\nweb: {search: [{provider: tavily}, {provider: searxng}, {provider: ddgs}]}\n")
    assert [fault.partition(": ")[2] for fault in found] == [
        "web.search[0].api_key: is missing → tavily needs `api_key`",
        "web.search[1].url: is missing → searxng needs `url`",
    ]
    config = read("web: {search: [{provider: brave, api_key: $KEY}]}", {"KEY": "brave-secret"})
    assert config.web.search[0].api_key == Secret("brave-secret")
    assert "brave-secret" in secret_texts(config)


def test_the_service_listens_before_the_agent_stack_is_loaded() -> None:
    program = "import sys, bot.main.app; print([name for name in ('langchain_core', 'openai') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[3], capture_output=True, check=True
    )
    assert done.stdout == b"[]\n", "import it where it is used: loading it takes a second"


def test_mcp_servers_in_our_form_and_in_the_form_of_other_programs() -> None:
    config = read(
        "mcp: {servers: [{name: a, command: uvx, args: [x], env: {TOKEN: $T}}]}\n"
        "mcpServers:\n  b: {type: http, url: 'http://127.0.0.1/mcp', headers: {X: y}}\n"
        "  c: {command: d, disabled: true}\n",
        {"T": "mcp-secret"},
    )
    assert [(each.name, each.command, each.url, each.enabled) for each in config.mcp.servers] == [
        ("a", "uvx", "", True),
        ("b", "", "http://127.0.0.1/mcp", True),
        ("c", "d", "", False),
    ]
    assert config.mcp.servers[0].env == {"TOKEN": "mcp-secret"}
    assert "mcp-secret" in secret_texts(config)
    assert "mcp-secret" not in repr(config.mcp)


def test_a_client_for_sign_ins_in_our_form_and_in_that_of_claude_code() -> None:
    config = read(
        "mcp: {servers: [{name: a, url: 'http://h/', auth: oauth, oauth: {client_id: me}}]}\n"
        "mcpServers:\n  b: {url: 'http://h/', oauth: {clientId: me, callbackPort: 8080}}\n"
        "  c: {url: 'http://h/', headers: {authorization: x}}\n  d: {url: 'http://h/'}\n"
    )
    ours, theirs, header, bare = config.mcp.servers
    assert (ours.auth, ours.oauth.client_id, ours.oauth.redirect_uri) == ("oauth", "me", "")
    assert (theirs.auth, theirs.oauth.client_id) == ("oauth", "me")
    assert theirs.oauth.redirect_uri == "http://localhost:8080/callback"
    assert [each.allows_sign_in for each in (ours, theirs, header, bare)] == [True, True, False, True]


def test_faults_of_mcp_servers_name_their_place() -> None:
    found = faults(
        "config_version: 1\n"
        "mcp: {servers: [{name: a}, {name: b, command: x, url: 'http://h/'}, {name: c, url: 'nowhere'}]}\n"
        "mcpServers:\n  a: {command: x}\n  d: {url: 'http://h/sse', type: sse}\n  e: {command: x, autoApprove: [y]}\n"
        "  f: {url: 'http://h/', oauth: {client_id: me}}\n"
        "  g: {url: 'http://h/', auth: oauth, token: t, oauth: {client_secret: s}}\n"
    )
    assert [fault.partition(": ")[2] for fault in found] == [
        "mcp.servers[2].url: not a URL → write it with its scheme, such as https://host:port/path",
        "mcp.servers[0]: needs either `command` or `url` → a program on this machine, or an HTTP server",
        "mcp.servers[1]: has both `command` and `url` → remove one of them",
        "mcpServers.a.name: another server has the same name → give it its own name",
        "mcpServers.d.type: the SSE transport is not supported → use the server's streamable-HTTP URL",
        found[5].partition(": ")[2],  # names all settings
        "mcpServers.f.oauth.issuer: is missing → add the URL of the authorization server",
        "mcpServers.g.token: not possible together with `auth: oauth` → remove one of them",
        "mcpServers.g.oauth.issuer: is missing → add the URL of the authorization server",
    ]
    assert "mcpServers.e.autoApprove: unknown setting → one of: args, " in found[5]


def test_a_preset_sets_what_the_entry_does_not_say() -> None:
    models = """models:
  - {name: a, preset: deepseek, model: deepseek-v4-pro, effort: high}
  - {name: b, preset: kimi, model: kimi-k3, base_url: "https://api.moonshot.cn/v1", api_key: other}
  - {name: c, preset: ollama, vision: false}
  - {name: d, preset: gemini, model: gemini-3-pro, base_url: "http://elsewhere/v1"}
"""
    deep, kimi, local, elsewhere = read(models, {"DEEPSEEK_API_KEY": "k1", "GEMINI_API_KEY": "k2"}).models
    assert (deep.base_url, deep.api_key, deep.effort) == ("https://api.deepseek.com", Secret("k1"), "high")
    assert (deep.context_tokens, deep.vision) == (128_000, False)
    assert (kimi.base_url, kimi.api_key, kimi.vision) == ("https://api.moonshot.cn/v1", Secret("other"), True)
    assert (local.base_url, local.api_key) == ("http://127.0.0.1:11434/v1", Secret("none"))
    assert elsewhere.api_key == Secret("none"), "another server does not get Google's key"


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("preset: deepseek", "models[0].api_key: is missing and $DEEPSEEK_API_KEY is not set"),
        ("preset: deepsek", "models[0].preset"),
        ("preset: ollama, effort: max", "models[0].effort: this model does not take it → choose one of none, low"),
        ("preset: minimax, api_key: k, effort: high", "models[0].effort: this model has no such setting"),
    ],
)
def test_a_preset_that_cannot_be_used_is_a_fault(entry: str, fault: str) -> None:
    assert fault in "\n".join(faults(f"config_version: 1\nmodels: [{{name: a, {entry}}}]"))


def test_a_budget_that_another_one_would_replace_is_a_fault() -> None:
    first, other = "{scope: person, period: day, money: 2 USD}", "{scope: person, period: day, tokens: 1M}"
    [fault] = faults(f"config_version: 1\nbudgets: [{first}, {other}]")
    assert "budgets[1]: has the same scope and period as `budgets[0]`" in fault
    others = "{scope: person, tokens: 1M}, {scope: person, period: day, which: '42', tokens: 1M}"
    assert len(read(f"budgets: [{first}, {others}]").budgets) == 3


NO_ADDRESSES = [
    "8080", ":8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "fawn.example:80", "127.0.0.1:70000", "127.0.0.1:-1",
    "http://127.0.0.1:80", "[::1]", "1.2.3:80",
]  # fmt: skip


@pytest.mark.parametrize("listen", NO_ADDRESSES)
def test_an_address_to_listen_on_is_checked(listen: str) -> None:
    fix = "such as 127.0.0.1:8080"
    assert faults(f"config_version: 1\nhttp: {{listen: '{listen}'}}\n") == [
        f"config.yaml:2: http.listen: is no address with a port → {fix}"
    ]


@pytest.mark.parametrize("listen", ["0.0.0.0:80", "[::]:80", "10.0.0.7:80"])
def test_an_address_that_others_reach_names_them(listen: str) -> None:
    [fault] = faults(f"config_version: 1\nhttp: {{listen: '{listen}'}}\n")
    assert "name the proxy with TLS in `http.proxies`" in fault
    for setting in ("peers", "proxies"):
        named = f"http: {{listen: '{listen}', {setting}: [10.0.0.0/8, 'fd00::/8']}}\n"
        assert read(named).http.address == split_address(listen)


@pytest.mark.parametrize("setting", ["peers", "proxies"])
def test_peers_and_proxies_are_addresses_or_networks(setting: str) -> None:
    peers = "[10.0.0.1/8, kubelet, 10.0.0.7, '']"
    found = faults(f"config_version: 1\nhttp: {{listen: '127.0.0.1:80', {setting}: {peers}}}\n")
    assert [fault.partition(" → ")[0] for fault in found] == [
        f"config.yaml:2: http.{setting}[{number}]: is no address and no network" for number in (0, 1, 3)
    ]


def test_origins_are_those_that_browsers_send() -> None:
    origins = "['https://chat.example.com', 'http://localhost:3000', 'https://x/', '*', chat.example.com]"
    found = faults(f"config_version: 1\nhttp: {{listen: '127.0.0.1:80', origins: {origins}}}\n")
    assert [fault.partition(" → ")[0] for fault in found] == [
        f"config.yaml:2: http.origins[{number}]: is no origin of a page" for number in (2, 3, 4)
    ]


def test_kinds_of_files_are_known_and_the_old_name_of_the_size_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("config_version: 1\nuploads: {kinds: [images, .dwg]}\nlimits: {upload_mb: 3}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    text = str(caught.value)
    assert "uploads.kinds[0]: there is no such kind of files → did you mean 'image'?" in text
    assert "limits.upload_mb: has another name now → write `uploads: {max_mb: …}`" in text


def test_a_secret_comes_from_a_file_or_a_program_and_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    (tmp_path / "key").write_text("key-of-a-file\n")
    text = "config_version: 1\nmodels:\n  - {name: a, api_key: $file:key}\n"
    file.write_text(f"{text}  - {{name: b, api_key: \"$exec:printf '%s-%s' $0 key-of-a-program\"}}\n")
    config = load_config(file, {"PATH": os.environ["PATH"]})
    assert [model.api_key and model.api_key.reveal() for model in config.models] == [
        "key-of-a-file",
        "$0-key-of-a-program",  # there is no shell
    ]
    assert {"key-of-a-file", "$0-key-of-a-program"} <= secret_texts(config)
    assert "key-of-a-file" not in repr(config)
    (tmp_path / "key").write_text("another-key")
    again = load_config(file, {"PATH": os.environ["PATH"]}).models[0].api_key
    assert again
    assert again.reveal() == "another-key"


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("$file:none", "cannot be read: No such file or directory → check the path"),
        ("$file:.", "cannot be read: Is a directory"),
        ("$file:empty", "is empty → put the secret there"),
        ("$file:odd", "is not UTF-8 text"),
        ("$file:long", "is longer than 64 KB"),
        ("$exec:false", "ended with exit code 1 → try it in a terminal"),
        ("$exec:no-such-program", "cannot be started: No such file or directory"),
        ("$exec:", "names no program"),
        ("$exec:printf 'a", "is no command line: No closing quotation"),
    ],
)
def test_a_secret_that_cannot_be_read_is_a_fault_at_its_line(tmp_path: Path, value: str, fault: str) -> None:
    file = tmp_path / "config.yaml"
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    (tmp_path / "long").write_text("x" * 70_000)
    file.write_text(f'config_version: 1\nmodels: [{{name: a, api_key: "{value}"}}]\n')
    with pytest.raises(ConfigError) as caught:
        load_config(file, {"PATH": os.environ["PATH"]})
    assert f"config.yaml:2: models[0].api_key: {fault}" in str(caught.value)
    assert load_config(file, {}, accounts=False)


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("sleep 600; true", "did not end within 2 seconds"),  # the child of a shell, which keeps the pipe
        ("exec >&-; sleep 600; true", "did not end within 2 seconds"),
        ("yes a-long-secret", "is longer than 64 KB"),
        ("yes >&2", "did not end within 2 seconds"),
    ],
)
def test_a_program_that_hangs_or_prints_without_an_end_is_killed_with_its_children(
    tmp_path: Path, program: str, fault: str
) -> None:
    script = tmp_path / "vault"
    script.write_text(f"#!/bin/sh\necho $$ > group\n{program}\n")
    script.chmod(0o755)
    seconds = 60.0 if "longer" in fault else 2.0
    with pytest.raises(NotFetched, match=fault):
        fetch("$exec:./vault", tmp_path, {"PATH": os.environ["PATH"]}, seconds=seconds)
    began = time.monotonic()
    group = int((tmp_path / "group").read_text())
    while [each for each in Path("/proc").glob("[0-9]*/stat") if _works_in(each, group)]:
        assert time.monotonic() - began < 60, "a child lives on"
        time.sleep(0.02)  # the kernel ends what is killed when it likes


def _works_in(stat: Path, group: int) -> bool:
    try:
        state, _parent, found = stat.read_text().rpartition(")")[2].split()[:3]
    except OSError:
        return False  # it ended meanwhile
    return state != "Z" and int(found) == group


def test_a_program_whose_helper_stays_has_given_its_secret(tmp_path: Path) -> None:
    script = tmp_path / "vault"
    script.write_text("#!/bin/sh\nsleep 600 & echo $! > helper\necho the-secret-of-a-vault\n")
    script.chmod(0o755)
    try:
        assert fetch("$exec:./vault", tmp_path, {"PATH": os.environ["PATH"]}) == "the-secret-of-a-vault"
    finally:
        os.kill(int((tmp_path / "helper").read_text()), signal.SIGKILL)


def test_a_pipe_gives_its_secret_and_one_without_a_writer_is_a_fault(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotFetched, match=r"gave nothing within 0\.5 seconds"):
        fetch("$file:pipe", tmp_path, {}, seconds=0.5)
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=["a-secret-through-a-pipe\n"])
    writer.start()
    assert fetch("$file:pipe", tmp_path, {}) == "a-secret-through-a-pipe"
    writer.join()
    with pytest.raises(NotFetched, match="longer than 64 KB"):
        fetch("$file:/dev/zero", tmp_path, {})


def test_a_program_runs_once_a_reading_and_not_for_commands_without_accounts(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    script = tmp_path / "vault"
    script.write_text("#!/bin/sh\necho called >> calls\necho a-secret-of-the-vault-with-32-characters\n")
    script.chmod(0o755)
    file.write_text(
        "config_version: 1\nmodels: [{name: a, api_key: $exec:./vault}, {name: b, api_key: $exec:./vault}]\n"
    )
    (tmp_path / "config.local.yaml").write_text("audit: {key: $exec:./vault}\n")
    environ = {"PATH": os.environ["PATH"]}
    assert load_config(file, environ).audit.key
    assert (tmp_path / "calls").read_text() == "called\n"
    assert load_config(file, environ, accounts=False).audit.key
    assert (tmp_path / "calls").read_text() == "called\n" * 2


def test_a_channel_that_the_file_names_without_its_token_takes_that_of_the_environment() -> None:
    """`fawn setup` writes the variable, also where the file has the channel's access already."""
    config = read("channels: {telegram: {access: {allow: [7]}}}", {"TELEGRAM_BOT_TOKEN": TOKEN})
    assert (config.channels[0].settings.token, config.channels[0].access.allow) == (Secret(TOKEN), ("7",))
    own = "channels: {telegram: {token: '987654321:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0'}}"
    assert read(own, {"TELEGRAM_BOT_TOKEN": TOKEN}).channels[0].settings.token != Secret(TOKEN)
