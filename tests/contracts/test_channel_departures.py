"""Contract of the channels whose platforms say who is gone: an answer that is not certain says nothing."""

from __future__ import annotations

from contextlib import suppress

import pytest

from channels.base import AccountChecker, ChannelError
from tests.support.rigs.base import Call, Trouble
from tests.support.rigs.registry import Rig, demanded, ready

UNKNOWN = {"slack": "U404", "discord": "999999999999999999", "feishu": "ou_unknown"}


async def gone(rig: Rig, person: str) -> bool | None:
    assert isinstance(rig.channel, AccountChecker)
    return await rig.channel.is_gone(person)


async def test_a_platform_that_cannot_say_who_is_gone_is_not_asked(rig: Rig) -> None:
    assert isinstance(rig.channel, AccountChecker) == ("departures" in rig.can)


@demanded("departures")
async def test_a_person_who_departs_is_gone_and_others_are_not(rig: Rig) -> None:
    person = (await rig.say("hello")).author.id
    assert await gone(rig, person) is False
    rig.depart(person)
    assert await gone(rig, person) is True


@demanded("departures")
async def test_an_unknown_account_is_not_gone(rig: Rig) -> None:
    await ready(rig)
    for person in (UNKNOWN[rig.name], "../../somewhere?x=1", ""):
        assert await gone(rig, person) is None


@demanded("departures")
@pytest.mark.parametrize(("kind", "code"), [("error", 403), ("error", 500), ("error", 504), ("flood", 0), ("drop", 0)])
async def test_a_fault_never_says_that_a_person_is_gone(rig: Rig, kind: Trouble, code: int) -> None:
    person = (await rig.say("hello")).author.id
    rig.depart(person)
    everything: Call = "any"
    if code:
        rig.wire.fault(kind, everything, code=code, times=-1)
    else:
        rig.wire.fault(kind, everything, times=-1)
    with suppress(ChannelError):
        assert await gone(rig, person) is None
