"""Notifications as a feature."""

from __future__ import annotations

from bot.base.background import JobKind
from bot.base.stored_secrets import seal_anew
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.journey.running_turn import Account
from bot.journey.turn_part import TurnPart
from bot.notifications.command import NOTIFY_WORDS, notify_command
from bot.notifications.digests import DigestJobs
from bot.notifications.push import PushJobs, list_checks
from bot.notifications.run_pings import RunPings
from bot.notifications.sign_ins import SignInWatch
from bot.rights.claimed_run import ClaimedRun
from bot.service.pings import DIGEST_JOB, PUSH_JOB
from bot.storage import personal
from catalogue import N_


def _start(service: Service) -> Parts:
    store, current = service.store, service.current
    pings = RunPings(current)
    digests = DigestJobs(store, current, service.waits)

    def open_turn(_job: ClaimedRun, _account: Account) -> TurnPart:
        return TurnPart(present=pings.present, end=pings.end)

    jobs = {PUSH_JOB: JobKind(PushJobs(store, current).send), DIGEST_JOB: JobKind(digests.run)}
    watch = SignInWatch(store, current, service.channel)
    return Parts(jobs, loops={"sign-ins": watch.serve}, turn=open_turn)


FEATURE = Feature(
    "notifications",
    personal=personal.NOTIFICATIONS,
    commands=(Command("notify", N_("get a ping when long work is done"), notify_command, NOTIFY_WORDS, rank=190),),
    checks=list_checks,
    recover=lambda execute, config, _now: seal_anew(execute, config),
    start=_start,
)
