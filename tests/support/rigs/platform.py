"""Shared parts of the rigs: a supervised channel over a fake platform, its people and the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, Self, Unpack

from agent.messages import Message, Thread
from channels.base import Channel
from tests.support.recording_inbox import Box, Service
from tests.support.rigs.base import Call, Rule, Trouble


class Fake(Protocol):
    """The interface of the servers in `tests.fakes`."""

    port: int
    stall: float

    def fault(self, kind: Trouble, method: str = "*", **rule: Any) -> object: ...

    def calls_of(self, method: str, /) -> Sequence[object]: ...

    async def start(self, port: int = 0) -> object: ...

    async def stop(self) -> None: ...

    def abort(self) -> None: ...

    def deafen(self) -> None: ...


class FakeWire:
    """`tests.support.rigs.base.Wire` over a fake; `methods` are the platform's names of the calls."""

    def __init__(self, server: Fake, methods: Mapping[Call, tuple[str, ...]]) -> None:
        self._server = server
        self._methods = methods

    def where(self, topic: int) -> dict[str, Any]:
        """Return the fault options that limit it to one topic."""
        return {"chat": topic}

    def fault(self, kind: Trouble, call: Call, *, topic: int | None = None, **rule: Unpack[Rule]) -> None:
        where = {} if topic is None else self.where(topic)
        for method in self._methods[call]:
            self._server.fault(kind, method, **where, **rule)

    def count(self, call: Call) -> int:
        return sum(len(self._server.calls_of(method.strip("*"))) for method in self._methods[call])

    def stall(self, count: int) -> None:
        self._server.stall = count

    async def stop(self) -> None:
        await self._server.stop()

    async def start(self) -> None:
        await self._server.start()

    def abort(self) -> None:
        self._server.abort()

    def deafen(self) -> None:
        self._server.deafen()


class Placed(Fake, Protocol):
    """A fake whose calls name the place that they concern; `places` has the topic of each, 0 for the direct chat."""

    places: dict[Any, int]

    @property
    def calls(self) -> Sequence[Any]: ...


class PlacedWire(FakeWire):
    """`tests.support.rigs.base.Wire` over a fake with places."""

    def __init__(self, server: Placed, methods: Mapping[Call, tuple[str, ...]]) -> None:
        super().__init__(server, methods)
        self._placed = server

    def topics(self) -> set[int]:
        places = self._placed.places
        return {places[made.place] for made in self._placed.calls if made.place in places}


class FakeRig:
    """A rig without its platform: a subclass implements the methods below "people", as far as its platform `can`."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Channel]]) -> None:
        self.box = Box()
        self._connect = connect
        self._service: Service | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Connect, and close on exit."""
        await self.back()
        try:
            yield self
        finally:
            await self.leave()

    @property
    def channel(self) -> Channel:
        assert self._service, "nothing is connected"
        return self._service.channel

    async def leave(self) -> None:
        if self._service:
            await self._service.end()

    async def back(self) -> None:
        self._service = Service(self._connect, self.box)
        await self._service.begin()

    async def say(self, text: str, topic: int = 0, *, mention: bool = True) -> Message:
        count = len(self.box.messages)
        self.mutter(text, topic, mention=mention)
        return await self.box.next(count + 1)

    # ------------------------------------------------------------ people

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        raise NotImplementedError

    def redeliver(self) -> None:
        raise NotImplementedError

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        raise NotImplementedError

    def hurry(self) -> None:
        raise NotImplementedError

    def amend(self, text: str) -> None:
        raise NotImplementedError

    def withdraw(self) -> None:
        raise NotImplementedError

    def react(self, topic: int = 0) -> None:
        raise NotImplementedError

    def rate(self, mark: str, topic: int = 0) -> None:
        raise NotImplementedError

    def unrate(self, mark: str, topic: int = 0) -> None:
        raise NotImplementedError

    async def begin_thread(self, text: str) -> Message:
        raise NotImplementedError

    def title(self, thread: Thread) -> str:
        raise NotImplementedError

    def retitle(self, thread: Thread, title: str) -> None:
        raise NotImplementedError

    def depart(self, person: str) -> None:
        raise NotImplementedError

    def erase(self, topic: int = 0) -> None:
        raise NotImplementedError

    def erase_silently(self, topic: int = 0) -> Callable[[], object]:
        raise NotImplementedError

    def command(self, text: str) -> None:
        raise NotImplementedError

    async def ask_by_handle(self, text: str) -> Message:
        return await self.say(text)

    def used_handle(self) -> bool:
        raise NotImplementedError

    def buttons(self, topic: int = 0) -> list[str]:
        raise NotImplementedError

    def offers(self, topic: int = 0) -> list[str]:
        raise NotImplementedError

    def labels(self, topic: int = 0) -> list[str]:
        return []

    def danger(self, topic: int = 0) -> list[str]:
        raise NotImplementedError

    def folded(self, topic: int = 0) -> list[str]:
        raise NotImplementedError

    def press(self, label: str, topic: int = 0, *, by: str = "") -> None:
        raise NotImplementedError

    def felt(self) -> bool:
        raise NotImplementedError

    def pinged(self, topic: int = 0) -> Sequence[str]:
        return []

    def commands(self) -> list[str]:
        raise NotImplementedError
