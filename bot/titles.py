"""Have a model title a conversation: a background job, so that no reply waits for it."""

from __future__ import annotations

from agent.context import Meter
from bot.current import Current
from bot.jobs import Effect
from bot.storage import conversations, usage
from bot.storage.database import Execute
from bot.storage.jobs import BackgroundJob, enqueue_job

TITLE_JOB = "title"
MAX_TEXT_CHARS = 4000


def enqueue_title(execute: Execute, run: int, conversation: str, text: str) -> None:
    """Have a model make a title from the first message, unless there is a title or a job for it."""
    row = conversations.find_conversation(execute, conversation)
    if row and not row.title:
        payload = {"run": run, "conversation": conversation, "text": text[:MAX_TEXT_CHARS]}
        enqueue_job(execute, key=f"{TITLE_JOB}:{conversation}", kind=TITLE_JOB, payload=payload, keep=True)


async def make_title(current: Current, job: BackgroundJob) -> Effect:
    """Handle a title job: make the title, and return what records it with its usage."""
    arguments, meter = job.arguments, Meter()
    async with current.use_agent() as agent:
        title = await agent.make_title(arguments["text"], meter)

    def record(execute: Execute) -> None:
        usage.record_calls(execute, arguments["run"], arguments["conversation"], meter.take_unrecorded())
        conversations.set_title(execute, arguments["conversation"], title)

    return record
