"""What is paid for beside the models of turns: voice messages and embeddings, in the budgets and in /usage."""

from __future__ import annotations

from aiohttp import web

from tests.e2e.conftest import Start
from tests.e2e.test_budgets import priced
from tests.e2e.test_memory import extracts
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.web_server import serve_site
from tests.unit.agent.test_transcription import ogg


async def test_voice_messages_count_and_are_refused_when_the_budget_is_used_up(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"text": "Water the plants", "usage": {"type": "duration", "seconds": 60}})

    async with serve_site() as site:
        site.pages["/v1/audio/transcriptions"] = answer
        voice = {"base_url": f"http://127.0.0.1:{site.port}/v1", "price_per_minute": 0.06}
        budgets = [{"scope": "model", "which": "whisper-1", "money": "0.05 USD"}]
        service = await start(**priced(model, voice=voice, budgets=budgets))
        telegram.send_voice(ogg(30))
        await telegram.wait(JANE, "Water the plants")
        await service.quiet()
        sql = "SELECT person, model, input, output, cost, price, open FROM usage WHERE kind='voice'"
        assert service.rows(sql) == [(f"telegram:{JANE}", "whisper-1", 600, 6, 60_000, "config", 0)]
        assert "Water the plants" in str(model.requests()[-1].messages)

        telegram.send_voice(ogg(30))
        shown = await telegram.wait(JANE, "I didn't transcribe voice")
        assert "The budget of this model, $0.0500 a month, is used up." in shown.text
        await service.quiet()
        assert len(site.requests) == 1
        assert "could not be transcribed" in str(model.requests()[-1].messages), "the agent has the file"
        assert len(service.rows(sql)) == 1

        telegram.send("/usage")
        shown = await telegram.wait(JANE, "Your usage")
        assert "whisper-1: $0.0600, 606 tokens in 1 call" in shown.text


async def test_a_voice_message_of_unknown_price_is_refused_under_a_budget_in_money(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    budgets = [{"scope": "everything", "money": "5 USD"}]
    service = await start(**priced(model, voice={"base_url": "http://127.0.0.1:9/v1"}, budgets=budgets))
    telegram.send_voice(ogg(30))
    shown = await telegram.wait(JANE, "I didn't transcribe voice")
    assert "I don't know what the model whisper-1 costs" in shown.text
    assert "price_per_minute" in shown.text
    await service.quiet()
    code, text = await service.fawn("check")
    assert "I don't know what the model whisper-1 costs" in text, (code, text)


async def test_embeddings_count_for_the_person_who_said_and_who_asks(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    said = "My Skoda is at the garage on Mondays"
    model.script = extracts({"text": "the Skoda is at the garage on Mondays", "kind": "context", "quote": said})

    async def embed(request: web.Request) -> web.Response:
        texts = (await request.json())["input"]
        rows = [{"index": number, "embedding": [1.0, 0.0]} for number in range(len(texts))]
        return web.json_response({"data": rows, "usage": {"prompt_tokens": 7, "total_tokens": 7}})

    async with serve_site() as site:
        site.pages["/v1/embeddings"] = embed
        endpoint = {
            "base_url": f"http://127.0.0.1:{site.port}/v1", "model": "tiny", "seconds": 20,
            "price_per_million_tokens": 1000,
        }  # fmt: skip
        budgets = [{"scope": "person", "period": "day", "money": "1 USD"}]
        memory = {"enabled": True, "wait_seconds": 0, "embeddings": endpoint}
        service = await start(**priced(model, memory=memory, budgets=budgets))
        telegram.send(said)
        await telegram.wait(JANE, "You said")
        await until(lambda: service.rows("SELECT 1 FROM memory"), what="the memory")
        await until(lambda: not service.rows("SELECT 1 FROM memory_queue"), what="an empty queue")
        await service.restart()  # embeds at the start what has no vector
        await until(lambda: service.rows("SELECT 1 FROM memory_vectors"), what="the vector")
        sql = "SELECT person, model, input, cost, open, run>0 FROM usage WHERE kind='embedding' ORDER BY id"
        row = (f"telegram:{JANE}", "tiny", 7, 7000, 0)
        assert service.rows(sql) == [(*row, 1), (*row, 0)], "of the request, and of the fact"
        [(money, spent)] = service.rows("SELECT money, (SELECT sum(cost) FROM usage) FROM budgets")
        assert money == spent


async def test_usage_charts_tokens_where_no_price_is_known(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(sandbox={"provider": "none"})
    telegram.send("hello")
    await telegram.wait(JANE, "hello")
    await service.quiet()
    telegram.send("/usage")
    await telegram.wait(JANE, "Your usage")
    await until(lambda: "usage.png" in [each.file_name for each in telegram.visible(JANE)], what="the chart")
