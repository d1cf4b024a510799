"""Roles: what a person may do by every path, approvals by a group in another chat, and `/access`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_audit import rows_of
from tests.e2e.test_permissions import asking, labels, press, results, toast, write, written
from tests.fakes.model import Answer, FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.fakes.telegram_world import BOT, Shown
from tests.support.service_process import ask, said

EVE, BOB = 78, 79
OPS, MOVED = -500, -1_001_000_000_500
OPS_CHAT = f"telegram/{BOT['id']}/{OPS}"


def team(*roles: tuple[str, str], **more: Any) -> dict[str, Any]:
    """Return the settings of an open channel with these roles of people."""
    access = {"open": True, "roles": [{"role": role, "who": [who]} for role, who in roles]}
    return {"channels": {"telegram": {"access": access}}, **more}


async def test_a_viewer_has_nobody_work_until_an_operator_gives_a_role(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**team(("operator", str(JANE)), team={"default_role": "viewer"}))
    telegram.send(ask(text="never"), chat=EVE)
    await telegram.wait(EVE, "Your role here is viewer, so I don't work for you.")
    telegram.send("/plan something", chat=EVE)
    await telegram.wait(EVE, "Your role here, viewer, doesn't let you use /plan.")
    telegram.send("/whoami", chat=EVE)
    shown = await telegram.wait(EVE, "Your role here is viewer.")
    assert "Everybody here has it." in shown.text
    assert "You may only read along." in shown.text
    telegram.send("/access grant operator 78", chat=EVE)
    await telegram.wait(EVE, "Your role here, viewer, doesn't let you use /access.")
    telegram.send("/access grant owner 78")
    await telegram.wait(JANE, "You cannot give the role owner: it may do more than you.")
    telegram.send("/access grant member 78")
    await telegram.wait(JANE, "78 is member from now on.")
    telegram.send(ask(text="at your service", id="2"), chat=EVE)
    await telegram.wait(EVE, "at your service")
    await service.quiet()
    telegram.send(f"/access revoke {JANE}")
    await telegram.wait(JANE, "It can only be changed there.")
    telegram.send("/access revoke 78")
    await telegram.wait(JANE, "Revoked. User78 (78) is viewer here from now on.")
    await service.quiet()
    changed = await rows_of(service, "--kind", "access.changed")
    assert [row["what"]["role"] for row in changed][:1] == ["member"]
    assert {(row["who"], row["subject"]) for row in changed} == {(f"telegram:{JANE}", f"telegram:{EVE}")}
    assert len(changed) == 2
    assert len([r for r in model.requests() if r.tools]) == 1


async def test_a_revoked_role_holds_from_the_next_call_of_a_running_turn(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(
        **team(("operator", str(JANE)), team={"default_role": "viewer"}, permissions={"ask": ["write_file(*/a)"]})
    )
    telegram.send("/access grant member 78")
    await telegram.wait(JANE, "78 is member from now on.")
    telegram.send(
        ask(steps=[{"calls": [write("b")]}, {"calls": [write("a")]}, {"calls": [write("c")]}], text="done"), chat=EVE
    )
    question = await telegram.wait(EVE, "May I run write_file?")
    assert written(service) == ["b"]
    telegram.send("/access revoke 78")
    await telegram.wait(JANE, "Revoked.")
    await service.quiet()
    assert "Only the person I asked" in await toast(telegram, press(telegram, question, "Approve", user=EVE, chat=EVE))
    telegram.send("/stop")
    assert written(service) == ["b"]


@pytest.mark.usefixtures("bubblewrap")
async def test_a_group_in_another_chat_approves(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    entry = {"calls": ["write_file(*/a)"], "roles": ["operator"], "chat": OPS_CHAT}
    service = await start(**team(("operator", str(JANE)), ("operator", "77"), team={"approvals": [entry]}))
    telegram.send(asking("a", text="all done"), chat=EVE)
    asked = await telegram.wait(EVE, "May I run write_file?")
    assert "Only people with one of these roles may approve this: operator." in asked.text
    card = await telegram.wait(OPS, "needs an approval in the chat")
    assert '"path": "/mnt/user-data/workspace/a"' in card.text
    assert labels(card)[:2] == ["Approve", "Deny"]
    await service.quiet()
    assert "Only the person I asked" in await toast(telegram, press(telegram, asked, "Approve", user=EVE, chat=EVE))
    assert "Only the person I asked" in await toast(telegram, press(telegram, card, "Approve", user=79, chat=OPS))
    assert written(service) == []
    await service.restart()
    press(telegram, card, "Approve", user=JANE, chat=OPS)
    await telegram.wait(EVE, "all done")
    await until(lambda: "chose Approve" in str(said(telegram, EVE)), what="the decision in the requester's chat")
    await until(lambda: "Approved by Jane" in str(said(telegram, OPS)), what="the decision in the chat that was asked")
    await service.quiet()
    assert written(service) == ["a"]
    assert service.rows("SELECT DISTINCT requester FROM runs") == [(str(EVE),)]
    telegram.send(asking("a", id="2", text="not done"), chat=EVE)
    await until(
        lambda: len([s for s in telegram.visible(OPS) if labels(s)[:2] == ["Approve", "Deny"]]) >= 1, what="card"
    )
    again = [shown for shown in telegram.visible(OPS) if shown.buttons][-1]
    press(telegram, again, "Deny", user=77, chat=OPS)
    await telegram.wait(EVE, "not done")
    assert "did not approve" in results(model)[-1]


async def test_a_role_of_one_chat_gives_no_role_beyond_it(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**team(("owner", str(JANE))))
    telegram.send("/access grant operator here", chat=OPS, user=JANE)
    await telegram.wait(OPS, "Everybody in this chat without a role of their own is operator from now on.")
    for words in ("grant operator 79", "grant operator 78", "grant viewer 79", "revoke 79"):
        telegram.send(f"/access {words}", chat=OPS, user=EVE)
    await until(lambda: str(said(telegram, OPS)).count("in this chat only") == 4, what="four refusals")
    assert service.rows("SELECT subject, role FROM person_roles") == [(f"chat:{OPS}", "operator")]
    telegram.send("/access grant member here", chat=OPS, user=EVE)
    await telegram.wait(OPS, "Everybody in this chat without a role of their own is member from now on.")
    await service.quiet()


async def test_who_asks_beside_the_requester_does_not_approve_what_they_ask_for(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    entry = {"calls": ["write_file(*/a)"], "roles": ["operator"]}
    service = await start(**team(("operator", str(JANE)), ("operator", str(BOB)), team={"approvals": [entry]}))
    await service.stop()
    telegram.forum(OPS, 5)
    telegram.send("@fawn_bot look around", chat=OPS, topic=5, user=EVE)  # in a thread, both have one conversation
    telegram.send(f"@fawn_bot {asking('a', text='all done')}", chat=OPS, topic=5, user=JANE)
    await service.start()
    card = await telegram.wait(OPS, "May I run write_file?", topic=5)
    await service.quiet()
    assert service.rows("SELECT requester, people FROM runs") == [(str(EVE), f"{EVE} {JANE}")]
    assert "Only the person I asked" in await toast(telegram, press(telegram, card, "Approve", user=JANE, chat=OPS))
    assert written(service) == []
    press(telegram, card, "Approve", user=BOB, chat=OPS)
    await telegram.wait(OPS, "all done", topic=5)
    assert written(service) == ["a"]


async def test_a_chat_that_cannot_be_asked_is_named_where_the_call_was_requested(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    entry = {"calls": ["write_file(*/a)"], "roles": ["operator"], "chat": OPS_CHAT}
    service = await start(**team(("operator", str(JANE)), team={"approvals": [entry]}))
    telegram.block(OPS)
    telegram.send(asking("a", text="all done"), chat=EVE)
    card = await telegram.wait(EVE, "May I run write_file?")
    await telegram.wait(EVE, f"I could not ask in the chat {OPS_CHAT}.")
    press(telegram, card, "Approve", user=JANE, chat=EVE)
    await telegram.wait(EVE, "all done")
    await service.quiet()


async def test_what_was_set_for_a_group_stays_when_it_becomes_a_supergroup(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**team(("owner", str(JANE))))
    telegram.send("/access grant viewer here", chat=OPS, user=JANE)
    await telegram.wait(OPS, "Everybody in this chat without a role of their own is viewer from now on.")
    telegram.migrate(OPS, MOVED)
    telegram.send(f"@fawn_bot {ask(text='never')}", chat=MOVED, user=EVE)
    await telegram.wait(MOVED, "Your role here is viewer, so I don't work for you.")
    await service.quiet()


async def test_the_other_chat_gets_the_whole_of_a_long_call(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    entry = {"calls": ["write_file(*/a)"], "roles": ["operator"], "chat": OPS_CHAT}
    await start(**team(("operator", str(JANE)), team={"approvals": [entry]}))
    long = write("a")
    long["args"]["content"] = "x" * 3000
    telegram.send(ask(steps=[{"calls": [long]}], text="all done"), chat=EVE)
    card = await telegram.wait(OPS, "needs an approval in the chat")
    assert "call.txt" in card.text
    await until(lambda: all(files_in(telegram, chat) for chat in (OPS, EVE)), what="the files")
    for chat in (OPS, EVE):
        [file] = files_in(telegram, chat)
        assert (file.file_name, file.file.count(b"x")) == ("call.txt", 3000)


def files_in(telegram: FakeTelegram, chat: int) -> list[Shown]:
    return [each for each in telegram.visible(chat) if each.file_name]


async def test_sub_agents_fallbacks_titles_goals_and_memory_keep_to_the_models_of_the_role(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    names = ("dear", "small", "other")
    use = {"use": "langchain_openai:ChatOpenAI", "base_url": f"{model.base_url}/v1", "api_key": "$OPENAI_API_KEY"}
    role = {"name": "trainee", "rights": ["talk", "approve"], "models": ["small"]}
    called: list[str] = []
    is_down = False

    def answer(body: Any) -> Answer | None:
        called.append(body["model"])
        return Answer(status=500) if is_down else None

    model.script = answer
    service = await start(
        models=[{"name": name, "model": name, "retries": 0, **use} for name in names],
        roles={"fallback": ["other"], "title": "dear", "summary": "dear", "memory": "dear", "evaluator": "dear"},
        memory={"enabled": True, "wait_seconds": 0},
        subagents={"kinds": [{"name": "lab", "description": "Research.", "model": "dear"}]},
        **team(("trainee", str(EVE)), team={"roles": [role]}),
    )
    args = {"description": "work", "prompt": ask(text="worked", id="sub"), "kind": "lab", "after": []}
    telegram.send(ask(steps=[{"calls": [{"name": "task", "args": args}]}], text="all done"), chat=EVE)
    await telegram.wait(EVE, "all done")
    await service.quiet()
    assert set(called) == {"small"}
    telegram.send("/goal " + ask(text="The invoices of November go to the office in Kiel.", id="goal"), chat=EVE)
    await telegram.wait(EVE, "invoices of November")
    await service.quiet()
    await until(lambda: not service.rows("SELECT 1 FROM memory_queue"), what="the memory")
    kinds = {kind for (kind,) in service.rows("SELECT kind FROM usage")}
    assert {"turn", "memory", "evaluation"} <= kinds
    assert set(called) == {"small"}
    is_down = True
    telegram.send("hello?", chat=EVE)
    await telegram.wait(EVE, "500")
    await service.quiet()
    assert set(called) == {"small"}, "no fallback to another one"


async def test_the_agent_saves_a_note_of_the_workspace_for_whose_right_reaches_it_only(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """An operator of one chat has no right beyond it, by command or by tool."""
    service = await start(**team(("owner", str(JANE)), memory={"enabled": True}))
    telegram.send("/access grant operator here", chat=OPS, user=JANE)
    await telegram.wait(OPS, "Everybody in this chat without a role of their own is operator from now on.")
    words = "Invoices are sent on Fridays"
    note = {"name": "memory", "args": {"action": "save", "text": words, "quote": words, "scope": "workspace"}}
    for person in (EVE, JANE):
        work = ask(steps=[{"calls": [note]}], text=f"done {person}", id=str(person))
        telegram.send(f"@fawn_bot {words}. {work}", chat=OPS, user=person)
        await telegram.wait(OPS, f"done {person}")
        await service.quiet()
        assert ("only an operator can save a note" in results(model)[-1]) == (person == EVE)
    assert service.rows("SELECT owner, audience LIKE '%/workspace' FROM memory") == [(str(JANE), 1)]


async def test_a_deputy_is_told_and_answers_in_their_own_direct_chat_after_a_kill(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """Bob stands in for Eve: he reads her question in his list, and nothing of it counts once his role is gone."""
    service = await start(**team(("operator", str(JANE))))
    for person in (EVE, BOB):
        telegram.send(ask(text=f"hello {person}"), chat=person)
        await telegram.wait(person, f"hello {person}")
    await service.quiet()
    telegram.send("/waiting hand over to @Nobody until Friday", chat=EVE)
    await telegram.wait(EVE, "I don't know anybody called “@Nobody”.")
    telegram.send("/waiting hand over to User79 until tomorrow", chat=EVE)
    await telegram.wait(EVE, "User79 (79) may answer in your place")
    told = await telegram.wait(BOB, "You stand in for User78 until")
    assert labels(told) == ["Give back"]
    step = {"calls": [{"name": "ask_clarification", "args": {"question": "Which format?", "options": ["csv", "pdf"]}}]}
    telegram.send(f"@fawn_bot {ask(steps=[step], text='it is csv')}", chat=OPS, user=EVE)
    await telegram.wait(OPS, "Which format?")
    await telegram.wait(BOB, "A question waits for User78, for whom you stand in.")
    await service.quiet()
    telegram.send(ask(steps=[step], text="mine alone", id="2"), chat=EVE)  # in her direct chat
    await telegram.wait(EVE, "Which format?")
    await service.quiet()
    await service.kill()
    await service.start()
    telegram.send("/waiting", chat=BOB)
    await telegram.wait(BOB, "1 question waits for you.")
    shown = await telegram.wait(BOB, "asked for User78")
    telegram.send("/access grant viewer 79")
    await telegram.wait(JANE, "User79 (79) is viewer from now on.")
    assert "answered" in await toast(telegram, press(telegram, shown, "csv", user=BOB, chat=BOB))
    telegram.send("/waiting", chat=BOB)
    await telegram.wait(BOB, "Nothing waits for you.")
    await service.quiet()
    assert service.rows("SELECT state FROM questions ORDER BY asked") == [("open",), ("open",)]
    telegram.send("/access revoke 79")
    await telegram.wait(JANE, "Revoked.")
    telegram.send("/waiting 1 csv", chat=BOB)
    await telegram.wait(OPS, "it is csv")
    assert "User79 chose csv" in str(said(telegram, OPS))
    await service.quiet()
    [row] = await rows_of(service, "--kind", "hand.over")
    assert (row["who"], row["subject"], row["result"]) == (f"telegram:{EVE}", f"telegram:{BOB}", "given")
