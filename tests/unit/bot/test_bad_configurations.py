"""Odd configurations that would work by halves: each is refused with its place, the reason and a fix.

`check`, `run` and `reload` refuse the same ones.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.models.settings import AgentConfigError
from bot.admin.doctor import run_checks
from bot.config.loader import ConfigError, load_config
from bot.service.agent_builder import try_agent
from bot.service.tool_names import check_tool_names

MODEL = "models: [{name: main, api_key: k}]\n"
TELEGRAM = f"channels: {{telegram: {{token: '1234567890:{'a' * 35}'"
NOTES = "mcp: {servers: [{name: notes, command: cat, enabled: false}]}\n"
WHEN_READ = [  # the file, and a part of the fault
    (
        f"{MODEL}agents: [{{name: my agent}}]",
        "config.yaml:3: agents[0].name: cannot be a name here → such as `name: my-a",
    ),
    (f"{MODEL}agents: [{{name: ''}}]", "agents[0].name: is empty → `name: …`"),
    ("models: [{name: my model, api_key: k}]", "models[0].name: cannot be a name here → such as `name: my-model`"),
    (f"{MODEL}subagents: {{kinds: [{{name: my kind}}]}}", "subagents.kinds[0].name: cannot be a name here"),
    ("team: {roles: [{name: my role}]}", "team.roles[0].name: cannot be a name here → such as `name: my-role`"),
    ("team: {roles: [{name: ''}]}", "team.roles[0].name: is empty"),
    (
        "mcp: {servers: [{name: my server, command: x}]}",
        "mcp.servers[0].name: cannot be a name here → such as `name: my-",
    ),
    ("mcpServers: {my server: {command: x}}", "cannot be a name here → such as `name: my-server`"),
    ("mcp: {servers: [{name: a__b, command: x}]}", "mcp.servers[0].name: cannot be a name here"),
    ("mcp: {servers: [{name: '', command: x}]}", "mcp.servers[0].name: is empty"),
    ("external_agents: [{name: my agent, command: x}]", "external_agents[0].name: cannot be a name here"),
    ("push: {targets: [{name: '', url: 'https://a.example'}]}", "push.targets[0].name: is empty"),
    ("data_dir: ''", "config.yaml:2: data_dir: is empty → remove the line, then it is `data`"),
    ('data_dir: "a\\0b"', "data_dir: contains a control character or a line break → write it again in one line"),
    ("skills: {custom: ''}", "skills.custom: is empty → remove the line, then it is `skills/custom`"),
    ("skills: {folders: ['']}", "skills.folders[0]: is empty → remove it"),
    ("sandbox: {image: ''}", "sandbox.image: is empty → remove the line, then it is `fawn-sandbox`"),
    ("policies: [{use: ''}]", "policies[0].use: is empty"),
    ("tools: [{use: ''}]", "tools[0].use: is empty"),
    ("channels: {telegram: {token: '123:abc'}}", "telegram.token: does not look like one → copy it again: digits"),
    (f"channels: {{telegram: {{token: '1:{'a' * 35}'}}}}", "telegram.token: does not look like one"),
    (f"channels: {{telegram: {{token: '1234567890:{'a' * 90}'}}}}", "telegram.token: does not look like one"),
    ("channels: {feishu: {app_id: cli_a, app_secret: ''}}", "channels.feishu.app_secret: is empty"),
    ("channels: {dingtalk: {client_id: '', client_secret: a}}", "channels.dingtalk.client_id: is empty"),
    (
        "models: [{name: a, api_key: Bearer abc}]",
        "models[0].api_key: contains characters that no key has → put your key",
    ),
    ('models: [{name: a, api_key: "sk-a\\nb"}]', "models[0].api_key: contains characters that no key has"),
    ("models: [{name: a, api_key: ''}]", "models[0].api_key: is missing and $OPENAI_API_KEY is not set"),
    ("models: [{name: a, base_url: 'http://a b/v1'}]", "models[0].base_url: not a URL → write it with its scheme"),
    (
        "mcp: {servers: [{name: a, url: 'https://a.example', oauth: {client_id: x, issuer: foo}}]}",
        "oauth.issuer: not a URL",
    ),
    (
        "mcp: {servers: [{name: a, url: 'https://a.example', sandbox: true}]}",
        "mcp.servers[0].sandbox: has no effect on a server with `url` → remove the line",
    ),
    ("mcp: {servers: [{name: a, url: 'https://a.example', args: [x]}]}", "args: has no effect on a server with `url`"),
    ("mcp: {servers: [{name: a, command: cat, token: x}]}", "token: has no effect on a server with `command`"),
    ("mcp: {servers: [{name: a, command: cat, auth: oauth}]}", "auth: has no effect on a server with `command`"),
    ("mcpServers: {a: {type: stdio, url: 'https://a.example'}}", "mcpServers.a.type: does not fit to `url` → remove"),
    ("mcpServers: {a: {type: http, command: cat}}", "mcpServers.a.type: does not fit to `command` → remove"),
    ("sandbox: {network: {mode: allowlist, hosts: ['*']}}", "sandbox.network.hosts[0]: is no host → write example.com"),
    ("sandbox: {network: {mode: allowlist, hosts: [a.example/x]}}", "sandbox.network.hosts[0]: is no host"),
    ("sandbox: {preview: {enabled: true, listen: here}}", "preview.listen: is no address with a port → such as"),
    (f"{TELEGRAM}, access: {{roles: [{{role: operator}}]}}}}}}", "access.roles[0]: names nobody → add `who: [ID]`"),
    (f"{TELEGRAM}, access: {{allow: ['']}}}}}}", "access.allow[0]: is"),
    ("sandbox: {memory_mb: 0}", "sandbox.memory_mb: must be at least 64 → the default is 1024"),
    ("permissions: {deny: ['bash()']}", "'bash()' has an empty pattern → write `bash` for each of its calls"),
    (
        "team: {approvals: [{calls: [bash], chat: nowhere/W1/C1}]}",
        "approvals[0].chat: there is no such channel → one of:",
    ),
    (
        "team: {approvals: [{calls: [bash], chat: slak/W1/C1}]}",
        "approvals[0].chat: there is no such channel → did you me",
    ),
    ("sandbox: {network: {mode: allowlist}}", "sandbox.network: allows nothing: it names no hosts → add `hosts: [exam"),
    ("sandbox: {network: {hosts: [a.example]}}", "hosts: has no effect: the network is off → add `mode: allowlist`"),
    ("sandbox: {docker_host: 'tcp://'}", "sandbox.docker_host: names no engine → such as tcp://127.0.0.1:2375"),
    ("sandbox: {docker_host: 'unix://'}", "sandbox.docker_host: names no engine → such as unix:///var/run/docker.sock"),
    (
        "models: [{name: a, base_url: 'http://127.0.0.1:1/v1/chat/completions'}]",
        "models[0].base_url: is the address of one call → write it without /chat/completions",
    ),
    ("data_dir: /", "data_dir: is a folder of the system → name a folder of its own, such as ./data"),
    ("data_dir: /etc/", "data_dir: is a folder of the system → name a folder of its own"),
    ("data_dir: /dev/shm/../fawn", "data_dir: is a folder of the system → name a folder of its own"),
    ("limits: {turn_seconds: .inf}", "limits.turn_seconds: must be a finite number → the default is 7200"),
    ("web: {fetch: maybe}", "web.fetch: expected true or false, found text → the default is true"),
    (
        "models: [{name: a, api_key: k, price: {input: cheap, output: 1}}]",
        "price.input: expected a number, found text → ",
    ),
]
WHEN_BUILT = [
    ("permissions: {deny: ['shell(rm *)']}", "permissions.deny[0]", "did you mean 'bash'?"),
    ("rate_limits: [{scope: tool, which: websearch}]", "rate_limits[0].which", "did you mean 'web_search'?"),
    ("skills: {allow: [chrat]}", "skills.allow[0]", "did you mean 'chart'?"),
    (f"{MODEL}agents: [{{name: a, tools: [reed_file]}}]", "agents[0].tools[0]", "did you mean 'read_file'?"),
    (f"{MODEL}agents: [{{name: default}}]", "agents[0]", "choose another name"),
    ("permissions: {deny: [mcp__github__*]}", "permissions.deny[0]", "add it to `mcp.servers`"),
    (f"{MODEL}{NOTES}permissions: {{deny: [mcp__note__*]}}", "permissions.deny[0]", "did you mean 'mcp__notes__*'?"),
    (
        f"{MODEL}{NOTES}rate_limits: [{{scope: tool, which: mcp__x__y}}]",
        "rate_limits[0].which",
        "add it to `mcp.servers`",
    ),
    (f"{MODEL}agents: [{{name: a, tools: [acp__coder__edit]}}]", "agents[0].tools[0]", "or `external_agents`"),
    ("policies: [{use: 'x.y:Z'}]", "policies[0]", "name it as package.module:name"),
    ("tools: [{use: 'x.y:Z'}]", "tools[0]", "name it as package.module:name"),
]


def written(folder: Path, text: str) -> Path:
    file = folder / "config.yaml"
    file.write_text(f"config_version: 1\n{text}\n")
    return file


@pytest.mark.parametrize(("text", "fault"), WHEN_READ)
def test_what_cannot_be_meant_is_refused_when_it_is_read(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, text), {})
    found = [str(each).removeprefix(f"{tmp_path}/") for each in caught.value.faults]
    assert any(fault in each for each in found), found
    assert all(each.startswith("config.yaml:") and " → " in each for each in found), found
    assert len(found) <= 2, found


@pytest.mark.parametrize(("text", "place", "fix"), WHEN_BUILT)
async def test_what_only_the_agent_shows_is_refused_by_check_as_by_run_and_reload(
    tmp_path: Path, text: str, place: str, fix: str
) -> None:
    config = load_config(written(tmp_path, f"{text}\nsandbox: {{provider: none}}\ndata_dir: {tmp_path / 'data'}"), {})
    faults = [each for each in await run_checks(config) if each.subject == "agent"]
    assert [(each.ok, f"{place}: " in each.text, fix in each.fix) for each in faults] == [(False, True, True)], faults
    with pytest.raises(AgentConfigError) as refused:  # by what `run` and `reload` build with
        await try_agent(config)
    assert str(config.faults_of(refused.value)[0]).partition(" → ")[0] in faults[0].text


USABLE = [
    f"{NOTES}permissions: {{deny: [mcp__notes__*, 'mcp__*', 'MCP__not*', 'mcp__*__delete', mcp__notes__get]}}",
    "external_agents: [{name: coder, command: x}]\npermissions: {deny: ['acp__coder__*', 'acp__*']}",
    "team: {approvals: [{calls: [bash], chat: slack/W1/C1}]}",
    "sandbox: {network: {mode: allowlist, pip_index_url: 'https://pip.example/simple'}}",
    "sandbox: {network: {mode: 'off', hosts: [a.example]}}",
    "models: [{name: a, base_url: 'http://127.0.0.1:1/v1', options: {anything: 1}}]",
    f"{TELEGRAM.removesuffix(chr(39))}/test'}}}}",  # core.telegram.org/bots/features#dedicated-test-environment
]


@pytest.mark.parametrize("text", USABLE)
def test_what_can_be_meant_is_accepted(tmp_path: Path, text: str) -> None:
    check_tool_names(load_config(written(tmp_path, text), {}))


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("# keys\n\nOPENAI_API_KEY=sk-…\n", ".env:3: OPENAI_API_KEY: is a placeholder of a sample"),
        ("OPENAI_BASE_URL=http://a.example/v1/chat/completions\n", ".env:1: OPENAI_BASE_URL: is the address of one"),
        ("OPENAI_BASE_URL=nowhere\n", ".env:1: OPENAI_BASE_URL: not a URL"),
        ("A=1\nexport TELEGRAM_BOT_TOKEN=123:abc\n", ".env:2: TELEGRAM_BOT_TOKEN: does not look like one"),
    ],
)
def test_a_faulty_variable_is_named_with_its_line(tmp_path: Path, lines: str, fault: str) -> None:
    (tmp_path / ".env").write_text(lines)
    file = written(tmp_path, "keep_days: 30")
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    assert [str(each).removeprefix(f"{tmp_path}/")[: len(fault)] for each in caught.value.faults] == [fault]
    variable = fault.split(": ")[1]
    with pytest.raises(ConfigError) as caught:  # the environment wins, and is blamed for what it says
        load_config(file, {variable: lines.strip().rpartition("=")[2]})
    assert str(caught.value.faults[0]).startswith(f"environment: {variable}: ")


@pytest.mark.parametrize("text", [WHEN_READ[0][0], WHEN_READ[12][0], WHEN_BUILT[0][0], WHEN_BUILT[4][0]])
def test_check_and_run_refuse_the_same_file(tmp_path: Path, text: str) -> None:
    written(tmp_path, text)
    for command in ("check", "run"):
        done = subprocess.run(
            [sys.executable, "-m", "bot", command],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3])},
            input="hello\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 2, (command, done.stdout, done.stderr)
