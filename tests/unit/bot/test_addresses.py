"""The address of a chat and of a person has one spelling, which `/whoami` shows and every place takes."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agent.messages import Thread
from agent.spending import PlannedCall
from bot.cli.people import NamedPerson
from bot.config.addresses import (
    chat_address,
    chat_names,
    id_on,
    parse_chat,
    parse_person,
    person_address,
    workspace_names,
)
from bot.config.loader import ConfigError, load_config
from bot.config.schema import Config
from bot.rights.budgets import limits_of
from bot.storage.usage import Payer

CHAT = Thread("slack", "T01", "C0OPS")
SLACK = {"bot_token": "xoxb-123456-abc", "app_token": "xapp-1-A-1-abc"}


@pytest.mark.parametrize("text", ["slack/T01/C0OPS", "slack:T01/C0OPS", str(CHAT)])
def test_a_chat_is_read_as_it_is_shown_and_as_it_was_written_before(text: str) -> None:
    assert parse_chat(text) == CHAT
    assert parse_chat(chat_address(CHAT)) == CHAT


@pytest.mark.parametrize(
    ("channel", "id"),
    [("slack", "U0123"), ("matrix", "@jane:example.org"), ("telegram", "-1001"), ("dingtalk", "corp:manager/1")],
)
def test_a_person_is_read_as_they_are_shown(channel: str, id: str) -> None:
    address = person_address(channel, id)
    assert parse_person(address) == (channel, id)
    assert id_on(channel, address) == id_on(channel, id) == id


@pytest.mark.parametrize("text", ["", "slack", "slack/", "/U1", "slack/T01", "@jane:example.org"])
def test_what_is_no_address_is_refused(text: str) -> None:
    parsers = (parse_chat,) if text == "slack/T01" else (parse_chat, parse_person)
    for parse in parsers:
        with pytest.raises(ValueError, match=r".*"):
            parse(text)


def load(folder: Path, **sections: object) -> Config:
    (folder / "config.yaml").write_text(yaml.safe_dump({"config_version": 1, **sections}))
    return load_config(folder / "config.yaml", {})


def test_every_section_takes_the_addresses_that_whoami_shows(tmp_path: Path) -> None:
    person, chat = person_address("slack", "U0123ABCD"), chat_address(CHAT)
    access = {"allow": [person], "operators": [person], "roles": [{"role": "owner", "who": [person]}]}
    config = load(
        tmp_path,
        channels={"slack": {**SLACK, "access": access}},
        http={"listen": "127.0.0.1:8080"},
        hooks={"alerts": {"to": chat, "as": person, "secret": "s" * 32}},
        team={"approvals": [{"calls": ["bash(make *)"], "chat": chat}]},
        drill={"schedule": "weekly", "to": chat},
        push={"targets": [{"name": "jane", "kind": "webhook", "url": "https://push.example", "people": [person]}]},
    )
    rights = config.channels[0].access
    assert (rights.allow, rights.operators, rights.roles[0].who) == (("U0123ABCD",),) * 3
    hook = config.hooks["alerts"]
    assert (hook.target, hook.person, hook.role) == (CHAT, "U0123ABCD", "")


def test_budgets_and_rate_limits_take_the_addresses_that_whoami_shows(tmp_path: Path) -> None:
    person, chat = person_address("slack", "U0123ABCD"), chat_address(CHAT)
    config = load(
        tmp_path,
        channels={"slack": SLACK},
        budgets=[
            {"scope": "person", "which": person, "tokens": 1},
            {"scope": "chat", "which": chat, "tokens": 2},
            {"scope": "workspace", "which": "slack/T01", "tokens": 3},
        ],
        rate_limits=[{"scope": "person", "which": person, "count": 1}, {"scope": "chat", "which": chat, "count": 1}],
    )
    payer, planned = Payer(1, "c", Thread("slack", "T01", "C0OPS", "1.2"), "U0123ABCD"), PlannedCall("", "", "", 0, 0)
    limits = limits_of(config.budgets, payer, planned, 0.0, None)
    assert [limit.config.which for limit in limits] == [person, chat, "slack/T01"]
    elsewhere = replace(payer, thread=Thread("slack", "T02", "C0OPS"), requester="U0999")
    assert limits_of(config.budgets, elsewhere, planned, 0.0, None) == []


@pytest.mark.parametrize("thread", [CHAT, Thread("matrix", "@fawn:example.org", "!ops:example.org")])
def test_a_chat_and_a_workspace_have_each_name_that_was_ever_shown(thread: Thread) -> None:
    channel, workspace, chat = thread.channel, thread.workspace, thread.chat
    shown = {chat_address(thread), f"{channel}/{workspace}/{chat}", f"{channel}:{workspace}/{chat}"}
    assert shown | {chat, f"{channel}:{chat}"} == {*chat_names(thread)}
    assert {workspace, f"{channel}:{workspace}", f"{channel}/{workspace}"} <= {*workspace_names(thread)}


@pytest.mark.parametrize(
    ("sections", "place"),
    [
        ({"hooks": {"alerts": {"to": "slack/acme/C0OPS", "as": "member", "secret": "s" * 32}}}, "hooks.alerts.to"),
        ({"drill": {"schedule": "weekly", "to": "slack/U01/C0OPS"}}, "drill.to"),
        ({"budgets": [{"scope": "chat", "which": "slack/T01/ops", "tokens": 1}]}, "budgets[0].which"),
        ({"budgets": [{"scope": "chat", "which": "slack/acme/C0OPS", "tokens": 1}]}, "budgets[0].which"),
        ({"budgets": [{"scope": "workspace", "which": "slack/acme", "tokens": 1}]}, "budgets[0].which"),
        ({"rate_limits": [{"scope": "person", "which": "slack/jane"}]}, "rate_limits[0].which"),
        ({"rate_limits": [{"scope": "person", "which": "telegram/42"}]}, "rate_limits[0].which"),
        ({"hooks": {"alerts": {"to": "slack/T01/#ops", "as": "member", "secret": "s" * 32}}}, "hooks.alerts.to"),
        ({"hooks": {"alerts": {"to": "slack/T01/C0OPS", "as": "slack/jane", "secret": "s" * 32}}}, "hooks.alerts.as"),
        ({"team": {"approvals": [{"calls": ["bash(x)"], "chat": "slack/T01/ops"}]}}, "team.approvals[0].chat"),
        ({"drill": {"schedule": "weekly", "to": "slack/T01/general"}}, "drill.to"),
    ],
)
def test_ids_have_the_form_of_their_channel_wherever_they_stand(
    tmp_path: Path, sections: dict[str, object], place: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, channels={"slack": SLACK}, http={"listen": "127.0.0.1:8080"}, **sections)
    [fault] = caught.value.faults
    assert fault.place == place
    assert fault.fix


@pytest.mark.parametrize("words", [["slack/U0123"], ["slack", "U0123"]])
def test_the_command_line_takes_an_address_or_two_words(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("person", nargs="+", action=NamedPerson)
    found = parser.parse_args(words)
    assert (found.channel, found.person) == ("slack", "U0123")
    for wrong in (["U0123"], ["slack/U0123", "slack/U4567"]):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong)
