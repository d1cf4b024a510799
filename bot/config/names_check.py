"""Check that what limits or protects refers to something: a name that nothing has would be a hole that nobody sees.

Check that the section `team:` and the assignments of roles name roles and chats that can exist.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path
from types import ModuleType

from agent.messages import HOOK_ID
from agent.near_misses import suggest
from agent.settings.mcp import McpServerSettings
from agent.spending import LEAD
from bot.config.addresses import check_chat, check_id, id_on, parse_person
from bot.config.document import Document, explain_url
from bot.config.excerpt import Location
from bot.config.operations import check_drill
from bot.config.schema import ChannelConfig, FileConfig
from bot.config.team import DEFAULT_AGENT, OPERATOR, RoleConfig
from catalogue import N_, _
from channels.shared.ids import IdForms


def check_team(
    document: Document, config: FileConfig, entries: Sequence[ChannelConfig], modules: Mapping[str, ModuleType]
) -> None:
    """Report each role, model and agent that does not exist, and each address of a chat that is none."""
    team, known = config.team, config.team.all_roles()
    for i, own in enumerate(team.roles):
        _check_choices(document, ("team", "roles", i), own, config)
    _check_role(document, ("team", "default_role"), team.default_role, known)
    for i, rule in enumerate(team.approvals):
        for role in rule.roles:
            _check_role(document, ("team", "approvals", i, "roles"), role, known)
        if rule.chat:
            check_chat(document, ("team", "approvals", i, "chat"), rule.chat, modules, modules)
    for entry in entries:
        for i, assignment in enumerate(entry.access.roles):
            at = ("channels", entry.name, "access", "roles", i, "role")
            _check_role(document, at, assignment.role, known)


def _check_choices(document: Document, at: Location, role: RoleConfig, config: FileConfig) -> None:
    models = {model.name for model in config.models} or {"demo"}
    agents = {DEFAULT_AGENT, *(agent.name for agent in config.agents)}
    for name in filter(lambda name: name not in models, role.models if document.has_accounts else ()):
        document.fault((*at, "models"), _("no model has this name"), suggest(name, models))
    for name in filter(lambda name: name not in agents, role.agents):
        document.fault((*at, "agents"), _("no agent has this name"), suggest(name, agents))


def _check_role(document: Document, at: Location, role: str, known: Collection[str]) -> None:
    if role not in known:
        document.fault(at, _("no role has this name"), suggest(role, known))


_OF_THE_SYSTEM = ("bin", "boot", "etc", "home", "lib", "lib64", "run", "sbin", "tmp", "usr", "var")
_IMAGE = re.compile(  # github.com/distribution/reference, reference.go: a host, a path in lower case, tag, digest
    r"(?:[\w.-]+(?::[0-9]+)?/)?[a-z0-9][a-z0-9._/-]*+(?::[\w.-]{1,128})?(?:@sha256:[0-9a-f]{64})?", re.ASCII
)
_LEAST_CONTEXT_TOKENS = 2_000  # the agent's own prompt and its tools take more
TWICE = N_("another entry has the same name")


def check_names(
    document: Document, config: FileConfig, entries: Sequence[ChannelConfig], modules: Mapping[str, ModuleType]
) -> None:
    """Report each reference to a model, an agent, a role, a person, a chat or a folder that cannot exist."""
    check_drill(document, config.drill, [entry.name for entry in entries], modules)
    models = {model.name for model in config.models} or {"demo"}
    _check_models(document, config, models)
    _check_unique(document, ("team", "roles"), [role.name for role in config.team.roles])
    _check_unique(document, ("subagents", "kinds"), [kind.name for kind in config.subagents.kinds])
    for i, approval in enumerate(config.team.approvals):
        if not approval.calls:
            wrong = _("protects nothing: it names no calls")
            document.fault(("team", "approvals", i), wrong, _("add `calls: [bash(make deploy *)]`"))
    _check_unique(document, ("agents",), [agent.name for agent in config.agents])
    kinds = config.subagents.all_kinds()
    for i, agent in enumerate(config.agents):
        _check_known(document, ("agents", i, "kinds"), agent.kinds, kinds, _("no kind of sub-agent has this name"))
    for i, budget in enumerate(config.budgets):
        if budget.scope == "agent":
            callers = {LEAD, *(agent.name for agent in config.agents), *kinds}
            _check_known(document, ("budgets", i, "which"), [budget.which], callers, _("no agent has this name"))
        if budget.scope == "model" and config.models:
            services = {config.voice.model, config.memory.embeddings.model}
            known = models | services
            _check_known(document, ("budgets", i, "which"), [budget.which], known, _("no model has this name"))
    _check_people(document, config, entries, modules)
    _check_push(document, config, modules)
    for name, person in config.http.identity.people.items():
        _check_person(document, ("http", "identity", "people", name), person, modules)
    _check_folders(document, config)
    _check_downloads(document, entries)


def _check_models(document: Document, config: FileConfig, models: Collection[str]) -> None:
    if not document.has_accounts:
        return
    for i, model in enumerate(config.models):
        if 0 < model.context_tokens < _LEAST_CONTEXT_TOKENS:
            wrong = _("is less than what a request of the agent needs")
            document.fault(("models", i, "context_tokens"), wrong, _("write single tokens, such as 128000"))
    wrong = _("no model has this name")
    for i, kind in enumerate(config.subagents.kinds):
        _check_known(document, ("subagents", "kinds", i, "model"), [kind.model], models, wrong)
    for i, agent in enumerate(config.agents):
        _check_known(document, ("agents", i, "model"), [agent.model], models, wrong)
    lead = config.roles.lead or next((model.name for model in config.models), "demo")
    for i, name in enumerate(config.roles.fallback):
        if name == lead:
            fix = _("remove it: `{name}` answers already", name=name)
            document.fault(("roles", "fallback", i), _("a model cannot take over from itself"), fix)
        elif name in config.roles.fallback[:i]:
            document.fault(("roles", "fallback", i), _(TWICE), _("remove one"))


def _check_known(document: Document, at: Location, names: Iterable[str], known: Collection[str], wrong: str) -> None:
    for name in names:
        if name and name not in known:
            document.fault(at, wrong, suggest(name, known))


def _check_unique(document: Document, at: Location, names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            document.fault((*at, i, "name"), _(TWICE), _("give it its own name, or write both into one entry"))


def _check_people(
    document: Document, config: FileConfig, entries: Sequence[ChannelConfig], modules: Mapping[str, ModuleType]
) -> None:
    """Compare the ids of people and chats with the forms of the channels that are configured."""
    for entry in entries:
        at: Location = ("channels", entry.name, "access", "roles")
        for i, assignment in enumerate(entry.access.roles):
            if not assignment.who:
                document.fault((*at, i), _("names nobody"), _("add `who: [ID]`"))
            for n, who in enumerate(assignment.who):
                check_id(document, (*at, i, "who", n), who, _forms([entry.name], modules), IdForms.is_subject)
        _check_one_role(document, config, entry)
    names = {entry.name for entry in entries}
    limits: Mapping[str, Sequence[tuple[str, str]]] = {
        "budgets": [(each.scope, each.which) for each in config.budgets],
        "rate_limits": [(each.scope, each.which) for each in config.rate_limits],
    }
    for section, scopes in limits.items():
        for i, (scope, which) in enumerate(scopes):
            if scope == "person" and which.rpartition(HOOK_ID)[1]:
                hooks = {hook.requester(name) for name, hook in config.hooks.items() if hook.role}
                named = HOOK_ID + which.rpartition(HOOK_ID)[2]
                _check_known(document, (section, i, "which"), [named], hooks, _("no hook with a role has this name"))
            elif which and scope in ("person", "chat", "workspace") and entries:
                _check_limited(document, (section, i, "which"), scope, which, names, modules)
    for name, hook in config.hooks.items():
        channel = re.split("[:/]", hook.to, maxsplit=1)[0]
        if hook.person:
            check_id(document, ("hooks", name, "as"), hook.person, _forms([channel], modules), IdForms.is_person)


def _check_limited(
    document: Document, at: Location, scope: str, which: str, names: Set[str], modules: Mapping[str, ModuleType]
) -> None:
    """Compare whom a limit is for, an address or a bare id, with the forms of its channel, or else of all of them."""
    channel = re.split("[:/]", which, maxsplit=1)[0]
    if scope == "chat" and channel in modules and "/" in which:
        check_chat(document, at, which, names, modules)
        return
    if channel in modules and channel not in names:
        fix = _("add it below `channels`, or name one that is there")
        document.fault(at, _("this channel is not configured"), fix)
        return
    bare, channels = (id_on(channel, which), {channel}) if channel in modules else (which, names)
    forms = _forms(channels, modules)
    if len(forms) == len(channels):
        check_id(document, at, bare, forms, IdForms.is_person if scope == "person" else IdForms.is_place)


def _check_one_role(document: Document, config: FileConfig, entry: ChannelConfig) -> None:
    """A subject has one role: of two, the first would hold, and nobody would see that the other one does not."""
    at, roles = ("channels", entry.name, "access"), config.team.all_roles()
    found: dict[str, str] = {}
    for i, assignment in enumerate(entry.access.roles):
        for n, who in enumerate(assignment.who):
            if (role := found.setdefault(who, assignment.role)) != assignment.role:
                wrong = _("has another role already: {role}", role=role)
                document.fault((*at, "roles", i, "who", n), wrong, _("remove one; for one chat, write CHAT/PERSON"))
    for i, person in enumerate(entry.access.operators):
        given = roles.get(found.get(person, ""))
        if given and not given.covers(roles[OPERATOR.name]):
            wrong = _("has another role already: {role}", role=given.name)
            document.fault((*at, "operators", i), wrong, _("remove one"))


def _forms(names: Iterable[str], modules: Mapping[str, ModuleType]) -> list[IdForms]:
    found = (getattr(modules[name], "IDS", None) for name in names if name in modules)
    return [each for each in found if each]


def _check_push(document: Document, config: FileConfig, modules: Mapping[str, ModuleType]) -> None:
    """A target has an address, and people who can exist."""
    _check_unique(document, ("push", "targets"), [target.name for target in config.push.targets])
    for i, target in enumerate(config.push.targets):
        for n, person in enumerate(target.people):
            _check_person(document, ("push", "targets", i, "people", n), person, modules)
    for i, server in enumerate(config.push.bark_servers):
        if found := explain_url(server):
            document.fault(("push", "bark_servers", i), *found)


def _check_person(document: Document, at: Location, person: str, modules: Mapping[str, ModuleType]) -> None:
    """A person has an address, on a channel that exists, and an id of its form."""
    try:
        channel, id = parse_person(person)
    except ValueError:
        fix = _("write it as CHANNEL/PERSON, such as telegram/11111111; `fawn pair list` shows ids")
        document.fault(at, _("is not the address of a person"), fix)
        return
    if channel not in modules:
        document.fault(at, _("there is no such channel"), suggest(channel, modules))
    else:
        check_id(document, at, id, _forms([channel], modules), IdForms.is_person)


def _is_of_the_system(folder: Path) -> bool:
    """Return whether a folder belongs to the whole machine (refspecs.linuxfoundation.org/FHS_3.0), as one of Fawn's
    cannot."""
    way = Path(os.path.abspath(folder)).parts[1:]
    return not way or way[0] in ("dev", "proc", "sys") or (len(way) == 1 and way[0] in _OF_THE_SYSTEM)


def _check_folders(document: Document, config: FileConfig) -> None:
    """Folders are folders, and the prompt's file exists; those of data and of own skills are made when needed."""
    if _is_of_the_system(config.data_dir):
        fix = _("name a folder of its own, such as ./data; it is made at the first start")
        document.fault(("data_dir",), _("is a folder of the system"), fix)
    elif config.data_dir.is_file():
        fix = _("name a folder of its own, such as ./data; it is made at the first start")
        document.fault(("data_dir",), _("is a file, not a folder"), fix)
    if config.prompt.file and not Path(config.prompt.file).is_file():
        wrong, fix = _("the file does not exist"), _("check the path; it starts at the folder of the config file")
        document.fault(("prompt", "file"), wrong, fix)
    for at, hosts in (
        (("sandbox", "network"), config.sandbox.network.hosts),
        (("web",), config.web.hosts),
        (("http",), config.http.hosts),
    ):
        for i, host in enumerate(hosts):
            if "://" in host:
                document.fault((*at, "hosts", i), _("is a URL"), _("write only the host: example.com"))
    if config.sandbox.image and not _IMAGE.fullmatch(config.sandbox.image):
        wrong = _("is no name of an image")
        document.fault(("sandbox", "image"), wrong, _("write it as `docker images` does: name:tag, in lower case"))
    if Path(config.skills.custom).exists() and not Path(config.skills.custom).is_dir():
        document.fault(("skills", "custom"), _("is a file, not a folder"), _("name the folder that holds your skills"))
    for i, folder in enumerate(config.skills.folders):
        if not Path(folder).is_dir():
            _fault_of_folder(document, ("skills", "folders", i), folder)


def _check_downloads(document: Document, entries: Iterable[ChannelConfig]) -> None:
    """The folder into which a channel puts the agent's files can be one."""
    for entry in entries:
        if not (folder := getattr(entry.settings, "downloads", "")):
            continue
        path, at = Path(os.path.abspath(folder)), ("channels", entry.name, "downloads")
        fix = _("name a folder of its own, such as ./downloads; it is made when a file comes")
        if _is_of_the_system(path):
            document.fault(at, _("is a folder of the system"), fix)
        elif not next(each for each in (path, *path.parents) if each.exists()).is_dir():
            document.fault(at, _("is a file, not a folder"), fix)


def check_server_folders(document: Document, servers: Mapping[Location, McpServerSettings]) -> None:
    """A server that is used has the folder in which it starts, and what it may read."""
    for at, server in servers.items():
        if server.enabled and server.cwd and not Path(server.cwd).is_dir():
            _fault_of_folder(document, (*at, "cwd"), server.cwd)
        for i, path in enumerate(server.read if server.enabled else ()):
            if not Path(path).exists():
                _fault_of_folder(document, (*at, "read", i), path)


def _fault_of_folder(document: Document, at: Location, folder: str) -> None:
    wrong = _("is a file, not a folder") if Path(folder).exists() else _("the folder does not exist")
    document.fault(at, wrong, _("check the path; it starts at the folder of the config file"))
