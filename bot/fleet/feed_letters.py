"""Spell the feed of a run for the letters that processes send each other, and read it from them.

A process wants the runs of places; another one, in which such a run is in progress, begins to tell it, sends its blocks
as they come, and says now and then how far it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from agent.blocks import Approve, Ask, Block, Done, Failed, File, Notice, Plan, PlanItem, Step, Text, Usage, View
from agent.messages import Thread
from agent.stored_json import Damaged, build_dataclass, raise_damaged
from bot.base.letters import Json
from bot.journey.fed_run import FedJob, KeptJob
from bot.journey.feed import Ended

Content = Block | Ended
KINDS: Mapping[str, type[Any]] = {
    each.__name__: each for each in (Text, Step, Plan, Ask, Approve, File, Notice, Failed, Done, Ended)
}

WANTED, WANTING = "runs.wanted", "runs.told"  # the topics: what a reader says, and what it is told


def dump_content(content: Content) -> list[object]:
    """Return a block as JSON: its kind, and its fields. What only its own process needs of it is left out."""
    if isinstance(content, Approve):
        content = replace(content, grant=None, use=None)
    return [type(content).__name__, content]


def load_content(raw: object) -> Content:
    """Return what `dump_content` made. Raises Damaged, also for a kind that another version has."""
    match raw:
        case [str(name), dict(fields)] if kind := KINDS.get(name):
            more: dict[str, Any] = {}
            with raise_damaged():
                if kind is Plan:
                    more = {"items": tuple(build_dataclass(PlanItem, each) for each in fields["items"])}
                elif kind is Done:
                    more = {"usage": build_dataclass(Usage, fields["usage"])}
                found: Content = build_dataclass(kind, fields, **more)
                return found
    raise Damaged("no block")


def load_view(raw: object) -> View:
    """Return the view that these blocks build. Raises Damaged."""
    view = View()
    for content in load_contents(raw):
        if not isinstance(content, Ended):
            view.add(content)
    return view


def load_contents(raw: object) -> list[Content]:
    """Return blocks. Raises Damaged."""
    if not isinstance(raw, list):
        raise Damaged("no list of blocks")
    return [load_content(each) for each in raw]


def dump_view(view: View) -> list[list[object]]:
    """Return the blocks that build a view."""
    kept = [dump_content(Notice("", text, kept=True)) for text in view.kept if not _is_latest(view, text)]
    return [*kept, *map(dump_content, view.blocks())]


def _is_latest(view: View, text: str) -> bool:
    return view.notice is not None and view.notice.kept and view.notice.text == text


def dump_job(job: FedJob) -> Json:
    """Return which run it is."""
    kept = KeptJob(job.run, job.conversation, job.thread, job.attempt, job.started, job.asked, job.resumed)
    return {**asdict(kept), "thread": f"{job.thread}"}


def load_job(raw: object) -> KeptJob:
    """Return what `dump_job` made. Raises Damaged."""
    with raise_damaged():
        if isinstance(raw, dict):
            return build_dataclass(KeptJob, raw, thread=Thread.parse(raw["thread"]), recalled=())
    raise Damaged("no run")
