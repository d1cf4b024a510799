"""`/hooks`: what other systems post here, when they did last, and what was refused."""

from __future__ import annotations

from bot.base.times import local_time
from bot.commands.call import CommandCall
from bot.storage import hooks
from catalogue import _, join_sentences, ngettext

UNKNOWN = ""  # the hook of what was posted to none


def hooks_command(call: CommandCall) -> str:
    """List the hooks."""
    configured = call.current.config.hooks
    if not configured:
        return _("There are no hooks. They are set up in `hooks` of the configuration; docs/hooks.md shows how.")
    lines = [
        join_sentences(_("**{name}** posts to `{chat}`.", name=name, chat=hook.to), *_describe(call, name))
        for name, hook in sorted(configured.items())
    ]
    if unknown := hooks.refusals_of(call.execute, UNKNOWN):
        lines.append(
            _(
                "Posts to a hook that does not exist: {n}, the latest {time}.",
                n=unknown[0].count,
                time=_time(call, unknown[0].at),
            )
        )
    return "\n".join(lines)


def _describe(call: CommandCall, name: str) -> list[str]:
    found = hooks.summarize_hook(call.execute, name)
    said = [_("Nothing has come yet.")]
    if found.kept:
        said = [
            ngettext(
                "{n} delivery, the latest {time}.",
                "{n} deliveries, the latest {time}.",
                found.kept,
                time=_time(call, found.latest),
            )
        ]
    if found.waiting:
        said.append(ngettext("{n} waits to be posted.", "{n} wait to be posted.", found.waiting))
    for refused in hooks.refusals_of(call.execute, name):
        said.append(
            _(
                "Refused as `{reason}`: {n}, the latest {time}.",
                reason=refused.reason,
                n=refused.count,
                time=_time(call, refused.at),
            )
        )
    return said


def _time(call: CommandCall, at: float) -> str:
    return f"{local_time(at, call.current.config.time_zone):%Y-%m-%d %H:%M}"
