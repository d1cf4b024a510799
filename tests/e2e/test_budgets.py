"""Budgets as people meet them: refusals, kill -9 during a call, /usage; and who is served first when all is busy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_audit import rows_of
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask


def priced(model: FakeModel, **more: Any) -> dict[str, Any]:
    """Settings with one model: a dollar for a million tokens of input, two for output."""
    entry = {
        "name": "main",
        "use": "langchain_openai:ChatOpenAI",
        "model": "any",
        "base_url": f"{model.base_url}/v1",
        "api_key": "$OPENAI_API_KEY",
        "price": {"input": 1, "output": 2},
    }
    return {"models": [entry], "sandbox": {"provider": "none"}, "time_zone": "Europe/Berlin", **more}


def spent(service: Service) -> list[tuple[Any, ...]]:
    return service.rows("SELECT person, input, output, cost, open FROM usage ORDER BY id")


async def test_a_call_that_kill_9_interrupts_counts_with_its_input_once(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**priced(model, budgets=[{"scope": "person", "period": "day", "money": "1 USD"}]))
    telegram.send(ask(text="the answer", delay_ms=3000))
    await until(lambda: model.requests(), what="the model call")
    [(person, tokens, output, cost, is_open)] = spent(service)
    assert (person, output, cost, is_open) == (f"telegram:{JANE}", 0, tokens, 1)
    assert tokens > 1000, "prompt and tools"
    await service.restart()
    await telegram.wait(JANE, "the answer")
    await service.quiet()
    first, second = spent(service)
    assert first == (person, tokens, 0, tokens, 0), "what the dead process had sent"
    assert (second[0], second[4]) == (person, 0)
    assert second[3] == second[1] + 2 * second[2]
    [(money, held)] = service.rows("SELECT money, (SELECT coalesce(sum(money), 0) FROM budget_holds) FROM budgets")
    assert (money, held) == (first[3] + second[3], 0)


async def test_a_stopped_or_cut_answer_costs_what_came(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    """Otherwise, who stops before the last word passes every budget."""
    budgets = [{"scope": "person", "period": "day", "money": "1 USD"}]
    service = await start(**priced(model, budgets=budgets))
    telegram.send(ask(tokens=4000, word="stopped", tok_ms=1))
    await telegram.wait(JANE, "stopped200")
    telegram.send("/stop")
    await telegram.wait(JANE, "Stopped.")
    await service.quiet()
    telegram.send(ask(tokens=800, word="cut", tok_ms=1, cut_at=600))
    await telegram.wait(JANE, "cut799")
    await service.quiet()
    assert len(spent(service)) == 3, "stopped, cut, and the second try"
    for _, tokens, output, cost, is_open in spent(service):
        assert output >= 200, "the words that were on the screen"
        assert (cost, is_open) == (tokens + 2 * output, 0)
    [(money, held)] = service.rows("SELECT money, (SELECT coalesce(sum(money), 0) FROM budget_holds) FROM budgets")
    assert (money, held) == (sum(cost for *_, cost, _ in spent(service)), 0)


async def test_a_stopped_answer_counts_without_budgets_too(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**priced(model))
    telegram.send(ask(tokens=4000, tok_ms=1))
    await telegram.wait(JANE, "w200")
    telegram.send("/stop")
    await telegram.wait(JANE, "Stopped.")
    await service.quiet()
    [(_, tokens, output, *_)] = spent(service)
    assert tokens > 1000
    assert output >= 200


async def test_kill_9_again_and_again_never_makes_a_budget_last_longer(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """Every interrupted attempt counts: a crash loop ends at the budget."""
    budgets = [{"scope": "person", "period": "day", "tokens": 10_000}]
    service = await start(**priced(model, budgets=budgets, limits={"attempts": 50}))
    telegram.send(ask(text="never", delay_ms=60_000))
    for attempt in range(1, 50):
        await until(lambda: len(model.requests()) >= attempt or "used up" in str(said(telegram)), what="a call")  # noqa: B023 — awaited in the round
        if "used up" in str(said(telegram)):
            break
        await service.restart()
    shown = await telegram.wait(JANE, "Your budget of 10,000 tokens a day is used up")
    assert "It is renewed at" in shown.text
    counted = [tokens for _, tokens, *_ in spent(service)]
    assert len(counted) == len(model.requests())
    assert sum(counted[:-1]) < 10_000 <= sum(counted)


def said(telegram: FakeTelegram) -> list[str]:
    return [message.text for message in telegram.visible(JANE) if message.by_bot]


async def test_32_turns_with_sub_agents_pass_a_budget_by_one_call_at_most(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """In Chinese, which has more tokens than letters of English, with streams that are cut, and over a kill -9."""
    limit, turns = 150_000, 32
    settings = priced(model, budgets=[{"scope": "everything", "tokens": limit}], limits={"live_turns": turns})
    settings["models"][0]["options"] = {"max_tokens": 500}
    service = await start(**settings)
    for person in range(turns):

        def task(number: int, person: int = person) -> dict[str, Any]:
            answer = ask(id=f"{person}-{number}", tokens=400, word="预算不能", cut_at=20 if number == 1 else -1)
            args = {"description": str(number), "prompt": answer, "kind": "general-purpose", "after": []}
            return {"name": "task", "args": args}

        steps = [{"calls": [task(number) for number in range(3)]}]
        telegram.send(ask(steps=steps, tokens=100, word="都完成了", id=str(person)), chat=1000 + person)
    await until(lambda: len(model.requests()) >= 12, what="the first calls")
    await service.restart()

    def is_over() -> bool:
        [(money, held)] = service.rows(
            "SELECT tokens, (SELECT coalesce(sum(tokens), 0) FROM budget_holds) FROM budgets"
        ) or [(0, 0)]
        return (money or 0) >= limit and held == 0 and not service.rows("SELECT 1 FROM runs WHERE finished IS NULL")

    await until(is_over, 90, "the end of the budget and of all turns")
    await service.quiet()
    counted = [tokens + output for _, tokens, output, *_ in spent(service)]
    [(booked,)] = service.rows("SELECT tokens FROM budgets")
    assert booked == sum(counted)
    assert limit <= booked < limit + max(counted)


async def test_a_used_up_budget_refuses_in_words_and_usage_shows_it(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """The warning comes with the answer, the refusal without a model call; others go on; /usage shows the costs."""
    budgets = [
        {"scope": "person", "period": "day", "tokens": 3_000},
        {"scope": "everything", "money": "5 USD"},
    ]
    service = await start(**priced(model, budgets=budgets))
    telegram.send(ask(text="the answer"))
    shown = await telegram.wait(JANE, "the answer")
    await telegram.wait(JANE, "More than 80 % of your budget of 3,000 tokens a day is used. It is renewed at")
    await service.quiet()
    telegram.send("one more")
    shown = await telegram.wait(JANE, "Your budget of 3,000 tokens a day is used up.")
    assert "An operator can raise it" in shown.text
    assert len(model.requests()) == 1
    telegram.send("hello", chat=77)
    await telegram.wait(77, "hello")
    [(first, tokens), _] = service.rows("SELECT cost, input+output FROM usage ORDER BY id")
    telegram.send("/usage")
    shown = await telegram.wait(JANE, "Your usage")
    assert f"today: ${first / 1e6:.4f}, {tokens:,} tokens in 1 call" in shown.text
    assert "0 tokens of 3,000 tokens a day are left until" in shown.text
    assert "main" in shown.text
    await until(lambda: "usage.png" in [each.file_name for each in telegram.visible(JANE)], what="the chart")
    telegram.send("/usage team")
    await telegram.wait(JANE, "doesn't let you use /usage team")
    await service.quiet()
    rows = await rows_of(service)
    [refused] = [row for row in rows if row["kind"] == "budget.refused"]
    assert (refused["who"], refused["result"]) == (f"telegram:{JANE}", "refused")
    assert (refused["what"]["scope"], len(refused["what"]["period"])) == ("person", len("2026-11-23"))
    ended = {row["who"]: row["cost"] for row in rows if row["kind"] == "turn.ended" and row.get("cost")}
    assert ended[f"telegram:{JANE}"] == first, "what the turn cost stands in the row of its end"


async def test_the_team_s_usage_is_for_operators(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    access = {"open": True, "operators": [str(JANE)]}
    service = await start(**priced(model, channels={"telegram": {"access": access}}))
    for chat in (JANE, 78):
        telegram.send(f"hello {chat}", chat=chat)
        await telegram.wait(chat, f"hello {chat}")
    await service.quiet()
    assert all(cost for _, _, _, cost, _ in spent(service)), "priced without a budget, too"
    telegram.send("/usage team")
    shown = await telegram.wait(JANE, "The usage of everybody")
    assert "2 calls" in shown.text
    assert "This month by person" in shown.text


async def test_the_right_usage_decides_who_sees_the_team_s_usage(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    roles = [{"name": "auditor", "rights": ["usage"]}, {"name": "helper", "rights": ["talk", "operate"]}]
    assigned = [{"role": "auditor", "who": [str(JANE)]}, {"role": "helper", "who": ["78"]}]
    access = {"telegram": {"access": {"open": True, "roles": assigned}}}
    service = await start(**priced(model, team={"roles": roles}, channels=access))
    for chat, words in ((JANE, "The usage of everybody"), (78, "doesn't let you use /usage team")):
        telegram.send("/usage team", chat=chat)
        await telegram.wait(chat, words)
    await service.quiet()


async def test_a_message_above_the_rate_is_refused_with_the_time(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    limits = [{"scope": "person", "count": 2, "seconds": "1h"}]
    service = await start(**priced(model, rate_limits=limits))
    for text in ("first", "second", "third", "fourth"):
        telegram.send(text)
        if text in ("first", "second"):
            await telegram.wait(JANE, text)
            await service.quiet()
    await telegram.wait(JANE, "You may send 2 messages in 1 h")
    telegram.send("hello", chat=77)
    await telegram.wait(77, "hello")
    await service.quiet()
    assert len([text for text in said(telegram) if "You may send" in text]) == 1, "one notice until there is room"
    assert len(model.requests()) == 3
    telegram.send("/status")
    await telegram.wait(JANE, "All is well")


@pytest.mark.usefixtures("bubblewrap")
async def test_a_tool_above_its_rate_is_not_called(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(**priced(model, rate_limits=[{"scope": "tool", "which": "ls", "count": 1}]))
    steps = [
        {"calls": [{"name": "ls", "args": {"path": path}}]} for path in ("/mnt/user-data/outputs", "/mnt/user-data")
    ]
    telegram.send(ask(steps=steps, text="looked twice"))
    await telegram.wait(JANE, "looked twice")
    await service.quiet()
    results = [message["content"] for message in model.requests()[-1].messages if message["role"] == "tool"]
    assert "ls was not called: it has reached its rate limit. It may be called again in" in results[1]
    assert "not called" not in results[0]


@pytest.mark.usefixtures("bubblewrap")
async def test_a_restart_does_not_renew_rate_limits(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    limits = [{"scope": "person", "count": 3, "seconds": "1h"}, {"scope": "tool", "which": "ls", "count": 1}]
    service = await start(**priced(model, rate_limits=limits))
    calls = [{"calls": [{"name": "ls", "args": {"path": "/mnt/user-data"}}]}]
    telegram.send(ask(steps=calls, text="looked"))
    await telegram.wait(JANE, "looked")
    telegram.send("/goal")  # shows how it is used, which does not count
    await telegram.wait(JANE, "works in rounds")
    await service.quiet()
    await service.restart()
    telegram.send(ask(steps=calls, text="looked again"))
    await telegram.wait(JANE, "looked again")
    await service.quiet()
    results = [message["content"] for message in model.requests()[-1].messages if message["role"] == "tool"]
    assert "ls was not called: it has reached its rate limit" in results[-1]
    telegram.send("third")
    await telegram.wait(JANE, "third")
    await service.quiet()
    await service.restart()
    telegram.send("fourth")
    await telegram.wait(JANE, "You may send 3 messages in 1 h")
    await service.quiet()


async def test_one_person_with_many_threads_does_not_starve_another(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """Two places; Jane fills them and queues 20 more threads. Bob asks last and has the next free place."""
    service = await start(**priced(model, limits={"live_turns": 2}))
    for number in range(22):
        telegram.send(ask(text=f"jane {number}", delay_ms=400), topic=number + 10)
    await until(lambda: len(service.rows("SELECT 1 FROM conversations WHERE pending>0")) >= 15, what="a queue")
    telegram.send(ask(text="bob is served"), chat=77)
    await telegram.wait(77, "bob is served")
    waiting = service.rows("SELECT count(*) FROM conversations WHERE pending>0")[0][0]
    assert waiting >= 8, "most of Jane's threads came before Bob's, and still wait"
    await service.quiet(90)  # Telegram takes one message a second in a chat


async def test_background_work_over_budget_is_skipped(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    """The title becomes the first words, and nothing is remembered; nobody is bothered, and nothing is retried."""
    budgets = [{"scope": "person", "period": "day", "tokens": 3_000}]
    more = {"budgets": budgets, "roles": {"title": "main"}, "memory": {"enabled": True, "wait_seconds": 0}}
    service = await start(**priced(model, **more))
    telegram.send("I always want my reports as spreadsheets, never as documents")
    await telegram.wait(JANE, "More than 80 %")
    await service.quiet()
    await until(lambda: not service.rows("SELECT 1 FROM jobs WHERE kind IN ('title', 'memory')"), what="the jobs")
    assert service.rows("SELECT title FROM conversations") == [
        ("I always want my reports as spreadsheets, never as documents",)
    ]
    assert [kind for (kind,) in service.rows("SELECT kind FROM usage")] == ["turn"]
    assert len(model.requests()) == 1
    assert len(said(telegram)) == 1
