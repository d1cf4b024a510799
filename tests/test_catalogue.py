"""Every sentence to people is in the catalogue, and the catalogue has all of them in Chinese."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from string import Formatter

import pytest
from babel.messages import pofile
from babel.messages.catalog import Catalog
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_dir

from catalogue import _, use_language
from catalogue.po_file import read_po

ROOT = Path(__file__).parents[1]
SOURCES = ("bot", "channels", "agent", "sandbox")
PO = ROOT / "catalogue/zh.po"
MARKERS = ("_", "ngettext", "N_")
TRANSLATED = {
    "console",
    "dingtalk",
    "discord",
    "feishu",
    "matrix",
    "shared",
    "slack",
    "telegram",
    "wechat",
    "wecom",
    "whatsapp",
}  # the channels that speak Chinese
HOW_TO = (
    "Wrap it: _('…', name=value) where it is made, N_('…') for a constant that is passed to _ later,"
    " ngettext('{n} file', '{n} files', count) for a number (all from catalogue). Then run `make words`"
    " and write the Chinese into catalogue/zh.po. If no person reads it in a chat or on the console, add it to"
    " ENGLISH_FILES, ENGLISH_SENTENCES or ENGLISH_CALLS in tests/test_catalogue.py."
)


class NoChineseYet(UserWarning):
    """A new channel has a sentence without Chinese: people read it in English."""


# Files (or folders) whose sentences stay English, by who reads them.
ENGLISH_FILES = {
    "agent/acp/connection.py": "external agents",
    "agent/acp/invoke_agent.py": "the model",
    "agent/turn/checkpointer.py": "SQL",
    "bot/drill/servers.py": "a drill's own model and platform",
    "bot/telemetry/metrics.py": "the texts of metrics, for operators of Prometheus",
    "bot/admin/machine_endpoints.py": "programs",
    "bot/api/shared/requests.py": "programs",
    "bot/api/shared/caller.py": "programs",
    "bot/api/endpoints.py": "programs",
    "bot/api/shared/event_hub.py": "programs",
    "bot/api/shared/event_streams.py": "programs",
    "bot/api/shared/file_endpoints.py": "programs",
    "bot/api/page/opened.py": "routes",
    "bot/api/shared/uploads.py": "programs",
    "bot/api/langgraph/": "programs",
    "bot/api/openapi.py": "programs",
    "bot/api/operate/": "programs",
    "bot/api/own/": "programs",
    "bot/api/shared/posting.py": "programs",
    "bot/api/page/endpoints.py": "programs",
    "bot/api/page/shared_threads.py": "programs",
    "bot/api/shared/sessions.py": "programs",
    "bot/api/page/operate.py": "programs",
    "bot/api/page/sign_ins.py": "programs",
    "bot/api/page/thread_endpoints.py": "programs",
    "bot/api/shared/read_models.py": "programs",
    "bot/database/wake_ups.py": "SQL",
    "bot/database/postgres": "SQL",
    "bot/rights/deeds.py": "the docs",
    "agent/mcp/calls.py": "the model",
    "agent/policies/custom.py": "the model",
    "agent/mcp/connection.py": "the model",
    "agent/mcp/content.py": "the model",
    "agent/mcp/resources.py": "the model",
    "agent/mcp/servers.py": "the model",
    "agent/mcp/tools.py": "the model",
    "agent/memory/": "the model",
    "agent/models/arguments.py": "the model",
    "agent/models/whole_calls.py": "the model",
    "agent/policies/permission.py": "the model",
    "agent/policies/tool_calls.py": "the model",
    "agent/policies/limits.py": "the model",
    "agent/policies/summarization.py": "the model",
    "agent/turn/resume.py": "the model",
    "agent/skills/library.py": "the model",
    "agent/subagents/": "the model",
    "agent/settings/subagents.py": "the model",
    "agent/turn/title.py": "the model",
    "agent/tools/": "the model",
    "agent/core/user_message.py": "the model",
    "agent/parsing/": "the model",
    "agent/web/": "the model",
    "bot/schedules/turns.py": "the model",
    "bot/tasks/turns.py": "the model",
    "bot/memory/turn.py": "the model",
    "bot/http/event_stream.py": "programs",
    "bot/http/exchange.py": "programs",
    "bot/http/route.py": "programs",
    "bot/http/visitors.py": "programs",
    "bot/hooks/endpoint.py": "programs",
    "bot/base/signatures.py": "programs",
    "bot/relay/server.py": "programs",
    "bot/config/reference.py": "docs/configuration.md",
    "bot/status/transcript_format.py": "an export, which all its readers share",
    "bot/config/spending.py": "docs/configuration.md",
    "bot/config/schema.py": "docs/configuration.md",
    "bot/config/team.py": "docs/configuration.md",
    "bot/cli/help.py": "the manual page",
    "bot/database/migrations/": "SQL",
    "channels/dingtalk/api.py": "operators: the state of a channel",
    "channels/dingtalk/connection.py": "operators: the state of a channel",
    "channels/discord/gateway.py": "operators: the state of a channel",
    "channels/discord/api.py": "operators: the state of a channel",
    "channels/feishu/api.py": "operators: the state of a channel",
    "channels/feishu/card_api.py": "the log",
    "channels/feishu/connection.py": "operators: the state of a channel",
    "channels/matrix/api.py": "operators: the state of a channel",
    "channels/matrix/syncing.py": "operators: the state of a channel",
    "channels/slack/api.py": "operators: the state of a channel",
    "channels/slack/manifest.py": "Slack, which has one text for all readers",
    "channels/slack/socket_mode.py": "operators: the state of a channel",
    "channels/telegram/api.py": "operators: the state of a channel",
    "channels/telegram/polling.py": "operators: the state of a channel",
    "channels/shared/event_connection.py": "operators: the state of a channel",
    "channels/wecom/connection.py": "operators: the state of a channel",
    "channels/wechat/api.py": "operators: the state of a channel",
    "channels/whatsapp/api.py": "operators: the state of a channel",
    "sandbox/": "the model and operators",
}
# Files with phrases for people that are no sentences: faults of the configuration, findings, help of the command line.
PHRASE_FILES = (
    "agent/near_misses.py",
    "bot/__main__.py",
    "bot/admin/",
    "bot/config/",
    "bot/console/client.py",
    "channels/dingtalk/setup.py",
    "channels/discord/setup.py",
    "channels/feishu/setup.py",
    "channels/matrix/setup.py",
    "channels/shared/lifecycle.py",
    "channels/slack/setup.py",
    "channels/telegram/setup.py",
    "channels/wecom/setup.py",
    "channels/whatsapp/setup.py",
)
# Phrases in them that stay English, by their beginning.
ENGLISH_PHRASES = (
    "(`fawn pair list`)",  # a command
    "Answer with the single word",  # the model
    "could not find expected",  # YAML's words, which are translated
    "another document",
    "found character",
    "found unexpected end",
    "mapping values are",
    "check agents",  # the key of a sandbox
    "quoted scalar",
    "that cannot start",
    "unknown operation",  # of another version
)
# Single sentences that stay English, by their beginning.
ENGLISH_SENTENCES = {
    "Find out what happened and what it affects": "the model",
    "(Your last message was empty": "the model",
    "(Your last message wrote a tool call": "the model",
    "(I have the result, and go on.)": "the model",
    "Note a word.": "the model",
    "the answer cannot be written as JSON": "programs on the control socket",
    "NOT EXISTS (SELECT": "SQL",
    "Fawn {}, process {}, began": "a report of a crash",
    "Fatal Python error": "faulthandler's",
    "Said by people in the omitted messages": "the model",
    "Named by people before that": "the model",
    "Summarize the conversation below": "the model",
    "(The beginning was left out": "the model",
    "\n\nExact identifiers and numbers from": "the model",
    "\n\nThe plan, by `write_todos`": "the model",
    "Plan mode: only tools that": "the model",
    "The arguments do not fit the tool": "the model",
    "The person agreed to the plan": "the model",
    "The person wants another plan": "the model",
    "The person cancelled the plan": "the model",
    "The work has cost more than expected": "the model",
    "Judge whether a goal is met": "the model",
    "Round {round} of {rounds} begins": "the model",
    "Skills in use; read them again": "the model",
    "Use the tool `schedule` for": "the model",
    "What about this?": "the model: the text of a message of Slack's shortcut",
}
# Calls whose arguments no person reads in a chat: settings of the configuration, patterns, log lines.
ENGLISH_CALLS = re.compile(r"setting|field|re\.compile|log\.\w+|logging\.\w+")
# Errors whose texts people read in a chat.
ERRORS_TO_PEOPLE = {
    *("AccountRefused", "AskError", "AuditCommandFailed", "ChatGone", "NotFound", "NotRunning", "OperationFailed"),
    *("Refused", "SetupStopped", "SkillCommandFailed", "Unconfirmed"),
}
# Calls whose texts people read wherever they are made: each is a marked sentence, also in the files above.
LOCALIZED_CALLS = {
    *("AcpError", "AgentConfigError", "DatabaseFault", "EmbeddingsFailed", "LazyText", "LocalizedError"),
    *("McpUnavailable", "SandboxUnavailable", "SkillError", "SkipReason"),
}
SETTINGS_AS_SUBJECTS = {"data_dir", "Python"}  # findings whose subject has one name in every language


@cache
def python_files() -> list[tuple[str, ast.Module]]:
    paths = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))) for path in paths]


def literal_text(node: ast.AST) -> str | None:
    """Return the text of a string literal, with {} for each value of an f-string."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def is_sentence(text: str) -> bool:
    """Return whether a text looks like a sentence: several words, with a capital first or a full stop last."""
    words = text.strip().lstrip("_*(⚠️↻⌛… \n")
    several = len(re.findall(r"[A-Za-z][a-z']+", words)) > 1 and re.search(r"\s", words)
    return bool(several and re.search(r"^[A-Z“]|[a-z)}][.!?…:][_)]*\s*$", words)) and not re.match(r"[A-Z]{4,} ", words)


def is_phrase(text: str) -> bool:
    """Return whether a text is a sentence or part of one: several words."""
    words = text.strip()
    several = len(re.findall(r"[A-Za-z][a-z']+", words)) > 1 and re.search(r"\s", words)
    return bool(several) and not words.startswith(ENGLISH_PHRASES) and "\\" not in words


def loose_sentences(tree: ast.AST, is_meant: Callable[[str], bool] = is_sentence) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each literal that is meant for people and is not in the catalogue."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
            continue
        if isinstance(node, ast.Call) and (ENGLISH_CALLS.fullmatch(name := ast.unparse(node.func)) or name in MARKERS):
            continue
        if isinstance(node, ast.Raise):
            error = node.exc.func if isinstance(node.exc, ast.Call) else None
            if not (isinstance(error, ast.Name) and error.id in ERRORS_TO_PEOPLE):
                continue
        text = literal_text(node)
        if text is None:
            yield from loose_sentences(node, is_meant)
        elif is_meant(text) and not text.startswith((*ENGLISH_SENTENCES,)):
            yield getattr(node, "lineno", 0), text


def test_sentences_to_people_are_in_the_catalogue() -> None:
    found = [
        f"{path}:{line}: {text[:100]!r}"
        for path, tree in python_files()
        if not path.startswith((*ENGLISH_FILES,))
        for line, text in loose_sentences(tree, is_phrase if path.startswith(PHRASE_FILES) else is_sentence)
    ]
    assert found == [], f"these sentences are outside the catalogue. {HOW_TO}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('say("Nothing is running here.")', True),
        ('say(f"I could not send {name}: {error}")', True),
        ('TEXT = "_Stopped by a person._"', True),
        ('def f():\n    "Return the text of it."', False),
        ('say(_("Nothing is running here."))', False),
        ('TEXT = N_("Nothing is running here.")', False),
        ('say(ngettext("One file is left.", "{n} files are left.", n))', False),
        ('log.info("Nothing is running here.")', False),
        ('raise ValueError("Nothing is running here.")', False),
        ('raise Refused("This file is too large.")', True),
        ('say("bold", name="max chars")', False),
    ],
)
def test_a_sentence_outside_the_catalogue_is_found(source: str, found: bool) -> None:
    assert bool([*loose_sentences(ast.parse(source))]) is found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('document.fault(at, "is missing")', True),
        ('print(f"up {seconds} s, {state} now")', True),
        ('raise SetupStopped(f"{name} is not set")', True),
        ('document.fault(at, _("is missing"))', False),
        ('subject = "data_dir"', False),
    ],
)
def test_a_phrase_outside_the_catalogue_is_found(source: str, found: bool) -> None:
    assert bool([*loose_sentences(ast.parse(source), is_phrase)]) is found


def plain_errors(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each literal of LOCALIZED_CALLS, direct or by a local name, that is not marked, and of
    each subject of a finding."""
    texts: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts.setdefault(node.targets[0].id, []).append(node.value)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).partition(".")[0]
        if name == "Finding" and (text := literal_text(node.args[1])) and text not in SETTINGS_AS_SUBJECTS:
            yield node.lineno, text
        for argument in node.args if name in LOCALIZED_CALLS else ():
            for value in texts.get(argument.id, []) if isinstance(argument, ast.Name) else [argument]:
                text = literal_text(value)
                if text and is_phrase(text.replace("{}", "")):
                    yield node.lineno, text


def test_errors_to_people_are_in_the_catalogue() -> None:
    found = [f"{path}:{line}: {text[:100]!r}" for path, tree in python_files() for line, text in plain_errors(tree)]
    assert found == [], f"these errors are outside the catalogue. {HOW_TO}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('raise SandboxUnavailable("Docker is not here.")', True),
        ('raise SandboxUnavailable(f"Docker says {error} now")', True),
        ('text = "no such thing"\nraise SkillError(text, name=name)', True),
        ('AgentConfigError(at, LazyText("no such thing"))', True),
        ('Finding("ok", "time zone", text)', True),
        ('Finding("ok", "data_dir", text)', False),
        ('raise SandboxUnavailable(N_("Docker says {error}"), error=error)', False),
        ('text = N_("no such thing")\nraise SkillError(text, name=name)', False),
        ('raise SandboxFileError("no such file")', False),
    ],
)
def test_an_error_outside_the_catalogue_is_found(source: str, found: bool) -> None:
    assert bool([*plain_errors(ast.parse(source))]) is found


def test_no_function_that_translates_names_something_else_underscore() -> None:
    """There, `_` would be that other thing."""
    found = []
    for path, tree in python_files():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == "_"]
                if {type(node.ctx) for node in names} == {ast.Load, ast.Store}:
                    found.append(f"{path}:{function.lineno}: give the unused value another name, such as _unused")
    assert found == []


def test_calls_of_the_catalogue_can_be_collected() -> None:
    """`make words` collects literals. An f-string is another sentence for each value, and hides calls inside it."""
    found = []
    for path, tree in python_files():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                calls = [part for part in ast.walk(node) if isinstance(part, ast.Call) and is_marker(part)]
                if any(literal_text(call.args[0]) for call in calls):
                    found.append(f"{path}:{node.lineno}: call it outside the f-string")
            if isinstance(node, ast.Call) and is_marker(node) and any(isinstance(n, ast.JoinedStr) for n in node.args):
                found.append(f"{path}:{node.lineno}: pass values by name, not in an f-string")
    assert found == []


def is_marker(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in MARKERS


# ------------------------------------------------------------ the Chinese catalogue


@cache
def extracted() -> Catalog:
    """Return the sentences in the code, as `make words` finds them."""
    catalog = Catalog()
    for folder in (*SOURCES, "catalogue"):
        for name, line, message, comments, context in extract_from_dir(ROOT / folder, keywords=DEFAULT_KEYWORDS):
            catalog.add(message, None, [(f"{folder}/{name}", line)], auto_comments=comments, context=context)
    return catalog


@cache
def chinese() -> Catalog:
    with PO.open("rb") as file:
        return pofile.read_po(file, locale="zh")


def forms(text: str | Sequence[str] | None) -> list[str]:
    return [text] if isinstance(text, str) else [*(text or ())]


def placeholders(text: str) -> set[str]:
    return {name for _literal, name, _spec, _conversion in Formatter().parse(text) if name is not None}


def may_follow(places: Sequence[str]) -> bool:
    """Return whether a sentence is only in channels that are not translated yet."""
    channels = {re.match(r"channels/(\w+)/", place) for place in places}
    return all(found and found[1] not in TRANSLATED for found in channels)


@pytest.mark.filterwarnings("default::tests.test_catalogue.NoChineseYet")
def test_every_sentence_has_a_chinese_one() -> None:
    translations = chinese()
    missing = []
    for message in extracted():
        found = translations.get(message.id) if message.id else None
        if message.id and not (found and all(forms(found.string))):
            places = ", ".join(f"{path}:{line}" for path, line in message.locations)
            said = f"{places}: {forms(message.id)[0]!r}"
            if may_follow([path for path, _line in message.locations]):
                warnings.warn(NoChineseYet(said), stacklevel=1)
            else:
                missing.append(said)
    assert missing == [], "run `make words`, then write the Chinese of these into catalogue/zh.po"


def test_the_chinese_catalogue_has_nothing_else() -> None:
    known = {forms(message.id)[0] for message in extracted() if message.id}
    unused = [forms(message.id)[0] for message in chinese() if message.id and forms(message.id)[0] not in known]
    assert unused == [], "run `make words`: it removes sentences that the code no longer has"
    assert [message.id for message in chinese() if message.id and message.fuzzy] == []
    assert "#~" not in PO.read_text("utf-8")


def test_translations_have_the_placeholders_of_their_sentences() -> None:
    wrong = []
    for message in chinese():
        if message.id:
            wanted = set.union(*map(placeholders, forms(message.id)))
            wrong += [text for text in forms(message.string) if placeholders(text) != wanted]
    assert wrong == []


def test_translations_keep_the_marks_of_their_sentences() -> None:
    """Markdown, code and the space around a text stay; Chinese sentences end with Chinese punctuation."""
    wrong = []
    for message in chinese():
        for text in forms(message.string) if message.id else ():
            source = forms(message.id)[0]
            same = [len(re.findall(mark, source)) == len(re.findall(mark, text)) for mark in ("`", r"\*\*", "^_|_$")]
            around = [re.findall(r"^\s*|\s*$", each) for each in (source, text)]
            if not all(same) or (around[0] != around[1] and source.strip(",; ")) or re.search(r"[一-鿿][.,!?:;]", text):
                wrong.append(f"{source!r} → {text!r}")
    assert wrong == []


def test_the_reader_of_the_service_agrees_with_babel() -> None:
    theirs = {forms(each.id)[0]: forms(each.string)[0] for each in chinese() if each.id}
    assert read_po(PO.read_text("utf-8")) == theirs


def test_a_new_channel_may_be_english_at_first() -> None:
    """At run time, a sentence without Chinese appears in English; the others must not lose theirs."""
    assert may_follow(["channels/pigeon/reply.py", "channels/pigeon/__init__.py"])
    assert not may_follow(["channels/pigeon/reply.py", "channels/slack/reply.py"])
    assert not may_follow(["bot/main/app.py"])
    assert {path.name for path in (ROOT / "channels").iterdir() if (path / "__init__.py").is_file()} >= TRANSLATED
    with use_language("zh"):
        assert _("A sentence of a pigeon.") == "A sentence of a pigeon."


# ------------------------------------------------------------ one word for one thing

# In English → what every Chinese sentence with it says. CONTRIBUTING.md has the list for people.
TERMS = {
    r"(?<!-)\bschedules?\b": "定时任务",
    r"\bsandbox(es)?\b": "沙箱",
    r"\boperators?\b": "操作员",
    r"\bwhoever runs me\b": "管理员",
    r"\bsub-agents?\b": "子智能体",
    r"\bconversations?\b": "对话",
    r"\bbackground tasks?\b": "后台任务",
    r"\bpairing code\b": "配对码",
}
OTHER_WORDS = {"沙盒", "日程", "运维人员", "禁用", "会话", "运行者"}  # for which the list has another one
OTHER_MEANINGS = {  # sentences in which the English or the Chinese word means something else, by their beginning
    "calendar entries": "日程",  # what a platform calls them
    "it ends every session at once": "会话",  # of systemd
}


def term_faults(source: str, chinese: str) -> list[str]:
    """Return what a Chinese sentence calls by another name than the list."""
    meant = next((word for start, word in OTHER_MEANINGS.items() if source.startswith(start)), "")
    found = [f"{word} is another word" for word in sorted(OTHER_WORDS - {meant}) if word in chinese]
    plain = re.sub(r"`[^`]*`|\{\w+[^}]*\}|docs/[\w.-]+", "", source)  # names of settings stay
    missing = [term for english, term in TERMS.items() if re.search(english, plain, re.IGNORECASE)]
    return found + [f"says not {term}" for term in missing if term not in chinese]


def test_chinese_calls_one_thing_by_one_name() -> None:
    wrong = []
    for message in chinese():
        for text in forms(message.string) if message.id else ():
            wrong += [
                f"{forms(message.id)[0]!r} → {text!r}: {fault}" for fault in term_faults(forms(message.id)[0], text)
            ]
    assert wrong == [], "the words are in CONTRIBUTING.md, “Sentences to people”"


@pytest.mark.parametrize(
    ("source", "chinese", "faults"),
    [
        ("Schedule {number} is deleted.", "计划 {number} 已删除。", ["says not 定时任务"]),
        ("Now I run it in the sandbox.", "现在在沙盒里运行它。", ["沙盒 is another word", "says not 沙箱"]),
        ("See `sandbox.provider`.", "参见 `sandbox.provider`。", []),
        ("An operator can change it.", "操作员可以更改它。", []),
    ],
)
def test_another_word_is_found(source: str, chinese: str, faults: list[str]) -> None:
    assert term_faults(source, chinese) == faults
