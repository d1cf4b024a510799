"""The answers of the scripted model: a directive in the conversation, or a test's function.

The last user message may carry `::{json}` with these keys, all optional:

    text          the exact answer
    tokens, word  …or that many words "w0 w1 …" ("word" replaces the "w", so that no two replies are alike)
    steps         a list of model calls before the answer: {"calls": [{"name", "args", "id"}], "text": "said before"};
                  an args that is a string goes out as it is (broken JSON, say); a step may have finish, piece, names
                  and events of its own
    seq, tool, args, par   shorthand: `seq` steps of `par` equal calls each
    delay_ms      thinking time before the first byte; tok_ms  the time between two words
    errors        HTTP statuses of the first tries, [500, 429]; retry_after  seconds, sent with them
    abort_at      the connection is cut hard before that word; cut_at  the stream ends there without a finish
    hang_at       silence from that word on (0: after the headers); garbage_at  a line that is no JSON there
    finish        why the answer ends instead of its usual reason, in the words of Chat Completions: length,
                  content_filter; none: it says nothing
    piece         characters of a call's arguments in one delta (default: two halves)
    names         true: each delta of a call repeats its name and id
    events        raw texts sent as `data:` of events of their own, after the answer and before its end
    refusal       the words of a refusal, as OpenAI sends them (`delta.refusal`), in place of a text
    counted       "every": the usage so far comes with every chunk, as from Gemini's gateway, SiliconFlow and Together
                  (github.com/ogx-ai/ogx/issues/5122, github.com/camel-ai/camel/issues/4217)
    body          a text that is the whole answer, with status 200 and no stream
    times         how many tries suffer abort_at, cut_at, hang_at or garbage_at (1; -1: all)
    at            the step that suffers errors and cuts (0: the first model call; default: the last one)
    id            a name for the log; makes equal directives different

A message without a directive is echoed. A request for a summary or a title (no tools, says so) gets one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

import orjson

from tests.fakes.server import Json

_DIRECTIVE = re.compile(r"::(\{.*\})", re.DOTALL)
_JSON = json.JSONDecoder()
ASKED_AGAIN = "(Your last message was empty"
_WORD = re.compile(r"[\w./:@#-]+")
_NAME_SIGN = re.compile(r"[\d/_]")  # a word with one of these is the name of something
CUTS = ("abort_at", "cut_at", "hang_at", "garbage_at")


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: str  # JSON text, broken where the test wants it
    id: str = ""  # "": a new one


@dataclass(frozen=True, slots=True)
class Answer:
    """One model call's answer. The `…_at` are positions in words, -1: never."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    repeat: int = 1  # how often a stream has the text
    delay: float = 0.0  # seconds before the first byte
    held: Callable[[], bool] | None = None  # no first byte as long as this is true
    pace: float = 0.0  # seconds between two words
    status: int = 200
    retry_after: float | None = None
    abort_at: int = -1
    cut_at: int = -1
    hang_at: int = -1
    garbage_at: int = -1
    finish: str = ""
    piece: int = 0
    names: bool = False
    events: tuple[str, ...] = ()
    refusal: str = ""
    counted: str = ""
    body: str = ""

    @property
    def ends(self) -> str | None:
        """Return the finish reason in the words of Chat Completions, None for none."""
        usual = "tool_calls" if self.calls else "stop"
        return None if self.finish == "none" else self.finish or usual

    def pieces_of(self, call: ToolCall) -> list[str]:
        """Return the arguments of a call in the pieces in which they are streamed."""
        text, size = call.arguments, self.piece or max(1, (len(call.arguments) + 1) // 2)
        return [text[at : at + size] for at in range(0, len(text), size)] or [""]

    @property
    def words(self) -> list[str]:
        """Return the text in the chunks in which it is streamed."""
        return re.findall(r"\S+\s*|\s+", self.text)


def text_of(message: Json) -> str:
    """A message's text, whatever form its content has."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


def words(tokens: int, word: str = "w") -> str:
    """Return the answer of a directive with `tokens` (and `word`), for comparison."""
    return " ".join(f"{word}{number}" for number in range(tokens))


def rejected(messages: list[Json], thinks: bool = False) -> str:
    """Why a real provider refuses this conversation ("" when it does not): every tool call needs its result next.

    A model that thinks wants its thoughts back with every tool call, also of earlier turns; DeepSeek's guide to the
    thinking mode (api-docs.deepseek.com/guides/thinking_mode): "For turns that do perform tool calls, the
    reasoning_content must be fully passed back to the API in all subsequent requests", else 400 in the words below. An
    empty one will do. Servers that do not know the field refuse it (Groq: "property … is unsupported").
    """
    for number, message in enumerate(messages):
        if thinks and message.get("tool_calls") and "reasoning_content" not in message:
            return "The `reasoning_content` in the thinking mode must be passed back to the API."
        if not thinks and "reasoning_content" in message:
            return f"'messages.{number}' : property 'reasoning_content' is unsupported"
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            open_calls.discard(message["tool_call_id"])
            continue
        if open_calls:
            break
        if message["role"] == "assistant":
            open_calls = {call["id"] for call in message.get("tool_calls") or []}
    if open_calls:
        missing = ", ".join(sorted(open_calls))
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
            f" 'tool_call_id'. The following tool_call_ids did not have response messages: {missing}"
        )
    return ""


def said_in(message: Json) -> str:
    """Return what was said last in a message, without the notes from memory before it: neighbours come joined."""
    text = text_of(message)
    text = text.partition("\n\n")[2] if text.startswith("[Memory: notes") else text
    return text[max(0, text.rfind(ASKED_AGAIN)) :]


def directive_of(messages: list[Json]) -> tuple[Json | None, int]:
    """The directive of the last user message (None: it has none), and how many model calls answered it already."""
    last = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    directive: Json | None = None
    rest = said_in(messages[last]) if last >= 0 else ""
    while found := _DIRECTIVE.search(rest):
        try:
            directive, end = _JSON.raw_decode(found[1])  # later text is not part of it
        except ValueError:
            if directive is None:
                raise
            break  # a quoted one, as XML
        rest = found[1][end:]
    done = sum(1 for m in messages[last + 1 :] if m["role"] == "assistant" and m.get("tool_calls"))
    return directive, done if directive else 0


def without_directives(text: str) -> str:
    """Return a text of the bot without the directives that it quotes, whole or shortened, with all their words."""
    kept, begin, rest = text.partition("::{")
    while begin:
        try:
            end = _JSON.raw_decode("{" + rest)[1] - 1
        except json.JSONDecodeError:  # shortened
            end = next((at for at, letter in enumerate(rest) if letter in "…\n"), len(rest))
        more, begin, rest = rest[end:].partition("::{")
        kept += more
    return kept


def answer_of(body: Json, tries: MutableMapping[str, int]) -> Answer:
    """The answer to a request; `tries` remembers how often each scripted fault was suffered."""
    messages: list[Json] = body["messages"]
    if not body.get("tools") and (helper := helper_answer(messages)):
        return Answer(helper)
    directive, done = directive_of(messages)
    if directive is None:
        said = next((said_in(m) for m in reversed(messages) if m["role"] == "user"), "")
        return Answer(f"You said: {said}")
    return _scripted(directive, done, tries)


def _scripted(directive: Json, done: int, tries: MutableMapping[str, int]) -> Answer:
    steps: list[Json] = directive.get("steps") or [
        {"calls": [{"name": directive.get("tool", "ls"), "args": directive.get("args", {})}] * directive.get("par", 1)}
    ] * directive.get("seq", 0)
    timing = {"delay": directive.get("delay_ms", 0) / 1000, "pace": directive.get("tok_ms", 0) / 1000}
    if done == directive.get("at", len(steps)):
        errors: list[int] = directive.get("errors", [])
        number = _count(tries, directive, "errors")
        if number < len(errors):
            return Answer(status=errors[number], retry_after=directive.get("retry_after"), **timing)
        cuts = {key: directive[key] for key in CUTS if key in directive}
        if cuts and _count(tries, directive, "cuts") not in _range(directive.get("times", 1)):
            cuts = {}
    else:
        cuts = {}
    if done < len(steps):
        step = steps[done]
        calls = tuple(
            ToolCall(c["name"], _arguments(c.get("args", {})), c.get("id", "")) for c in step.get("calls", ())
        )
        return Answer(step.get("text", ""), calls, **timing, **cuts, **_wire(step))
    usual = "" if "refusal" in directive else words(directive.get("tokens", 5), directive.get("word", "w"))
    return Answer(directive.get("text", usual), **timing, **cuts, **_wire(directive))


def _wire(part: Json) -> Json:
    """Return how the answer of a directive or of a step goes over the wire."""
    given = {name: part[name] for name in ("finish", "piece", "names", "refusal", "counted", "body") if name in part}
    return given | {"events": tuple(part.get("events", ()))}


def _range(times: int) -> range:
    return range(times) if times >= 0 else range(1_000_000_000)


def _count(tries: MutableMapping[str, int], directive: Mapping[str, object], what: str) -> int:
    key = what + orjson.dumps(directive).decode()
    tries[key] = tries.get(key, 0) + 1
    return tries[key] - 1


def _arguments(args: object) -> str:
    return args if isinstance(args, str) else orjson.dumps(args).decode()


def helper_answer(messages: list[Json]) -> str:
    """The answer to a request for a summary or a title, "" when it is neither."""
    whole = "\n".join(text_of(m) for m in messages)
    asked = (whole[:2000] + whole[-500:]).lower()
    if "summar" in asked or "extract" in asked:
        plain = _DIRECTIVE.sub("", whole)
        names = [word for word in dict.fromkeys(_WORD.findall(plain)) if _NAME_SIGN.search(word)][-40:]
        return "Summary of the conversation so far. Exact names in it: " + " ".join(names)
    if "title" in asked:
        return "A short title"
    return ""
