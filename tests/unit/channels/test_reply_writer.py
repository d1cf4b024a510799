"""A reply is rendered once for each state, and long ones leave the loop to other people."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence

from agent.blocks import Final, Text, View
from channels.base import SentMessage
from channels.shared.rate_limit import Priority
from channels.shared.reply_writer import MessageRenderer, ReplyWriter
from tests.fakes.server import until

COST_SECONDS = 0.02  # of a rendering, on the processor
PARTS = 40


class Page(MessageRenderer[str]):
    """A platform that shows each line in a message of its own."""

    def __init__(self, cost: float = 0.0) -> None:
        self.cost = cost
        self.rendered: list[tuple[float, float]] = []  # begin and end of each rendering, by the clock
        self.shown: dict[str, str] = {}

    def render(self, view: View) -> list[str]:
        began, used = time.monotonic(), time.thread_time()
        while time.thread_time() - used < self.cost:
            pass
        self.rendered.append((began, time.monotonic()))
        return view.text.splitlines()

    def render_final(self, final: Final) -> list[str]:
        return final.text.splitlines()

    async def post(self, part: str, index: int, replaced: str) -> str:
        self.shown[str(index)] = part
        return str(index)

    async def edit(self, message_id: str, part: str) -> None:
        self.shown[message_id] = part

    async def delete(self, message_id: str) -> None:
        del self.shown[message_id]

    def plain(self, part: str) -> str:
        return part


class Posts:
    """The stored messages of a reply that nothing interrupts."""

    key = "r1"
    known: Sequence[SentMessage] = ()
    reply_handle = ""

    async def sending(self, index: int, handle: str = "") -> None: ...

    async def sent(self, index: int, message_id: str) -> None: ...

    async def adopt(self, index: int, candidates: Sequence[str]) -> str | None: ...

    async def unsent(self, index: int) -> None: ...

    async def found_deleted(self, index: int) -> None: ...

    async def record_questions(self, questions: Mapping[int, str]) -> None: ...


class NoLimit:
    """A platform without rate limits."""

    idempotent_posts = 0

    async def acquire(self, priority: Priority) -> None: ...

    def try_acquire(self, priority: Priority) -> bool:
        return True

    def release_unused(self) -> None: ...

    def pause(self, seconds: float) -> None: ...

    def owe_end(self) -> None: ...

    def settle_end(self) -> None: ...


async def test_a_text_of_many_messages_is_rendered_once() -> None:
    page = Page()
    writer = ReplyWriter(page, Posts(), NoLimit())
    writer.show(Text("\n".join(map(str, range(PARTS)))))
    await until(lambda: len(page.shown) == PARTS)
    assert len(page.rendered) == 1
    writer.show(Text("\nend"))
    await until(lambda: len(page.shown) == PARTS + 1)
    assert len(page.rendered) == 2
    await writer.close()


async def test_a_costly_rendering_rests_before_the_next() -> None:
    page = Page(COST_SECONDS)
    writer = ReplyWriter(page, Posts(), NoLimit())
    written = asyncio.create_task(_write(writer))
    await until(lambda: len(page.rendered) >= 4)
    written.cancel()
    await writer.close()
    rests = [begin - end for (_, end), (begin, _) in zip(page.rendered, page.rendered[1:], strict=False)]
    assert min(rests) >= COST_SECONDS / ReplyWriter.RENDER_SHARE * 0.9


async def test_the_final_reply_waits_for_no_rest() -> None:
    class Tired(ReplyWriter[str]):
        RENDER_SHARE = 1e-6  # rests for hours

    page = Page(COST_SECONDS)
    writer = Tired(page, Posts(), NoLimit())
    writer.show(Text("draft"))
    await until(lambda: page.shown)
    writer.show(Text("more"))
    async with asyncio.timeout(60):
        await writer.finish(Final("end"))
    assert page.shown == {"0": "end"}


async def _write(writer: ReplyWriter[str]) -> None:
    while True:
        writer.show(Text("word "))
        await asyncio.sleep(0)


async def test_a_long_text_is_rendered_in_a_thread_and_no_change_is_lost() -> None:
    """The loop adds a line while the thread renders, which the thread awaits; the final is rendered there, too."""
    began, may_end, threads = threading.Event(), threading.Event(), set[int]()

    class Held(Page):
        def render(self, view: View) -> list[str]:
            threads.add(threading.get_ident())
            lines = view.text.splitlines()
            began.set()
            assert may_end.wait(60)
            assert lines == view.text.splitlines()
            return lines

        def render_final(self, final: Final) -> list[str]:
            threads.add(threading.get_ident())
            return super().render_final(final)

    page = Held()
    writer = ReplyWriter(page, Posts(), NoLimit())
    writer.show(Text("x" * (ReplyWriter.INLINE_CHARS + 1)))
    await until(began.is_set)
    writer.show(Text("\nlate"))
    may_end.set()
    await until(lambda: page.shown.get("1") == "late")
    await writer.finish(Final("y" * (ReplyWriter.INLINE_CHARS + 1)))
    assert [len(text) for text in page.shown.values()] == [ReplyWriter.INLINE_CHARS + 1]
    assert threading.get_ident() not in threads
