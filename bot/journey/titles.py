"""Title a conversation and show the title on the platform, as background jobs, so that no reply waits for them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agent.messages import Thread
from bot.base.background import Effect
from bot.database.database import Database, Execute
from bot.rights.reservations import Budgets
from bot.service.outcome_records import job_recorder
from bot.storage import conversations, runs
from bot.storage.conversations import ConversationRow
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.usage import Payer
from channels.base import Channel, Refused, TitleSetter, TryLater

log = logging.getLogger(__name__)

TITLE_JOB, SHOW_TITLE_JOB = "title", "show title"
MAX_TEXT_CHARS = 4000


def enqueue_title(execute: Execute, run: int, conversation: str, text: str) -> None:
    """Have a model make a title from the first message, unless there is a title or a job for it."""
    row = conversations.find_conversation(execute, conversation)
    if row and not row.title:
        requester = runs.requester_of(execute, run)
        payload = {"run": run, "conversation": conversation, "requester": requester, "text": text[:MAX_TEXT_CHARS]}
        enqueue_job(execute, key=f"{TITLE_JOB}:{conversation}", kind=TITLE_JOB, payload=payload, keep=True)


async def make_title(budgets: Budgets, job: BackgroundJob) -> Effect:
    """Handle a title job: make the title, and return what records it with its usage and has it shown."""
    arguments, conversation = job.arguments, job.arguments["conversation"]
    thread = Thread.parse(conversation.rpartition("#")[0])
    payer = Payer(arguments["run"], conversation, thread, arguments.get("requester", ""))
    meter = budgets.meter(payer)
    role = await budgets.role_of(payer)
    async with budgets.current.use_agent() as agent:
        title = await agent.make_title(arguments["text"], meter, role.may_use_model)

    record_calls = job_recorder(budgets, payer, meter)

    def record(execute: Execute) -> None:
        record_calls(execute)
        if conversations.set_title(execute, conversation, title) and conversations.is_first_conversation(conversation):
            payload = {"conversation": conversation, "title": title}
            enqueue_job(execute, key=f"{SHOW_TITLE_JOB}:{conversation}", kind=SHOW_TITLE_JOB, payload=payload)

    return record


async def show_title(store: Database, find_channel: Callable[[str], Channel | None], job: BackgroundJob) -> None:
    """Handle a job that shows a title at its thread, unless a person has named the thread meanwhile."""
    arguments = job.arguments

    def find(execute: Execute) -> ConversationRow | None:
        return conversations.find_conversation(execute, arguments["conversation"])

    row = await store.run(find)
    if row is None or row.title != arguments["title"]:
        return
    thread = Thread.parse(row.thread)
    channel = find_channel(thread.channel)
    if channel is None:
        raise TryLater("the channel is not connected")
    if isinstance(channel, TitleSetter):
        try:
            await channel.set_title(thread, row.title)
        except Refused as error:
            log.info("title.refused thread=%s reason=%s", thread, error)
