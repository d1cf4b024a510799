"""The hostile model's calls: every tool with hostile arguments, in an order that a seed decides."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.fakes.model import Answer, ToolCall
from tests.redteam import texts
from tests.redteam.texts import NETWORK, OUTPUTS, PAGES, SITES, WORKSPACE
from tests.support.disguises import disguises

# Arguments that each tool accepts. One of them is then replaced.
TOOLS: dict[str, dict[str, Any]] = {
    "bash": {"command": "ls", "timeout": 2},
    "expose": {"port": 8000},
    "read_file": {"path": f"{WORKSPACE}/note.txt", "start_line": 1, "lines": 100},
    "write_file": {"path": f"{WORKSPACE}/note.txt", "content": "x", "append": False},
    "str_replace": {"path": f"{WORKSPACE}/note.txt", "old": "x", "new": "y", "all": True},
    "ls": {"path": WORKSPACE, "depth": 1},
    "glob": {"pattern": "*", "path": WORKSPACE},
    "grep": {"pattern": "x", "path": WORKSPACE, "glob": "*"},
    "view_image": {"path": f"{WORKSPACE}/a.png"},
    "web_search": {"query": "otters", "count": 3},
    "web_fetch": {"url": f"http://{NETWORK}.1/injection"},
    "check_citations": {"report": "# A\n[b](http://example.test)"},
    "present_files": {"files": [{"path": f"{WORKSPACE}/note.txt", "caption": "a"}]},
    "write_todos": {"todos": [{"content": "a", "status": "pending"}], "merge": False},
    "run_skill": {"name": "data-analysis", "input": {}, "timeout": 2},
    "propose_skill": {"name": "bomb", "files": [{"path": "SKILL.md", "content": "x"}], "reason": "x"},
    "ask_clarification": {"question": "Which?", "options": ["a", "b"]},
    "memory": {"action": "save", "text": "x", "quote": "x", "number": 0},
    "schedule": {"action": "create", "what": "x", "kind": "watch", "cron": "* * * * *", "url": "http://example.test"},
    "background_tasks": {"action": "list", "number": 0},
    "task": {"description": "a", "prompt": "b", "kind": "general-purpose"},
    "invoke_agent": {"agent": "coder", "prompt": "b"},
    "tool_search": {"query": "paint"},
    "mcp__flood__flood": {"kind": "lines"},
    "mcp__flood__deed": {"path": "x"},
    "mcp__liar__odd": {"text": "x"},
    "mcp__hang__wait": {},
    "no_such_tool": {"a": 1},
}
BY_ARGUMENT = {
    "command": texts.COMMANDS,
    "path": texts.PATHS,
    "url": (*(f"http://{NETWORK}.{{}}/{page}" for page in PAGES), *texts.ADDRESSES),
    "pattern": texts.PATTERNS,
    "glob": texts.PATTERNS,
    "kind": ("lines", "line", "deep", "blob", "notes", "die"),
}
MOST_CHARS = 100_000  # of one argument with a list; a real model writes no more in one answer
_DEEP = "[" * 400 + "]" * 400
RAW = (  # arguments as text: cut off, wrong, deep
    "",
    "{",
    "null",
    "[]",
    '"text"',
    '{"command": "rm -rf /mnt/user-data/workspace',
    '{"a": "\\d"}',
    '{"content": "' + "\\d" * 20_000 + '"}',
    '{"content": "\\ud83d"}',
    '{"a": 1e999, "b": NaN}',
    '{"a": 1, "a": 2}',
    f'{{"path": {_DEEP}}}',
    "[" * 100_000,
    '{"' + "k" * 50_000 + '": 1}',
    "\ufeff{}",
    "{}{}",
    "{'path': 'x'}",
    '{"path": "' + "x" * 300_000,
)
OTHER_TYPES: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 2**70, [], {}, [[[]]], {"a": {"b": []}}, ["x"] * 1_000, [None] * 100, {"$ref": "#"},
)  # fmt: skip
EVENTS = (  # odd events of a server of models
    "null", '"text"', "[]", "{", '{"choices": [null]}', '{"choices": null}', '{"choices": [{"delta": "text"}]}',
    '{"choices": [{"delta": {"tool_calls": [null]}}]}', '{"usage": "none", "choices": []}',
    '{"choices": [{"delta": {"content": 5}}]}', '{"error": {"message": "overloaded"}}',
    '{"choices": [{"index": -1, "delta": {"tool_calls": [{"index": 99999, "function": {"arguments": {}}}]}}]}',
)  # fmt: skip
DEED, WRITTEN = "denied-deed", "denied-file"  # what exists if a rule did not hold; the latter in outputs
PRIVATE = f"{WORKSPACE}/private.txt"
DENIED = (  # rules of the configuration: what they deny is done in none of the conversations
    "bash(touch *)",
    f"write_file({OUTPUTS}/*)",
    f"str_replace({OUTPUTS}/*)",
    f"read_file({PRIVATE})",
    "mcp__flood__deed",
)
_SPELLINGS = (
    f"{OUTPUTS}/{{}}",
    f"/{OUTPUTS}/{{}}",
    f"{OUTPUTS}/./../outputs/{{}}",
    f"/proc/self/root{OUTPUTS}/{{}}",
    f"{WORKSPACE}/link/{{}}",
    f"{WORKSPACE}/../outputs//{{}}",
)
PRIVATE_SPELLINGS = (PRIVATE, f"/{PRIVATE}", f"/proc/self/root{PRIVATE}", f"{WORKSPACE}/../workspace/private.txt")


@dataclass(frozen=True, slots=True)
class Turn:
    """What the hostile model does for one message: answers with calls, then a last one."""

    id: str
    steps: tuple[Answer, ...]
    final: Answer

    @property
    def calls(self) -> int:
        return sum(len(step.calls) for step in self.steps)


def hostile_turns(seed: int, calls: int) -> list[Turn]:
    """Return turns with at least so many calls, each turn with several tools; equal seeds give equal turns."""
    chance = random.Random(seed)
    turns: list[Turn] = []
    made = 0
    deeds = _denied_deeds()
    tools: list[str] = []
    while made < calls:
        steps = []
        for _ in range(chance.randint(1, 3)):
            if len(tools) < 9:
                tools += chance.sample(sorted(TOOLS), len(TOOLS))  # all of them, before one comes again
            count = chance.randint(4, 9)
            hostile = [_hostile_call(chance, tools.pop()) for _ in range(count)]
            hostile.append(deeds[(made + len(hostile)) % len(deeds)])
            chance.shuffle(hostile)
            made += len(hostile)
            steps.append(Answer(chance.choice(("", "I see.")), tuple(hostile), **_wire(chance)))
        name = f"turn{len(turns)}"
        turns.append(Turn(name, tuple(steps), Answer(_last_words(chance, name), **_cuts(chance))))
    return turns


def setup_turn(name: str, marker: str) -> Turn:
    """Return the first turn of a conversation: its own marker in files, a link, and a file that rules seal."""
    prepare = (
        f"ln -sfn {OUTPUTS} link; echo {marker} | tee note.txt {OUTPUTS}/{name}.txt; printf 'SEA%s' LED > private.txt"
    )
    reads = tuple(ToolCall("read_file", _dump({"path": path})) for path in PRIVATE_SPELLINGS)
    writes = tuple(ToolCall("write_file", _dump({"path": path.format(WRITTEN), "content": "x"})) for path in _SPELLINGS)
    steps = (
        Answer("", (ToolCall("bash", _dump({"command": prepare})),)),
        Answer("", reads + writes),
        Answer("", (ToolCall("bash", _dump({"command": "rm private.txt"})),)),
    )
    return Turn(name, steps, Answer(f"done {name}"))


def _denied_deeds() -> list[ToolCall]:
    """Return every way to do what the rules deny."""
    made = [("bash", {"command": line, "timeout": 2}) for line in disguises(["touch", DEED, "x"])]
    made += [("write_file", {"path": path.format(WRITTEN), "content": "done"}) for path in _SPELLINGS]
    made += [("mcp__flood__deed", {"path": DEED})]
    return [ToolCall(tool, _dump(args)) for tool, args in made]


def _hostile_call(chance: random.Random, tool: str) -> ToolCall:
    good = TOOLS[tool]
    match chance.randrange(10):
        case 0:
            return ToolCall(tool, chance.choice(RAW))
        case 1:
            return ToolCall(tool, _dump({**good, chance.choice(["", "a" * 500, "runtime", "self"]): "x"}))
        case 2 | 3:
            return ToolCall(tool, _dump({**good, chance.choice(sorted(good) or ["a"]): chance.choice(OTHER_TYPES)}))
    name = chance.choice([*sorted(good), *(each for each in good if each in BY_ARGUMENT)] or ["a"])
    value = chance.choice(BY_ARGUMENT.get(name, texts.TEXTS))
    if name == "url":
        value = value.replace("{}", str(chance.randint(1, SITES)))
    return ToolCall(tool, _dump({**good, name: _in_shape(good.get(name), value, chance)}))


def _in_shape(good: object, value: str, chance: random.Random) -> object:
    """Put a hostile text where the tool has a text, also inside lists."""
    if isinstance(good, list) and good and isinstance(good[0], dict):
        inner = dict(good[0])
        name = chance.choice(sorted(inner))
        inner[name] = chance.choice(texts.SKILLS) if name == "content" else chance.choice((value, *texts.PATHS))
        return [inner] * min(chance.choice((1, 2, 60)), 1 + MOST_CHARS // len(str(inner)))
    return (
        [value] * min(chance.choice((1, 300)), 1 + MOST_CHARS // (len(value) + 1)) if isinstance(good, list) else value
    )


def _wire(chance: random.Random) -> dict[str, Any]:
    """Return how an answer with calls comes: in pieces, with names repeated, with odd events, with a wrong end."""
    match chance.randrange(10):
        case 0:
            return {"piece": chance.choice((40, 16_384)), "names": chance.random() < 0.5}
        case 1:
            return {"events": (chance.choice(EVENTS),)}
        case 2:
            return {"finish": chance.choice(("length", "content_filter", "none", "odd"))}
    return {"piece": 4_096}


def _cuts(chance: random.Random) -> dict[str, Any]:
    """Return how the last answer breaks, if it does."""
    match chance.randrange(8):
        case 0:
            return {chance.choice(("abort_at", "cut_at", "garbage_at")): 1}
        case 1:
            return {"status": chance.choice((400, 402, 429, 500, 503)), "retry_after": 0.5}
        case 2:
            return {"events": (chance.choice(EVENTS),), "finish": chance.choice(("", "length", "none"))}
    return {}


def _last_words(chance: random.Random, name: str) -> str:
    hostile: Sequence[str] = [text for text in texts.TEXTS if len(text) < 20_000]
    return f"done {name} {chance.choice(hostile)}"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
