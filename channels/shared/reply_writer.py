"""Write a reply: show the latest state within the rate limits, at last exactly the final one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar, runtime_checkable

from agent.blocks import Block, Done, Final, View
from channels.base import ChannelError, OutcomeUnknown, Refused, SentMessages, TryLater, Unconfirmed, first_sent_message
from channels.shared.rate_limit import Priority, RateLimitScope

log = logging.getLogger(__name__)

MOST_POSTS = 2  # of one message, when the outcome of each is unknown: people may see all of them
MOST_REPEATS = 5  # …where the platform knows a repeat: it does so for some minutes only
UNCONFIRMED = "it was posted {n} times and no answer came"

P = TypeVar("P")  # a part: what one message shows; equal parts look the same
C = TypeVar("C", contravariant=True)


class MessageMissing(Refused):
    """The message to edit is not there any more (somebody deleted it)."""


class MessageRenderer(Protocol[P]):
    """What a platform gives the writer of a reply. The calls raise ChannelError, `edit` and `delete` also Missing."""

    def render(self, view: View) -> list[P]:
        """What is shown while the turn goes on; nothing for an empty view."""

    def render_final(self, final: Final) -> list[P]:
        """What stays."""

    def placeholder(self) -> P | None:
        """The sign that work has begun; None where `typing` says it well enough."""

    def repeat(self, part: P) -> P:
        """The part with a visible mark that it may be a repeat."""

    async def post(self, part: P, index: int) -> str:
        """Show a new message; gives its id."""

    async def edit(self, message_id: str, part: P) -> None:
        """Show `part` in a message that is there."""

    async def delete(self, message_id: str) -> None:
        """Take a message away."""

    async def typing(self) -> None:
        """Say that somebody works; the platform forgets it by itself."""


@runtime_checkable
class DraftRenderer(Protocol[C]):
    """A surface that can also show a preview that is no message yet."""

    async def draft(self, part: C) -> None: ...


@runtime_checkable
class PostFinder(Protocol):
    """A surface that can look whether a post of unknown outcome is there."""

    async def find_earlier_post(self, index: int) -> str | None:
        """The id of the message that an earlier try has left, None when there is none. Raises ChannelError."""


class ReplyWriter(Generic[P]):
    """The one writer of a reply: `show` only changes the picture, a task shows the latest one at the budget's pace.

    It works from its creation on: the typing action until something is visible, a placeholder when nothing came for a
    while, then edits of the same messages. Whatever streaming could not show, `finish` does.
    """

    PLACEHOLDER = 1.2  # seconds without content until the placeholder
    TYPING = 4.5  # seconds between two typing actions
    DRAFT = 20.0  # seconds after which an unchanged draft is shown again
    GRACE = 5.0  # seconds for a post that is under way when everything stops

    def __init__(
        self, surface: MessageRenderer[P], posts: SentMessages, place: RateLimitScope, *, drafts: bool = False
    ) -> None:
        self._surface = surface
        self._drafting: DraftRenderer[P] | None = surface if drafts and isinstance(surface, DraftRenderer) else None
        self._posts = posts
        self._place = place
        self._view = View()
        self._changed = asyncio.Event()
        self._ids: dict[int, str] = {post.index: post.id for post in posts.known if post.id}
        self._shown: dict[int, P] = {}
        self._marked: set[int] = set()
        self._spoke = False  # words of the reply have been shown
        self._calling = False
        self._ending = False
        self._failures = 0
        self._task = asyncio.create_task(self._run_stream(), name=f"writer {posts.key}")

    def show(self, block: Block) -> None:
        """Take a block into the picture; returns at once."""
        self._view.add(block)
        if not isinstance(block, Done):  # nothing to see in it: `finish` follows
            self._changed.set()

    async def finish(self, final: Final) -> None:
        """Make exactly `final` visible. Raises ChannelError; may be called again."""
        await self._stop_stream()
        parts = self._surface.render_final(final)
        for index, part in enumerate(parts):
            if index not in self._ids or self._shown.get(index) != part:
                await self._place.acquire(Priority.FINAL)
                await self._checked_call(self._show_part(index, part))
        for index in [index for index in sorted(self._ids) if index >= len(parts)]:
            await self._place.acquire(Priority.FINAL)
            await self._checked_call(self._delete_part(index))

    async def close(self) -> None:
        """Stop; what is shown stays."""
        await self._stop_stream()

    async def _stop_stream(self) -> None:
        """End the stream: what waits is cancelled, the one call under way may end."""
        self._ending = True
        if not self._calling:
            self._task.cancel()
        await asyncio.wait({self._task})

    # ------------------------------------------------------------ the stream

    async def _run_stream(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                typing = group.create_task(self._show_typing(), name=f"typing {self._posts.key}")
                if await self._wait_for_content():
                    await self._stream_changes()
                typing.cancel()
        except Exception:  # the boundary of a stream: the final is still to come and reports by itself
            log.exception("writer.failed reply=%s", self._posts.key)

    async def _show_typing(self) -> None:
        while not (self._ids or self._shown):
            try:
                await self._surface.typing()
            except Refused:
                return
            except ChannelError as error:
                log.debug("writer.typing reply=%s reason=%s", self._posts.key, error)
            await asyncio.sleep(self.TYPING)

    async def _wait_for_content(self) -> bool:
        """Wait for the first content; a placeholder when it takes long. False: the platform refuses it."""
        while self._view.empty and not self._ids and not self._shown and not self._ending:
            if await self._wait_for_change(self.PLACEHOLDER):
                continue
            waiting = self._surface.placeholder() if self._view.empty and not self._failures else None
            if waiting is None or not self._place.try_acquire(Priority.STREAM):
                continue
            if not await self._try_call(self._show_part(0, waiting, content=False)):
                return False
        return True

    async def _wait_for_change(self, seconds: float | None) -> bool:
        """Wait for a change, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    async def _stream_changes(self) -> None:
        """Show the latest picture again and again; latest wins, an unchanged part is never sent."""
        fresh = not self._view.empty
        while not self._ending:
            if not fresh and not await self._wait_for_change(self.DRAFT if self._drafting else None):
                self._shown.clear()  # a draft fades
            fresh = False
            while not self._ending and (due := self._first_outdated_part()):
                await self._place.acquire(Priority.STREAM if self._spoke else Priority.FIRST)
                if self._changed.is_set():  # it went on while we waited
                    self._changed.clear()
                    due = self._first_outdated_part()
                if due is None:
                    self._place.budget.release_unused(self._place.chat)
                elif not await self._try_call(self._show_part(*due)):
                    return

    def _first_outdated_part(self) -> tuple[int, P] | None:
        """The first part that is not shown as it should be."""
        parts = self._surface.render(self._view)
        if self._drafting and not self._ids:
            parts = parts[-1:]
        return next(((i, part) for i, part in enumerate(parts) if self._shown.get(i) != part), None)

    async def _try_call(self, call: Awaitable[None]) -> bool:
        """One call of the stream. False: the platform refuses it, streaming makes no sense."""
        self._calling = True
        try:
            await self._checked_call(call)
        except Refused as error:
            log.warning("writer.refused reply=%s reason=%s", self._posts.key, error)
            return False
        except ChannelError as error:  # skipped: a later picture or the final comes
            self._failures += 1
            if isinstance(error, OutcomeUnknown):
                self._place.pause(2.0 ** min(self._failures, 5))
            log.debug("writer.skipped reply=%s reason=%s", self._posts.key, error)
        else:
            self._failures = 0
        finally:
            self._calling = False
        return True

    # ------------------------------------------------------------ calls

    async def _checked_call(self, call: Awaitable[None]) -> None:
        try:
            await call
        except TryLater as error:
            self._place.pause(error.after)
            raise

    async def _show_part(self, index: int, part: P, *, content: bool = True) -> None:
        """Show a part: a draft, an edit of its message, or a new one."""
        if self._drafting and not self._ids and not self._ending:
            try:
                await self._drafting.draft(part)
            except Refused:
                self._drafting = None
                raise TryLater("no drafts here", 0.0) from None
        elif index in self._ids:
            await self._edit_part(index, part)
        else:
            await self._post_part(index, part, content)
        self._shown[index] = part
        self._spoke = self._spoke or content

    async def _edit_part(self, index: int, part: P) -> None:
        self._shown.pop(index, None)
        try:
            await self._surface.edit(self._ids[index], self._surface.repeat(part) if index in self._marked else part)
        except MessageMissing:
            del self._ids[index]
            await self._post_part(index, part, True)
        except OutcomeUnknown as error:  # an edit may be done twice
            raise TryLater(str(error)) from error

    async def _post_part(self, index: int, part: P, content: bool) -> None:
        """Post, with the store told before and after. Cancelled, it waits a little for the id it is about to get."""
        unknown = sum(post.posts for post in self._posts.known if post.index == index and post.id is None)
        if (
            unknown
            and isinstance(self._surface, PostFinder)
            and (found := await self._surface.find_earlier_post(index))
        ):
            await self._posts.sent(index, found)
            self._ids[index] = found
            return await self._edit_part(index, part)
        most = MOST_REPEATS if self._place.idempotent else MOST_POSTS
        if unknown >= (most if self._ending else most - 1):  # a stream leaves one for the final
            raise Unconfirmed(UNCONFIRMED.format(n=unknown))
        if unknown and not self._place.idempotent:
            self._marked.add(index)
        sent = asyncio.create_task(self._send_part(index, part, content), name=f"post {self._posts.key} {index}")
        try:
            await asyncio.shield(sent)
        except asyncio.CancelledError:
            await asyncio.wait({sent}, timeout=self.GRACE)
            sent.cancel()
            raise

    async def _send_part(self, index: int, part: P, content: bool) -> None:
        # A lost placeholder is no loss, except where a repeated post gives the first one back: the reply must know then
        # that it may show something else.
        recorded = content or self._place.idempotent
        if recorded:
            await self._posts.sending(index)
        try:
            message_id = await self._surface.post(self._surface.repeat(part) if index in self._marked else part, index)
        except (TryLater, Refused):
            if recorded:
                await self._posts.unsent(index)
            raise
        await self._posts.sent(index, message_id)
        self._ids[index] = message_id

    async def _delete_part(self, index: int) -> None:
        try:
            await self._surface.delete(self._ids[index])
        except MessageMissing:
            pass
        except OutcomeUnknown as error:
            raise TryLater(str(error)) from error
        del self._ids[index]
        self._shown.pop(index, None)


async def post_once(posts: SentMessages, post: Callable[[], Awaitable[str]], most: int = MOST_POSTS) -> None:
    """Make the one post of a file, with the store told before and after; at most so many while the outcome stays
    unknown. Raises ChannelError."""
    known = first_sent_message(posts)
    if known and known.posts >= most:
        raise Unconfirmed(UNCONFIRMED.format(n=known.posts))
    await posts.sending(0)
    try:
        message_id = await post()
    except (TryLater, Refused):
        await posts.unsent(0)
        raise
    await posts.sent(0, message_id)
