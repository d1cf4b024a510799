"""Feishu replies as users see them: streaming cards, and fallbacks when cards are refused."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from agent.blocks import Ask, Final, Plan, PlanItem, Step, Text
from agent.messages import Kind
from channels.base import ChatGone, Health, OutcomeUnknown, OutgoingFile, Refused, TryLater
from channels.feishu.card_api import SEQUENCE_EPOCH
from channels.feishu.card_renderer import MAX_CARD_BYTES, render_final_cards
from channels.feishu.history import EDIT_SECONDS
from tests.fakes.feishu import APP, DIRECT, GROUP, JANE, KIM
from tests.fakes.feishu_world import CARD_BYTES, Card
from tests.fakes.server import until
from tests.support.recording_inbox import Memory
from tests.support.rigs.feishu import FeishuRig
from tests.support.rigs.registry import deliver, heard, ready


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[FeishuRig]:
    async with FeishuRig.start(tmp_path) as made:
        await ready(made)
        yield made


def card(rig: FeishuRig, topic: int = 0) -> Card:
    """Return the card of the bot's last message."""
    return rig.server.cards[rig._shown(topic).card]


# Case 31 of docs/cases.md
async def test_a_text_gets_a_reaction_one_streaming_card_and_a_last_reaction(rig: FeishuRig) -> None:
    asked = await rig.say("tell me")
    await until(lambda: rig.server.reactions(asked.id) == ["OnIt"])
    reply = rig.channel.reply(asked.thread, Memory(), to=asked.id, asker=asked.author.id)
    reply.show(Plan((PlanItem("look", "done"), PlanItem("tell", "running"))))
    reply.show(Step("1", "bash: ls"))
    for number in range(60):
        reply.show(Text(f"w{number} "))
        await asyncio.sleep(0.02)
    await until(lambda: "w0" in str(rig.visible()))
    shown = card(rig)
    panel = next(element for element in shown.elements() if element["tag"] == "collapsible_panel")
    assert panel["elements"][0]["text"]["content"] == "☑ look\n▸ tell\n▸ bash: ls"
    assert card(rig).streaming
    assert rig.server.reactions(asked.id) == ["OnIt"]
    words = " ".join(f"w{number}" for number in range(60))
    await reply.finish(Final(words))
    assert rig.visible() == [words]
    assert not card(rig).streaming
    assert shown.json["config"]["summary"]["content"].startswith("w0 w1")
    assert len(shown.writes) >= 3
    assert all(later.startswith(text) for text, later in zip(shown.writes, shown.writes[1:], strict=False))
    assert len(rig.server.calls_of("message.send")) == len(rig.server.calls_of("card.create")) == 1
    await until(lambda: rig.server.reactions(asked.id) == ["DONE"])
    assert {call.status for call in rig.server.calls} == {200}


@pytest.mark.slow
async def test_a_crash_while_posting_the_placeholder_loses_no_answer(rig: FeishuRig) -> None:
    """The platform accepted the post, but the process did not learn it. The same uuid returns that message, which
    shows another card."""
    posts = Memory()
    message = await rig.say("think")
    rig.server.fault("drop", "message.send", after=True)
    first = rig.channel.reply(message.thread, posts, to=message.id)
    await until(lambda: rig.visible() == ["…"])
    await first.close()
    rows = Memory(rows=posts.rows)
    await rig.channel.reply(message.thread, rows, to=message.id).finish(Final("Thought."))
    assert rig.visible() == ["Thought."]


# Case 32 of docs/cases.md
async def test_a_refused_final_update_becomes_a_new_card(rig: FeishuRig) -> None:
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("Half"))
    await until(lambda: rig.visible() == ["Half"])
    first = posts.rows[0]
    rig.server.fault("error", "card.replace", code=400, times=-1)
    await reply.finish(Final("The whole."))
    assert rig.visible() == ["The whole."]
    assert posts.rows[0] not in (first, None)


# Case 32 of docs/cases.md
async def test_a_refused_stream_update_does_not_end_the_stream(rig: FeishuRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("one "))
    await until(lambda: rig.visible() == ["one"])
    rig.server.fault("error", "card.write", code=400)
    reply.show(Text("two "))
    await until(lambda: rig.visible() == ["one two"])
    await reply.finish(Final("one two three"))
    assert rig.visible() == ["one two three"]
    assert len(rig.server.calls_of("message.send")) == 1


# Case 32 of docs/cases.md
async def test_without_the_permission_for_cards_answers_are_plain_messages(rig: FeishuRig) -> None:
    rig.server.denied.add("card.create")
    reply = rig.channel.reply(rig.thread(), Memory())
    for number in range(20):
        reply.show(Text(f"w{number} "))
        await asyncio.sleep(0.02)
    await until(lambda: rig.visible() and rig.visible()[0].startswith("w0"))
    await reply.finish(Final("**The** <at id=all></at> whole.", (Ask("a", "?", ("red", "blue")),)))
    [shown] = rig.visible()
    assert shown.startswith("**The** <at id=all></at> whole.")
    assert "red" in shown
    assert rig.pinged() == []
    assert len(rig.server.calls_of("message.update")) == 1  # it can be edited twenty times only


async def test_a_recalled_card_is_posted_again(rig: FeishuRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("Half"))
    await until(lambda: rig.visible() == ["Half"])
    rig._shown(0).deleted = True
    await reply.finish(Final("The whole."))
    assert rig.visible() == ["The whole."]


async def test_the_sequence_of_a_card_rises_across_restarts_and_clock_changes(rig: FeishuRig) -> None:
    posts = Memory()
    seen: list[int] = []
    for number in range(3):
        reply = rig.channel.reply(rig.thread(), Memory(rows=posts.rows))
        for words in (f"round {number}", f"round {number}, and on"):
            reply.show(Text(words, replace=True))
            await until(lambda: rig.visible() == [words])  # noqa: B023 — it is awaited here
            seen.append(card(rig).sequence)
        await reply.close()
        await rig.leave()
        await rig.back()
        await until(lambda: (time.time() - SEQUENCE_EPOCH) * 10 > card(rig).sequence + 1)  # a restart takes longer
    assert {call.status for call in rig.server.calls_of("card.")} == {200}
    card(rig).sequence += 6000  # as if the clock was ten minutes ahead
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("The end."))
    assert rig.visible() == ["The end."]
    assert sorted({*seen, card(rig).sequence}) == [*seen, card(rig).sequence]
    assert card(rig).sequence < 2**31
    assert 400 in {call.status for call in rig.server.calls_of("card.replace")}  # 300317, then a jump


async def test_a_card_whose_streaming_expired_is_still_updated(rig: FeishuRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("one "))
    await until(lambda: rig.visible() == ["one"])
    card(rig).json["config"]["streaming_mode"] = False  # automatic after ten minutes
    reply.show(Text("two "))
    await until(lambda: rig.visible() == ["one two"])
    reply.show(Text("three"))
    await until(lambda: rig.visible() == ["one two three"])
    await reply.finish(Final("one two three"))
    assert rig.visible() == ["one two three"]
    assert not card(rig).streaming


@pytest.mark.slow
async def test_card_updates_keep_the_rate_limit(rig: FeishuRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    for number in range(400):
        reply.show(Text(f"w{number} "))
        reply.show(Step(str(number % 3), f"step {number}"))
        await asyncio.sleep(0.005)
    await reply.finish(Final("done"))
    at = card(rig).at
    assert max(len([other for other in at if 0 <= moment - other < 1]) for moment in at) <= 10
    assert 429 not in {call.status for call in rig.server.calls}


async def test_more_than_five_tables_continue_in_another_card(rig: FeishuRig) -> None:
    tables = "\n\n".join(f"Table {n}\n\n| n | v |\n|---|--:|\n| {n} | x{n} |" for n in range(12))
    code = "```\n" + "| a | b |\n|---|---|\n" * 8 + "```"
    await rig.channel.reply(rig.thread(), Memory()).finish(Final(f"{code}\n\n{tables}"))
    assert len(rig.visible()) == 3
    whole = "\n\n".join(rig.visible())
    assert re.findall(r"\| (\d+) \| x\1 \|", whole) == [str(n) for n in range(12)]
    assert whole.count("| a | b |") == 8


@pytest.mark.parametrize(
    ("above", "kept"),
    [
        ("## Heading {n}\n\n", True),
        ("## Heading {n}\n", True),
        ("## Heading {n}\n### Lower\n\n\n", True),
        ("## Heading {n}\n\nThe figures of {n}:\n\n", True),
        ("**Heading {n}**\n\n", True),
        ("Heading {n}\n\n", True),
        ("- Heading {n}\n\n", False),
        ("first line\nHeading {n}\n\n", False),
    ],
)
async def test_a_table_in_another_card_keeps_what_names_it(rig: FeishuRig, above: str, kept: bool) -> None:
    tables = "\n\n".join(f"{above.format(n=n)}| n | v |\n|---|--:|\n| {n} | x{n} |" for n in range(7))
    await rig.channel.reply(rig.thread(), Memory()).finish(Final(tables))
    first, second = rig.visible()
    assert re.findall(r"\| (\d) \|", first) + re.findall(r"\| (\d) \|", second) == [*"0123456"]
    assert ("Heading 5" in second, "Heading 5" in first) == (kept, not kept)


async def test_a_card_has_at_most_thirty_kilobytes(rig: FeishuRig) -> None:
    words = " ".join(f"字{number}\\" for number in range(12_000))
    reply = rig.channel.reply(rig.thread(), Memory())
    for number in range(40):
        reply.show(Step(str(number), f"步骤 {number} " + "长" * 60, "done", "细节" * 40))
    reply.show(Text(words))
    await until(lambda: len(rig.visible()) >= 3)
    await reply.finish(Final(words))
    assert " ".join(" ".join(rig.visible()).split()) == words
    assert all(len(orjson.dumps(made.json)) <= CARD_BYTES for made in rig.server.cards.values())
    assert 400 not in {call.status for call in rig.server.calls}


async def test_a_mention_in_code_stays_as_it_is_and_notifies_nobody_elsewhere(rig: FeishuRig) -> None:
    code = '```xml\n<person name="x">\n  <at id=all></at>\n</person>\n```\n\nand `<person>`'
    await rig.channel.reply(rig.thread(), Memory()).finish(Final(f"{code}\n\n<at id=all></at>"))
    raw = str(card(rig).json["body"]["elements"][0]["content"])
    assert raw == f"{code}\n\n<\u200bat id=all><\u200b/at>"


@pytest.mark.parametrize(
    "text",
    [
        "\\`<at id=all></at>`",
        "a ` b\n\n<at id=all></at>\n\nc ` d",
        "- x\n  ```\n  code\n\n<at id=all></at>",
        "> ```\n> x\n<at id=all></at>",
        "``` `\n<at id=all></at>",
        "`` ` <at id=all></at>",
        "x\r```\r\r```\r<at id=all></at>",
    ],
)
def test_what_only_looks_like_code_notifies_nobody(text: str) -> None:
    [part] = render_final_cards(Final(text), "r1", direct=False)
    assert "<at" not in part.text


async def test_steps_notify_nobody(rig: FeishuRig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Step("1", "bash: echo '<at id=all></at>'"))
    await until(rig.visible)
    assert rig.pinged() == []
    await reply.close()


async def test_an_external_image_becomes_a_link_and_code_is_unchanged(rig: FeishuRig) -> None:
    text = "![a cat](https://x.org/cat.png) and `![x](y)`\n\n```\n![in](code)\n```"
    await rig.channel.reply(rig.thread(), Memory()).finish(Final(text))
    assert rig.visible() == [text.replace("![a cat]", "[a cat]")]


# Case 35 of docs/cases.md
async def test_a_question_is_answered_by_text_after_a_restart(rig: FeishuRig) -> None:
    asked = await rig.say("paint it", 7)
    question = Ask("ask-1", "Which colour?", ("red", "blue"))
    await rig.channel.reply(asked.thread, Memory(), to=asked.id).finish(Final("Which colour?", (question,)))
    assert "answer in your own words" in rig.visible(7)[0]
    await until(lambda: rig.server.reactions(asked.id) == [])  # it waits
    await rig.leave()
    await rig.back()
    answer = await rig.say("green", 7, mention=False)
    assert (answer.thread, answer.kind, answer.follow_up) == (asked.thread, Kind.CHAT, True)


async def test_a_click_is_answered_at_once_and_the_card_shows_the_choice(rig: FeishuRig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Which?", (Ask("ask-1", "Which?", ("red", "blue")),)))
    rig.press("red")
    await until(lambda: rig.server.answer(rig._event))
    answer = rig.server.answer(rig._event)
    assert answer
    assert answer["toast"] == {"type": "success", "content": "✓ red"}
    assert rig.visible() == ["Which?\n\n_Choose, or answer in your own words._\n\n✓ red (Jane)"]
    rig.box.refuses = lambda message: True
    await rig.channel.reply(rig.thread(), Memory("r2")).finish(Final("Again?", (Ask("ask-2", "Again?", ("no",)),)))
    rig.press("no")
    await until(lambda: rig.server.answer(rig._event))
    toast = rig.server.answer(rig._event)
    assert toast
    assert "person I asked" in toast["toast"]["content"]
    assert rig.buttons() == ["no"]


async def test_the_buttons_of_an_earlier_process_close_after_a_click(rig: FeishuRig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Which?", (Ask("ask-1", "Which?", ("red", "blue")),)))
    await rig.leave()
    await rig.back()
    await ready(rig)
    rig.press("red")
    await until(lambda: rig.visible()[0].endswith("✓ red (Jane)"))
    assert rig.server.answer(rig._event) == {"toast": {"type": "success", "content": "✓ red"}}
    assert rig.buttons() == []


async def test_after_a_restart_a_card_is_edited_in_place(rig: FeishuRig) -> None:
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("Half"))
    await until(lambda: rig.visible() == ["Half"])
    await reply.close()
    await rig.leave()
    await rig.back()
    again = rig.channel.reply(rig.thread(), Memory(rows=posts.rows))
    again.show(Text("Half of it"))
    await until(lambda: rig.visible() == ["Half of it"])
    await again.finish(Final("The whole."))
    assert rig.visible() == ["The whole."]
    assert len(rig.server.calls_of("message.send")) == 1
    assert rig._shown(0).id == (posts.rows[0] or "").partition("/")[0]


@pytest.mark.parametrize("code", [500, 502, 503, 504])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_first_post_answered_with_5xx_keeps_growing_in_the_message_people_see(
    rig: FeishuRig, code: int, restarts: bool
) -> None:
    posts = Memory()
    rig.server.fault("error", "message.send", code=code, after=True)
    first = rig.channel.reply(rig.thread(), posts)
    first.show(Text("Half"))
    await until(lambda: rig.visible() == ["Half"])
    if restarts:
        await until(lambda: posts.rows == {0: None})
        await first.close()
        await rig.leave()
        await rig.back()
        first = rig.channel.reply(rig.thread(), Memory(rows=posts.rows))
    first.show(Text("Half and more", replace=True))
    await until(lambda: rig.visible() == ["Half and more"])
    await first.finish(Final("The whole."))
    assert rig.visible() == ["The whole."]
    assert len(rig.server.cards) == 1


async def test_another_program_that_answers_with_the_same_app_is_noticed(tmp_path: Path) -> None:
    async with FeishuRig.start(tmp_path, shared_check_seconds=0.0) as rig:
        asked = await rig.say("what is it?", 7)
        await rig.channel.reply(asked.thread, Memory()).finish(Final("Mine."))
        await rig.channel.enrich(await heard(rig, "and more?", 7), 10)
        assert rig.channel.readiness().health is Health.READY
        root = rig.server.messages[rig.root(7)]
        rig.server.add(GROUP, APP, "text", {"text": "Not mine."}, **rig.server.reply_to(root, True))
        await rig.channel.enrich(await heard(rig, "who was that?", 7), 10)
        state = rig.channel.readiness()
        assert (state.health, "Another program" in state.detail) == (Health.DOWN, True)


async def test_an_own_post_that_is_still_under_way_is_no_sign_of_another_program(tmp_path: Path) -> None:
    """The history may show a message before the answer to its post arrives."""
    async with FeishuRig.start(tmp_path, shared_check_seconds=0.0) as rig:
        asked = await rig.say("what is it?", 7)
        rig.wire.fault("slow", "post", seconds=1.0, after=True)
        posting = asyncio.create_task(rig.channel.reply(asked.thread, Memory()).finish(Final("Mine.")))
        await until(lambda: "Mine." in "".join(rig.visible(7)), what="the message in the chat")
        await rig.channel.enrich(await heard(rig, "and more?", 7), 10)
        assert not posting.done()
        assert rig.channel.readiness().health is Health.READY
        await posting


async def test_pictures_are_one_message_and_other_files_one_each(rig: FeishuRig, tmp_path: Path) -> None:
    files = []
    for name in ("a.png", "b.png", "c.jpg", "d.csv", "e.csv"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n")
        files.append(OutgoingFile(tmp_path / name, name, 8, "the last" if name == "c.jpg" else ""))
    posts = Memory()
    for _ in range(2):  # the second call finds nothing left to send
        await rig.channel.send_files(rig.thread(), files, Memory(rows=posts.rows))
    assert [said.kind for said in rig.server.bot_messages(DIRECT, "")] == ["post", "file", "file"]
    assert len(rig.visible()) == 3
    assert "the last" in rig.visible()[0]


@pytest.mark.parametrize("restarts", [1, 2, 3])
async def test_restarts_while_a_post_is_unconfirmed_keep_its_card(rig: FeishuRig, restarts: int) -> None:
    posts = Memory()
    for number in range(restarts):
        rig.server.fault("error", "message.send", code=504, after=True)
        reply = rig.channel.reply(rig.thread(), Memory(rows=posts.rows))
        reply.show(Text(f"Part {number}"))
        await until(lambda: rig.visible() == [f"Part {number}"])  # noqa: B023 — awaited in the loop
        await reply.close()  # waits for the call under way
        assert posts.rows == {0: None}
        await rig.leave()
        await rig.back()
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("The whole."))
    assert rig.visible() == ["The whole."]
    assert len(rig.server.cards) == 1
    assert not rig.server.calls_of("message.recall")


async def test_an_outage_with_5xx_does_not_give_an_answer_up(rig: FeishuRig) -> None:
    rig.server.fault("error", "message.send", code=502, times=8)
    posts = Memory()
    for _ in range(8):
        with pytest.raises(OutcomeUnknown):
            await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("The whole."))
    await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(Final("The whole."))
    assert rig.visible() == ["The whole."]
    assert len(rig.server.cards) == 1


@pytest.mark.parametrize("state", ["failed", "stopped"])
async def test_a_failed_or_stopped_turn_is_not_marked_as_done(rig: FeishuRig, state: str) -> None:
    asked = await rig.say("do it")
    await until(lambda: rig.server.reactions(asked.id) == ["OnIt"])
    final = Final("It broke.", state=state)  # type: ignore[arg-type] # one of the states
    await rig.channel.reply(asked.thread, Memory(), to=asked.id).finish(final)
    await until(lambda: not rig.server.reactions(asked.id))
    await until(lambda: rig.server.calls_of("reaction.delete")[-1].status)
    assert len(rig.server.calls_of("reaction")) == 2  # added and taken off


async def test_in_a_direct_chat_a_ping_refers_to_its_message(rig: FeishuRig) -> None:
    asked = await rig.say("this takes long")
    await rig.channel.reply(asked.thread, Memory(), to=asked.id).finish(Final("It is done.", mention=JANE))
    assert rig._shown(0).parent == asked.id
    assert not rig._shown(0).thread
    assert rig.pinged() == []


async def test_a_reply_to_a_recalled_message_is_still_posted(rig: FeishuRig) -> None:
    root = await rig.say("begin", 7)
    further = await rig.say("and this", 7)
    rig.server.messages[further.id].deleted = True
    await rig.channel.reply(root.thread, Memory(), to=further.id).finish(Final("Here."))
    assert rig.visible(7) == ["Here."]
    rig.server.messages[root.thread.topic].deleted = True
    with pytest.raises(ChatGone):
        await rig.channel.reply(root.thread, Memory("r2"), to=further.id).finish(Final("Nowhere."))


# Case 61 of docs/cases.md
async def test_the_wait_requested_by_the_platform_is_kept(rig: FeishuRig) -> None:
    rig.server.fault("flood", "message.send", seconds=7)
    with pytest.raises(TryLater) as told:
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("Later."))
    assert told.value.after == 7


# Case 63 of docs/cases.md
@pytest.mark.slow
@pytest.mark.parametrize("cards", [True, False])
async def test_a_post_of_unknown_outcome_shows_the_latest_text_once(rig: FeishuRig, cards: bool) -> None:
    rig.server.denied |= set() if cards else {"card.create"}
    posts = Memory()
    rig.server.fault("drop", "message.send", after=True)
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text("Half"))
    await until(lambda: rig.visible() == ["Half"])
    await reply.close()
    assert posts.rows == {0: None}
    rig.server.fault("flood", "message.send", seconds=1)
    await deliver(rig, Final("The whole."), posts)
    assert rig.visible() == ["The whole."]
    assert not (cards and card(rig).streaming)
    await deliver(rig, Final("The whole truth."), posts)
    assert rig.visible() == ["The whole truth."]


# Case 70 of docs/cases.md
@pytest.mark.slow
async def test_complex_markdown_is_complete_despite_random_faults(rig: FeishuRig) -> None:
    rows = "\n".join(f"| {number} | 值 {number} |" for number in range(120))
    code = "\n".join(f"say({number})  # <@U1> @everyone" for number in range(120))
    items = "\n".join(f"- item {number}\n  - nested {number}" for number in range(300))
    fence = f"```python\n{code}\n```"
    text = f"# 标题\n\n| n | v |\n|---|---|\n{rows}\n\n{fence}\n\n{items}\n\n<at id=all></at> 完"
    for kind in ("flood", "error", "drop"):
        for method in ("card.create", "card.replace", "message.send"):
            rig.server.fault(kind, method, times=2, chance=0.5, seconds=0.2, after=kind == "drop")
    posts = Memory()
    reply = rig.channel.reply(rig.thread(), posts)
    reply.show(Text(text[:3000]))
    await asyncio.sleep(0.3)
    await reply.close()
    await deliver(rig, Final(text), posts)
    seen = "\n".join(rig.visible())
    assert re.findall(r"值 (\d+)", seen) == [str(number) for number in range(120)]
    assert re.findall(r"say\((\d+)\)", seen) == [str(number) for number in range(120)]
    assert re.findall(r"nested (\d+)", seen) == [str(number) for number in range(300)]
    assert all(shown.count("```") % 2 == 0 for shown in rig.visible())
    assert seen.endswith("<at id=all></at> 完")
    assert rig.pinged() == []


# ---------------------------------------------------------------- files


def copy(folder: Path, name: str, data: bytes = b"a,b\n", caption: str = "") -> OutgoingFile:
    path = folder / "copy"
    path.write_bytes(data)
    return OutgoingFile(path, name, len(data), caption)


async def test_an_image_is_sent_as_an_image_and_anything_else_as_a_file(rig: FeishuRig, tmp_path: Path) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(50)
    await rig.channel.send_files(rig.thread(), [copy(tmp_path, "图.png", png)], Memory("f1"))
    await rig.channel.send_files(rig.thread(), [copy(tmp_path, "fake.png", b"no picture")], Memory("f2"))
    await rig.channel.send_files(rig.thread(7), [copy(tmp_path, "报告.pdf", b"%PDF")], Memory("f3"))
    assert [said.kind for said in rig.server.bot_messages(DIRECT)] == ["image", "file"]
    assert rig.visible() == ["图.png", "fake.png"]
    assert rig.visible(7) == ["报告.pdf"]


async def test_an_empty_file_is_refused_with_a_reason(rig: FeishuRig, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"nothing\.txt: it is empty"):
        await rig.channel.send_files(rig.thread(), [copy(tmp_path, "nothing.txt", b"")], Memory())
    assert not rig.server.calls_of("file.")


async def test_a_missing_file_is_reported(rig: FeishuRig) -> None:
    rig.send_file("a.csv", b"a")
    [file] = (await rig.box.next()).attachments
    rig.server.files.clear()
    with pytest.raises(Refused, match=r"cannot be fetched.*File not in msg"):
        _ = [chunk async for chunk in rig.channel.fetch(file)]


# ---------------------------------------------------------------- context


async def test_names_come_with_the_message_or_from_the_directory_or_not_at_all(rig: FeishuRig) -> None:
    message = await rig.say("hello")
    for _ in range(2):
        assert (await rig.channel.enrich(message, 0)).author.name == "Jane"
    assert not rig.server.calls_of("message.get")
    assert len(rig.server.calls_of("user")) == 1
    rig.server.tells_names = False
    rig.server.send("and I", sender=KIM, chat=GROUP)
    assert (await rig.channel.enrich(await rig.box.next(2), 0)).author.name == "Kim"
    rig.server.denied |= {"message.get", "user"}
    other = rig.server.send("hi", sender="ou_unknown", chat=GROUP)
    message = await rig.box.next(3)
    assert message.id == other.id
    rig.server.denied.discard("message.get")
    assert (await rig.channel.enrich(message, 0)).author.name == "ou_unknown"


# Case 80 of docs/cases.md
async def test_the_text_at_the_start_of_the_answer_counts(rig: FeishuRig) -> None:
    message = await rig.say("what is 2+2?", 7)
    rig.server.edit(message.id, "@_user_1 what is 2+3?\nand 3+3?")
    message = replace(message, time=message.time - EDIT_SECONDS)  # Feishu sends no event: a message that waited is read
    assert (await rig.channel.enrich(message, 0)).text == "what is 2+3?\nand 3+3?"


async def test_a_click_names_the_person_who_clicked(rig: FeishuRig) -> None:
    await rig.channel.enrich(await rig.say("hello"), 0)
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("Which?", (Ask("ask-1", "Which?", ("red", "blue")),)))
    rig.press("red")
    click = await rig.channel.enrich(await rig.box.next(kind=Kind.CLICK), 0)
    assert (click.author.id, click.author.name, click.text) == (JANE, "Jane", "red")


# Case 82 of docs/cases.md
async def test_quoted_and_forwarded_messages_name_their_authors(rig: FeishuRig) -> None:
    theirs = rig.server.upload("plan.pdf", b"x", sender=KIM, silent=True)
    rig.server.send("what is this?", parent=theirs.id, in_thread=False)
    message = await rig.channel.enrich(await rig.box.next(), 10)
    assert [(quote.author, quote.text, quote.kind) for quote in message.quotes] == [("Kim", "plan.pdf", "reply")]
    assert [file.name for file in message.attachments] == ["plan.pdf"]
    assert b"".join([chunk async for chunk in rig.channel.fetch(message.attachments[0])]) == b"x"
    rig.server.forward("first", "second", author=KIM)
    bundle = await rig.channel.enrich(await rig.box.next(2), 10)
    assert [(quote.author, quote.text, quote.kind) for quote in bundle.quotes] == [
        ("Kim", "first", "forward"),
        ("Kim", "second", "forward"),
    ]
    await rig.channel.reply(rig.thread(), Memory()).finish(Final("My words."))
    rig.server.send("why?", parent=rig._shown(0).id, in_thread=False)
    assert (await rig.channel.enrich(await rig.box.next(3), 10)).quotes == ()


async def test_a_message_is_answered_without_access_to_the_history(rig: FeishuRig) -> None:
    rig.server.denied.add("message.get")
    message = await rig.say("hello", 7)
    with pytest.raises(Refused, match="scopes is required"):
        await rig.channel.enrich(message, 10)


def test_the_size_limit_leaves_space_for_the_card_frame() -> None:
    assert MAX_CARD_BYTES + 3_000 < CARD_BYTES
