"""A process with only the console: it logs what the console offers and shows scripted replies.

python -m tests.support.console_process LOG   (stdin and stdout: a pseudo-terminal or pipes)
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from agent.blocks import Ask, Done, Failed, Notice, Plan, PlanItem, Step, Text, View
from agent.messages import Kind, Message, Unreadable
from channels.base import Channel, CommandInfo, NotStored, OutgoingFile, Receipt, SentMessage
from channels.console.channel import ConsolePlace, ConsoleSettings, connect

POEM = "\n".join(f"line {i} of a **long** poem" for i in range(1, 61))


@dataclass
class Memory:
    """Sent messages in memory."""

    key: str = "k"
    rows: dict[int, str | None] = field(default_factory=dict)
    reply_handle: str = ""

    @property
    def known(self) -> Sequence[SentMessage]:
        return [SentMessage(index, id_) for index, id_ in self.rows.items()]

    async def sending(self, index: int, handle: str = "") -> None:
        self.rows[index] = None

    async def sent(self, index: int, message_id: str) -> None:
        self.rows[index] = message_id

    async def adopt(self, index: int, candidates: Sequence[str]) -> str | None:
        return None

    async def unsent(self, index: int) -> None:
        del self.rows[index]

    async def found_deleted(self, index: int) -> None: ...

    async def record_questions(self, questions: Mapping[int, str]) -> None: ...


class Script:
    """An inbox and a bot in one: accepts messages and answers them by their first word."""

    def __init__(self, channel: Channel, log: Path) -> None:
        self.channel, self.log = channel, log
        self.tasks: set[asyncio.Task[None]] = set()
        self.stop = asyncio.Event()
        self.full = 2  # times that "full" cannot be stored

    async def receive(self, events: Sequence[Message | Unreadable]) -> list[Receipt]:
        for event in events:
            assert isinstance(event, Message)
            if event.text == "full" and self.full:
                self.full -= 1
                raise NotStored("disk full")
            with self.log.open("ab") as file:
                file.write(event.dump() + b"\n")
            if event.text == "stop" and event.kind is Kind.COMMAND:
                self.stop.set()
            else:
                task = asyncio.create_task(self.answer(event))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
        return [Receipt.ACCEPTED] * len(events)

    async def answer(self, message: Message) -> None:
        posts, view = Memory(), View()
        reply = self.channel.reply(message.thread, posts, to=message.id)
        async for block in self.blocks(message):
            view.add(block)
            reply.show(block)
        await reply.finish(view.final())
        await reply.finish(view.final())  # an outbox may try again: nothing is shown twice
        if message.text == "file":
            path = self.log.parent / "spool"
            path.write_bytes(b"x" * 12_000)
            for _ in range(2):
                await self.channel.send_files(
                    message.thread, [OutgoingFile(path, "../chart\x1b.png", 12_000, "a chart")], Memory()
                )
        if message.text == "again":
            crashed = Memory(rows={0: None})
            await self.channel.reply(message.thread, crashed).finish(view.final())
            printed = Memory(rows={0: "1"})
            await self.channel.reply(message.thread, printed).finish(view.final())

    async def blocks(self, message: Message):  # type: ignore[no-untyped-def]  # a generator of blocks
        match message.text.split()[0]:
            case "poem":
                yield Text(POEM)
            case "ask":
                yield Ask("q1", "Which colour?", ("Red", "Blue"))
                yield Done("waiting")
            case "work":
                yield Step("s1", "bash: make all")
                yield Plan((PlanItem("build", "running"), PlanItem("ship")))
                yield Step("s1", "bash: make all", "done")
                yield Step("s2", "bash: make all")
                yield Step("s2", "bash: make all", "failed", "exit code 2")
                yield Notice("retry", "The model did not answer; trying again.")
                for word in ("I am ", "on it ", "and shall go on ", "until stopped"):
                    yield Text(word)
                    await asyncio.sleep(0.01)
                await self.stop.wait()
                yield Done("stopped")
            case "plan":
                yield Plan((PlanItem("Write the list", "done"), PlanItem("Check it", "running")))
                yield Step("s1", "Task: Write the names", "done", "task: Write the names")
                yield Text("Some **bold** words and `co")
                await self.stop.wait()
                yield Step("s2", "Running a shell script", "running", "bash: for x in y")
                yield Done("stopped")
            case "evil":
                yield Step("s1", "bash: \x1b]0;owned\x07")
                yield Text("\x1b[2Jclear \x9b31mred")
            case "fail":
                yield Failed("The model cannot be reached.", "Check base_url.")
            case _:
                yield Text(f"heard {message.kind.value} {message.text!r}, **really**")


async def main() -> None:
    log = Path(sys.argv[1])
    settings = ConsoleSettings(name="ada", downloads=str(log.parent / "downloads"))
    async with connect(settings, ConsolePlace(log.parent / "console")) as channel:
        script = Script(channel, log)
        await channel.announce([CommandInfo("help", "what I can do"), CommandInfo("stop", "stop the turn")])
        await channel.listen(script.receive)
        script.stop.set()
        await asyncio.gather(*script.tasks, return_exceptions=True)
    print("LEFT", file=sys.stderr, flush=True)


asyncio.run(main())
