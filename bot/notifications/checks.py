"""Check the targets of pushes, without a push."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from agent.web.addresses import AddressGuard, WebError
from bot.base.findings import Check, Finding
from bot.config.push import PushConfig, PushTarget
from bot.config.schema import Config
from bot.notifications.push import PushFailed, PushRefused, probe_target
from catalogue import N_, _, localized

PUSH_TARGET = N_("push target {name}")


def list_checks(config: Config) -> Iterator[Check]:
    """Yield a check for each target."""
    for target in config.push.targets:
        yield Check(_(PUSH_TARGET, name=target.name), partial(check_target, target, config.push))


async def check_target(target: PushTarget, config: PushConfig) -> Finding:
    """Ask a target whether it is there, in a way that notifies nobody, under the rules of a push."""
    subject = _(PUSH_TARGET, name=target.name)
    guard = None if config.private_addresses else AddressGuard()
    fix = _("correct its `url`; a server in your own network needs `push: {private_addresses: true}`")
    try:
        status = await probe_target(target.kind, target.url.reveal(), guard)
    except (PushRefused, PushFailed, WebError, ValueError) as error:
        return Finding("fault", subject, localized(error), fix)
    if status >= 500 or (target.kind == "bark" and status != 200):
        return Finding("fault", subject, _("it answers with status {status}", status=status), fix)
    if target.kind == "bark":
        return Finding("ok", subject, _("the Bark server answers; whether the key is right shows with the first push"))
    return Finding("ok", subject, _("it answers (status {status} to HEAD); nothing was pushed", status=status))
