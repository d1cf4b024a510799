"""A channel never has two people with one id: the platform sees to it, or the id has the person's company in it."""

from __future__ import annotations

import dataclasses
import typing

import orjson
import pytest

from agent.messages import Author, Message
from agent.setting import Secret
from bot.config.loader import channel_modules
from channels.dingtalk.api import MESSAGE_TOPIC
from channels.dingtalk.events import Company, parse_event
from channels.shared.robot_chats import RobotAccount
from channels.wecom.connection import MESSAGE
from channels.wecom.events import parse_callback

# Where the platform promises that an id is one person's (decision 217 names the sources).
UNIQUE = {
    "slack": "platform",
    "telegram": "platform",
    "discord": "platform",
    "matrix": "platform",
    "whatsapp": "platform",
    "feishu": "account",
    "wechat": "account",
    "dingtalk": "company",
    "wecom": "company",
    "console": "account",
}


def has_several_accounts(settings: type) -> bool:
    """Return whether a list in the settings has secrets of its own."""
    hints = typing.get_type_hints(settings)
    entries = [each for hint in hints.values() for each in typing.get_args(hint) if dataclasses.is_dataclass(each)]
    return any(Secret in typing.get_type_hints(each).values() for each in entries)


def test_several_accounts_share_a_channel_only_where_ids_are_unique_on_the_whole_platform() -> None:
    modules = channel_modules()
    assert UNIQUE.keys() == modules.keys()
    several = {name for name, module in modules.items() if has_several_accounts(module.Settings)}
    assert several == {"slack"}  # the detector finds what there is
    assert {UNIQUE[name] for name in several} == {"platform"}


def dingtalk_author(company: str | None, staff: str | None, platform: str) -> Author:
    event = {
        "conversationId": "cid1",
        "conversationType": "2",
        "chatbotCorpId": "ding1",
        "msgId": "m1",
        "createAt": 1,
        "msgtype": "text",
        "text": {"content": "hi"},
        "senderId": platform,
        **({"senderStaffId": staff} if staff else {}),
        **({"senderCorpId": company} if company else {}),
    }
    message = parse_event(MESSAGE_TOPIC, orjson.dumps(event), RobotAccount("dingtalk", "bot", "Fawn"), Company())
    assert isinstance(message, Message)
    return message.author


def wecom_author(company: str | None, staff: str | None, platform: str) -> Author:
    event = {
        "msgid": "m1",
        "chattype": "single",
        "msgtype": "text",
        "text": {"content": "hi"},
        "from": {"userid": staff, **({"corpid": company} if company else {})},
    }
    message = parse_callback(MESSAGE, "", orjson.dumps(event), RobotAccount("wecom", "bot", "Fawn"))
    assert isinstance(message, Message)
    assert message.thread.chat == f"@{message.author.id}"  # the private chats are two as well
    return message.author


@pytest.mark.parametrize("staff", ["boss", "0123456789", "jane@acme.example", "a.b-c_d"])
@pytest.mark.parametrize(
    ("author_of", "own", "others"),
    [(dingtalk_author, "ding1", ["ding2", "ding1x"]), (wecom_author, None, ["ww2", "ww-3"])],
    ids=["dingtalk", "wecom"],
)
def test_equal_ids_of_two_companies_are_two_people(
    author_of: typing.Callable[[str | None, str | None, str], Author], own: str | None, others: list[str], staff: str
) -> None:
    ours = author_of(own, staff, "$:LWCP_v1:$one")
    assert (ours.id, ours.guest) == (staff, False)
    outside = [author_of(company, staff, f"$:LWCP_v1:${company}") for company in others]
    assert len({ours.id, *(each.id for each in outside)}) == 1 + len(others)
    assert all(each.guest for each in outside)
    known = channel_modules()["wecom" if author_of is wecom_author else "dingtalk"].IDS
    assert all(known.is_person(each.id) for each in (ours, *outside))
