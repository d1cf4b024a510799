"""Limit how often a message is posted while nobody knows whether it arrived."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from channels.base import Refused, SentMessages, TryLater, Unattended, Unconfirmed, find_sent_message
from channels.shared.rate_limit import Priority, ReplyRateLimit

MAX_POSTS = 2  # of one message while their outcomes are unknown, placeholders included: people may see all of them
IDEMPOTENT_POSTS = 5  # …where the platform recognises a repeat, for some minutes
UNCONFIRMED = "it was posted {n} times and no answer came"


async def post_once(
    posts: SentMessages,
    post: Callable[[], Awaitable[str]],
    rate_limit: ReplyRateLimit | None = None,
    index: int = 0,
    handle: str = "",
) -> None:
    """Post a message with files unless it was posted before, recorded before (with `handle`) and after. Raises
    ChannelError."""
    known = find_sent_message(posts, index)
    if known and known.id:
        return
    if known and known.posts >= ((rate_limit.idempotent_posts if rate_limit else 0) or MAX_POSTS):
        raise Unconfirmed(UNCONFIRMED.format(n=known.posts))
    if rate_limit:
        await rate_limit.acquire(Priority.FINAL)
    await posts.sending(index, handle)
    try:
        message_id = await post()
    except (TryLater, Refused) as error:
        await posts.unsent(index)
        if rate_limit and isinstance(error, TryLater) and not isinstance(error, Unattended):
            rate_limit.pause(error.after)
        raise
    await posts.sent(index, message_id)
