"""What background agents keep of their kind and their caller, how much follows from a message, and what people may
use, on every platform and the console."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.fakes.model import Request
from tests.fakes.model_script import text_of
from tests.fakes.server import until
from tests.support.service_process import ask, bash
from tests.support.thread_talk import ThreadTalk, calls, delegate, tool

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.parametrize("name", ["feishu", "console"])]
READER = {"name": "reader", "tools": ["read_file", "ls", "task"], "prompt": "You read."}
SCHEMA = {"type": "object", "required": ["n"]}
AUDITOR = {"name": "auditor", "model": "small", "prompt": "You audit.", "tools": ["read_file", "ls", "bash"]}
SLOW = {"name": "slow", "seconds": 1.5, "tools": ["bash"]}
SCRIBE = {"name": "scribe", "tools": ["memory", "schedule"]}
SAVE = tool("memory", action="save", text="likes tea", quote="I like tea")
YEARLY = tool("schedule", action="create", what="Read the news", cron="0 4 1 1 *", time_zone="UTC")
LASTING = {"tokens": 4000, "tok_ms": 50, "word": "slow"}  # an answer that takes minutes


def background(talk: ThreadTalk) -> list[Request]:
    """Return the requests of sub-agents that work in the background."""
    return [each for each in talk.model.requests() if "to do in the background" in text_of(each.messages[0])]


def offered(request: Request) -> set[str]:
    return {each["function"]["name"] for each in request.tools}


def was_told(talk: ThreadTalk, words: str) -> bool:
    """Return whether the model was sent these words at the end of a request."""
    return any(words in text_of(m) for each in talk.model.requests() for m in each.messages[-2:])


def work(kind: str, prompt: str, **more: object) -> dict[str, object]:
    return tool("task", description=f"the {kind}", prompt=prompt, kind=kind, background=True, **more)


async def test_a_background_agent_keeps_its_kind_and_the_limits_of_its_caller(tmp_path: Path, name: str) -> None:
    """Model, prompt, schema, time and tools of the kind; never a tool that its caller has not. `after` is refused."""
    url = {"use": "langchain_openai:ChatOpenAI", "api_key": "$OPENAI_API_KEY"}
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        base = f"{talk.model.base_url}/v1"
        models = [{"name": each, "model": each, "base_url": base, **url} for each in ("main", "small")]
        kinds = {"kinds": [{**AUDITOR, "output_schema": SCHEMA}, SLOW]}
        talk.service.configure({"models": models, "agents": [READER], "subagents": kinds})
        await talk.service.restart()
        talk.say(ask(steps=[calls(work("slow", ask(steps=[bash("sleep 60")], text="late")))], text="delegated"))
        await talk.shows("This took longer than the limit of")
        talk.say(ask(steps=[calls(work("slow", "x", after=["nothing"]))], text="refused"))
        await talk.shows("refused")
        assert "cannot come `after` others" in text_of(talk.model.requests()[-1].messages[-1])
        talk.say("!agents reader")
        await talk.shows("reader")
        await talk.service.quiet()
        before = len(background(talk))
        audit = ask(steps=[bash("touch /mnt/user-data/workspace/x")], text='{"n": 3}')
        talk.say(ask(steps=[calls(work("auditor", audit))], text="delegated again"))
        await talk.shows('{"n": 3}')
        await talk.service.quiet()
        asked = background(talk)[before:]
        assert {each.body["model"] for each in asked} == {"small"}
        assert all(offered(each) == {"read_file", "ls"} for each in asked)
        assert "You audit." in text_of(asked[0].messages[0])
        assert not [*talk.service.data.glob("threads/*/workspace/x")]
        agents = "SELECT agent FROM conversations WHERE key='task:2'"
        assert talk.service.rows(agents) == [("reader",)]


async def test_sub_agents_read_memory_and_leave_nothing_behind_unless_their_kind_names_it(
    tmp_path: Path, name: str
) -> None:
    """Neither memories nor schedules nor proposed skills, of those in the turn and in the background alike."""
    memory = {"enabled": True, "wait_seconds": 3600}
    sections = {"memory": memory, "subagents": {"kinds": [SCRIBE]}, "permissions": {"outward": "allow"}, "sandbox": {}}
    async with ThreadTalk.open(tmp_path, name, **sections) as talk:  # no note asks
        for number, in_background in enumerate((False, True), 1):
            prompt = "I like tea " + ask(steps=[calls(SAVE, YEARLY)], text=f"tried {number}")
            talk.say(delegate("write", prompt, background=in_background, text=f"asked {number}"))
            await talk.shows(f"asked {number}")
            tried = f"tried {number}"
            await until(partial(was_told, talk, tried), what=tried)
            await talk.service.quiet()
        workers = [each for each in talk.model.requests() if each.tools and "task" not in offered(each)]
        assert workers
        assert all("memory" in offered(each) for each in workers), "they search it"
        assert not {"schedule", "propose_skill"} & {tool for each in workers for tool in offered(each)}
        told = "\n".join(text_of(m) for each in workers for m in each.messages if m["role"] == "tool")
        assert told.count("a sub-agent only reads memory") == 2
        assert talk.service.rows("SELECT (SELECT count(*) FROM memory), (SELECT count(*) FROM schedules)") == [(0, 0)]
        scribe = tool(
            "task", description="note", prompt="I like tea " + ask(steps=[calls(YEARLY)], text="x"), kind="scribe"
        )
        talk.say(ask(steps=[calls(scribe)], text="scribed"))
        await talk.shows("scribed")
        await talk.service.quiet()
        assert talk.service.rows("SELECT state FROM schedules") == [("proposed",)], "this kind names the tool"


def chain(steps: int) -> str:
    """Return a request whose agent starts a command, and asks itself the same for its end, so many times."""
    then = {"then": chain(steps - 1)} if steps else {}
    return ask(steps=[calls(tool("bash", command="true", background=True, **then))], text=f"{steps} to go")


async def test_what_follows_from_one_message_is_bounded_and_a_stop_ends_all_of_it(tmp_path: Path, name: str) -> None:
    """What the agent does after commands, in generations; then a command with what is to follow, and an agent."""
    limits = {"attempts": 50, "follow_ups_per_message": 3}
    async with ThreadTalk.open(tmp_path, name, limits=limits, sandbox={}) as talk:
        talk.say(chain(6))
        await talk.shows("3 to go", seconds=60)
        await talk.service.quiet()
        assert talk.service.rows("SELECT count(*), max(generation) FROM follow_ups") == [(3, 2)]
        assert "Not possible" in "\n".join(text_of(m) for m in talk.model.requests()[-1].messages)
        assert not talk.count("2 to go")

        lasting = tool("bash", command="sleep 600", background=True, then=ask(text="it went on"))
        talk.say(ask(steps=[calls(lasting, work("general-purpose", ask(**LASTING)))], text="begun"))
        await talk.shows("begun")
        running = "SELECT count(*) FROM runs WHERE state='running' AND conversation LIKE 'task:%'"
        await until(lambda: talk.service.rows(running) == [(1,)], what="the agent")
        await until(lambda: ("running",) in talk.service.rows("SELECT state FROM tasks"), what="the command")
        talk.say("!stop")
        await until(lambda: not talk.service.rows("SELECT 1 FROM runs WHERE finished IS NULL"), what="its end")
        await talk.service.quiet()
        await talk.service.restart()
        await talk.service.quiet()
        assert not talk.service.rows("SELECT 1 FROM tasks WHERE state IN ('queued', 'running')")
        assert not talk.service.rows("SELECT 1 FROM runs WHERE finished IS NULL")
        assert not talk.count("it went on")


async def test_people_are_shown_what_they_may_use_and_which_zone_they_mean(tmp_path: Path, name: str) -> None:
    async with ThreadTalk.open(tmp_path, name, sandbox={}) as talk:
        talk.say("!zone Berlin")
        await talk.shows("Did you mean")
        assert "Europe/Berlin" in await talk.shows("Did you mean")
        talk.say("!zone Europe/Berlin")
        await talk.shows("Your time zone is Europe/Berlin")
        talk.say("!help")
        await talk.shows("begin a new conversation here")
        for words in ("show who did what", "show, give and take roles"):  # whoever holds the terminal is an operator
            assert bool(talk.count(words)) == (name == "console"), words
