"""The push of the audit as a feature."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bot.base.findings import Check, Finding
from bot.commands.feature import Feature, Parts, Service
from bot.config.audit import AuditPushConfig
from bot.config.schema import Config
from bot.siem.pushing import AuditPush
from bot.siem.receivers import connected
from catalogue import N_, _

SUBJECT = N_("push of the audit")


def _start(service: Service) -> Parts:
    return Parts(single={"audit push": AuditPush(service.store, service.current).serve})


def _list_checks(config: Config) -> Iterator[Check]:
    if config.audit.push.target:
        yield Check(_(SUBJECT), partial(check_receiver, config.audit.push))


async def check_receiver(push: AuditPushConfig) -> Finding:
    """Connect to the receiver by TLS, and send nothing."""
    address = push.syslog or push.url
    try:
        async with connected(push) as receiver:
            await receiver.greet()
            return Finding("ok", _(SUBJECT), _("{address} takes them", address=address))
    except OSError as error:  # also of TLS
        why = getattr(error, "verify_message", "") or error.strerror or type(error).__name__
        fix = _("check the address below `audit: {push: …}`, and `ca_file` for an authority of your own")
        return Finding("fault", _(SUBJECT), f"{address}: {why}", fix)


FEATURE = Feature("siem", checks=_list_checks, start=_start)
