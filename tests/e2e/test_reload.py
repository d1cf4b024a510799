"""Reload: sections take effect without a restart, faults are refused, and running turns and open questions survive."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.admin.service_client import call_service
from tests.e2e.conftest import Start
from tests.e2e.test_audit import rows_of
from tests.e2e.test_mcp import calls, processes, question, server
from tests.e2e.test_permissions import press
from tests.e2e.test_probes import address_of
from tests.e2e.test_skills import write_skill
from tests.e2e.test_subagents import WAIT
from tests.fakes.model import FakeModel, Request
from tests.fakes.server import until
from tests.fakes.telegram import JANE, TOKEN, FakeTelegram
from tests.support.service_process import Service, ask, said

EVE = 78
OPERATED = {"telegram": {"access": {"open": True, "operators": [str(JANE)]}}}


def entry(service: Service, name: str, **more: Any) -> dict[str, Any]:
    """Return an entry of `models`, over the fake model."""
    url, use = f"{service.model.base_url}/v1", "langchain_openai:ChatOpenAI"
    return {"name": name, "use": use, "model": name, "base_url": url, "api_key": "$OPENAI_API_KEY", **more}


async def reload(service: Service, **settings: Any) -> dict[str, Any]:
    """Write the configuration and reload it, as `fawn reload` does; return the outcome."""
    service.configure(settings)
    outcome = await call_service(service.data, "reload", {})
    assert not outcome.get("error", outcome.get("faults")), outcome
    return outcome


async def printed(service: Service, code: int = 0, **settings: Any) -> str:
    """Write the configuration and return what `fawn reload` prints."""
    service.configure(settings)
    found, text = await service.fawn("reload")
    assert found == code, text
    return text


async def answered(telegram: FakeTelegram, service: Service, text: str, **directive: Any) -> Request:
    """Send a request, wait for its answer, and return what the model got last."""
    telegram.send(ask(text=text, **directive))
    await telegram.wait(JANE, text)
    await service.quiet()
    return service.model.requests()[-1]


def tools_of(request: Request) -> set[str]:
    return {tool["function"]["name"] for tool in request.tools}


async def test_sections_take_effect_with_the_next_turn(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    service = await start(channels=OPERATED)
    before = await answered(telegram, service, "first")
    assert {"web_fetch", "web_search", "schedule", "memory"} & tools_of(before) == {"web_fetch", "schedule"}
    write_skill(tmp_path / "more", "add-numbers")
    outcome = await reload(
        service,
        models=[entry(service, "main"), entry(service, "other")],
        roles={"lead": "other"},
        prompt={"extend": "Mention the otters."},
        permissions={"deny": ["write_file"]},
        team={"roles": [{"name": "guest", "rights": []}]},
        web={"fetch": False, "search": [{"provider": "searxng", "url": "http://127.0.0.1:9/"}]},
        voice={"base_url": "http://127.0.0.1:9/v1"},
        agents=[{"name": "poet", "prompt": "You write poems."}],
        skills={"folders": [str(tmp_path / "more" / "skills" / "custom")]},
        limits={"live_turns": 3},
        budgets=[{"scope": "everything", "tokens": "2M", "period": "day"}],
        rate_limits=[{"scope": "person", "count": 20, "seconds": 60}],
        memory={"enabled": True, "wait_seconds": 3600},
        schedules={"per_person": 0},
        time_zone="Asia/Tokyo",
        keep_days=7,
        log={"format": "json"},
        channels={"telegram": {"access": {"open": False, "allow": [str(JANE)], "operators": [str(JANE)]}}},
    )
    assert outcome["not_applied"] == []
    after = await answered(telegram, service, "second")
    assert after.body["model"] == "other"
    assert "Mention the otters." in str(after.messages[0]["content"])
    assert "add-numbers" in str(after.messages[0]["content"])
    assert {"web_fetch", "web_search", "schedule", "memory", "write_file"} & tools_of(after) == {"web_search", "memory"}
    telegram.send("hello", chat=EVE)
    await telegram.wait(EVE, "I don't know you yet")
    telegram.send("/agents poet")
    await telegram.wait(JANE, "the agent poet answers")
    assert service.log().splitlines()[-1].startswith('{"time')
    [changed] = await rows_of(service, "--kind", "budget.changed")
    assert changed["what"]["budgets"], "a digest of the new budgets"
    for section in ("models", "roles", "prompt", "permissions", "team", "web", "voice", "agents", "skills", "access"):
        assert section in outcome["changed"]


async def test_what_is_built_once_is_named_and_stays(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(sandbox={})
    text = await printed(
        service,
        prompt={"extend": "Otters."},
        sandbox={"memory_mb": 512},
        catch_up={"hours": 1},
        channels={"console": {}},
    )
    assert text.splitlines() == [
        "The configuration is reloaded. Changed: prompt.",
        "A restart is needed for: sandbox, catch_up, channels.console.",
    ]
    assert "Otters." in str((await answered(telegram, service, "still here")).messages[0]["content"])
    text = await printed(service, prompt={"extend": "Otters."})
    assert text == "The configuration is reloaded. No section has changed.\n"


@pytest.mark.usefixtures("bubblewrap")
async def test_push_and_tasks_take_effect_and_faulty_ones_are_refused(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(tasks={"per_thread": 0})
    assert "background_tasks" not in tools_of(await answered(telegram, service, "first"))
    bark = "/notify bark https://bark.example/key7"
    telegram.send(bark)
    await telegram.wait(JANE, "isn't allowed here")
    outcome = await reload(service, tasks={"per_thread": 2}, push={"bark_servers": ["https://bark.example"]})
    assert (sorted(outcome["changed"]), outcome["not_applied"]) == (["push", "tasks"], [])
    for settings, fault in (
        ({"tasks": {"per_thread": -1}}, "tasks.per_thread"),
        ({"push": {"targets": [{"name": "ops", "url": "$NOT_SET"}]}}, "$NOT_SET is not set"),
    ):
        assert fault in await printed(service, 2, **settings)
    assert "background_tasks" in tools_of(await answered(telegram, service, "second"))
    telegram.send(bark)
    await telegram.wait(JANE, "Pings go to your Bark.")


async def test_faults_are_refused_and_the_old_configuration_stays(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(prompt={"extend": "Otters."})
    wrong = entry(service, "main", use="langchain_openai:NoSuchModel")
    for settings, fault in (
        ({"models": [entry(service, "main", api_key="$NOT_SET")]}, "$NOT_SET is not set"),
        ({"models": [wrong]}, "does not have a chat model of that name"),
        ({"prompt": {"file": "gone.md"}}, "gone.md"),
    ):
        assert fault in await printed(service, 2, **settings)
    assert "Otters." in str((await answered(telegram, service, "as before")).messages[0]["content"])
    (service.folder / "config.yaml").write_text("config_version: 1\nmodels: [")
    assert service.process
    service.process.send_signal(signal.SIGHUP)
    await until(lambda: "YAML syntax" in service.log(), what="the refusal in the log")
    await answered(telegram, service, "and still")
    assert service.log().count("config.refused") >= 3, "a file that is gone, `fawn reload` sees itself"
    service.configure({})
    assert len(await rows_of(service, "--kind", "config.changed")) == 0


async def test_a_signal_reads_the_environment_file_again(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("MODEL_KEY=sk-old-0123456789abcdef\n")
    url = f"{model.base_url}/v1"
    one = {"name": "main", "use": "langchain_openai:ChatOpenAI", "model": "any", "base_url": url}
    service = await start(models=[{**one, "api_key": "$MODEL_KEY"}])
    assert (await answered(telegram, service, "old")).headers["Authorization"] == "Bearer sk-old-0123456789abcdef"
    (tmp_path / ".env").write_text("MODEL_KEY=sk-new-0123456789abcdef\n")
    assert service.process
    service.process.send_signal(signal.SIGHUP)
    await until(lambda: "config.reloaded" in service.log(), what="the reload")
    assert (await answered(telegram, service, "new")).headers["Authorization"] == "Bearer sk-new-0123456789abcdef"
    assert "0123456789abcdef" not in service.log()
    [row] = await rows_of(service, "--kind", "config.changed")
    assert (row["what"]["via"], row["what"]["changed"]) == ("signal", "models")
    assert len(row["what"]["file"]) == 64


async def test_a_running_turn_keeps_its_model_and_its_server(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    allowed = {"permissions": {"allow": ["mcp__*"], "outward": "allow"}}
    service = await start(mcpServers={"modern": server("modern", tmp_path)}, **allowed)
    telegram.send(ask(steps=[calls("mcp__modern__wait", seconds=4)], text="waited for it"))
    await until(lambda: (tmp_path / "notes").exists(), what="the call")
    [pid] = processes(str(tmp_path / "notes"))
    await reload(service, models=[entry(service, "other")], **allowed)
    assert "waited for it" not in str(said(telegram, JANE)), "the turn still works"
    await telegram.wait(JANE, "waited for it")
    assert model.requests()[-1].body["model"] == "any"
    assert "waited" in str([m["content"] for m in model.requests()[-1].messages if m["role"] == "tool"])
    await until(lambda: pid not in processes(str(tmp_path / "notes")), what="the end of the removed server")
    after = await answered(telegram, service, "next")
    assert (after.body["model"], "mcp__modern__wait" in tools_of(after)) == ("other", False)


async def test_a_server_with_the_same_settings_keeps_running(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path
) -> None:
    allowed, name = {"permissions": {"allow": ["mcp__*"], "outward": "allow"}}, str(tmp_path / "notes")
    modern, old = server("modern", tmp_path), server("old", tmp_path)
    service = await start(mcpServers={"modern": modern}, **allowed)
    await answered(telegram, service, "one", steps=[calls("mcp__modern__note", text="one")])
    [pid] = processes(name)
    for _ in range(2):
        await reload(service, mcpServers={"modern": modern, "old": old}, prompt={"extend": "Otters."}, **allowed)
    assert processes(name) == [pid]
    await answered(telegram, service, "two", steps=[calls("mcp__modern__note", text="two")])
    assert len(processes(name)) == 2
    await reload(service, mcpServers={"modern": {**modern, "tools": ["put"]}}, **allowed)
    after = await answered(telegram, service, "three", steps=[calls("mcp__modern__put", text="three")])
    assert {tool for tool in tools_of(after) if tool.startswith("mcp__")} == {"mcp__modern__put"}
    [other] = processes(name)
    assert other != pid
    assert (tmp_path / "notes").read_text().split() == ["one", "two", "three"]
    await service.stop()
    await until(lambda: not processes(name), what="the end of the server")


async def test_open_questions_survive(telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path) -> None:
    servers = {"mcpServers": {"modern": server("modern", tmp_path)}}
    service = await start(**servers)
    telegram.send(ask(steps=[calls("mcp__modern__paint", wall="north")], text="painted"))
    approval = await question(telegram, service, "May I run mcp__modern__paint?")
    await reload(service, prompt={"extend": "Otters."}, **servers)
    press(telegram, approval, "Approve")
    await question(telegram, service, "The server “modern” asks: ")
    await reload(service, prompt={"extend": "Beavers."}, **servers)
    telegram.send("dark green")
    await telegram.wait(JANE, "painted")
    assert (tmp_path / "notes").read_text() == "north dark green\n"


async def test_an_operator_reloads_in_the_chat(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(channels=OPERATED)
    telegram.send("/reload", chat=EVE)
    await telegram.wait(EVE, "doesn't let you use /reload")
    service.configure({"channels": OPERATED, "agents": [{"name": "poet", "prompt": "Poems."}], "language": "zh"})
    telegram.send("/reload")
    await telegram.wait(JANE, "The configuration is reloaded. Changed: agents. A restart is needed for: language.")
    service.configure({"channels": OPERATED, "goal": {"rounds": 0}})
    telegram.send("/reload")
    await telegram.wait(JANE, "The new configuration has faults. The one before stays in force.")
    assert "goal.rounds" in said(telegram, JANE)[-1]
    await service.quiet()
    service.configure({})
    [row] = await rows_of(service, "--kind", "config.changed")
    assert (row["who"], row["what"]["changed"]) == (f"telegram:{JANE}", "agents")


async def test_a_start_and_a_reload_name_what_a_budget_would_refuse(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    budget = {"budgets": [{"scope": "everything", "money": "5 USD"}]}
    service = await start(**budget)
    note = "config.note subject=budgets"
    await until(lambda: note in service.log(), what="the note of the start")
    assert await reload(service)
    assert service.log().count(note) == 1, "without a budget nothing is checked"
    await reload(service, **budget)
    assert service.log().count(note) == 2


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("kept", ["$THE_TOKEN", "$file:token"])
async def test_a_new_token_connects_that_channel_anew_and_nothing_is_lost(
    telegram: FakeTelegram, model: FakeModel, start: Start, tmp_path: Path, kept: str
) -> None:
    new, env = "123456:A-NEW-TOKEN", tmp_path / (".env" if kept == "$THE_TOKEN" else "token")
    form = "THE_TOKEN={}\n" if kept == "$THE_TOKEN" else "{}\n"
    env.write_text(form.format(TOKEN))
    settings = {"telegram": {**OPERATED["telegram"], "token": kept}}
    service = await start(channels=settings)
    await answered(telegram, service, "first")
    telegram.send(ask(text="across", id="across", steps=[WAIT]))
    await until(lambda: any(request.id == "across" for request in model.requests()), what="the turn")
    env.write_text(form.format("123456:NOT-THE-TOKEN"))
    code, text = await service.fawn("reload")
    assert (code, "channels.telegram: Telegram rejects the bot's token" in text) == (2, True), text
    telegram.token = new  # as BotFather's /revoke: the old one is refused from now on
    telegram.send(ask(text="meanwhile"), chat=EVE)
    [workspace] = service.data.glob("threads/*/workspace")
    (workspace / "go").touch()
    await until(lambda: "outbox.later" in service.log(), what="an answer that the old token cannot post")
    env.write_text(form.format(new))
    code, text = await service.fawn("reload")
    assert (code, "Changed: channels.telegram." in text) == (0, True), text
    for chat, words in ((EVE, "meanwhile"), (JANE, "across")):
        await telegram.wait(chat, words, seconds=60)
    await service.quiet()
    assert await answered(telegram, service, "afterwards")
    shown = [*said(telegram, JANE), *said(telegram, EVE)]
    for words in ("first", "across", "meanwhile", "afterwards"):
        assert sum(words == text for text in shown) == 1, shown
    assert new not in service.log()


async def test_a_hook_is_added_changed_and_removed(telegram: FakeTelegram, start: Start) -> None:
    """Its address answers as the configuration in force says; the listener stays open."""
    http = {"listen": "127.0.0.1:0"}
    hook = {"to": f"telegram/{TOKEN.partition(':')[0]}/{JANE}", "as": f"@{JANE}", "signature": "bearer", "prompt": ""}
    service = await start(channels=OPERATED, http=http)
    await until(lambda: bool(address_of(service)), what="the listener")
    address = address_of(service)

    async def post(title: str, secret: str, name: str = "alerts") -> int:
        headers = {"Authorization": f"Bearer {secret}"}
        url = f"{address}/hooks/{name}"
        async with (
            aiohttp.ClientSession() as sender,
            sender.post(url, json={"title": title}, headers=headers) as answer,
        ):
            return answer.status

    def hooks(**more: Any) -> dict[str, Any]:
        return {"channels": OPERATED, "http": http, "hooks": {"alerts": {**hook, "secret": "the-first-secret", **more}}}

    assert await post("before", "the-first-secret") == 404
    assert "hooks" in (await reload(service, **hooks()))["changed"]
    assert await post("added", "the-first-secret") == 202
    await telegram.wait(JANE, "added")
    assert "hooks" in (await reload(service, **hooks(secret="the-second-secret")))["changed"]
    assert await post("with the old secret", "the-first-secret") == 401
    assert await post("changed", "the-second-secret") == 202
    await telegram.wait(JANE, "changed")
    assert "hooks" in (await reload(service, channels=OPERATED, http=http))["changed"]
    assert await post("removed", "the-second-secret") == 404
    await service.quiet()
    assert not [text for text in said(telegram, JANE) if "removed" in text or "old secret" in text]
    assert address_of(service) == address
