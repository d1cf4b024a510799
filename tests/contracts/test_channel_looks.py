"""Contract of every channel: what stays of a turn's steps, the buttons Stop and Retry, and how an approval looks."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest

from agent.blocks import Approve, Ask, Block, Done, Failed, Final, Plan, PlanItem, Step, Text, View
from agent.messages import Kind
from channels.base import Receipt
from channels.shared.reply_layout import LABELS
from tests.support.rigs.registry import Memory, Rig, demanded, settled, until

DENIED = Step("4", "Task: #s=1 > a | b [c](d) 1. ~x~", "denied", "bash: #s=1 > a | b")
BLOCKS: tuple[Block, ...] = (
    Plan((PlanItem("look around", "done"), PlanItem("write it down", "done"))),
    Step("1", "Reading report.pdf", "done", "read_file: report.pdf"),
    Step("2", "Running *pytest* <@U1>", "failed", "bash: pytest -q *x* <@U1>"),
    Step("3", "Searching for §", "done", "grep: §"),
    DENIED,
    Text("All is well."),
)
SUMMARY = "4 steps, 1 failed, 1 denied · 3 min 20 s"


def final_of(*blocks: Block, seconds: float = 200.0) -> Final:
    """Return the final of a turn as the outbox stores it."""
    view = View()
    for block in blocks:
        view.add(block)
    final = view.final()
    return Final.load(Final(**{name: getattr(final, name) for name in final.__slots__} | {"seconds": seconds}).dump())


# ---------------------------------------------------------------- steps


@pytest.mark.parametrize(
    ("path", "topic"), [("streamed", 7), ("posted", 0), ("restarted", 7), ("restarted after the end", 0)]
)
@demanded("folds", "topics")
async def test_the_steps_of_an_ended_turn_stay_the_same_on_every_path(rig: Rig, path: str, topic: int) -> None:
    asked = await rig.say("work", topic)
    posts = Memory()
    if path != "posted":
        live = rig.channel.reply(asked.thread, posts, to=asked.id, asker=asked.author.id)
        for block in BLOCKS:
            live.show(block)
        await settled(rig, "All is well.", topic)
        if path != "restarted":
            await live.finish(final_of(*BLOCKS, Done()))
    if path.startswith("restarted"):
        await live.close()
        await rig.leave()
        await rig.back()
    reply = rig.channel.reply(asked.thread, Memory(rows=posts.rows), to=asked.id, asker=asked.author.id)
    await reply.finish(final_of(*BLOCKS, Done()))
    await until(lambda: rig.folded(topic), what="the steps")
    assert len(rig.visible(topic)) == 1
    lines = rig.folded(topic)
    assert lines[0] == f"✅ {SUMMARY}"
    steps = lines[-4:]
    assert [line[0] for line in steps] == ["✓", "✗", "✓", "✗" if rig.name == "slack" else "⊘"]
    titles = ("Reading report.pdf", "Running *pytest* <@U1>", "Searching for §", f"Denied: {DENIED.title}")
    assert all(title in line.replace("\u200b", "") for title, line in zip(titles, steps, strict=True))
    assert "look around" in lines[1]
    assert rig.pinged(topic) == []
    assert rig.buttons(topic) == []


@demanded("folds", "wire")
async def test_a_plain_final_has_the_summary_too(rig: Rig) -> None:
    reply = rig.channel.reply(rig.thread(), Memory())
    for block in BLOCKS:
        reply.show(block)
    await settled(rig, "All is well.")
    rig.wire.fault("error", "edit", times=2, code=400)
    await reply.finish(final_of(*BLOCKS, Done()))
    seen = "\n".join([*rig.visible(), *rig.folded()])
    assert "All is well." in seen
    assert SUMMARY in seen


@pytest.mark.parametrize(
    ("end", "mark"),
    [((Failed("The model is away."), Done("failed")), "❌"), ((Done("stopped"),), "⏹")],
    ids=["failed", "stopped"],
)
@demanded("folds")
async def test_a_turn_that_ended_early_says_so_with_and_without_steps(
    rig: Rig, end: tuple[Block, ...], mark: str
) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(final_of(Step("1", "Reading a.txt"), *end))
    await until(lambda: rig.folded())
    assert rig.folded()[0] == f"{mark} 1 step · 3 min 20 s"
    await rig.channel.reply(rig.thread(), Memory("r2")).finish(final_of(*end, seconds=8))
    await until(lambda: len(rig.visible()) == 2)
    assert f"{mark} 8 s" in "\n".join([rig.visible()[-1], *rig.folded()])


@demanded("folds")
async def test_an_answer_without_steps_has_no_mark(rig: Rig) -> None:
    await rig.channel.reply(rig.thread(), Memory()).finish(final_of(Text("42."), Done()))
    assert rig.visible() == ["42."]
    assert rig.folded() == []


@demanded("folds")
async def test_a_long_answer_after_many_steps_keeps_its_summary(rig: Rig) -> None:
    raw, title = "bash: " + "y" * 190, "Running part {} " + "x" * 60
    steps = [Step(str(number), title.format(number), "done", raw) for number in range(90)]
    words = [f"word{number}" for number in range(rig.channel.limits.text_limit // 4)]
    await rig.channel.reply(rig.thread(), Memory()).finish(final_of(*steps, Text(" ".join(words)), Done()))
    await until(lambda: rig.folded())
    assert rig.folded()[0] == "✅ 90 steps · 3 min 20 s"
    seen = "\n".join(rig.visible()).split()
    assert [word for word in seen if word.startswith("word")] == words


# ---------------------------------------------------------------- Stop and Retry


@demanded("commands", "topics")
@pytest.mark.parametrize("topic", [0, 7])
async def test_a_live_reply_has_a_stop_button_until_it_ends(rig: Rig, topic: int) -> None:
    asked = await rig.say("work", topic)
    reply = rig.channel.reply(asked.thread, Memory("r31"), to=asked.id, asker="" if rig.name == "slack" else "x")
    reply.show(Step("1", "Running pytest"))
    await until(lambda: rig.visible(topic) and rig.buttons(topic) == [LABELS["stop"]])
    rig.press(LABELS["stop"], topic)
    pressed = await rig.box.next(kind=Kind.COMMAND)
    assert (pressed.text, pressed.target, pressed.thread) == ("stop", "r31", asked.thread)
    assert pressed.author.id == asked.author.id
    assert pressed.to_bot
    assert pressed.reply_to
    await until(rig.felt)
    reply.show(Done("stopped"))
    await reply.finish(final_of(Step("1", "Running pytest"), Done("stopped")))
    assert rig.buttons(topic) == []


@demanded("commands")
async def test_an_answer_without_steps_has_no_stop_button(rig: Rig) -> None:
    """So the end of a short answer needs no edit that only takes a button away."""
    reply = rig.channel.reply(rig.thread(), Memory())
    reply.show(Text("All of it."))
    await settled(rig, "All of it.")
    assert rig.buttons() == []
    await reply.close()


@demanded("commands")
async def test_a_failure_offers_to_retry_once(rig: Rig) -> None:
    await rig.say("work")
    await rig.channel.reply(rig.thread(), Memory("r32")).finish(final_of(Failed("It broke."), Done("failed")))
    assert rig.buttons() == [LABELS["retry"]]
    rig.press(LABELS["retry"])
    pressed = await rig.box.next(kind=Kind.COMMAND)
    assert (pressed.text, pressed.target, pressed.thread) == ("retry", "r32", rig.thread())
    await until(rig.felt)
    await until(lambda: rig.buttons() == [])
    assert "It broke." in "\n".join(rig.visible())
    final = replace(final_of(Failed("It broke too."), Done("failed")), retry=False)
    await rig.channel.reply(rig.thread(), Memory("r34")).finish(final)
    await until(lambda: "It broke too." in "\n".join(rig.visible()))
    assert rig.buttons() == [], "there is nothing to repeat"


@demanded("commands")
async def test_a_refused_press_is_answered_and_keeps_the_button(rig: Rig) -> None:
    rig.box.refuses = lambda message: message.kind is Kind.COMMAND
    await rig.channel.reply(rig.thread(), Memory("r33")).finish(final_of(Failed("It broke."), Done("failed")))
    rig.press(LABELS["retry"])
    await until(lambda: rig.box.receipts == [Receipt.IGNORED])
    await until(rig.felt)
    assert rig.buttons() == [LABELS["retry"]]


# ---------------------------------------------------------------- approvals

CALL = 'bash\n{"command": "rm -rf *.txt && echo <@U1> `x` @everyone"}'


async def approve(rig: Rig, call: str = CALL) -> None:
    request = Approve("ap-1", "May I run `bash`?", call=call, hours=24.0, until=time.time() + 24 * 3600)
    await rig.channel.reply(rig.thread(), Memory("r9")).finish(final_of(request, Done("waiting")))


@demanded("styles")
async def test_the_buttons_of_an_approval_have_colours_and_others_do_not(rig: Rig) -> None:
    await rig.channel.reply(rig.thread(), Memory("r1")).finish(final_of(Ask("a", "Which?", ("red", "blue"))))
    assert rig.danger() == []
    await approve(rig)
    assert rig.buttons() == ["Approve", "Deny"]
    assert rig.danger() == ["Deny"]


@pytest.mark.parametrize(("press", "words"), [("Approve", "Approved by"), ("Deny", "Denied by")])
@demanded("buttons")
async def test_an_approval_shows_who_decided(rig: Rig, press: str, words: str) -> None:
    asked = await rig.say("delete it")
    await approve(rig)
    rig.press(press)
    click = await rig.box.next(kind=Kind.CLICK)
    assert (click.target, click.text) == ("ap-1", press)
    await until(lambda: words in "\n".join([*rig.visible(), *rig.labels()]), what=words)
    [line] = [line for text in [*rig.visible(), *rig.labels()] for line in text.split("\n") if words in line]
    assert any(name in line for name in (click.author.name, asked.author.id, "Jane"))
    assert rig.pinged() == []


@demanded("buttons")
async def test_an_approval_shows_the_exact_call_and_when_it_expires(rig: Rig) -> None:
    await approve(rig)
    seen = "\n".join(rig.visible())
    assert CALL in seen.replace("\u200b", "")
    assert "counts as denied" in seen
    assert rig.pinged() == []
    if "local_times" not in rig.can:
        assert "in 24 h" in seen


@demanded("local_times")
async def test_an_expiry_is_shown_in_the_time_zone_of_each_reader(rig: Rig) -> None:
    began = int(time.time())
    await approve(rig)
    [shown] = re.findall(r"\b(\d{10})\b", "\n".join(rig.visible()))
    assert began <= int(shown) - 24 * 3600 <= time.time() + 1  # the platform shows whole seconds


@demanded("buttons")
async def test_a_long_call_is_shown_in_part_and_named_as_a_file(rig: Rig) -> None:
    await approve(rig, "bash\n" + "x" * 9000)
    seen = "\n".join(rig.visible())
    assert 1000 < seen.count("x") < 2000
    assert "call.txt" in seen
