"""The console through real pipes and a real pseudo-terminal, with pyte as the screen."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth

from agent.blocks import Ask, Final
from agent.messages import Kind, Message, Thread
from channels import console
from channels.base import OutgoingFile, Unattended
from channels.console import AttachedView, ConsoleChannel
from channels.console.plain import PlainView
from channels.console.tui import TerminalView, wrap_line
from channels.console.view import Key
from channels.shared.texts import NOT_STORED, REPEAT_MARK
from tests.fakes.server import until
from tests.support.forked_services import python
from tests.support.recording_inbox import Box, Memory
from tests.support.rigs.console import ConsoleRig
from tests.support.terminal import PATIENCE, Terminal

JANE = Thread("console", "local", "jane")
DRIVER = str(Path(__file__).parents[2] / "support" / "console_process.py")


def driver(log: Path) -> list[str]:
    """Return the command of a process with only a console, which has loaded the program."""
    return [*python(), DRIVER, str(log)]


def offered(log: Path) -> list[tuple[Kind, str, str]]:
    """Return what the console sent to the inbox: kind, text, target."""
    lines = log.read_bytes().splitlines() if log.exists() else []
    return [(m.kind, m.text, m.target) for m in map(Message.load, lines)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "offered"


# ---------------------------------------------------------------- pipes


def piped(log: Path, text: str | bytes, logged: str = "") -> str:
    data = text if isinstance(text, bytes) else text.encode()
    done = subprocess.run(driver(log), input=data, capture_output=True, timeout=PATIENCE, cwd=log.parent, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr.decode() == f"{logged}LEFT\n"
    return done.stdout.decode()


def test_lines_that_arrive_together_are_one_message(log: Path) -> None:
    out = piped(log, "hello\nworld\n\nlast, no newline: grüße 你好")
    assert offered(log) == [(Kind.CHAT, "hello\nworld\n\nlast, no newline: grüße 你好", "")]
    assert out == "heard chat 'hello\\nworld\\n\\nlast, no newline: grüße 你好', **really**\n"


def test_lines_that_arrive_apart_are_two_messages(log: Path) -> None:
    with subprocess.Popen(driver(log), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"first\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"heard chat 'first', **really**\n"  # flushed, while the pipe is open
        process.stdin.write(b"second\n")
        process.stdin.close()
        assert process.stdout.read() == b"heard chat 'second', **really**\n"
    assert [text for _, text, _ in offered(log)] == ["first", "second"]


async def test_a_cancellation_while_a_line_arrives_is_not_swallowed() -> None:
    source, keys = os.pipe()
    async with PlainView(source, None, Path("downloads")) as pipe:
        reading = asyncio.create_task(pipe.read())
        for line in (b"one\n", b"two\n"):  # the second is waited for
            await asyncio.sleep(0.01)
            pipe._receive_bytes(line)
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait({reading}, timeout=60)
        assert reading.cancelled()
    os.close(keys)
    os.close(source)


# Case 45 of docs/cases.md
def test_command_lines_are_separate_messages(log: Path) -> None:
    piped(log, "a\nb\n/help me\n /new\n//new\n/\n!status\n/etc/hosts\nc\n\n   \n!\n")
    assert offered(log) == [
        (Kind.CHAT, "a\nb", ""),
        (Kind.COMMAND, "help me", ""),
        (Kind.COMMAND, "new", ""),
        (Kind.COMMAND, "/new", ""),
        (Kind.COMMAND, "help", ""),
        (Kind.COMMAND, "status", ""),
        (Kind.CHAT, "/etc/hosts\nc\n\n   \n!", ""),
    ]


def test_empty_input_gives_no_output(log: Path) -> None:
    assert piped(log, "\n  \n") == ""
    assert offered(log) == []


def test_progress_and_answer_are_printed_once(log: Path) -> None:
    out = piped(log, "work\n")
    assert out.splitlines() == [
        "· bash: make all",
        "· • build",
        "· ○ ship",
        "✗ bash: make all: exit code 2",
        "· The model did not answer; trying again.",
        "I am on it and shall go on until stopped",
        "",
        "_Stopped._",
    ]


def test_a_failure_is_printed_as_the_answer(log: Path) -> None:
    assert piped(log, "fail") == "⚠️ The model cannot be reached. Check base_url.\n"


def test_a_number_or_the_text_of_an_option_answers_the_question(log: Path) -> None:
    with subprocess.Popen(driver(log), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        for answer in (b"2\n", b"red\n", b"3\n", b"something else\n"):
            process.stdin.write(b"ask\n")
            process.stdin.flush()
            shown = [process.stdout.readline().decode().strip() for _ in range(6)]
            assert shown == [
                "Which colour?",
                "",
                "1. Red",
                "2. Blue",
                "",
                "Type a number, or answer in your own words.",
            ]
            for line in (b"/status\n", answer):  # a command in between answers nothing
                process.stdin.write(line)
                process.stdin.flush()
                assert b"heard" in process.stdout.readline()
        process.stdin.close()
    answers = [event for event in offered(log) if event[1] not in ("ask", "status")]
    assert answers == [
        (Kind.CLICK, "Blue", "q1"),
        (Kind.CLICK, "Red", "q1"),
        (Kind.CHAT, "3", ""),
        (Kind.CHAT, "something else", ""),
    ]


async def test_a_number_still_answers_what_was_printed_before_a_crash(tmp_path: Path) -> None:
    question = Final("Which colour?", (Ask("q1", "Which colour?", ("Red", "Blue")),))
    async with ConsoleRig.start(tmp_path) as rig:
        posts = Memory()
        await rig.channel.reply(rig.thread(), posts).finish(question)
        await rig.leave()
        await rig.back()
        await rig.channel.reply(rig.thread(), Memory(rows=posts.rows)).finish(question)  # the outbox was not sure
        answer = await rig.say("2")
        assert (answer.kind, answer.target, answer.text) == (Kind.CLICK, "q1", "Blue")
        assert rig.screen.count("Which colour?") == 1


@asynccontextmanager
async def attached(channel: ConsoleChannel) -> AsyncIterator[AttachedView]:
    """Attach a console, which leaves at the end."""
    view = AttachedView(is_interactive=True)
    serving = asyncio.create_task(channel.attach({"person": "jane"}, view))
    await until(lambda: channel.sessions_at(JANE), what="the console")
    yield view
    view.leave()
    await serving


async def calls_until(view: AttachedView, name: str) -> str:
    """Return what the console is asked to do, as soon as that is among it."""
    calls = ""
    while f"event: {name}\n" not in calls:
        await until(lambda: view.has_calls, what=name)
        calls += view.take_calls().decode()
    return calls


async def test_what_an_attached_console_leaves_unread_is_shown_by_the_next_one(tmp_path: Path) -> None:
    """It is killed after it got the answer and before it confirms: whether it was printed, nobody knows."""
    report = tmp_path / "report.csv"
    report.write_bytes(b"1")
    place = console.ConsolePlace(tmp_path)
    async with console.connect(console.ConsoleSettings(), place, has_view=False) as channel:
        assert isinstance(channel, ConsoleChannel)
        listening = asyncio.create_task(channel.listen(Box().receive))
        posts, files = Memory(), Memory("o1")
        send_answer = partial(send, channel, posts)
        send_file = partial(channel.send_files, JANE, [OutgoingFile(report, "report.csv", 1)], files)
        for name, deliver in (("write_reply", send_answer), ("save_file", send_file)):
            async with attached(channel) as view:
                sending = asyncio.create_task(deliver())
                await calls_until(view, name)
                view.leave()
                with pytest.raises(Unattended):
                    await sending
                with pytest.raises(Unattended):  # also while its session ends
                    await deliver()
        assert files.known == []
        async with attached(channel) as view:
            sending = asyncio.create_task(send_answer())
            calls = await calls_until(view, "write_reply")
            numbers = [json.loads(data)["number"] for data in re.findall("event: write_reply\ndata: (.*)", calls)]
            view.take_event({"confirmed": numbers[0], "value": ""})
            await sending
        assert REPEAT_MARK in calls
        listening.cancel()
        await asyncio.wait([listening])


async def send(channel: ConsoleChannel, posts: Memory) -> None:
    await channel.reply(JANE, posts).finish(Final("the answer"))


@pytest.mark.parametrize("answer", ["2", "neither"])
async def test_a_number_after_the_answer_is_a_message(tmp_path: Path, answer: str) -> None:
    async with ConsoleRig.start(tmp_path) as rig:
        await rig.channel.reply(rig.thread(), Memory()).finish(Final("?", (Ask("q1", "?", ("Red", "Blue")),)))
        await rig.say(answer)
        more = await rig.say("1")
        assert (more.kind, more.text) == (Kind.CHAT, "1")


def test_files_are_saved_under_free_names_and_shown_with_their_path(log: Path) -> None:
    out = piped(log, "file\n")
    assert out.splitlines()[1:] == [
        "File: ../chart.png (12 KB) → downloads/chart.png — a chart",
        "File: ../chart.png (12 KB) → downloads/chart-2.png — a chart",
    ]
    assert sorted(path.name for path in (log.parent / "downloads").iterdir()) == ["chart-2.png", "chart.png"]
    assert (log.parent / "downloads" / "chart-2.png").stat().st_size == 12_000


def test_after_a_crash_a_possible_repeat_is_marked_and_a_printed_one_is_not_repeated(log: Path) -> None:
    out = piped(log, "again\n")
    assert out.count("heard chat 'again'") == 2
    assert out.count(REPEAT_MARK) == 1


def test_control_characters_never_reach_the_terminal(log: Path) -> None:
    out = piped(log, b"evil \xff\xfe\n")
    assert "\x1b" not in out
    assert "\x9b" not in out
    assert "[2Jclear 31mred" in out


# Case 77 of docs/cases.md
@pytest.mark.slow
def test_a_message_that_could_not_be_stored_is_redelivered_with_one_notice(log: Path) -> None:
    out = piped(log, "full\n", logged="console.not_stored reason=disk full\n")
    assert out == f"{NOT_STORED}\nheard chat 'full', **really**\n"
    assert offered(log) == [(Kind.CHAT, "full", "")]


def test_a_closed_output_ends_the_console(log: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, DRIVER, log], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stdin.write(b"hello\n")
    process.stdin.flush()  # and it stays open: only the broken output can end this
    assert process.wait(PATIENCE) == 0
    assert process.stderr.read() == b"LEFT\n"
    process.stdin.close()
    process.stderr.close()


def test_regular_files_and_missing_input_work(log: Path) -> None:
    source = log.parent / "in.txt"
    source.write_text("from a file\n")
    with source.open("rb") as stdin:
        done = subprocess.run(
            [sys.executable, DRIVER, log], stdin=stdin, capture_output=True, timeout=PATIENCE, check=True
        )
    assert done.stdout == b"heard chat 'from a file', **really**\n"
    done = subprocess.run(
        [sys.executable, DRIVER, log], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=True
    )
    assert done.stdout == b""


# ---------------------------------------------------------------- a terminal


@example("\u0301 a你", 2)
@given(st.text(st.sampled_from("ab 你\u0301é🙂"), max_size=60), st.integers(2, 20))
def test_rows_fit_the_screen_and_keep_every_word(line: str, columns: int) -> None:
    rows = list(wrap_line(line, columns))
    assert all(get_cwidth(row) <= columns for row in rows)
    assert "".join(rows).replace(" ", "") == line.replace(" ", "")
    assert not any(row.startswith(" ") for row in rows[1:])


def open_console(log: Path, rows: int = 24, columns: int = 80) -> Terminal:
    return Terminal(driver(log), log.parent, {**os.environ, "TERM": "xterm"}, rows, columns)


@pytest.fixture
def terminal(log: Path) -> Iterator[Terminal]:
    window = open_console(log)
    try:
        window.prompt()
        yield window
    finally:
        window.close()


def test_a_reply_streams_in_place_and_its_final_text_is_printed_once(terminal: Terminal, log: Path) -> None:
    terminal.type("hello there\r")
    terminal.shows("heard chat 'hello there', really")  # rendered: no asterisks
    terminal.prompt()
    assert terminal.text().count("heard chat") == 1
    assert terminal.text().count("› hello there") == 1
    assert offered(log) == [(Kind.CHAT, "hello there", "")]


def test_progress_is_live_and_folded_after_ctrl_c(terminal: Terminal, log: Path) -> None:
    terminal.type("work\r")
    terminal.shows("until stopped")
    for part in ("✓ bash: make all", "✗ bash: make all — exit code 2", "• build", "○ ship", "Working · "):
        terminal.shows(part)
    terminal.type("also this\r")  # typed while it works: steering
    terminal.until(lambda: (Kind.CHAT, "also this", "") in offered(log))
    terminal.type("\x03")
    terminal.shows("Stopped.")
    terminal.prompt()
    assert (Kind.COMMAND, "stop", "") in offered(log)
    rows = terminal.rows()
    assert rows.count("I am on it and shall go on until stopped") == 1
    assert not any("bash: make all" in row or "build" in row for row in rows)
    assert any(re.fullmatch(r"■ 2 steps, 1 failed · \d+ s · Ctrl-O shows them", row) for row in rows)  # not done
    for count, unfold in enumerate(("\x0f", "/steps\r"), 1):
        terminal.type(unfold)
        terminal.shows_times("✗ bash: make all — exit code 2", count)
    terminal.type("still here\r")
    terminal.shows("heard chat 'still here'")
    terminal.prompt()
    terminal.type("\x03")
    terminal.shows_times("Press Ctrl-C again to leave.", 1)
    assert not terminal.left()
    terminal.type("\x03")
    terminal.until(terminal.left)
    assert terminal.process.returncode == 0


def test_a_plan_has_a_head_and_what_was_stopped_does_not_look_done(terminal: Terminal) -> None:
    terminal.type("plan\r")
    terminal.shows("Some bold words and co")  # rendered while it streams, also what is not closed yet
    assert not any("**" in picture or "`" in picture for picture in terminal.seen)
    rows = terminal.rows()
    head = rows.index("Plan · 1 of 2 done")
    assert rows[head + 1 : head + 4] == ["  ✓ Write the list", "  • Check it", "✓ Task: Write the names"]
    terminal.type("\x03")
    terminal.until(lambda: re.search(r"■ 2 steps · \d+ s · Ctrl-O shows them", terminal.text()) is not None)
    terminal.prompt()
    terminal.type("\x0f")
    terminal.shows("■ Running a shell script — bash: for x in y")
    rows = terminal.rows()
    head = rows.index("Plan · 1 of 2 done")
    assert rows[head + 1 : head + 4] == ["  ✓ Write the list", "  • Check it", "✓ Task: Write the names"]


def test_enter_in_a_search_sends_the_line_that_was_found_and_ctrl_c_leaves_it(terminal: Terminal, log: Path) -> None:
    for words in ("remind me of it", "plot the numbers"):
        terminal.type(f"{words}\r")
        terminal.until(lambda words=words: (Kind.CHAT, words, "") in offered(log))  # type: ignore[misc]  # mypy infers no lambda with a default
        terminal.shows(f"heard chat '{words}'")
        terminal.prompt()
    terminal.type("\x12remi")
    terminal.shows("(reverse-i-search)`remi': remind me of it")
    terminal.type("\x03")
    terminal.prompt()
    assert "again to leave" not in terminal.text()
    terminal.type("\x12remi")
    terminal.shows("(reverse-i-search)`remi': remind me of it")
    terminal.type("\r")
    terminal.until(lambda: offered(log).count((Kind.CHAT, "remind me of it", "")) == 2)
    terminal.shows_times("› remind me of it", 2)
    assert (Kind.CHAT, "remi", "") not in offered(log)


class Watched(io.TextIOWrapper):
    """A terminal, with what each printed text met: whether Ctrl-C was a signal."""

    signals: dict[str, bool]

    def write(self, text: str) -> int:
        self.signals[text.strip()] = bool(termios.tcgetattr(self.fileno())[3] & termios.ISIG)
        return super().write(text)


async def test_ctrl_c_stays_a_key_while_something_is_printed(tmp_path: Path) -> None:
    """A signal in that moment would stop the service, and a press that nobody gets would not leave."""
    master, slave = pty.openpty()
    with open(slave, encoding="utf-8") as source, Watched(open(os.dup(slave), "wb"), encoding="utf-8") as target:
        target.signals = {}
        async with TerminalView(source, target, tmp_path, tmp_path, upload_mb=1) as view:
            pressed = asyncio.create_task(view.read())
            await until(lambda: not termios.tcgetattr(slave)[3] & termios.ISIG, what="the prompt")
            await view.write("printed")
            os.write(master, b"\x03")
            assert await pressed is Key.INTERRUPT
        assert target.signals["printed"] is False
    os.close(master)


def test_tab_completes_a_path_with_blanks_as_the_prompt_reads_it(terminal: Terminal, log: Path, tmp_path: Path) -> None:
    (tmp_path / "my file.csv").write_text("a")
    terminal.type(f"@{tmp_path}/my\t")
    terminal.until(lambda: "file.csv" in "".join(terminal.rows()))  # a long path continues on the next row
    terminal.type("\r")
    terminal.shows("Sent with your message: my file.csv")


def test_ctrl_c_empties_the_line_first_and_ctrl_d_leaves(terminal: Terminal, log: Path) -> None:
    terminal.type("half a sen")
    terminal.shows("› half a sen")
    terminal.type("\x03")
    terminal.prompt()
    terminal.type("\x04")
    terminal.until(terminal.left)
    assert terminal.process.returncode == 0
    assert offered(log) == []


def test_a_word_after_ctrl_c_means_to_stay(terminal: Terminal, log: Path) -> None:
    for count in (1, 2):
        terminal.type("\x03")
        terminal.shows_times("Press Ctrl-C again to leave.", count)
        terminal.type(f"word {count}\r")
        terminal.shows(f"heard chat 'word {count}'")
        terminal.prompt()
    assert not terminal.left()


def test_history_stays_between_runs_for_this_user_only(log: Path) -> None:
    for keys in ("first words\r", "fir\x1b[A\r"):  # the arrow up finds what begins like this
        window = open_console(log)
        try:
            window.prompt()
            window.type(keys)
            window.shows("heard chat 'first words'")
            window.prompt()
            window.type("\x04")
            window.until(window.left)
        finally:
            window.close()
    assert [text for _, text, _ in offered(log)] == ["first words", "first words"]
    [history] = (log.parent / "console").glob("history-*")
    assert history.stat().st_mode & 0o777 == 0o600


def test_files_are_sent_by_name_and_a_missing_one_is_named(terminal: Terminal, log: Path) -> None:
    (log.parent / "my notes.txt").write_text("some notes")
    (log.parent / "data.csv").write_text("1,2")
    terminal.type("@missing.txt please\r")
    terminal.shows("There is no file missing.txt, so nothing was sent.")
    terminal.type("read @dat\t")
    terminal.shows("› read @data.csv")
    terminal.type(" and @'my notes.txt' for @jane\r")
    terminal.shows("Sent with your message: data.csv (3 bytes), my notes.txt (10 bytes)")
    terminal.shows("heard chat 'read data.csv")
    [message] = map(Message.load, log.read_bytes().splitlines())
    assert message.text == "read data.csv and my notes.txt for @jane"
    assert [(file.name, file.mime, file.size) for file in message.attachments] == [
        ("data.csv", "text/csv", 3),
        ("my notes.txt", "text/plain", 10),
    ]
    copy = log.parent / "console" / "uploads" / message.attachments[1].ref
    assert copy.read_text() == "some notes"
    assert copy.stat().st_mode & 0o777 == 0o600


def test_a_saved_file_is_a_link_that_line_breaks_do_not_cut(log: Path) -> None:
    window = open_console(log, 24, 30)
    try:
        window.prompt()
        window.type("file\r")
        window.shows("chart-2.png")
        path = log.parent / "downloads" / "chart.png"
        assert re.search(rf"\x1b]8;;file://[^/]*{re.escape(str(path))}\x1b\\", window.raw.decode())
    finally:
        window.close()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_without_colours_gets_none(log: Path, name: str, value: str) -> None:
    environment = {**os.environ, "TERM": "xterm", name: value}
    window = Terminal(driver(log), log.parent, environment)
    try:
        window.until(lambda: "›" in window.text())
        window.type("hello there\r")
        window.shows("heard chat 'hello there'")
        assert not re.search(rb"\x1b\[(?:\d+;)*(?:3[1-7]|9[0-7])m", window.raw)
        assert value != "dumb" or b"\x1b]8" not in window.raw
    finally:
        window.close()


@pytest.mark.parametrize("word", ["/quit", "/exit"])
def test_a_quit_command_leaves(terminal: Terminal, log: Path, word: str) -> None:
    terminal.type(f"{word}\r")
    terminal.until(terminal.left)
    assert terminal.process.returncode == 0
    assert offered(log) == []


def test_a_reply_taller_than_the_screen_shows_its_last_lines_and_finally_everything(terminal: Terminal) -> None:
    terminal.type("poem\r")

    def lines() -> list[str]:
        return re.findall(r"line \d+ of a long poem", re.sub(r"\s+", " ", terminal.text()))

    terminal.until(lambda: lines() == [f"line {i} of a long poem" for i in range(1, 61)])
    terminal.prompt()


def test_questions_are_numbered_and_answered_by_number(terminal: Terminal, log: Path) -> None:
    terminal.type("ask\r")
    terminal.shows("Type a number")
    terminal.prompt()
    assert re.search(r"1\W+Red", terminal.text())
    terminal.type("2\r")
    terminal.shows("heard click 'Blue'")
    assert offered(log)[-1] == (Kind.CLICK, "Blue", "q1")


def test_a_paste_of_several_lines_is_one_message(terminal: Terminal, log: Path) -> None:
    terminal.type("\x1b[200~one\ntwo\x1b[201~\r")
    terminal.until(lambda: (Kind.CHAT, "one\ntwo", "") in offered(log))


def test_commands_are_completed_and_control_characters_are_harmless(terminal: Terminal, log: Path) -> None:
    terminal.type("/he\t")
    terminal.shows("› /help")
    terminal.type("\r")
    terminal.until(lambda: offered(log) == [(Kind.COMMAND, "help", "")])
    terminal.shows("heard command 'help'")
    terminal.prompt()
    terminal.type("evil\r")
    terminal.shows("clear 31mred")
    assert "owned" not in terminal.screen.title
    assert "heard command 'help'" in terminal.text()  # not cleared


@pytest.mark.parametrize("size", [(24, 80), (6, 20), (40, 200)])
def test_every_size_of_terminal_works(log: Path, size: tuple[int, int]) -> None:
    window = open_console(log, *size)
    try:
        window.prompt()
        window.type("work\r")
        window.until(lambda: any("until" in picture or "stopped" in picture for picture in window.seen))
        window.type("\x03")
        window.until(lambda: "Stopped." in window.text())
        window.prompt()
        window.type("\x04")
        window.until(window.left)
        assert window.process.returncode == 0
    finally:
        window.close()
