"""The areas in which `bench.mutants` plants faults, and the faults that change nothing."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.mutations import Fault, faults

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Area:
    """Files of the program, what their nearest tests import or are called, and end-to-end tests (`wider`)."""

    files: str
    words: str
    wider: str = ""


AREAS = {
    "rights": Area(
        "bot/rights/*.py",
        "bot.rights bot.team test_commands test_notifications",
        "permissions roles strangers access links plan_holds own_resources refusals budgets",
    ),
    "permissions": Area(
        "agent/permissions/*.py",
        "agent.permissions test_policies",
        "permissions permissions_try rules_by_paths outward ways_out roles",
    ),
    "exposure": Area(
        "bot/journey/exposure.py agent/policies/permission.py bot/storage/exposures.py agent/policies/permission.py "
        "agent/reach.py",
        "test_exposure test_exposures test_limits_of_callees test_claims test_inbox test_web_search test_retention",
        "outward ways_out hostile_pages permissions",
    ),
    "api": Area(
        "bot/api/shared/caller.py bot/api/shared/keys.py bot/api/shared/posting.py "
        "bot/api/shared/sessions.py bot/api/shared/sessions.py "
        "bot/http/route.py bot/http/visitors.py bot/http/exchange.py",
        "bot.api bot.http",
        "api page_access page_sign_in page_proxy api_files operate origins openapi",
    ),
    "journey": Area(
        "bot/journey/inbox.py bot/journey/scheduler.py bot/journey/questions.py bot/journey/turn_*.py "
        "bot/journey/addressing.py bot/journey/gathering.py bot/journey/live_questions.py bot/journey/running_turn.py",
        "bot.journey test_commands",
        "talk questions waiting threads crash new_and_stop quoted_replies",
    ),
    "claims": Area("bot/journey/claims.py", "bot.journey", "questions talk roles permissions crash"),
    "outbox": Area(
        "bot/journey/outbox.py bot/storage/outbox.py",
        "bot.journey.outbox bot.storage test_outbox test_shared_outbox test_notifications test_races test_many_at_once",
        "crash faults posts",
    ),
    "hooks": Area(
        "bot/hooks/*.py bot/base/signatures.py",
        "bot.hooks bot.base.signatures",
        "hooks hook_threads hooks_in_threads relay",
    ),
    "files": Area(
        "sandbox/disk/safe_files.py sandbox/disk/unpacking.py",
        "sandbox.disk.safe_files sandbox.disk.unpacking test_attachments test_artifacts test_quota",
        "files",
    ),
    "budgets": Area(
        "bot/rights/budgets.py bot/rights/reservations.py bot/rights/rates.py",
        "bot.rights bot.budgets test_commands",
        "budgets charges",
    ),
    "schedules": Area("bot/schedules/*.py bot/base/times.py", "bot.schedules test_commands test_watches", "schedules"),
    "replies": Area(
        "channels/shared/reply_*.py",
        "channels.shared.reply_writer channels.shared.reply_window test_channel_reply test_reply_writer",
        "talk faults",
    ),
    "policies": Area(
        "agent/policies/*.py", "agent.policies agent.turn.turn agent.turn.factory", "whole_calls models faults"
    ),
}
EQUIVALENT = {  # what no test can catch, because the program does the same: file and changed line, and the reason
    "bot/journey/exposure.py: await store.run(partial(exposures.store_exposure, row=changed), durable=(True))": (
        "only a power failure of the machine tells it, after which less is remembered"
    ),
    "agent/policies/permission.py: return (host_of(rule.pattern) == "
    "host_of(str(use.args.get('url', '')).strip()) != '')": (
        "an empty pattern has no host, and then the comparison is false, too"
    ),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault in a file of an area."""

    area: str
    path: str
    fault: Fault


def draw(areas: Collection[str], count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants of each area, the same for a seed."""
    drawn: list[Mutant] = []
    for name in areas:
        paths = sorted({path for glob in AREAS[name].files.split() for path in ROOT.glob(glob)})
        found = [Mutant(name, str(p.relative_to(ROOT)), f) for p in paths for f in faults(p.read_text())]
        random.Random(f"{seed} {name}").shuffle(found)
        drawn += itertools.islice(filter(counts, found), count)
    return drawn


def counts(mutant: Mutant) -> bool:
    """Return whether a mutant is Python, and not one that no test can catch."""
    try:
        compile(mutant.fault.text, mutant.path, "exec")
    except SyntaxError:
        return False
    return f"{mutant.path}: {mutant.fault.after}" not in EQUIVALENT


def near(area: Area) -> Iterator[str]:
    """Return the test files that import a part of the area, or are named."""
    imports = re.compile(rf"^ *(?:from|import) (?:{'|'.join(map(re.escape, area.words.split()))})\b", re.MULTILINE)
    for path in sorted([*ROOT.glob("tests/unit/*/test_*.py"), *ROOT.glob("tests/contracts/test_*.py")]):
        if path.stem in area.words.split() or imports.search(path.read_text()):
            yield str(path.relative_to(ROOT))
