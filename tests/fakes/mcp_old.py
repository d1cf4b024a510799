"""An MCP server of the protocol 2025-06-18 over stdio, without the SDK: it does what real servers do wrong, too.

Tools: `fetch`; `note`, which writes a text into the file NOTES; `paint`, which asks for a colour and whether to hurry
before it notes an effect there; `prepay`, which notes an effect before it asks the same; `survey`, which asks it and
declares that it only reads; `hologram`, whose content no client knows; `grow`, which adds a tool; `colour/mix`, whose
name no provider accepts. PROMPTS are the names of prompts, with a blank between them; `grow` adds one more.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

FORM = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "title": "Colour", "enum": ["red", "blue"]},
        "coats": {"type": "integer", "minimum": 1, "maximum": 3},
        "hurry": {"type": "boolean", "description": "costs more"},
    },
    "required": ["colour", "coats"],
}
EMPTY = {"type": "object"}
TOOLS = ["fetch", "note", "paint", "paint_two", "prepay", "survey", "hologram", "grow", "colour/mix"]
TOOLS += [f"more_{number}" for number in range(int(os.environ.get("MORE_TOOLS", "0")))]
PROMPTS = os.environ.get("PROMPTS", "").split()
both: list[Any] = []
waiting: dict[str, Any] = {}  # id of a question → id of the call that asked it


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(id: Any, words: str) -> None:
    send({"id": id, "result": {"content": [{"type": "text", "text": words}]}})


def call(id: Any, name: str, args: dict[str, Any]) -> None:
    if name == "paint_two":  # asks only when two calls are in progress
        both.append(id)
        if len(both) == 2:
            for each in both:
                call(each, "paint", args)
    elif name in ("paint", "prepay", "survey"):
        if name == "prepay":
            note("paid")
        waiting[f"q{len(waiting)}"] = id
        params = {"message": "How shall I paint?", "requestedSchema": FORM}
        send({"id": f"q{len(waiting) - 1}", "method": "elicitation/create", "params": params})
    elif name == "hologram":
        send({"id": id, "result": {"content": [{"type": "hologram", "beam": "x"}]}})
    elif name == "note":
        note(args["text"])
        text(id, "noted")
    elif name == "grow":
        TOOLS.append("grown")
        send({"method": "notifications/tools/list_changed"})
        if PROMPTS:
            PROMPTS.append("grown")
            send({"method": "notifications/prompts/list_changed"})
        text(id, "grown")
    else:
        text(id, "old" if name == "fetch" else name)


def note(line: str) -> None:
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{line}\n")


def answered(id: Any, result: dict[str, Any]) -> None:
    words = json.dumps([result.get("action"), result.get("content")])
    note(words)
    text(id, words)


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        id, method = message.get("id"), message.get("method")
        if method == "initialize":
            about = {"name": "old", "version": "1"}
            can: dict[str, Any] = {"tools": {"listChanged": True}} | (
                {"prompts": {"listChanged": True}} if PROMPTS else {}
            )
            result = {"protocolVersion": "2025-06-18", "capabilities": can}
            send({"id": id, "result": {**result, "serverInfo": about}})
        elif method == "prompts/list" and PROMPTS:
            send(
                {
                    "id": id,
                    "result": {"prompts": [{"name": name, "description": f"{name}\nof old"} for name in PROMPTS]},
                }
            )
        elif method == "prompts/get" and message["params"]["name"] in PROMPTS:
            said = {"role": "user", "content": {"type": "text", "text": f"Do {message['params']['name']}."}}
            send({"id": id, "result": {"messages": [said]}})
        elif method == "tools/list" and "grown" in TOOLS and "HANG" in os.environ:
            continue  # this one is never answered
        elif method == "tools/list":
            tools = [{"name": name, "description": f"{name} of old", "inputSchema": EMPTY} for name in TOOLS]
            hints = [{"annotations": {"readOnlyHint": name == "survey"}} for name in TOOLS]
            send({"id": id, "result": {"tools": [tool | hint for tool, hint in zip(tools, hints, strict=True)]}})
        elif method == "tools/call":
            call(id, message["params"]["name"], message["params"].get("arguments", {}))
        elif method is None and id in waiting:
            if "result" in message:
                answered(waiting[id], message["result"])
        elif id is not None:
            send({"id": id, "error": {"code": -32601, "message": f"no method {method}"}})


if __name__ == "__main__":
    main()
