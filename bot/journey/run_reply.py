"""The reply of a run: the one that people watch, or none."""

from __future__ import annotations

import logging
from functools import partial

from agent.spans import SpanKind, inside_run, note_event
from bot.base.background import PatientStore
from bot.database.database import Database
from bot.journey.null_reply import NullReply
from bot.journey.spelled_reply import open_reply
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.service.reply_handles import open_handle
from bot.storage.sent_messages import StoredSentMessages
from catalogue import use_language
from channels.base import Channel, Reply

log = logging.getLogger(__name__)


def open_run_reply(store: Database, current: Current, channel: Channel | None, job: ClaimedRun) -> Reply:
    """Return the reply that shows this run and continues what is visible of it already."""
    if channel is None or job.is_unattended:  # nobody waits: the result is one new message
        return NullReply()
    handle = open_handle(current.config, job.reply_handle)
    patient = PatientStore(store, "posts")
    posts = StoredSentMessages(patient, f"r{job.run}", job.thread, job.conversation, job.posted, handle)
    posts.on_first = partial(note_event, SpanKind.SIGN, job.thread.channel)
    try:
        with use_language(job.language), inside_run(job.run, job.asked):  # the reply's tasks inherit both
            return open_reply(channel, job.thread, posts, to=job.reply_to, asker=job.requester)
    except Exception:  # the run is claimed: the outbox delivers its end
        log.exception("turn.no_reply thread=%s", job.thread)
        return NullReply()
