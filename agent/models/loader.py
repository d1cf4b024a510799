"""Load a chat model by its class path: `use: package.module:Class` in the configuration."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI

from agent.fair_slots import SlotGroups
from agent.models.arguments import use_strict_parser
from agent.models.openai_stream import make_chat_openai
from agent.models.presets import (
    CHAT_ANTHROPIC_CLASS_PATH,
    CHAT_OPENAI_CLASS_PATH,
    merge_arguments,
    preset_of,
)
from agent.models.traffic import Endpoint, ModelTraffic
from agent.near_misses import DID_YOU_MEAN, closest_name, suggest_lazily
from agent.settings.models import AgentConfigError, Effort, ModelSettings, fix_of
from catalogue import N_, LazyText
from sandbox.named_code import NamedCodeError, import_code

if TYPE_CHECKING:
    from agent.models.anthropic import ThinkingAnthropic  # its package is an extra

# Our argument names, and those of model classes: the first one that a class has is used.
ARGUMENT_NAMES: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "model_name", "model_id"),
    "base_url": ("base_url", "api_base", "endpoint", "server_url"),
    "api_key": ("api_key", "token"),
    "timeout": ("timeout", "request_timeout"),
    "max_retries": ("max_retries",),
    "stream_usage": ("stream_usage",),
}
OPTIONAL_ARGUMENTS = ("timeout", "max_retries", "stream_usage")  # not set by the operator: a class may lack them
_EXPECTED = {  # by the begin of pydantic's type of error
    "int": N_("a whole number"),
    "float": N_("a number"),
    "bool": N_("true or false"),
    "string": N_("text"),
    "list": N_("a list"),
    "dict": N_("a section (name: value)"),
}


@dataclass(slots=True)
class ModelTrouble:
    """The last error of a model's calls, and when it was (unix seconds); 0 before the first one."""

    text: str = ""
    at: float = 0.0

    def record(self, text: str) -> None:
        self.text, self.at = text, time.time()


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A chat model, its settings, and what its calls share with those of other models."""

    settings: ModelSettings
    model: BaseChatModel
    traffic: ModelTraffic = field(default_factory=ModelTraffic, compare=False)
    trouble: ModelTrouble = field(default_factory=ModelTrouble, compare=False)

    @property
    def endpoint(self) -> Endpoint:
        """The server of the model."""
        return self.traffic.endpoint_of(self.settings)

    @property
    def groups(self) -> SlotGroups:
        """The limits that its calls count against."""
        return self.traffic.groups_of(self.settings)

    @property
    def wants_json_schemas(self) -> bool:
        """Whether it takes tools as JSON; other classes convert tools themselves."""
        return isinstance(self.model, ChatOpenAI)

    @property
    def sees_pictures(self) -> bool:
        """Whether it takes pictures in messages."""
        if self.settings.vision is not None:
            return self.settings.vision
        return bool((self.model.profile or {}).get("image_inputs"))

    def with_effort(self, effort: str) -> LoadedModel:
        """Return it with this reasoning effort, over the same connections; itself if the model has no such effort."""
        preset = preset_of(self.settings.preset, self.settings.use)
        if effort not in preset.efforts:
            return self
        settings = replace(self.settings, effort=cast(Effort, effort))
        arguments = _model_arguments(settings)
        changed = {name for each in preset.efforts.values() for name in each}
        model = self.model.model_copy(update={name: arguments.get(name) for name in changed})
        return replace(self, settings=settings, model=model)

    async def close(self) -> None:
        """Close its connections."""
        if client := getattr(self.model, "root_async_client", None):
            await client.close()


def load_model(settings: ModelSettings) -> BaseChatModel:
    """Return the chat model of one entry; ChatOpenAI gets the fast stream. Raises AgentConfigError."""
    use_strict_parser()
    cls = _import_class(settings)
    options = _model_arguments(settings)
    arguments = _class_arguments(replace(settings, options=options), cls)
    try:
        if settings.use == CHAT_OPENAI_CLASS_PATH:
            model: BaseChatModel = make_chat_openai(settings, options)
        else:
            model = cls(**arguments)
            if settings.use == CHAT_ANTHROPIC_CLASS_PATH:
                cast("ThinkingAnthropic", model).connect(settings)
    except Exception as error:  # noqa: BLE001  # a third-party class may raise anything
        raise _explain_refusal(settings, error) from None
    model.name = settings.name  # the usage of its calls is recorded under this name
    return model


def _model_arguments(settings: ModelSettings) -> dict[str, Any]:
    """Return the arguments of preset, options and effort. Raises AgentConfigError for an effort it does not take."""
    preset = preset_of(settings.preset, settings.use)
    if settings.effort and settings.effort not in preset.efforts:
        given = {"preset": settings.preset or settings.use, "effort": settings.effort}
        wrong = LazyText(N_("{preset} does not take the effort {effort!r}"), **given)
        fix = LazyText(N_("set it in `options`"))
        if preset.efforts:
            fix = LazyText(N_("choose one of {efforts}"), efforts=[*preset.efforts])
        raise AgentConfigError(("models", settings.name, "effort"), wrong, fix)
    effort = preset.efforts[settings.effort] if settings.effort else {}
    shown = preset.shown if settings.show_thinking else {}
    return merge_arguments(preset.arguments, shown, settings.options, effort)


def _import_class(settings: ModelSettings) -> type[BaseChatModel]:
    place = ("models", settings.name, "use")
    module_name, colon, class_name = settings.use.partition(":")
    if not (module_name and colon and class_name):
        raise AgentConfigError(
            place, LazyText(N_('{use!r} is not of the form "package.module:Class"'), use=settings.use)
        )
    try:
        module = import_code(module_name)
    except NamedCodeError as error:
        near = closest_name(error.written, error.known) if error.written else ""
        install = LazyText(N_("install the package it belongs to"))
        fix = install if error.is_name and not near else fix_of(error)
        raise AgentConfigError(place, error.wrong, fix) from error
    if settings.use == CHAT_ANTHROPIC_CLASS_PATH:
        module = importlib.import_module("agent.models.anthropic")
        class_name = "ThinkingAnthropic"
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, BaseChatModel)):
        text = N_("{use!r}: {module} does not have a chat model of that name")
        wrong = LazyText(text, use=settings.use, module=module_name)
        fix = suggest_lazily(class_name, _chat_models(module)) or LazyText(N_("docs/models.md names such classes"))
        raise AgentConfigError(place, wrong, fix)
    return cls


def _chat_models(module: ModuleType) -> list[str]:
    values = {name: getattr(module, name, None) for name in dir(module) if not name.startswith("_")}
    return [name for name, cls in values.items() if isinstance(cls, type) and issubclass(cls, BaseChatModel)]


def _class_arguments(settings: ModelSettings, cls: type[BaseChatModel]) -> dict[str, Any]:
    """Map the settings to the argument names of the class. Raises AgentConfigError for an unknown setting."""
    known = _field_names(cls)
    given: dict[str, Any] = {
        "model": settings.model,
        "base_url": settings.base_url,
        "api_key": settings.api_key.reveal() if settings.api_key else "",
        "timeout": settings.read_seconds,
        "max_retries": 0,  # RetryPolicy retries; retries in the class would multiply with it
        "stream_usage": True,
    }
    arguments: dict[str, Any] = {}
    for argument, value in given.items():
        if value == "":
            continue
        name = next((name for name in ARGUMENT_NAMES[argument] if name in known), "")
        if name:
            arguments[name] = value
        elif argument not in OPTIONAL_ARGUMENTS:
            wrong = LazyText(N_("{use} does not have the setting {name!r}"), use=settings.use, name=argument)
            raise AgentConfigError(("models", settings.name, argument), wrong)
    for name in settings.options:
        if name not in known:
            fix: LazyText | str = ""
            if near := closest_name(name, known):
                fix = LazyText(DID_YOU_MEAN, name=near)
            elif "extra_body" in known:
                fix = LazyText(N_("put a parameter of the server itself below `extra_body`"))
            wrong = LazyText(N_("{use} does not have such a setting"), use=settings.use)
            raise AgentConfigError(("models", settings.name, "options", name), wrong, fix)
    return {**arguments, **settings.options}


def _field_names(cls: type[BaseChatModel]) -> set[str]:
    """Return every name and alias that the class accepts for its fields."""
    names: set[str] = set()
    for name, info in cls.model_fields.items():
        names |= {name, info.alias or name}
        if isinstance(info.validation_alias, str):
            names.add(info.validation_alias)
    return names


def _explain_refusal(settings: ModelSettings, error: Exception) -> AgentConfigError:
    """Return what a class refused, without the given values: they may be secrets."""
    details = getattr(error, "errors", None)
    if not callable(details):  # not from pydantic: its text might repeat a value
        wrong = LazyText(N_("{use} refused its settings: {reason}"), use=settings.use, reason=type(error).__name__)
        return AgentConfigError(("models", settings.name), wrong, LazyText(N_("see docs/models.md")))
    first = details(include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    place = ("models", settings.name, "options", name) if name in settings.options else ("models", settings.name)
    if first["type"] == "missing":
        wrong = LazyText(N_("{use} needs the setting {name!r}"), use=settings.use, name=name)
        return AgentConfigError(place, wrong, LazyText(N_("add it below `options`")))
    expected = next((text for begin, text in _EXPECTED.items() if first["type"].startswith(begin)), "")
    text = N_("{use} refused the setting {name!r}") if name else N_("{use} refused its settings")
    if expected:
        text = N_("{use} expects {expected} as {name!r}")
    wrong = LazyText(text, use=settings.use, name=name, expected=LazyText(expected))
    return AgentConfigError(place, wrong, LazyText(N_("write what the class takes, or remove it")))
