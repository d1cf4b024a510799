"""The demo's scenes: each returns the next line, given the turn so far."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import ToolMessage

from agent.blocks import command_hint
from agent.demo.approval_rule import APPROVED_FILE
from agent.policies.plan_mode import AGREED, SUBMIT_PLAN
from catalogue import N_, _, join_sentences, list_items
from sandbox.base import SKILLS

PLAN_FIRST = "plan first"  # stands for the note of plan mode
WORKSPACE, OUTPUTS = "/mnt/user-data/workspace", "/mnt/user-data/outputs"
NO_BASH_TEXT = N_("I cannot run commands here: the sandbox has only files. `fawn check` says why, and what to do.")


@dataclass(frozen=True, slots=True)
class DemoScene:
    """The turn so far: request, steering messages, tool results in order, and the names of the bound tools."""

    words: str
    meanwhile: tuple[str, ...]
    results: tuple[ToolMessage, ...]
    tools: frozenset[str]


@dataclass(frozen=True, slots=True)
class DemoLine:
    """The next text, and the tool to call after it ("": none, the turn ends)."""

    text: str
    tool: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    more: tuple[Mapping[str, Any], ...] = ()  # arguments of further calls of the same tool, in parallel

    def calls(self) -> list[Mapping[str, Any]]:
        """Return the arguments of each call."""
        return [self.args, *self.more] if self.tool else []


def explain_scene(scene: DemoScene) -> DemoLine:
    """Introduce the demo and explain how to configure a real model."""
    return DemoLine(
        _(
            "Hello! I am Fawn's **built-in demo**: no language model is configured, so I play fixed scenes. Everything "
            "around me is real: this chat, the streaming, the sandbox, the files.\n\n"
            "Type one of these words:\n"
            "- `plot`: I write and run a small program, and send you its chart and table as files\n"
            "- `ask`: I ask you a question and wait for your answer\n"
            "- `plan`: I make a plan and follow it; `{plan}` asks you first\n"
            "- `approve`: I do something only after you approve it\n"
            "- `fail`: a step fails, and I recover\n"
            "- `skill`: I read the instructions of an installed skill\n"
            "- `slow`: I work for a minute; write to me meanwhile, or stop me\n"
            "- `remind`: I propose a reminder, which comes in a minute\n"
            "- `delegate`: two sub-agents work at the same time, and a third one uses their results\n\n"
            "To talk to a real model, set `OPENAI_API_KEY` in the environment or in `.env` (and `OPENAI_BASE_URL` and "
            "`OPENAI_MODEL` for a compatible server such as Ollama or vLLM), or configure a model in"
            " `config.local.yaml`. Then restart me.",
            plan=command_hint("plan packing"),
        )
    )


def plot_scene(scene: DemoScene) -> DemoLine:
    """Write a program, run it, and describe its output files."""
    done = len(scene.results)
    if "bash" not in scene.tools:
        if done == 0:
            table = "day,visits\n" + "".join(f"{day},{(day * 37) % 23 + 4}\n" for day in range(1, 15))
            args = {"path": f"{OUTPUTS}/visits.csv", "content": table}
            return DemoLine(_("(Demo) I can only write files here, so I write a table."), "write_file", args)
        return DemoLine(
            _("The table with made-up numbers is in `visits.csv`. There is no chart: {reason}", reason=_(NO_BASH_TEXT))
        )
    if done == 0:
        args = {"path": f"{WORKSPACE}/demo_plot.py", "content": PLOT_PROGRAM}
        return DemoLine(_("(Demo) I write a small Python program that draws a chart."), "write_file", args)
    if done == 1:
        return DemoLine(_("Now I run it in the sandbox."), "bash", {"command": f"python3 {WORKSPACE}/demo_plot.py"})
    if "wrote visits.png" not in str(scene.results[-1].content):
        return DemoLine(
            _(
                "The program failed in this sandbox, so there is no chart. This failure is not part of the demo: run "
                "`fawn check` to see what the sandbox lacks."
            )
        )
    return DemoLine(
        _(
            "Done. The chart is in `visits.png`, its numbers in `visits.csv`; both come with this message. The numbers "
            "are made up, but the program really ran, in a sandbox that belongs to this conversation."
        )
    )


def ask_scene(scene: DemoScene) -> DemoLine:
    """Ask, wait, use the answer."""
    if not scene.results:
        options = [_("A picture"), _("A table"), _("Nothing, thanks")]
        args = {"question": _("(Demo) What would you like me to make next?"), "options": options}
        return DemoLine("", "ask_clarification", args)
    answer = str(scene.results[-1].content).strip()
    return DemoLine(
        _(
            "You answered “{answer}”, and I continued from my question. This works even after a restart. "
            "Type `plot` to get a chart and a table.",
            answer=answer,
        )
    )


def plan_scene(scene: DemoScene) -> DemoLine:
    """Make a plan and follow it; in plan mode, wait for a "go" first."""
    path = f"{OUTPUTS}/packing-list.md"
    done = [message for message in scene.results if message.name != SUBMIT_PLAN]
    agreed = any(str(message.content) == AGREED for message in scene.results)
    match len(done):
        case 0:
            return DemoLine("", "write_todos", {"todos": _todos(first="in_progress", second="pending")})
        case 1 if PLAN_FIRST in scene.words and not agreed:
            return DemoLine(_("(Demo) I would write a packing list and check it. Nothing is written before you agree."))
        case 1:
            args = {"path": path, "content": "- passport\n- charger\n- raincoat\n"}
            return DemoLine(_("(Demo) I write the packing list."), "write_file", args)
        case 2:
            return DemoLine("", "write_todos", {"todos": _todos(first="completed", second="in_progress")})
        case 3:
            return DemoLine(_("Now I read it."), "read_file", {"path": path})
        case 4:
            return DemoLine("", "write_todos", {"todos": _todos(first="completed", second="completed")})
        case _:
            return DemoLine(_("Both steps of the plan are done, and the list comes with this message."))


def _todos(*, first: str, second: str) -> list[dict[str, str]]:
    return [
        {"content": _("Write the packing list"), "status": first},
        {"content": _("Check it"), "status": second},
    ]


def approve_scene(scene: DemoScene) -> DemoLine:
    """Make a call that a person must approve."""
    if not scene.results:
        args = {"path": APPROVED_FILE, "content": _("A person approved this file.") + "\n"}
        text = _("(Demo) A rule says that you decide about my next call, so I ask first.")
        return DemoLine(text, "write_file", args)
    if scene.results[-1].status == "error":
        return DemoLine(
            _("You did not approve it, so the file was not written. I was told, and I continue without it.")
        )
    return DemoLine(_("You approved exactly that call, so I wrote `approved.txt`; it comes with this message."))


def delegate_scene(scene: DemoScene) -> DemoLine:
    """Delegate two tasks and a third one that needs their results."""
    if "task" not in scene.tools:
        return DemoLine(_("I would now delegate tasks, but sub-agents are turned off here (`subagents.enabled`)."))
    if not scene.results:
        names = (_("Write the numbers"), _("Write the names"), _("Compare both"))
        files = ("numbers.txt", "names.txt", "both")
        first, second, third = (
            {"description": name, "prompt": f"demo-task {file}", "kind": "general-purpose"}
            for name, file in zip(names, files, strict=True)
        )
        text = _("(Demo) I give three tasks to sub-agents. The third one waits for the results of the others.")
        return DemoLine(text, "task", first, (second, {**third, "after": names[:2]}))
    return DemoLine(
        _(
            "All three sub-agents have ended. Each had its own conversation with the model, and all share this sandbox."
            " The last one reported: “{result}”",
            result=str(scene.results[-1].content).partition("\n")[0],
        )
    )


def subtask_scene(scene: DemoScene) -> DemoLine:
    """Do one task as a sub-agent: write a file, or compare two results."""
    if "demo-task both" in scene.words:
        return DemoLine(_("I have read the results of the tasks before mine: both files have three lines."))
    name = "demo_numbers.txt" if "numbers.txt" in scene.words else "demo_names.txt"
    if not scene.results:
        return DemoLine("", "write_file", {"path": f"{WORKSPACE}/{name}", "content": "one\ntwo\nthree\n"})
    return DemoLine(_("I wrote three lines to {file}.", file=name))


def schedule_scene(scene: DemoScene) -> DemoLine:
    """Propose a reminder in a minute."""
    if "schedule" not in scene.tools:
        return DemoLine(_("I would now propose a reminder, but this service has no schedules here."))
    if not scene.results:
        at = datetime.now(UTC) + timedelta(minutes=1)
        args = {"action": "create", "kind": "reminder", "at": at.isoformat(timespec="seconds")}
        return DemoLine("", "schedule", {**args, "what": _("(Demo) This is the reminder that you confirmed.")})
    if not str(scene.results[-1].content).startswith("Proposed"):
        return DemoLine(_("The reminder was refused: {reason}", reason=scene.results[-1].content))
    return DemoLine(
        _(
            "(Demo) I have proposed a reminder: it becomes active only when you answer the question with **Yes**. Then "
            "it comes a minute after my proposal, also if the service is restarted before. `{schedule}` lists your "
            "schedules.",
            schedule=command_hint("schedule"),
        )
    )


def fail_scene(scene: DemoScene) -> DemoLine:
    """Fail, read the error, and recover."""
    path = f"{WORKSPACE}/demo_notes.txt"
    match len(scene.results):
        case 0:
            missing = {"path": f"{WORKSPACE}/demo_notes_that_are_not_there.txt"}
            return DemoLine(_("(Demo) I read a file that does not exist, to show what happens."), "read_file", missing)
        case 1:
            args = {"path": path, "content": _("Written after the first try failed.") + "\n"}
            return DemoLine(
                _("As expected, that failed. I saw the error, so I write the file first."), "write_file", args
            )
        case 2:
            return DemoLine(_("Now I read it."), "read_file", {"path": path})
        case _:
            return DemoLine(_("That worked. A failed step is marked, I get its error, and I continue."))


def skill_scene(scene: DemoScene) -> DemoLine:
    """List the skills, read one, and report."""
    if not scene.results:
        args = {"pattern": "*/SKILL.md", "path": SKILLS}
        return DemoLine(_("(Demo) I look up which skills are installed."), "glob", args)
    names = sorted(re.findall(rf"{SKILLS}/([^/\s]+)/SKILL\.md", str(scene.results[0].content)))
    if not names:
        return DemoLine(_("No skill is installed. `docs/skills.md` describes how to install one."))
    if len(scene.results) == 1:
        some: dict[str, Any] = {"path": f"{SKILLS}/{names[0]}/SKILL.md", "lines": 12}
        return DemoLine(_("A skill is a folder with instructions. I read one."), "read_file", some)
    return DemoLine(
        _(
            "These skills are installed: {names}. A real model reads a skill when your request fits its description."
            " `{skills}` lists them, and `{first}` uses the first one.",
            skills=command_hint("skills"),
            names=list_items(f"`{name}`" for name in names),
            first=command_hint(names[0]),
        )
    )


def slow_scene(scene: DemoScene) -> DemoLine:
    """Work for a minute."""
    if "bash" not in scene.tools:
        return DemoLine(join_sentences(_("I would now run a command for a minute."), _(NO_BASH_TEXT)))
    if not scene.results:
        command = 'for second in $(seq 60); do echo "second $second of 60"; sleep 1; done'
        text = _("(Demo) I start a command that takes a minute. Write something meanwhile, or stop me.")
        return DemoLine(text, "bash", {"command": command})
    return DemoLine(_("The minute is over, and the command has finished."))


PLOT_PROGRAM = '''\
"""Draws a bar chart as a PNG and writes its numbers as CSV, with the standard library alone."""
import struct
import zlib
from pathlib import Path

outputs = Path(__file__).parents[1] / "outputs"
outputs.mkdir(exist_ok=True)
visits = [(day * 37) % 23 + 4 for day in range(1, 15)]

rows = "".join(f"{day},{count}\\n" for day, count in enumerate(visits, 1))
(outputs / "visits.csv").write_text("day,visits\\n" + rows)

width, height, left, right, top, bottom = 640, 400, 60, 20, 74, 64
paper, ink, grid, bar = (250, 249, 246), (60, 60, 60), (225, 222, 215), (196, 122, 58)
pixels = [[paper] * width for _ in range(height)]
letters = dict(zip("0123456789ADEIMPRSTUVY()", bytes.fromhex("""
0e11131519110e 040c040404040e 0e11010204081f 1f02040201110e 02060a121f0202 1f101e0101110e 0608101e11110e
1f010204080808 0e11110e11110e 0e11110f01020c 0e11111f111111 1c12111111121c 1f10101e10101f 0e04040404040e
111b1515111111 1e11111e101010 1e11111e141211 0f10100e01011e 1f040404040404 1111111111110e 11111111110a04
1111110a040404 02040808080402 08040202020408""").hex(" ", 7).split()))


def fill(colour, x, y, wide, high):
    for row in pixels[y:y + high]:
        row[x:x + wide] = [colour] * wide


def write(text, size, x, y):
    """Write with letters of 5 x 7 dots, the middle of the text at x."""
    x -= len(text) * 3 * size
    for number, letter in enumerate(text):
        for line, dots in enumerate(bytes.fromhex(letters.get(letter, "00" * 7))):
            for column in range(5):
                if dots >> (4 - column) & 1:
                    fill(ink, x + (6 * number + column) * size, y + line * size, size, size)


base, unit, step = height - bottom, (height - top - bottom) // 30, (width - left - right) // len(visits)
write("VISITS PER DAY (MADE UP)", 3, width // 2, 14)
write("VISITS", 2, left, top - 24)
write("DAY", 2, (width + left - right) // 2, height - 24)
for tick in (0, 10, 20, 30):
    fill(grid if tick else ink, left, base - tick * unit, width - left - right, 1)
    write(str(tick), 2, left - 22, base - tick * unit - 7)
for number, count in enumerate(visits):
    fill(bar, left + number * step + 7, base - count * unit, step - 10, count * unit)
    write(str(number + 1), 2, left + number * step + step // 2 + 2, base + 8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


raw = b"".join(b"\\0" + bytes(value for pixel in row for value in pixel) for row in pixels)
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
png += chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
(outputs / "visits.png").write_bytes(png)
print(f"wrote visits.png ({width} x {height}) and visits.csv ({len(visits)} days)")
'''
