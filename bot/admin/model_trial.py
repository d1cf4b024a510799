"""Choose the first model for `fawn init`: find what is there, try the key at once, and offer the server's models."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from agent.late_imports import describe_install
from agent.models.presets import CHAT_ANTHROPIC_CLASS_PATH, PRESETS
from agent.setting import Secret
from agent.settings.models import ModelSettings
from bot.admin.doctor import check_model, render_finding
from bot.admin.first_answers import Answers, Question
from bot.admin.setup import SetupStopped
from bot.base.display_names import display_name
from bot.base.model_discovery import offered_models
from bot.config.document import Document, explain_url
from bot.config.loader import ConfigError, checked_config
from bot.config.schema import Config
from catalogue import _, list_items, localized

DEMO, OTHER = "demo", "other"
LOCAL = ("ollama", "vllm")  # presets of servers on this machine
TWICE = ("openai-responses",)  # presets of a provider that has another one
OTHER_KEY = "MODEL_API_KEY"  # the variable of a server without a preset
OPENAI_URL = "https://api.openai.com/v1"
SHOWN_MODELS = 200


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model that answered: its entry in `models:`, and the variables that belong into .env."""

    entry: Mapping[str, str]
    variables: Mapping[str, str]
    settings: ModelSettings


def choose_model(answers: Answers, known: Mapping[str, str]) -> ChosenModel | None:
    """Ask for provider, key and model until the model answers; None for the demo. Raises SetupStopped."""
    while True:
        provider = _choose_provider(answers, known)
        if provider == DEMO:
            return None
        module = PRESETS[provider].use.partition(":")[0] if provider in PRESETS else ""
        if module and importlib.util.find_spec(module) is None:
            answers.refuse(
                "provider",
                _("{name} needs a package → {fix}, then again", name=provider, fix=localized(describe_install(module))),
            )
            continue
        if chosen := _try_provider(provider, answers, known):
            return chosen


def _choose_provider(answers: Answers, known: Mapping[str, str]) -> str:
    """Return a preset's name, `other` or `demo`: what this machine or its environment has comes first."""
    local = {name: models for name in LOCAL if (models := _models_here(name))}
    keyed = [name for name, preset in PRESETS.items() if known.get(preset.key_variable)]
    choices = [
        *((name, _here(name, models)) for name, models in local.items()),
        *((name, _keyed(name)) for name in keyed),
        *((name, display_name(name)) for name in PRESETS if name not in (*LOCAL, *TWICE, *keyed)),
        (OTHER, _("another server that speaks OpenAI's protocol")),
        (DEMO, _("none for now: the built-in demo")),
    ]
    if len(keyed) == 1 and "provider" not in answers.given:
        return keyed[0]  # it can be found, so nobody is asked
    every = [*choices, *((name, name) for name in PRESETS if name not in dict(choices))]
    question = Question("provider", _("Which model do you want to use?"), choices if answers.terminal else every)
    if "provider" in answers.given:
        question = replace(question, choices=every)
    return answers.ask(question)


def _here(preset: str, models: Sequence[str]) -> str:
    return _("{name} on this machine: {models}", name=display_name(preset), models=list_items(models[:3]))


def _keyed(preset: str) -> str:
    variable = PRESETS[preset].key_variable
    return _("{name}, whose key is in {variable}", name=display_name(preset), variable=variable)


def _models_here(preset: str) -> Sequence[str]:
    """Return the models of a server on this machine; none if it does not answer."""
    try:
        return asyncio.run(offered_models(ModelSettings(preset, base_url=PRESETS[preset].base_url)))
    except (OSError, TimeoutError, aiohttp.ClientError, ValueError):
        return ()


def _try_provider(provider: str, answers: Answers, known: Mapping[str, str]) -> ChosenModel | None:
    """Take key and model, and try them; None if a person is to answer something anew."""
    preset = PRESETS.get(provider)
    url = (
        preset.base_url
        if preset
        else answers.ask(
            Question("base_url", _("URL of the server, such as http://127.0.0.1:8000/v1"), check=check_url)
        )
    )
    variable = preset.key_variable if preset else OTHER_KEY
    key = _take_key(provider, variable, answers, known)
    if key.startswith("$"):
        variable = key[1:]
        if not (key := known.get(variable, "")):
            answers.refuse("key", _("The variable {name} is not set → set it, or give the key itself", name=variable))
            return None
    entry = {"name": "main", **({"preset": provider} if preset else {"base_url": url})}
    settings = ModelSettings("main", base_url=url or OPENAI_URL, use=preset.use if preset else ModelSettings("").use)
    try:
        offered = asyncio.run(_offered(settings, key))
    except aiohttp.ClientResponseError as error:
        if error.status in (401, 403):
            answers.refuse("key", _("{where} refused the key ({status})", where=settings.base_url, status=error.status))
            return None
        offered = []
    except (OSError, TimeoutError, aiohttp.ClientError, ValueError) as error:
        text = _("{where} cannot be asked: {why}", where=settings.base_url, why=str(error) or type(error).__name__)
        answers.refuse("base_url" if not preset else "provider", text)
        return None
    entry["model"] = _choose_name(answers, offered, preset.known if preset else ())
    if key and variable:
        entry["api_key"] = f"${variable}"
    config = _config_with({**entry, **({"api_key": key} if key else {})})
    finding = asyncio.run(check_model(config, config.models[0]))
    shown = render_finding(finding).replace(key, "…") if key else render_finding(finding)
    if not finding.ok:
        answers.refuse("model", shown)
        return None
    print(shown, flush=True)
    saved = {variable: key} if key and known.get(variable) != key else {}
    return ChosenModel(entry, saved, config.models[0])


def _take_key(provider: str, variable: str, answers: Answers, known: Mapping[str, str]) -> str:
    """Return the key, or `$NAME` for a variable that has it; "" where the server needs none."""
    if not variable:
        return ""
    if "key" not in answers.given and known.get(variable):
        return f"${variable}"
    needless = provider == OTHER
    if needless:
        text = _("Key of the server (empty: none)")
    else:
        text = _("Key of {name}, or $NAME of a variable that has it", name=display_name(provider))
    return answers.ask(Question("key", text, secret=True, optional=needless))


async def _offered(settings: ModelSettings, key: str) -> list[str]:
    """Return the models that the server lists. Raises as `offered_models`."""
    headers = None
    if settings.use == CHAT_ANTHROPIC_CLASS_PATH:  # https://docs.anthropic.com/en/api/models-list
        settings = replace(settings, base_url=f"{settings.base_url}/v1")
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return await offered_models(replace(settings, api_key=Secret(key) if key else None), headers)


def _choose_name(answers: Answers, offered: Sequence[str], known: Iterable[str]) -> str:
    """Return the model's name; those of a known family come first, and the only one is not asked about."""
    if len(offered) == 1 and "model" not in answers.given:
        return offered[0]
    first = [name for name in offered if name.startswith(tuple(known))]
    names = [*first, *(name for name in offered if name not in first)][:SHOWN_MODELS]
    choices = [(name, name) for name in names]
    return answers.ask(Question("model", _("Which model?"), choices, more=True))


def check_url(url: str) -> None:
    if wrong := explain_url(url, "base_url"):
        raise ValueError(localized(wrong[0]))


def _config_with(entry: dict[str, Any]) -> Config:
    """Return a configuration of this model alone. Raises SetupStopped."""
    try:
        return checked_config(Document("", Path.cwd(), {}), {"models": [entry]})
    except ConfigError as error:
        raise SetupStopped(str(error)) from None
