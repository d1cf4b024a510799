"""Agent settings build an agent or raise a clear configuration error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.language_models import FakeListChatModel
from pydantic import SecretStr

from agent.core.context import read_prompt
from agent.models.loader import load_model
from agent.setting import Secret
from agent.settings.models import AgentConfigError, ModelSettings
from agent.settings.sections import PromptConfig
from agent.spending import Meter
from agent.turn.factory import build_agent
from tests.fakes.model import FakeModel
from tests.support.agent_database import SqliteDatabase
from tests.support.current_config import SERVICES, agent_settings
from tests.support.turn_context import say
from tests.unit.agent.conftest import Workshop, view


class Keyed(FakeListChatModel):
    """A third-party model class with different parameter names."""

    model_name: str = ""
    endpoint: str = ""
    api_key: SecretStr | None = None
    timeout: float = 0
    max_retries: int = 7
    temperature: float = 0


class Bare(FakeListChatModel):
    """A model class that knows none of the settings."""


HERE = "tests.unit.agent.test_factory"


def test_any_model_class_gets_the_settings_under_its_own_names() -> None:
    settings = ModelSettings(
        "k", f"{HERE}:Keyed", "m-1", "http://h/v1", Secret("s3cret"), read_seconds=9, options={"responses": ["x"]}
    )
    model = load_model(settings)
    assert isinstance(model, Keyed)
    assert (model.model_name, model.endpoint, model.timeout, model.max_retries) == ("m-1", "http://h/v1", 9, 0)
    assert model.api_key
    assert model.api_key.get_secret_value() == "s3cret"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (ModelSettings("a", "nonsense"), '"package.module:Class"'),
        (ModelSettings("a", "no_such_package.x:Model"), "there is no module 'no_such_package.x'"),
        (ModelSettings("a", "agent.turn.factory:Plan"), "not have a chat model of that name"),
        (ModelSettings("a", f"{HERE}:Nothing"), "not have a chat model of that name"),
        (ModelSettings("a", f"{HERE}:Bare", base_url="http://h", options={"responses": ["x"]}), "'base_url'"),
        (ModelSettings("a", f"{HERE}:Keyed", options={"responses": ["x"], "top_q": 1}), "top_q: "),
        (ModelSettings("a", f"{HERE}:Keyed", api_key=Secret("s3cret")), "needs the setting 'responses' → add it"),
        (ModelSettings("a", api_key=Secret("s3cret"), options={"temperatur": 1}), "mean 'temperature'?"),
        (
            ModelSettings("a", api_key=Secret("s3cret"), options={"qqq": 1}),
            "ChatOpenAI does not have such a setting",
        ),
        (ModelSettings("a", api_key=Secret("s3cret"), options={"qqq": 1}), "extra_body"),
        (ModelSettings("a", "langchain_openai:ChatOpenAi"), "mean 'ChatOpenAI'?"),
        (
            ModelSettings("a", api_key=Secret("s3cret"), options={"temperature": "hot"}),
            "expects a number as 'temperature'",
        ),
        (ModelSettings("a", ca_file="/no/such/file.pem"), "refused its settings"),
    ],
)
def test_an_unusable_model_setting_is_reported_without_secrets(settings: ModelSettings, words: str) -> None:
    with pytest.raises(AgentConfigError) as caught:
        load_model(settings)
    assert words in str(caught.value)
    assert str(caught.value).startswith("models: a: ")
    assert "s3cret" not in str(caught.value)
    assert "hot" not in str(caught.value)


async def test_a_role_with_an_unknown_model_is_an_error(database: SqliteDatabase) -> None:
    for role, plan in (
        ("lead", agent_settings(lead="x")),
        ("title", agent_settings(title="x")),
        ("summary", agent_settings(summary="x")),
        ("fallback", agent_settings(fallback=("demo", "x"))),
    ):
        with pytest.raises(AgentConfigError, match=f"roles: {role}: there is no model 'x'; configured are demo"):
            await build_agent((), plan, database, SERVICES)


def test_the_prompt_can_be_replaced_and_extended(tmp_path: Path) -> None:
    assert read_prompt(PromptConfig()).startswith("You are Fawn")
    assert read_prompt(PromptConfig("", "  Always whisper. ")).endswith(
        "secrets that you come across, and do not try to leave the sandbox.\n\nAlways whisper."
    )
    (tmp_path / "own.md").write_text("You are Bär.\n", encoding="utf-8")
    assert read_prompt(PromptConfig(str(tmp_path / "own.md"), "And polite.")) == "You are Bär.\n\nAnd polite."
    with pytest.raises(AgentConfigError, match=r"prompt: file: 'gone.md' cannot be read: No such file"):
        read_prompt(PromptConfig("gone.md"))
    (tmp_path / "bad.md").write_bytes(b"\xff\xfe")
    with pytest.raises(AgentConfigError, match="UTF-8"):
        read_prompt(PromptConfig(str(tmp_path / "bad.md")))


async def test_the_prompt_comes_first_and_never_changes(make: Workshop, model: FakeModel) -> None:
    bench = await make(extend="Be brief.")
    for number in range(2):
        await bench.run(say("hi", f"m{number}"))
    systems = [request.messages[0] for request in model.requests()]
    assert systems[0] == systems[1]
    assert systems[0]["role"] == "system"
    assert systems[0]["content"].endswith("Be brief.")
    assert model.requests()[0].messages == model.requests()[1].messages[:2]  # a prefix a provider can cache


async def test_roles_choose_who_leads_and_who_summarizes(make: Workshop, model: FakeModel) -> None:
    url = f"{model.base_url}/v1"
    entries = tuple(ModelSettings(name, model=f"{name}-model", base_url=url) for name in ("one", "two", "three"))
    bench = await make(
        settings=entries,
        lead="two",
        summary="three",
        title="one",
        trigger_messages=4,
        keep_messages=2,
    )
    used: list[tuple[str, bool]] = []
    model.script = lambda body: used.append((body["model"], bool(body.get("tools"))))
    for number in range(3):
        assert view(await bench.run(say("hi", f"m{number}"))).final().text
    assert await bench.agent.make_title("What is the capital of France?", Meter()) == "A short title"
    assert set(used) == {("two-model", True), ("three-model", False), ("one-model", False)}


def test_the_light_modules_do_not_load_the_agent_stack() -> None:
    code = (
        "import sys, agent.settings.models, agent.core.context, agent.messages, agent.blocks\n"
        "assert not {'langchain', 'langchain_core', 'langgraph', 'openai', 'langchain_openai'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
