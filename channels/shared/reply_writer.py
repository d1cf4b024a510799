"""Write a reply: stream its latest state within the rate limits, then exactly the final one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar, runtime_checkable

from agent.blocks import Block, Done, Final, View
from channels.base import (
    ChannelError,
    ChatGone,
    OutcomeUnknown,
    Refused,
    SentMessages,
    TryLater,
    Unattended,
    Unconfirmed,
)
from channels.shared.posts import MAX_POSTS, UNCONFIRMED
from channels.shared.rate_limit import Priority, ReplyRateLimit

log = logging.getLogger(__name__)

P = TypeVar("P")  # a part: the content of one message; equal parts look the same
C = TypeVar("C", contravariant=True)


class MessageMissing(Refused):
    """The message to edit was deleted."""


class MessageRenderer(Protocol[P]):
    """A platform's rendering and calls. The calls raise ChannelError, `edit` and `delete` also MessageMissing."""

    depends_on_calls: bool = False  # whether `render` gives something else after a call

    def render(self, view: View) -> list[P]:
        """Render a running turn; nothing for an empty view."""

    def render_final(self, final: Final) -> list[P]:
        """Render the final messages."""

    def placeholder(self) -> P | None:
        """Return the first message of a turn without content, or None if `typing` is enough."""
        return None

    def repeat(self, part: P) -> P:
        """Return the part with a visible mark that it may be a repeat, which an idempotent post does not need."""
        return part

    def later(self, part: P) -> P:
        """Return the part for an edit long after its reply ended, which changes nothing but the message."""
        return part

    def plain(self, part: P) -> P:
        """Return the part in the form that the platform refuses least: bare text, and options as lines of it."""

    async def prepare_post(self, part: P, index: int) -> str:
        """Prepare a post, and return the handle that is recorded with it, for a repeat after a restart."""
        return ""

    async def post(self, part: P, index: int, replaced: str) -> str:
        """Post a message and return its id. `replaced` is the id of the one it replaces: it needs another nonce."""

    async def edit(self, message_id: str, part: P) -> None:
        """Replace the content of a message."""

    async def delete(self, message_id: str) -> None:
        """Delete a message."""

    async def typing(self) -> None:
        """Show the typing action, which ends by itself, unless a reaction to the question shows the work."""
        return

    def close(self) -> None:
        """Forget what is to happen later: the whole reply is visible, or another process goes on with it."""
        return


@runtime_checkable
class DraftRenderer(Protocol[C]):
    """A renderer that can also show a draft, which is not a message yet."""

    async def draft(self, part: C) -> None: ...


@runtime_checkable
class PostFinder(Protocol):
    """A renderer that can search for a post of unknown outcome."""

    async def find_earlier_post(self, index: int) -> str | None:
        """Return the id of the message that an earlier attempt posted, recorded, if any. Raises ChannelError."""


@runtime_checkable
class Prober(Protocol):
    """A renderer of a platform that neither finds nor recognizes a repeated post."""

    async def probe(self) -> None:
        """Make a call that shows no message, to learn whether the platform answers. Raises ChannelError."""


class ReplyWriter(Generic[P]):
    """Write one reply: `show` updates the desired state, a task applies the latest one within the rate limits.

    It shows the typing action until something is visible, a placeholder if there is no content for a while, then edits
    the same messages. `finish` shows whatever the stream could not.
    """

    PLACEHOLDER_SECONDS = 1.2  # without content
    TYPING_SECONDS = 4.5  # between two typing actions
    DRAFT_SECONDS = 20.0  # after which an unchanged draft is sent again
    LAST_POST_SECONDS = 5.0  # for a post under way at a cancellation
    RENDER_SHARE = 0.1  # of the time, at most: long texts are rendered less often
    INLINE_CHARS = 20_000  # a longer text is rendered in a thread

    def __init__(
        self,
        renderer: MessageRenderer[P],
        posts: SentMessages,
        rate_limit: ReplyRateLimit,
        *,
        drafts: bool = False,
        on_finished: Callable[[Final], None] = lambda final: None,
    ) -> None:
        self._renderer = renderer
        self._drafts: DraftRenderer[P] | None = renderer if drafts and isinstance(renderer, DraftRenderer) else None
        self._posts = posts
        self._rate_limit = rate_limit
        self._on_finished = on_finished  # called when the whole reply is visible
        self._view = View()
        self._parts: list[P] | None = None  # of the view; None after a change
        self._changes = 0  # of the view
        self._rest_until = 0.0  # monotonic
        self._changed = asyncio.Event()
        self._ids: dict[int, str] = {post.index: post.id for post in posts.known if post.id}
        self._shown: dict[int, P] = {}
        repeated = {post.index for post in posts.known if post.id and post.posts > 1}
        self._marked: set[int] = set() if rate_limit.idempotent_posts else repeated
        self._replaced: dict[int, str] = {}  # ids of messages that were deleted or cannot be edited
        self._has_content = False  # content of the reply was shown
        self._answers = False  # the platform answered a typing action
        self._calling = False
        self._ending = False
        self._careful = False  # the final is posted once
        self._failures = 0
        rate_limit.owe_end()
        self._task = asyncio.create_task(self._run_stream(), name=f"writer {posts.key}")

    def show(self, block: Block) -> None:
        """Add a block to the desired state; returns at once."""
        self._view.add(block)
        self._parts = None
        self._changes += 1
        if not isinstance(block, Done):  # it is invisible, and `finish` follows
            self._changed.set()

    async def finish(self, final: Final) -> None:
        """Make exactly `final` visible. Raises ChannelError; may be called again then."""
        try:
            await self._finish(final)
        finally:
            self._rate_limit.settle_end()

    async def _finish(self, final: Final) -> None:
        await self._stop_stream()
        self._careful = final.careful
        if final.careful and not self._ids:
            await self._probe()
        parts = await self._render_final(final)
        for index, part in enumerate(parts):
            if index not in self._ids or self._shown.get(index) != part:
                await self._rate_limit.acquire(Priority.FINAL)
                try:
                    await self._checked_call(self._show_part(index, part))
                except (ChatGone, Unconfirmed):
                    raise
                except Refused as error:
                    if index not in self._ids:
                        raise
                    log.warning("writer.replaced reply=%s reason=%s", self._posts.key, error)
                    await self._checked_call(self._replace_part(index, self._renderer.plain(part)))
        for index in [index for index in sorted(self._ids) if index >= len(parts)]:
            await self._rate_limit.acquire(Priority.FINAL)
            await self._checked_call(self._delete_part(index))
        if final.asks:
            await self._posts.record_questions(await self._locate_questions(final))
        self._renderer.close()
        self._on_finished(final)

    async def _locate_questions(self, final: Final) -> dict[int, str]:
        """Return the index of each part that shows a question, with the question's id."""
        found: dict[int, str] = {}
        begin = 0
        for text, ask in final.messages():
            shown = replace(final, text=text, asks=(ask,)) if ask else replace(final, text=text, asks=())
            shown = replace(shown, steps=(), plan=(), state="waiting") if begin else shown  # the first has them
            end = begin + len(await self._render_final(shown))
            found |= dict.fromkeys(range(begin, end), ask.id) if ask else {}
            begin = end
        return found

    async def settle(self, final: Final, question: str, outcome: str) -> None:
        """Edit the last message of a question, which has its buttons. The others show the same before and after."""
        try:
            await self._stop_stream()
            index = max(await self._parts_of(final, question), default=-1)
            if index not in self._ids:
                return
            settled = final.settle(question, outcome)
            at = max(await self._parts_of(settled, question), default=-1)
            part = self._renderer.later((await self._render_final(settled))[min(at, index)])
            await self._rate_limit.acquire(Priority.FINAL)
            await self._checked_call(self._settle_part(index, part))
        finally:
            self._rate_limit.settle_end()

    async def _parts_of(self, final: Final, question: str) -> list[int]:
        return [index for index, shown in (await self._locate_questions(final)).items() if shown == question]

    async def _settle_part(self, index: int, part: P) -> None:
        shown = self._renderer.repeat(part) if index in self._marked else part
        try:
            await self._renderer.edit(self._ids[index], shown)
        except Refused as error:  # it is gone, or cannot be changed any more
            log.info("writer.not_settled reply=%s reason=%s", self._posts.key, error)
        except OutcomeUnknown as error:  # an edit can be repeated
            raise TryLater(str(error)) from error

    async def close(self) -> None:
        self._rate_limit.settle_end()
        await self._stop_stream()
        self._renderer.close()

    async def _stop_stream(self) -> None:
        """End the stream: cancel a wait, but let the call under way finish."""
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
        except Exception:  # the boundary of a stream: `finish` follows and reports its own errors
            log.exception("writer.failed reply=%s", self._posts.key)

    async def _show_typing(self) -> None:
        while not (self._ids or self._shown):
            if not await self._try_typing():
                return
            await asyncio.sleep(self.TYPING_SECONDS)

    async def _try_typing(self) -> bool:
        """Show the typing action once. Returns False if the platform refuses it."""
        try:
            await self._renderer.typing()
        except Refused:
            return False
        except ChannelError as error:
            log.debug("writer.typing reply=%s reason=%s", self._posts.key, error)
        else:
            self._answers = True
        return True

    async def _wait_for_content(self) -> bool:
        """Wait for content, and post a placeholder if it takes long. Returns False if the platform refuses that."""
        while self._view.empty and not self._ids and not self._shown and not self._ending:
            if await self._wait_for_change(self.PLACEHOLDER_SECONDS):
                continue
            due = self._view.empty and self._answers and not self._failures  # one that cannot be filled would stay
            placeholder = self._renderer.placeholder() if due else None
            if placeholder is None or not self._rate_limit.try_acquire(Priority.STREAM):
                continue
            if not await self._try_call(self._show_part(0, placeholder, content=False)):
                return False
        return True

    async def _wait_for_change(self, seconds: float | None) -> bool:
        """Wait for a change, and return whether one came in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    async def _stream_changes(self) -> None:
        """Show the latest state after each change; skips older states and unchanged parts."""
        changed = not self._view.empty
        while not self._ending:
            if not changed and not await self._wait_for_change(self.DRAFT_SECONDS if self._drafts else None):
                self._shown.clear()  # a draft disappears
            changed = False
            await self._rest()
            while not self._ending and (due := await self._first_outdated_part()):
                await self._rate_limit.acquire(Priority.STREAM if self._has_content else Priority.FIRST)
                if self._changed.is_set() and time.monotonic() >= self._rest_until:  # during the wait
                    self._changed.clear()
                    due = await self._first_outdated_part()
                if due is None:
                    self._rate_limit.release_unused()
                elif not await self._try_call(self._show_part(*due)):
                    return
                if self._renderer.depends_on_calls:
                    self._parts = None
                await self._rest()

    async def _rest(self) -> None:
        """Wait before the next rendering, if the last one took long."""
        rest = self._rest_until - time.monotonic()
        if rest > 0 and self._parts is None and not self._ending:
            await asyncio.sleep(rest)

    async def _first_outdated_part(self) -> tuple[int, P] | None:
        """Return the index and content of the first part that is not visible. Renders once after each change."""
        parts = self._parts
        if parts is None:
            changes, length = self._changes, sum(map(len, self._view.texts.values()))
            view = self._view if length <= self.INLINE_CHARS else self._view.copy()
            parts = await self._render(length, lambda: self._renderer.render(view))
            self._parts = parts if self._changes == changes else None
        parts = parts[-1:] if self._drafts and not self._ids else parts
        return next(((i, part) for i, part in enumerate(parts) if self._shown.get(i) != part), None)

    async def _render_final(self, final: Final) -> list[P]:
        return await self._render(len(final.text), lambda: self._renderer.render_final(final))

    async def _render(self, length: int, render: Callable[[], list[P]]) -> list[P]:
        """Render a text of this length: a long one in a thread, so that nobody else waits. One at a time."""

        def measured() -> tuple[list[P], float]:
            began = time.thread_time()
            return render(), time.thread_time() - began

        if length <= self.INLINE_CHARS:
            parts, seconds = measured()
        else:
            work = asyncio.ensure_future(asyncio.to_thread(measured))
            try:
                parts, seconds = await asyncio.shield(work)
            except asyncio.CancelledError:  # the renderer is not used twice at a time
                await asyncio.wait({work})
                raise
        self._rest_until = time.monotonic() + seconds / self.RENDER_SHARE
        return parts

    async def _try_call(self, call: Awaitable[None]) -> bool:
        """Make a call of the stream. Returns False if the platform refuses it, which ends the stream."""
        self._calling = True
        try:
            await self._checked_call(call)
        except Refused as error:
            log.warning("writer.refused reply=%s reason=%s", self._posts.key, error)
            return False
        except ChannelError as error:  # a later state or the final follows
            self._failures += 1
            if isinstance(error, OutcomeUnknown):
                self._rate_limit.pause(2.0 ** min(self._failures, 5))
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
        except Unattended:  # nobody is there: the platform asks for no pause
            raise
        except TryLater as error:
            self._rate_limit.pause(error.after)
            raise

    async def _show_part(self, index: int, part: P, *, content: bool = True) -> None:
        """Show a part as a draft, an edit, or a new message."""
        if self._drafts and not self._ids and not self._ending:
            try:
                await self._drafts.draft(part)
            except Refused:
                self._drafts = None
                raise TryLater("drafts are not supported here", 0.0) from None
        else:
            try:
                await self._edit_or_post(index, part)
            except (ChatGone, Unconfirmed):
                raise
            except Refused as error:
                plain = self._renderer.plain(part)
                if plain == part:
                    raise
                log.warning("writer.plain reply=%s reason=%s", self._posts.key, error)
                await self._edit_or_post(index, plain)
        self._shown[index] = part
        self._has_content = self._has_content or content

    async def _edit_or_post(self, index: int, part: P) -> None:
        if index in self._ids:
            await self._edit_part(index, part)
        else:
            await self._post_part(index, part)

    async def _replace_part(self, index: int, part: P) -> None:
        """Post a message in place of one that cannot be edited, which is then deleted."""
        torn = self._replaced[index] = self._ids.pop(index)
        await self._post_part(index, part)
        try:
            await self._renderer.delete(torn)
        except ChannelError as error:  # it stays visible beside the whole answer
            log.warning("writer.not_deleted reply=%s reason=%s", self._posts.key, error)

    async def _edit_part(self, index: int, part: P) -> None:
        self._shown.pop(index, None)
        try:
            await self._renderer.edit(self._ids[index], self._renderer.repeat(part) if index in self._marked else part)
        except MessageMissing:
            await self._posts.found_deleted(index)
            self._replaced[index] = self._ids.pop(index)
            await self._post_part(index, part)
        except OutcomeUnknown as error:  # an edit can be repeated
            raise TryLater(str(error)) from error

    async def _post_part(self, index: int, part: P) -> None:
        """Post a part, recorded before and after. A cancelled post gets a short time to record its id."""
        unknown = sum(post.posts for post in self._posts.known if post.index == index and post.id is None)
        if (
            unknown
            and isinstance(self._renderer, PostFinder)
            and (found := await self._renderer.find_earlier_post(index))
        ):
            self._ids[index] = found
            await self._edit_part(index, part)
            return
        max_posts = self._rate_limit.idempotent_posts or (1 if self._careful else MAX_POSTS)
        if unknown >= (max_posts if self._ending else max_posts - 1):  # a stream leaves one for the final
            raise Unconfirmed(UNCONFIRMED.format(n=unknown))
        if unknown and not self._rate_limit.idempotent_posts:
            await self._probe()
            self._marked.add(index)
        sent = asyncio.create_task(self._send_part(index, part), name=f"post {self._posts.key} {index}")
        try:
            await asyncio.shield(sent)
        except asyncio.CancelledError:
            await asyncio.wait({sent}, timeout=self.LAST_POST_SECONDS)
            sent.cancel()
            raise

    async def _probe(self) -> None:
        """Wait until the platform answers again: the last post that is allowed must not meet the fault of the first."""
        if isinstance(self._renderer, Prober):
            try:
                await self._renderer.probe()
            except OutcomeUnknown as error:
                raise TryLater(str(error), error.after) from error
            except Refused as error:
                log.debug("writer.probe reply=%s reason=%s", self._posts.key, error)  # it answers

    async def _send_part(self, index: int, part: P) -> None:
        marked = self._renderer.repeat(part) if index in self._marked else part
        handle = await self._renderer.prepare_post(marked, index)
        await self._posts.sending(index, handle)
        try:
            message_id = await self._renderer.post(marked, index, self._replaced.get(index, ""))
        except (TryLater, Refused):
            await self._posts.unsent(index)
            raise
        await self._posts.sent(index, message_id)
        self._ids[index] = message_id

    async def _delete_part(self, index: int) -> None:
        try:
            await self._renderer.delete(self._ids[index])
        except MessageMissing:
            pass
        except OutcomeUnknown as error:
            raise TryLater(str(error)) from error
        self._replaced[index] = self._ids.pop(index)
        self._shown.pop(index, None)
