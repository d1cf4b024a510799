"""What an operator whose terminal is Chinese reads: usage, findings and faults, also those made before it is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.core.context import read_prompt
from agent.settings.models import AgentConfigError
from agent.settings.sections import PromptConfig
from agent.skills.skill import SkillError
from bot.admin.doctor import run_checks
from bot.cli.program import COMMANDS, GROUPS, command_line_parser
from bot.config.schema import Config, SandboxConfig
from bot.database.data_lock import DataDirLocked
from bot.database.migrate import DatabaseFault
from bot.main.features import gather_checks
from catalogue import N_, LazyText, _, join_sentences, localized, use_language
from sandbox.base import SandboxUnavailable
from sandbox.docker.client import DockerEngine


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["dead"], "缺少必需的参数：action"),
        (["forget", "telegram"], "telegram 不是人员的地址：请写成 CHANNEL/ID"),
        (["forget"], "缺少必需的参数：CHANNEL/ID"),
        (["dead", "lst"], "没有 `lst`。你是指 `list` 吗？"),
        (["dead", "list", "--config"], "参数 --config：需要一个参数"),
        (["dead", "list", "--nope"], "无法识别的参数：--nope"),
    ],
)
def test_a_wrong_command_line_is_explained_in_chinese(
    words: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with use_language("zh"), pytest.raises(SystemExit, match="2"):
        command_line_parser().parse_args(words)
    said = capsys.readouterr().err
    assert said.startswith("用法：fawn ")
    assert f"错误：{fault}" in said


def test_the_help_is_chinese_and_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with use_language("zh"), pytest.raises(SystemExit, match="0"):
        command_line_parser().parse_args(["chat", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert "选项：" in lines or "选项:" in lines
    assert any("显示本帮助并退出" in line for line in lines)
    assert all(len(line) + len(re.findall(r"[一-鿿，。；：、（）]", line)) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["dead", "lst"], "fawn dead: error: There is no `lst`. Did you mean `list`?"),
        (["statsu"], "fawn: error: There is no `statsu`. Did you mean `status`?"),
        (["completion", "tcl"], "fawn completion: error: There is no `tcl`. There are: bash, zsh, fish, man"),
        (["qqqq"], "fawn: error: There is no `qqqq`. `fawn help` lists the commands."),
        (["dead", "list", "--nope"], "fawn: error: unrecognized arguments: --nope"),
    ],
)
def test_a_wrong_word_is_answered_with_the_nearest_one(
    words: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command_line_parser().parse_args(words)
    assert capsys.readouterr().err.splitlines()[-1] == fault


def test_the_help_lists_every_command_in_its_group(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit, match="0"):
        command_line_parser().parse_args(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip(":") for line in lines if line.endswith(":") and line[0] != " "] == [*GROUPS]
    assert [line.split()[0] for line in lines if re.match(r"  \w", line)] == [*COMMANDS]
    assert max(map(len, lines)) <= 60


def test_doctor_is_check() -> None:
    arguments = command_line_parser(["doctor", "--fix"]).parse_args(["doctor", "--fix"])
    assert (arguments.command, arguments.fix) == ("check", True)


async def test_the_findings_of_a_check_are_chinese(tmp_path: Path) -> None:
    with use_language("zh"):
        sandbox = SandboxConfig(provider="docker", docker_host=f"unix://{tmp_path}/none")
        found = {
            each.subject: each for each in await run_checks(Config(tmp_path / "data", sandbox=sandbox), gather_checks)
        }
    assert {"配置", "时区", "沙箱", "沙箱限制", "提示词", "预览", "模型", "渠道"} <= found.keys()
    assert found["沙箱"].text.startswith("这里没有 Docker 引擎：")


async def test_an_error_is_shown_in_the_language_of_its_reader(tmp_path: Path) -> None:
    """It is made where the language is not known, such as in the service; logs and the model get English."""
    with pytest.raises(SandboxUnavailable) as unavailable:
        await DockerEngine(f"unix://{tmp_path}/none").engine_info()
    with pytest.raises(AgentConfigError) as no_prompt:
        read_prompt(PromptConfig(file=str(tmp_path / "none.md")))
    locked, fault = DataDirLocked(), DatabaseFault.from_error(OSError("disk full"))
    with use_language("zh"):
        assert localized(unavailable.value).startswith("这里没有 Docker 引擎：")
        assert str(unavailable.value).startswith("There is no Docker engine here: ")
        assert _("Docker is not used: {error}", error=unavailable.value).startswith("没有使用 Docker：这里没有 Docker")
        assert localized(no_prompt.value.wrong) == f"无法读取 {str(tmp_path / 'none.md')!r}：No such file or directory"
        assert localized(no_prompt.value.fix) == "检查路径；它相对于配置文件所在的文件夹"
        assert localized(locked).startswith("另一个进程正在使用这个 data_dir。")
        assert localized(fault).startswith("无法使用 data_dir 中的数据库：disk full。")
        assert localized(SkillError(N_("there is no skill {name}"), name="x")) == "没有名为 x 的技能"


def test_lazy_texts_are_translated_with_their_values() -> None:
    text = LazyText(N_("one of: {names}"), names=["a", "b"])
    sentences = (LazyText(N_("The sandbox has stopped.")), LazyText(N_("The sandbox was removed from outside.")))
    assert (str(text), localized(text), localized("as it is")) == ("one of: a, b", "one of: a, b", "as it is")
    with use_language("zh"):
        assert (str(text), localized(text)) == ("one of: a, b", "可选：a、b")
        assert join_sentences("", *sentences) == "沙箱已停止。沙箱被外部删除。"
    assert join_sentences(*sentences) == "The sandbox has stopped. The sandbox was removed from outside."
