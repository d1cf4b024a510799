"""Propose, list, change, pause and delete schedules of the person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from agent.core.context import ToolServices
from agent.core.tool import AgentTool, Effect, Runtime, ToolTraits, make_tool
from agent.schedules import MissedRule, ScheduleKind, ScheduleRequest
from agent.settings.sections import AgentSettings
from catalogue import N_, _

TITLES = {
    "create": N_("Proposing a schedule"),
    "change": N_("Proposing a change of schedule {number}"),
    "list": N_("Looking at the schedules"),
    "pause": N_("Pausing schedule {number}"),
    "delete": N_("Deleting schedule {number}"),
}

NOT_NAMED = (
    "Not possible: neither the person nor a page named this address, so it could carry out what this conversation"
    " holds. Ask the person to write the address of the page to watch."
)


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it where people may have schedules."""
    return schedule if services.schedules else None


def _describe(args: Mapping[str, Any]) -> str:
    return _(TITLES.get(str(args.get("action")), TITLES["list"]), number=args.get("number", ""))


def _effect(args: Mapping[str, Any]) -> Effect:
    return "none" if args.get("action") == "list" else "once"


@make_tool(ToolTraits(describe=_describe, effect=_effect, permission="allow"))
async def schedule(
    action: Annotated[Literal["create", "list", "change", "pause", "delete"], "What to do."],
    runtime: Runtime,
    what: Annotated[
        str, "create: the request for yourself at that time, complete in itself; for a reminder, the text to post."
    ] = "",
    kind: Annotated[
        Literal["", "work", "reminder", "watch"],
        "work: you work (default). reminder: the text is posted as it is. watch: `url` is read at each time, and you"
        " work only when its text has changed.",
    ] = "",
    cron: Annotated[str, "Five fields of crontab in the person's time zone; day of week 1 is Monday."] = "",
    at: Annotated[str, "One local time, such as 2026-11-24T09:00; with an offset if it is relative to now."] = "",
    every_minutes: Annotated[float, "An interval, counted from the confirmation."] = 0.0,
    time_zone: Annotated[str, "IANA name, if the person named a place or zone; else theirs is used."] = "",
    url: Annotated[str, "watch: the page."] = "",
    missed: Annotated[
        Literal["", "skip", "once", "all"],
        "Times at which the service is down: once (default) makes up for the latest.",
    ] = "",
    number: Annotated[int, "change, pause and delete: the number of the schedule."] = 0,
) -> str:
    """Do something later, repeatedly, or when a web page changes, for the person who asks. The result is posted in this
    chat. All but list ask the schedule's owner in words, and have no effect before they confirm."""
    schedules = runtime.context.schedules
    if schedules is None:
        return "Schedules are not available here."
    match action:
        case "list":
            return await schedules.list_schedules()
        case "pause":
            return await schedules.pause(number)
        case "delete":
            return await schedules.delete(number)
    if action == "change" and not number:
        return "Give the `number` of the schedule to change; `list` shows the numbers."
    if url and runtime.context.exposure.destination("address", "web_fetch", {"url": url}):
        return NOT_NAMED
    request = ScheduleRequest(
        number=number if action == "change" else 0,
        kind=ScheduleKind(kind) if kind else "",
        what=what,
        cron=cron,
        at=at,
        every_minutes=every_minutes,
        time_zone=time_zone,
        url=url,
        missed=MissedRule(missed) if missed else "",
    )
    return await schedules.propose(request)
