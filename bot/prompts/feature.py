"""Prompts of MCP servers as a feature.

`/SERVER:PROMPT words`: have the agent work on a prompt of an MCP server. The server is asked in a job.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial

from agent.mcp.names import PromptError, PromptName, find_prompt, server_prefix
from agent.messages import Kind, Message, Quote
from agent.permissions.rules import RulePermissions, parse_rules
from bot.base.background import JobKind, run_forever
from bot.commands.call import Command, CommandCall
from bot.commands.feature import Feature, Parts, Service
from bot.commands.work import describe_waiting, start_over_hint
from bot.database.database import Database, Execute
from bot.database.states import ConversationState
from bot.rights import deeds
from bot.rights.current import Current
from bot.storage import conversations, inbox, languages, outbox
from bot.storage.jobs import BackgroundJob, enqueue_job
from catalogue import join_sentences, localized
from channels.base import CommandInfo

PROMPT_JOB = "prompt"


class PromptCommands:
    """The prompts of all servers as commands. Nobody knows before the server is asked whether it has one."""

    def find(self, current: Current, name: str) -> Command | None:
        """Return the command of a prompt."""
        servers = (each.name for each in current.config.mcp.servers if each.enabled and each.resources)
        if (prompt := find_prompt(name, servers)) is None:
            return None
        run = partial(_request_prompt, command=name, name=prompt)
        return Command(name, f"{prompt.server}:{prompt.prompt}", run, "WORDS", begins_work=lambda _words: True)

    def listed(self, current: Current) -> list[CommandInfo]:
        """Return those that the servers have listed."""
        config, agent = current.config, getattr(current, "agent", None)
        hidden = RulePermissions(parse_rules(deny=config.permissions.deny))
        return [
            CommandInfo(each.command, each.description or f"{each.name.server}:{each.name.prompt}", words)
            for each in (agent.known_prompts() if agent else ())
            if not hidden.hides(server_prefix(each.name.server))
            for words in ["WORDS" if each.has_arguments else ""]
        ]


def _request_prompt(call: CommandCall, command: str, name: PromptName) -> str:
    """Have a prompt fetched, and return the answer ("": the turn gives it)."""
    config = call.current.config
    denied = RulePermissions(parse_rules(deny=[*config.permissions.deny, *call.role.deny]))
    if not call.may(deeds.HAVE_WORK) or denied.hides(server_prefix(name.server)):
        return call.refuse(command, deeds.HAVE_WORK)
    if call.here.state == ConversationState.WAITING and (waiting := describe_waiting(call)):
        return join_sentences(waiting, start_over_hint())
    payload = {
        "server": name.server,
        "prompt": name.prompt,
        "words": call.words,
        "conversation": call.conversation,
        "message": call.message.dump().decode(),
    }
    enqueue_job(call.execute, key=f"{PROMPT_JOB}:{call.message.key}", kind=PROMPT_JOB, payload=payload)
    return ""


class PromptJobs:
    """Handles the jobs that fetch a prompt: it becomes a message, or a sentence says why not."""

    def __init__(self, store: Database, current: Current) -> None:
        self._store = store
        self._current = current

    async def run(self, job: BackgroundJob) -> None:
        """Fetch the prompt, and store the message that begins the work."""
        message, name = (
            Message.load(job.arguments["message"]),
            PromptName(job.arguments["server"], job.arguments["prompt"]),
        )
        try:
            text = await self._current.agent.expand_prompt(name, job.arguments["words"])
        except PromptError as error:
            await self._store.run(partial(_answer, message=message, error=error))
            return
        await self._store.run(partial(_begin, message=message, name=name, text=text, arguments=job.arguments))


def _answer(execute: Execute, message: Message, error: PromptError) -> None:
    with languages.speak_to(execute, message.thread, message.author):
        key = f"{PROMPT_JOB}:{message.key}"
        outbox.enqueue_notice(execute, message.thread, localized(error), key=key, now=time.time(), reply_to=message.id)


def _begin(execute: Execute, message: Message, name: PromptName, text: str, arguments: dict[str, str]) -> None:
    now, conversation = time.time(), arguments["conversation"]
    quotes = (Quote(name.server, text, "prompt"), *message.quotes)
    words = f"/{name.server}:{name.prompt} {arguments['words']}".strip()  # also in the title and the transcript
    request = replace(message, key=f"{PROMPT_JOB}:{message.key}", kind=Kind.CHAT, text=words, quotes=quotes, time=now)
    inbox.store_message(execute, request, conversation, ready=now, received=now)
    conversations.refresh_pending(execute, conversation)


LOOK_SECONDS = 2.0  # between two looks for servers that have not started: a reload may bring some


def _start(service: Service) -> Parts:
    jobs = {PROMPT_JOB: JobKind(PromptJobs(service.store, service.current).run)}
    start = partial(run_forever, "MCP servers", partial(_start_servers, service.current))
    return Parts(jobs, {"MCP servers": start})


async def _start_servers(current: Current) -> None:
    """Start the servers in the background, a moment after the first messages: the menus list their prompts."""
    await asyncio.sleep(LOOK_SECONDS)
    await current.agent.start_servers()


FEATURE = Feature("prompts", named=PromptCommands(), start=_start)
